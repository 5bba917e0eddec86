"""Data helpers under the path IPU programs know."""

from openipu.tensorflow.ipu.lazy import lazy

__getattr__, __dir__ = lazy(__name__, {"ops": "ops"})
