"""Splits a row of layers into pipeline stages so that the most expensive stage is as cheap as possible."""

import itertools
from collections.abc import Sequence

import attrs
import numpy as np


@attrs.frozen
class Balance:
    """Layers split into stages.

    Attributes:
      assignment: the stage of each layer.
      stage_costs: the cost of each stage, with the transfers it takes part in.
    """

    assignment: tuple[int, ...]
    stage_costs: tuple[float, ...]

    @property
    def balance(self) -> float:
        """Mean over maximum of the stage costs: 1 when all stages take equally long."""
        highest = max(self.stage_costs)
        return sum(self.stage_costs) / len(self.stage_costs) / highest if highest else 1.0


def balance(costs: Sequence[float], stages: int, edges: Sequence[float] | None = None) -> Balance:
    """Splits layers into contiguous, non-empty stages with the least possible maximum cost.

    Of the splits that reach this maximum it takes the most even one (least sum of squares).

    Args:
      costs: what each layer takes.
      stages: number of stages.
      edges: `edges[i]` is what it takes to transfer the result of layer i to layer i + 1 if they are in different
        stages. Both stages pay it: an exchange between IPUs keeps both busy.

    Returns:
      The split and its costs.
    """
    layers = len(costs)
    _check(costs, stages, edges)
    cut = np.concatenate([[0.0], np.zeros(layers - 1) if edges is None else np.asarray(edges, float), [0.0]])
    total = np.concatenate([[0.0], np.cumsum(np.asarray(costs, float))])
    each = np.where(np.tri(layers + 1, dtype=bool), np.inf, total[None, :] - total[:, None] + cut[:, None] + cut)
    found = divide([each] * stages)
    assert found is not None, "every split of finite costs is possible"
    return found


def divide(costs: Sequence[np.ndarray]) -> Balance | None:
    """Splits layers as `balance` does, where stages differ in what layers cost, or not every stage may have all layers.

    Args:
      costs: of every stage; `costs[stage][i, j]` is the cost of the stage if it is made of the layers i to j - 1,
        infinite if it cannot be.

    Returns:
      The split and its costs; None if there is none that is possible.
    """
    layers = len(costs[0]) - 1
    highest = _best(costs, np.maximum)[0][len(costs), layers]
    if not np.isfinite(highest):
        return None
    # Evenness is only sought among splits within the maximum; one pass minimising both would not be exact.
    choices = _best([np.where(cost <= highest, cost**2, np.inf) for cost in costs], np.add)[1]
    bounds = [layers]
    for stage in range(len(costs), 0, -1):
        bounds.append(int(choices[stage, bounds[-1]]))
    bounds.reverse()
    parts = list(itertools.pairwise(bounds))
    return Balance(
        assignment=tuple(stage for stage, (first, end) in enumerate(parts) for _ in range(first, end)),
        stage_costs=tuple(float(cost[first, end]) for cost, (first, end) in zip(costs, parts, strict=True)),
    )


def _best(costs: Sequence[np.ndarray], combine: np.ufunc) -> tuple[np.ndarray, np.ndarray]:
    """The least combined cost of the first j layers in s stages, at [s, j], and where the last stage then begins."""
    size = len(costs[0])
    value = np.full((len(costs) + 1, size), np.inf)
    choice = np.zeros((len(costs) + 1, size), int)
    value[0, 0] = 0.0
    for stage, cost in enumerate(costs, 1):
        options = combine(value[stage - 1][:, None], cost)
        choice[stage] = options.argmin(axis=0)
        value[stage] = options.min(axis=0)
    return value, choice


def _check(costs: Sequence[float], stages: int, edges: Sequence[float] | None) -> None:
    layers = len(costs)
    if not isinstance(stages, int) or not 1 <= stages <= layers:
        raise ValueError(
            f"stages must be between 1 and the number of layers, so that no stage is empty. "
            f"Received: stages={stages}, {layers} layers. Use fewer stages or split the layers further."
        )
    if edges is not None and len(edges) != layers - 1:
        raise ValueError(
            f"edges must have one cost between each layer and the next, {layers - 1} in all. "
            f"Received: {len(edges)} for {layers} layers."
        )
    for name, values in (("costs", costs), ("edges", () if edges is None else edges)):
        for index, value in enumerate(values):
            if not (np.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be finite and not negative. Received: {name}[{index}]={value}.")
