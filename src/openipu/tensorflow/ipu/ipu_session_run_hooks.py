"""Session hooks."""

from openipu.tensorflow.estimators.logging_hook import IPULoggingTensorHook

__all__ = ["IPULoggingTensorHook"]
