"""Loops that users write for the device: their number of iterations, their body, and an infeed that it takes from."""

import contextlib
import contextvars
import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from openipu.tensorflow import boundary
from openipu.tensorflow.feeds.infeed import IPUInfeedQueue

log = logging.getLogger("openipu.tensorflow")

_counter: contextvars.ContextVar[tf.Tensor | Callable[[], tf.Tensor] | None] = contextvars.ContextVar(
    "openipu_iteration", default=None
)


def repeat(
    n: int | tf.Tensor,
    body: Callable,
    inputs: Any = None,
    infeed_queue: IPUInfeedQueue | None = None,
    use_while_v1: bool = True,
) -> Any:
    """Run `body` n times on the device.

    Args:
      n: a number or a scalar tensor.
      body: takes the values and then the parts of an infeed element; returns the new values, then operations.
      inputs: the first values.
      infeed_queue: every iteration takes one of its elements.
      use_while_v1: ignored.
    """
    count = tf.convert_to_tensor(n)
    return _loop(lambda i, *_: i < count, body, inputs, infeed_queue, None, use_while_v1)


def while_loop(
    condition: Callable,
    body: Callable,
    inputs: Any = None,
    infeed_queue: IPUInfeedQueue | None = None,
    maximum_iterations: int | None = None,
    use_while_v1: bool = True,
) -> Any:
    """Run `body` on the device while `condition`, a function of the values, is true.

    Args:
      condition: of the values, without the infeed element.
      body: takes the values and then the parts of an infeed element; returns the new values, then operations.
      inputs: the first values.
      infeed_queue: every iteration takes one of its elements.
      maximum_iterations: at most so many iterations.
      use_while_v1: ignored.
    """
    values = _values(inputs)
    problem = _arguments_problem(condition, len(values))
    if problem:
        raise TypeError(
            f"Supplied loop condition function cannot be called with the specified inputs. You specified {len(values)} "
            f"inputs: {[v.name if hasattr(v, 'name') else v for v in values]}, but {problem}."
        )
    return _loop(lambda i, *now: condition(*now), body, inputs, infeed_queue, maximum_iterations, use_while_v1)


def _loop(
    condition: Callable, body: Callable, inputs: Any, queue: IPUInfeedQueue | None, most: int | None, v1: bool
) -> Any:
    if not v1:
        log.info("while_v2 is experimental in the original; here both are the same.")
    body = boundary.converted(body)
    values = _values(inputs)
    kinds = [v.dtype for v in values]
    _check_body(body, values, queue)

    def step(i: tf.Tensor, *now: Any) -> tuple:
        given, named = element_of(queue)
        with counting(i):
            outputs, operations = _split(body(*now, *given, **named))
        types = [o.dtype for o in outputs]
        if types != kinds:
            raise TypeError(f"Mismatch between input types and output types for loop body: {kinds} vs {types}.")
        with tf.control_dependencies(operations):
            return tuple([i + 1, *(o if _is_array(o) else tf.identity(o) for o in outputs)])

    first = tf.constant(0)
    _, *results = tf.while_loop(condition, step, (first, *values), maximum_iterations=most, parallel_iterations=1)
    if queue is not None and not queue.dequeued:
        raise ValueError("The infeed queue has not been dequeued.")
    if not results:
        return tf.no_op()
    return results[0] if len(results) == 1 else results


@contextlib.contextmanager
def counting(iteration: tf.Tensor | Callable[[], tf.Tensor]) -> Iterator[None]:
    """What is traced inside belongs to this iteration; a function is called when the number is asked for."""
    token = _counter.set(iteration)
    try:
        yield
    finally:
        _counter.reset(token)


def iteration_counter() -> tf.Tensor | None:
    """The number of the iteration of the innermost loop whose body is being traced."""
    counter = _counter.get()
    return counter() if callable(counter) else counter


def _values(inputs: Any) -> list[Any]:
    if inputs is None:
        return []
    given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    return [v if _is_array(v) else tf.convert_to_tensor(v) for v in given]


def _is_array(value: Any) -> bool:
    return isinstance(value, tf.TensorArray)


def element_of(queue: IPUInfeedQueue | None) -> tuple[list[Any], dict[str, Any]]:
    """An element of the queue as arguments of a body."""
    return ([], {}) if queue is None else as_arguments(queue._dequeue())


def as_arguments(element: Any) -> tuple[list[Any], dict[str, Any]]:
    """An element as arguments of a body: the parts of a tuple, a dict by its names, anything else as it is."""
    if isinstance(element, tuple):
        return list(element), {}
    if isinstance(element, dict) and all(isinstance(name, str) for name in element):
        return [], dict(element)
    return [element], {}


def _split(returned: Any) -> tuple[list[Any], list[tf.Operation]]:
    """What a body returns: values, then operations."""
    if returned is None:
        return [], []
    given = list(returned) if isinstance(returned, (list, tuple)) else [returned]
    given = [g for g in given if g is not None]
    operations = [g for g in given if isinstance(g, tf.Operation)]
    outputs = given[: len(given) - len(operations)]
    if any(isinstance(o, tf.Operation) for o in outputs):
        raise ValueError("IPU loop body must return zero or more Tensor values followed by zero or more Operations.")
    return [o if _is_array(o) else _convert(o) for o in outputs], operations


def _convert(value: Any) -> tf.Tensor:
    try:
        return tf.convert_to_tensor(value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "IPU loop body must return zero or more Tensor values followed by zero or more Operations. "
            f"Received: {value!r}."
        ) from error


def _check_body(body: Callable, values: Sequence[Any], queue: IPUInfeedQueue | None) -> None:
    if queue is not None and not isinstance(queue, IPUInfeedQueue):
        raise TypeError(f"infeed_queue must be an IPUInfeedQueue. Received: infeed_queue={queue!r}.")
    structure = None if queue is None else queue.element_spec
    named = structure if isinstance(structure, dict) and all(isinstance(n, str) for n in structure) else {}
    parts = 0 if queue is None or named else queue.number_of_tuple_elements
    problem = _arguments_problem(body, len(values) + parts, named)
    if not problem:
        return
    message = (
        f"Supplied loop body function cannot be called with the specified inputs. You specified {len(values)} inputs: "
        f"{[v.name if hasattr(v, 'name') and not tf.executing_eagerly() else v for v in values]}"
    )
    if queue is not None:
        message += f" and the infeed queue gives {parts or len(named)}"
    raise TypeError(f"{message}, but {problem}.")


def _arguments_problem(function: Callable, count: int, named: dict[str, Any] | None = None) -> str | None:
    """Why a function does not take so many arguments, or None."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*[None] * count, **dict.fromkeys(named or {}))
    except TypeError as error:
        return f"it is called as {getattr(function, '__name__', 'function')}{signature}: {error}"
    return None
