"""How many steps a call of `fit`, `evaluate` or `predict` takes: the rules about lengths and divisibility."""

import logging
import math

import attrs

from openipu.tensorflow.keras.fit_arguments import positive

log = logging.getLogger("openipu.keras")


@attrs.frozen
class Steps:
    """The steps of one epoch.

    Attributes:
      count: steps every replica takes.
      per_execution: steps of one execution; divides `count`.
      restart: whether every epoch starts the data anew.
    """

    count: int
    per_execution: int
    restart: bool


def infer(
    length: float | None,
    steps: int | None,
    per_execution: int,
    replicas: int = 1,
    epochs: int = 1,
    training: bool = True,
) -> Steps:
    """The steps to take, or the reason why the numbers do not fit.

    Args:
      length: elements of the data; None when unknown, math.inf when it never ends.
      steps: elements the user asked to take in one epoch, over all replicas.
      per_execution: steps_per_execution as compiled.
      replicas: replicas the elements are dealt out to.
      epochs: epochs to run.
      training: whether it is `fit` that takes them.
    """
    positive("steps", steps)
    total = steps if steps is not None else length
    if total is None:
        raise ValueError("Could not infer the size of the data. You must specify the number of steps to run.")
    if total == math.inf and not training:
        raise ValueError(
            "When passing an infinitely repeating dataset, you must specify the number of steps to run, as `steps`."
        )
    if total == math.inf:
        raise ValueError(
            "When passing an infinitely repeating dataset, please specify a `steps_per_epoch` value so that epoch "
            "level callbacks continue to work. The value can be arbitrary, or a number that you think correctly "
            "defines the size of an epoch."
        )
    count, rest = divmod(int(total), replicas)
    if rest and length is not None and length != math.inf:
        log.warning(
            "Dataset of length %d is being evenly distributed between %d replicas. The remaining %d batch(es) will be "
            "dropped.", int(total), replicas, rest,
        )  # fmt: skip
    restart = steps is None or steps == length
    _check_length(length, count if restart else count * epochs)
    to_this_replica = " to this replica" if replicas > 1 else ""
    if per_execution > count:
        log.warning(
            "`steps_per_execution` has been set to %d but the dataset provided%s only contains %d batches. Using %d as "
            "`steps_per_execution`.", per_execution, to_this_replica, count, count,
        )  # fmt: skip
        per_execution = count
    if count == 0:
        raise ValueError(
            f"The provided dataset contains {int(total)} items, but all {replicas} replicas are requested to run 1 "
            f"steps each. Make sure the dataset contains at least {replicas} items."
        )
    if count % per_execution:
        raise ValueError(
            f"`steps_per_execution` ({per_execution}) must be a divisor of the number of batches ({count}) in the "
            f"dataset provided{to_this_replica}.{_suggestion(count, per_execution)}"
        )
    return Steps(count, per_execution, restart)


def _check_length(length: float | None, needed: int) -> None:
    if length is not None and length < needed:
        raise ValueError(
            "Your input does not have enough data. Make sure that your dataset or generator can generate at least "
            f"{needed} batches (currently it can only generate {int(length)} batches). You may need to use the "
            "repeat() function when building your dataset."
        )


def _suggestion(count: int, wanted: int) -> str:
    below = max(d for d in range(1, wanted) if count % d == 0)
    above = next(d for d in range(wanted, count + 1) if count % d == 0)
    return f" The nearest divisors are {below} and {above}."
