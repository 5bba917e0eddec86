"""Gradients kept on their way back through a program, by contexts and tapes, under the tags of those who watch."""

import threading
from types import TracebackType
from typing import Any

import tensorflow as tf


class _State(threading.local):
    def __init__(self) -> None:
        self.contexts: list[GradientCaptureContext] = []


_state = _State()


class GradientCaptureContext:
    """While it is entered, gradients that are captured are kept in it."""

    def __init__(self) -> None:
        self._captured: dict[str, list[tf.Tensor]] = {}

    def __enter__(self) -> "GradientCaptureContext":
        _state.contexts.append(self)
        return self

    def __exit__(
        self, typ: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _state.contexts.remove(self)

    @property
    def captured_gradients(self) -> dict[str, list[tf.Tensor]]:
        """For each tag, the gradients in the order of the captured tensors."""
        return self._captured


class GradientCaptureTape(tf.GradientTape, GradientCaptureContext):
    """A gradient tape that keeps captured gradients while it computes others.

    Args:
      persistent: whether `gradient` may be called more than once.
      watch_accessed_variables: whether trainable variables are watched without being told.
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        tf.GradientTape.__init__(self, persistent, watch_accessed_variables)
        GradientCaptureContext.__init__(self)

    def __enter__(self) -> "GradientCaptureTape":
        tf.GradientTape.__enter__(self)
        return self

    def __exit__(self, *args: Any) -> None:
        tf.GradientTape.__exit__(self, *args)

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
    ) -> Any:
        """As the gradient of any tape; captured gradients are found in `captured_gradients` afterwards."""
        self._captured = {}
        GradientCaptureContext.__enter__(self)
        try:
            return tf.GradientTape.gradient(self, target, sources, output_gradients, unconnected_gradients)
        finally:
            GradientCaptureContext.__exit__(self, None, None, None)


def num_gradient_collection_tapes() -> int:
    """Capture contexts that are entered now."""
    return len(_state.contexts)


def watched(args: Any, tag: str, needed: bool = True) -> Any:
    """The tensors as they are; the gradients that reach them are kept by the innermost capture context.

    Args:
      args: any nest of tensors.
      tag: the name the gradients are kept under.
      needed: whether gradients outside of all contexts are refused, rather than not kept.
    """
    flat = [tf.convert_to_tensor(value) for value in tf.nest.flatten(args)]

    @tf.custom_gradient
    def identities(*tensors: tf.Tensor) -> Any:
        def gradient(*upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            if needed or _state.contexts:
                _keep(tag, list(upstream))
            return upstream

        return [tf.identity(tensor) for tensor in tensors], gradient

    return tf.nest.pack_sequence_as(args, list(identities(*flat)))


def _keep(tag: str, gradients: list[tf.Tensor]) -> None:
    """Keeps gradients in the innermost context."""
    if not _state.contexts:
        raise RuntimeError(
            f"The gradient of capture_upstream_gradients(tag={tag!r}) was computed outside of any capture context. "
            "Compute it inside `with GradientCaptureContext():` or with a GradientCaptureTape."
        )
    captured = _state.contexts[-1].captured_gradients
    if tag in captured:
        raise ValueError(
            f"Gradient exists in the captured grads frame. Received: tag={tag!r} a second time. "
            "Give every capture a tag of its own."
        )
    captured[tag] = gradients
