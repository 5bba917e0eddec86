"""Operations of the poptorch namespace, on the device and on the host."""

import numpy as np
import pytest
import torch
from torch import nn

import poptorch
from openipu.compiler.beam_search import beam_search
from openipu.errors import UnsupportedError
from openipu.torch.ops.custom_ops import register_custom_op
from openipu.torch.ops.printing import render


class Do(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def run(function, *args):
    return poptorch.inferenceModel(Do(function))(*args)


def test_hints_change_nothing():
    def function(x):
        x = poptorch.nop(x)
        x = poptorch.set_available_memory(x, 0.3)
        x = poptorch.recomputationCheckpoint(x)
        a, b = poptorch.recomputationCheckpoint(x, x + 1)
        x = poptorch.set_overlap_for_input(a + b, poptorch.OverlapMode.NoOverlap)
        mode = poptorch.MatMulSerializationMode.OutputChannels
        x = poptorch.serializedMatMul(x, x.t(), mode, 2)
        torch.ops.poptorch.push_name_scope("a")
        x = torch.ops.poptorch.internal_cast(torch.ops.poptorch.nop(x), "FLOAT16")
        torch.ops.poptorch.pop_name_scope()
        return x

    x = torch.randn(4, 3)
    expected = (2 * x + 1) @ (2 * x + 1).t()
    torch.testing.assert_close(run(function, x), expected.half(), rtol=1e-3, atol=1e-3)
    with pytest.raises(ValueError, match=r"All inputs must be tensors"):
        poptorch.recomputationCheckpoint(1)
    with pytest.raises(poptorch.Error):
        poptorch.nop(3)


def test_for_loop_feeds_results_back_and_runs_once_on_the_host():
    def function(x, y):
        return poptorch.for_loop(5, lambda a, b: [a * y, b + a], [x, y])

    x, y = torch.tensor([1.0, 2.0]), torch.tensor([2.0, 0.5])
    a, b = x, y
    for _ in range(5):
        a, b = a * y, b + a
    made = run(function, x, y)
    torch.testing.assert_close(made, [a, b])
    torch.testing.assert_close(function(x, y), [x * y, y + x])
    with pytest.raises(ValueError, match=r"Object is not list"):
        poptorch.for_loop(2, lambda a: a, (x,))
    with pytest.raises(ValueError, match=r"index 1 is not torch.tensor"):
        poptorch.for_loop(2, lambda a, b: [a, b], [x, 1])


def test_for_loop_and_cond_are_for_inference():
    class Training(nn.Module):
        def __init__(self, function):
            super().__init__()
            self.w, self.function = nn.Parameter(torch.ones(2)), function

        def forward(self, x):
            return poptorch.identity_loss(self.function(self.w * x)[0], "sum")

    loop = lambda x: poptorch.for_loop(2, lambda a: a * 2, [x])  # noqa: E731
    branch = lambda x: poptorch.cond(x.sum() > 0, lambda a: a, [x], lambda a: a, [x])  # noqa: E731
    for function, name in ((loop, "for_loop"), (branch, "cond")):
        with pytest.raises(poptorch.Error, match=rf"poptorch.{name}\(\) is only supported in inference"):
            poptorch.trainingModel(Training(function))(torch.ones(2))


def test_cond_chooses():
    def function(c, x, y):
        return poptorch.cond(c.sum() > 0, lambda a, b: a + b, [x, y], lambda a: a * 3 + y, [x])

    model = poptorch.inferenceModel(Do(function))
    x, y = torch.rand(3), torch.rand(3)
    for sign in (1.0, -1.0):
        c = torch.full((3,), sign)
        torch.testing.assert_close(model(c, x, y), function(c, x, y))
    with pytest.raises(poptorch.Error, match=r"of the same shapes and types"):
        run(lambda x: poptorch.cond(x.sum() > 0, lambda a: a, [x], lambda a: a[None], [x]), x)


def test_dynamic_slices():
    x, src = torch.arange(24.0).reshape(8, 3), torch.full((2, 3), -1.0)

    def function(x, start, src):
        return poptorch.dynamic_slice(x, 0, start, 4, 2), poptorch.dynamic_update(x, src, 0, start, 2)

    part, updated = run(function, x, torch.tensor(3), src)
    assert torch.equal(part, x[3:7:2])
    expected = x.clone()
    expected[3:5] = -1
    assert torch.equal(updated, expected)
    for size, text in ((7, "must be a factor"), (0, "must be different"), (-1, "less than the start")):
        with pytest.raises(poptorch.Error, match=text):
            poptorch.dynamic_slice(x, 0, torch.tensor(0), size, 1)
    with pytest.raises(poptorch.Error, match=r"same dimensionality. \(2\) vs \(1\)"):
        poptorch.dynamic_update(x, src[0], 0, torch.tensor(0), 2)


def test_custom_operations_are_looked_up():
    @register_custom_op("tests", "Scale")
    def scale(inputs, attributes):
        return [inputs[0] * attributes["factor"] * (1 if attributes["positive"] else -1)]

    def function(x):
        made = poptorch.custom_op([x], "Scale", "tests", 1, [x], {"factor": 3, "positive": True})
        cube = poptorch.custom_op([x, x], "Cube", "com.acme", 1, [x, x])
        leaky = poptorch.custom_op([x], "LeakyRelu", "custom.ops", 1, [x], {"alpha": 0.5})
        return made[0], cube[0], leaky[0]

    x = torch.tensor([-1.0, 2.0])
    made = run(function, x)
    torch.testing.assert_close(made, (3 * x, x**3 + x, torch.tensor([-0.5, 2.0])))
    assert all(torch.equal(value, torch.zeros(2)) for value in function(x))
    with pytest.raises(UnsupportedError, match=r"no implementation of the custom operation 'Nothing'"):
        run(lambda x: poptorch.custom_op([x], "Nothing", "tests", 1, [x])[0], x)
    for attributes, text in (
        ({1: 2}, "keys must be strings"),
        ({"a": None}, "must be floats"),
        ({"a": [1, 1.0]}, "same"),
    ):
        with pytest.raises(ValueError, match=text):
            poptorch.custom_op([x], "Scale", "tests", 1, [x], attributes)


def test_custom_operations_have_gradients():
    class Cube(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.tensor([1.0, 2.0]))

        def forward(self, x):
            (out, _) = poptorch.custom_op([self.w * x, x], "Cube", "com.acme", 1, [x, x])
            return poptorch.identity_loss(out, "sum")

    model = Cube()
    poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=1.0))(torch.ones(2))
    torch.testing.assert_close(model.w.detach(), torch.tensor([1.0 - 3, 2.0 - 12]))


def test_the_host_can_be_called_in_between():
    calls = []

    def host(x):
        calls.append(x.shape)
        return x.flip(0) + 1

    inner = poptorch.CPU(host, "host")
    model = poptorch.inferenceModel(Do(lambda x: inner(x * 2) * 3), poptorch.Options().deviceIterations(2))
    x = torch.arange(4.0)
    expected = torch.cat([(part * 2).flip(0) * 3 + 3 for part in x.chunk(2)])
    torch.testing.assert_close(model(x), expected)
    assert len(calls) == 3


def test_tensors_are_printed_with_their_gradients(capfd):
    class Printing(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.tensor([1.0, 2.0]))

        def forward(self, x):
            return poptorch.identity_loss(poptorch.ipu_print_tensor(self.w * x, "product", digits=3), "sum")

    model = Printing()
    options = poptorch.Options().replicationFactor(2).deviceIterations(2)
    poptorch.trainingModel(model, options)(torch.tensor([3.0, 0.5] * 4))
    import jax

    jax.effects_barrier()
    shown = capfd.readouterr().err
    assert shown.startswith("product: (3,1)\n") and "product_gradient: (1,1)" in shown
    # On either replica, at every iteration.
    assert [shown.count(f"{title}:") for title in ("product", "product_gradient")] == [4, 4]
    with pytest.raises(KeyError):
        poptorch.ipu_print_tensor(torch.ones(1), float_format="nice")
    with pytest.raises(poptorch.Error, match=r"must take a torch.tensor"):
        poptorch.ipu_print_tensor(1)


def test_the_layout_of_printed_tensors():
    value = np.array([[1.4962566, 1.7682219], [1.0884774, 1.1320305]], np.float32)
    assert render(value, digits=8, signs=" {}") == "{\n {1.4962566 1.7682219}\n {1.0884774 1.1320305}\n}"
    assert "(1.4962566;1.7682219)" in render(value, digits=8, signs=";()")
    assert "1.4962566e+00" in render(value, digits=8, form=2)
    assert "..." in render(np.arange(2000))


def test_points():
    torch.manual_seed(0)
    src = torch.tensor([[0.0, 0], [1, 0], [5, 0], [5, 1], [0, 0], [9, 9]])
    assert run(lambda x: poptorch.fps(x, [0, 4, 6], 0.5), src).tolist() == [0, 3, 4]
    x, y = torch.rand(5, 2), torch.rand(7, 2)
    expected = torch.cdist(x, y).argmin(1)
    assert torch.equal(run(lambda x, y: poptorch.nearest(x, y), x[None][0], y), expected.int())
    batched = run(lambda x, y: poptorch.nearest(x, y, [0, 0, 0, 1, 1], [0, 0, 0, 0, 1, 1, 1]), x, y)
    assert all(index < 4 for index in batched[:3]) and all(index >= 4 for index in batched[3:])


def paths_by_enumeration(log_probs, blank):
    import itertools

    found = {}
    for path in itertools.product(range(log_probs.shape[1]), repeat=log_probs.shape[0]):
        labels = tuple(k for k, _ in itertools.groupby(path) if k != blank)
        score = sum(log_probs[t, c] for t, c in enumerate(path))
        found[labels] = np.logaddexp(found.get(labels, -np.inf), score)
    return sorted(found.items(), key=lambda item: -item[1])


def test_beam_search_finds_the_likeliest_sequences():
    rng = np.random.default_rng(0)
    log_probs = np.log(rng.dirichlet(np.ones(3), size=4))
    expected = paths_by_enumeration(log_probs, 0)
    for (labels, score), (other, wanted) in zip(beam_search(log_probs, 0, 100)[:5], expected, strict=False):
        assert labels == other and np.isclose(score, wanted)
    values = torch.tensor(log_probs[:, None].repeat(2, 1), dtype=torch.float32)
    score, length, path = run(
        lambda p, n: poptorch.ctc_beam_search_decoder(p, n[:2], 0, 20, 2), values, torch.full((4,), 4)
    )
    assert score.shape == (2, 2) and path.shape == (2, 2, 4)
    for rank in range(2):
        labels, wanted = expected[rank]
        assert path[0, rank, : length[0, rank]].tolist() == list(labels)
        assert np.isclose(score[1, rank], wanted, rtol=1e-4)
