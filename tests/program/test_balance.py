"""Layers are split as evenly as a search through all splits can."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openipu.program.balance import balance, divide


def splits(layers, stages):
    for cuts in itertools.combinations(range(1, layers), stages - 1):
        yield list(itertools.pairwise((0, *cuts, layers)))


def stage_costs(parts, costs, edges):
    return [
        sum(costs[first:end]) + (edges[first - 1] if first else 0) + (edges[end - 1] if end < len(costs) else 0)
        for first, end in parts
    ]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_no_split_is_better(data):
    layers = data.draw(st.integers(1, 8))
    stages = data.draw(st.integers(1, layers))
    # Whole numbers: exact in floating point, and ties are frequent.
    costs = data.draw(st.lists(st.integers(0, 9), min_size=layers, max_size=layers))
    edges = data.draw(st.none() | st.lists(st.integers(0, 5), min_size=layers - 1, max_size=layers - 1))
    found = balance(costs, stages, edges)

    assert sorted(found.assignment) == list(found.assignment)
    assert set(found.assignment) == set(range(stages))
    bounds = [found.assignment.index(stage) for stage in range(stages)] + [layers]
    used = edges or [0] * (layers - 1)
    assert list(found.stage_costs) == stage_costs(itertools.pairwise(bounds), costs, used)

    every = [stage_costs(parts, costs, used) for parts in splits(layers, stages)]
    best = min((max(row), sum(cost**2 for cost in row)) for row in every)
    assert (max(found.stage_costs), sum(cost**2 for cost in found.stage_costs)) == best


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.data())
def test_no_possible_split_is_better_where_stages_differ(data):
    layers = data.draw(st.integers(1, 6))
    stages = data.draw(st.integers(1, layers))
    size = (layers + 1) ** 2
    entries = st.lists(st.integers(0, 9) | st.just(np.inf), min_size=size, max_size=size)
    costs = [np.array(data.draw(entries), float).reshape(layers + 1, layers + 1) for _ in range(stages)]
    # A stage has at least one layer.
    costs = [np.where(np.tri(layers + 1, dtype=bool), np.inf, cost) for cost in costs]
    rows = [[cost[part] for cost, part in zip(costs, parts, strict=True)] for parts in splits(layers, stages)]
    best = min((max(row), sum(cost**2 for cost in row)) for row in rows)
    found = divide(costs)
    if found is None:
        assert best[0] == np.inf
        return
    assert (max(found.stage_costs), sum(cost**2 for cost in found.stage_costs)) == best
    bounds = [found.assignment.index(stage) for stage in range(stages)] + [layers]
    parts = itertools.pairwise(bounds)
    assert list(found.stage_costs) == [cost[part] for cost, part in zip(costs, parts, strict=True)]


def test_an_expensive_transfer_is_avoided():
    assert balance([1, 1, 1, 1], 2).assignment == (0, 0, 1, 1)
    assert balance([1, 1, 1, 1], 2, [0, 10, 0]).assignment in {(0, 1, 1, 1), (0, 0, 0, 1)}


def test_balance_is_mean_over_maximum():
    assert balance([3, 1, 1], 2).balance == pytest.approx(2.5 / 3)
    assert balance([1.0] * 8, 4).balance == 1.0
    assert balance([0.0, 0.0], 2).balance == 1.0


def test_many_layers_are_no_problem():
    costs = np.random.default_rng(0).random(400)
    found = balance(costs, 16, np.zeros(399))
    assert found.balance > 0.9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 2], 3), r"stages must be between 1 and the number of layers.*Received: stages=3, 2 layers"),
        (([1, 2], 0), "Received: stages=0"),
        (([1, 2], 2, [1, 1]), r"edges must have one cost between each layer and the next, 1 in all\. Received: 2"),
        (([1, -2], 2), r"costs must be finite and not negative\. Received: costs\[1\]=-2"),
        (([1, 2], 2, [float("nan")]), r"edges must be finite and not negative\. Received: edges\[0\]=nan"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        balance(*arguments)
