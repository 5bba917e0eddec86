"""What the optimizer function of a pipeline returns."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from openipu.tensorflow.ipu.eager.backprop import GradientCaptureContext


class OptimizerFunctionOutput:
    """The optimizer, the loss, and how gradients are to be computed and applied; checked when made.

    Args:
      opt: a `tf.compat.v1.train` optimizer or a Keras optimizer.
      loss: the tensor to minimise.
      compute_gradients_args, compute_gradients_kwargs: for `opt.compute_gradients`; `tf.compat.v1.train` only.
      apply_gradients_args, apply_gradients_kwargs: for `opt.apply_gradients`.
      variables: what to train; Keras optimizers only.
      tape: the tape the loss was computed under; Keras optimizers only, instead of `variables`.
      gradient_capture_context: where captured gradients are kept.
      captured_gradient_outfeed: where captured gradients are sent.
    """

    def __init__(
        self,
        opt: Any,
        loss: tf.Tensor,
        compute_gradients_args: Sequence[Any] | None = None,
        compute_gradients_kwargs: dict[str, Any] | None = None,
        apply_gradients_args: Sequence[Any] | None = None,
        apply_gradients_kwargs: dict[str, Any] | None = None,
        variables: Sequence[tf.Variable] | None = None,
        tape: tf.GradientTape | None = None,
        gradient_capture_context: GradientCaptureContext | None = None,
        captured_gradient_outfeed: Any = None,
    ) -> None:
        first_version = isinstance(opt, tf.compat.v1.train.Optimizer)
        if not first_version and not callable(getattr(opt, "apply_gradients", None)):
            raise TypeError(
                "opt must be a tf.compat.v1.train optimizer or a Keras optimizer. "
                f"Received: an object of type {type(opt).__name__}."
            )
        if not tf.is_tensor(loss):
            raise TypeError(f"loss must be a tensor. Received: an object of type {type(loss).__name__}.")
        if first_version and (variables is not None or tape is not None):
            raise ValueError("variables and tape are for Keras optimizers. Received: a tf.compat.v1.train optimizer.")
        if not first_version:
            if compute_gradients_args is not None or compute_gradients_kwargs is not None:
                raise ValueError(
                    "compute_gradients_args and compute_gradients_kwargs are for tf.compat.v1.train optimizers. "
                    f"Received: opt of type {type(opt).__name__}."
                )
            if variables is not None and tape is not None:
                raise ValueError("Expected variables or a tape. Received: both. Leave one of them out.")
            if not variables and tape is None:
                raise RuntimeError("No variables to optimize. Pass the variables to train, or the tape of the loss.")
        if tape is not None and gradient_capture_context is not None:
            raise ValueError("Expected tape or gradient_capture_context. Received: both. Leave one of them out.")
        if captured_gradient_outfeed is not None and tape is None and gradient_capture_context is None:
            raise ValueError(
                "captured_gradient_outfeed needs a source of gradients: a GradientCaptureTape as tape, or "
                "gradient_capture_context. Received: neither."
            )
        self.opt = opt
        self.loss = loss
        self.compute_gradients_args = tuple(compute_gradients_args or ())
        self.compute_gradients_kwargs = dict(compute_gradients_kwargs or {})
        self.apply_gradients_args = tuple(apply_gradients_args or ())
        self.apply_gradients_kwargs = dict(apply_gradients_kwargs or {})
        self.variables = list(variables or ())
        self.tape = tape
        self.gradient_capture_context = gradient_capture_context
        self.captured_gradient_outfeed = captured_gradient_outfeed
