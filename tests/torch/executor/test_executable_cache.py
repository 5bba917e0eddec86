"""PopTorch's executable cache: found again, told apart, and exactly as good as compiling."""

import jax
import pytest
import torch
from torch import nn

import poptorch
from openipu.compiler import Cache
from openipu.compiler.serialised import Loaded
from openipu.errors import UnsupportedError
from openipu.torch.capture.arguments import Signature
from openipu.torch.ops.custom_ops import register_custom_op

X = torch.linspace(-1, 1, 24).reshape(8, 3)
Y = X.sum(1, keepdim=True)


class Net(nn.Module):
    """A small network with everything that can be compiled in: a number, a tensor, a buffer of integers."""

    def __init__(self, width=4, dropout=0.0, factor=1.0, chosen=(0, 1, 2), offset=0.0):
        super().__init__()
        self.first, self.second = nn.Linear(3, width), nn.Linear(width, 1)
        self.dropout, self.factor = nn.Dropout(dropout), factor
        self.register_buffer("chosen", torch.tensor(chosen))
        self.offset = torch.tensor([offset])  # Neither parameter nor buffer.

    def forward(self, x, target=None):
        x = x[:, self.chosen] * self.factor + self.offset
        out = self.second(self.dropout(torch.tanh(self.first(x))))
        if target is None:
            return out
        return out, nn.functional.mse_loss(out, target)


@pytest.fixture
def options(tmp_path, monkeypatch):
    """Options that cache executables in `tmp_path / "kept"`."""
    monkeypatch.delenv("POPTORCH_CACHE_DIR", raising=False)
    monkeypatch.delenv("OPENIPU_CACHE", raising=False)
    return lambda: poptorch.Options().enableExecutableCaching(str(tmp_path / "kept"))


@pytest.fixture
def files(tmp_path):
    """The names of all files of the cache."""
    return lambda: sorted(path.name for path in (tmp_path / "kept").glob("*"))


def net(seed=0, **how):
    torch.manual_seed(seed)
    return Net(**how)


def loaded(executor):
    return isinstance(executor._session.compiled.session.engine.executable.call, Loaded)


def trains(model, options, optimizer=None, runs=1):
    """Train for some calls: the executor, the losses, and the weights afterwards."""
    optimizer = optimizer or poptorch.optim.SGD(model.parameters(), lr=0.1)
    executor = poptorch.trainingModel(model, options, optimizer)
    results = [executor(X, Y)[1] for _ in range(runs)]
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    return executor, torch.stack(results), weights


def assert_same(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def test_one_file_after_one_compilation(tmp_path, monkeypatch, files):
    monkeypatch.setenv("POPTORCH_CACHE_DIR", str(tmp_path / "kept"))
    for again in (False, True):
        model = net()
        executor = poptorch.inferenceModel(model)
        torch.testing.assert_close(executor(X), model(X))
        assert loaded(executor) is again
        assert len(files()) == 1 and files()[0].endswith(".popef")


def test_the_variable_for_all_frameworks(tmp_path, monkeypatch, files):
    monkeypatch.delenv("POPTORCH_CACHE_DIR", raising=False)
    monkeypatch.setenv("OPENIPU_CACHE", str(tmp_path / "kept"))
    poptorch.inferenceModel(net())(X)
    assert [name.endswith(".popef") for name in files()] == [True]
    # None is the program's word, and switches it off.
    executor = poptorch.inferenceModel(net(), poptorch.Options().enableExecutableCaching(None))
    executor(X)
    assert not loaded(executor)


@pytest.mark.parametrize(("replicas", "accumulation"), [(1, 1), (2, 2)])
def test_a_hit_trains_exactly_as_the_compiled_one(options, files, replicas, accumulation):
    seen = []
    for again in (False, True):
        chosen = options().randomSeed(7).replicationFactor(replicas).deviceIterations(2)
        chosen.Training.gradientAccumulation(accumulation)
        model = net(dropout=0.5)
        optimizer = poptorch.optim.Adam(model.parameters(), lr=0.01)
        executor, losses, weights = trains(model, chosen, optimizer, runs=3)
        assert loaded(executor) is again
        seen.append({**weights, "losses": losses, **executor._session.optimizer_state()["ipu_state"]})
    assert_same(*seen)
    assert not torch.equal(seen[1]["first.weight"], net().first.weight)
    assert len(files()) == 1


def test_weights_are_no_part_of_the_program(options):
    first, second = net(seed=1), net(seed=2)
    for model, again in ((first, False), (second, True)):
        executor = poptorch.inferenceModel(model, options())
        torch.testing.assert_close(executor(X), model(X))
        assert loaded(executor) is again
    assert not torch.equal(first(X), second(X))


class Found(Exception):
    """Carries the key that was looked for."""


class Asked(Cache):
    """A cache that ends compilation before it begins: capture and key are all that is wanted."""

    def load(self, key):
        raise Found(key)


def key_of(executor, *inputs):
    """The key an executor looks for when it compiles."""
    with pytest.raises(Found) as caught:
        executor._compile(Signature(executor._model.forward).bind(inputs, {}), Asked("nowhere"))
    return caught.value.args[0]


def test_modules_that_differ_are_told_apart(options, files):
    different = [{}, {"width": 5}, {"factor": 2.0}, {"chosen": (2, 1, 0)}, {"offset": 1.0}]
    keys = [key_of(poptorch.inferenceModel(net(**how)), X) for how in different]
    keys += [key_of(poptorch.inferenceModel(net()), X[:4]), key_of(poptorch.inferenceModel(net().half()), X.half())]
    assert len(set(keys)) == len(keys)
    assert key_of(poptorch.inferenceModel(net(seed=9)), X) == keys[0]
    # That key is the name of the file.
    poptorch.inferenceModel(net(), options()).compile(X)
    assert files() == [f"{keys[0]}.popef"]


def test_options_that_change_the_program_are_told_apart():
    summed = poptorch.ReductionType.Sum
    changes = [
        lambda o: None,
        lambda o: o.deviceIterations(2),
        lambda o: o.replicationFactor(2),
        lambda o: o.Training.gradientAccumulation(2),
        lambda o: o.Training.gradientAccumulation(2).accumulationAndReplicationReductionType(summed),
        lambda o: o.deviceIterations(2).outputMode(poptorch.OutputMode.All),
        lambda o: o.anchorTensor("gradient", "Gradient___second.bias"),
        # A name and a seed are no part of the program.
        lambda o: o.modelName("mine").randomSeed(5),
    ]
    keys = []
    for change in changes:
        chosen = poptorch.Options()
        change(chosen)
        keys.append(key_of(poptorch.trainingModel(net(), chosen), X, Y))
    assert keys.pop() == keys[0]
    assert len(set(keys)) == len(keys)


def test_optimizers_that_differ_in_structure_are_told_apart():
    optim = poptorch.optim
    different = [
        lambda p: optim.SGD(p, lr=0.1),
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        lambda p: optim.SGD([{"params": p[:2]}, {"params": p[2:], "lr": 0.2}], lr=0.1),
        lambda p: optim.Adam(p, lr=0.1),
        lambda p: optim.LAMB(p, lr=0.1, max_weight_norm=10.0),
        # Other numbers are no other structure.
        lambda p: optim.SGD(p, lr=0.3),
    ]
    models = [net() for _ in different]
    made = [make([*model.parameters()]) for make, model in zip(different, models, strict=True)]
    keys = [key_of(poptorch.trainingModel(m, None, o), X, Y) for m, o in zip(models, made, strict=True)]
    assert keys.pop() == keys[0]
    assert len(set(keys)) == len(keys)


def test_numbers_that_may_change_are_no_part_of_the_program(options):
    before, moved = net().state_dict(), []
    for rate, again in ((0.1, False), (0.2, True)):
        model = net()
        executor, _, weights = trains(model, options(), poptorch.optim.SGD(model.parameters(), lr=rate))
        assert loaded(executor) is again
        moved.append({name: weights[name] - before[name] for name in ("first.weight", "second.bias")})
    for name, value in moved[0].items():
        torch.testing.assert_close(2 * value, moved[1][name], rtol=1e-4, atol=1e-6)
        assert value.abs().max() > 0


def test_a_constant_scale_of_the_loss_never_meets_an_unscaled_program(options):
    weights = []
    for scale in (1.0, 8.0):
        model = net()
        optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1, loss_scaling=scale)
        optimizer.variable_attrs.markAsConstant("loss_scaling")
        weights.append(trains(model, options(), optimizer)[2])
    for name, value in weights[0].items():
        torch.testing.assert_close(value, weights[1][name], msg=name)


class Pair(nn.Module):
    """The same operation twice, in modules with the names one likes."""

    def __init__(self, first, second):
        super().__init__()
        self.order = (first, second)
        self.add_module(first, nn.Tanh())
        self.add_module(second, nn.Tanh())

    def forward(self, x):
        for name in self.order:
            x = self.get_submodule(name)(x)
        return x * 2


def test_anchors_that_mean_another_tensor_are_told_apart(options):
    for order in (("a", "b"), ("b", "a")):
        model = Pair(*order)
        chosen = options()
        chosen.anchorTensor("seen", "a/Tanh:0")
        executor = poptorch.inferenceModel(model, chosen)
        executor(X)
        expected = torch.tanh(X) if order[0] == "a" else torch.tanh(torch.tanh(X))
        torch.testing.assert_close(executor.getAnchoredTensor("seen"), expected)


def test_the_users_own_operations_are_not_kept(options, files):
    class Scaled(nn.Module):
        def forward(self, x):
            return poptorch.custom_op([x], "Scale", "tests.cache", 1, [x])[0]

    for factor in (2.0, 3.0):
        register_custom_op("tests.cache", "Scale")(lambda inputs, attributes, by=factor: [inputs[0] * by])
        executor = poptorch.inferenceModel(Scaled(), options())
        torch.testing.assert_close(executor(X), factor * X)
        assert not loaded(executor)
    assert files() == []


def test_printing_is_not_kept_and_prints(options, files, capfd):
    class Talking(nn.Module):
        def forward(self, x):
            return poptorch.ipu_print_tensor(x * 2, "twice") + 1

    for _ in range(2):
        executor = poptorch.inferenceModel(Talking(), options())
        torch.testing.assert_close(executor(X), 2 * X + 1)
        assert not loaded(executor)
        assert "twice: " in capfd.readouterr().err
    assert files() == []


def test_the_software_model_is_not_cached_and_says_so(options, files, monkeypatch):
    said = []
    monkeypatch.setattr(poptorch.logger, "warning", lambda text, *args: said.append(text % args))
    model = net()
    torch.testing.assert_close(poptorch.inferenceModel(model, options().useIpuModel(True))(X), model(X))
    assert said == ["enableExecutableCaching doesn't work with the IPU model"]
    assert files() == []


def test_what_may_come_from_the_cache_of_jax_is_not_kept(options, files, tmp_path, caplog):
    # XLA cannot store what it has not compiled itself: it would fail where it is loaded, when it runs.
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "jax"))
    try:
        model = net()
        executor = poptorch.inferenceModel(model, options())
        torch.testing.assert_close(executor(X), model(X))
        with pytest.raises(UnsupportedError, match="JAX_COMPILATION_CACHE_DIR"):
            executor.save(str(tmp_path / "file"))
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    assert files() == [] and "JAX_COMPILATION_CACHE_DIR" in caplog.text


def test_what_was_found_can_be_saved(options, tmp_path):
    for again in (False, True):
        executor = poptorch.inferenceModel(net(), options())
        result = executor(X)
        assert loaded(executor) is again
    executor.save(str(tmp_path / "file"))
    assert torch.equal(poptorch.load(str(tmp_path / "file"))(X), result)


def test_a_broken_file_is_compiled_again(options, files, tmp_path, caplog):
    poptorch.inferenceModel(net(), options())(X)
    path = tmp_path / "kept" / files()[0]
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    model = net(seed=4)
    executor = poptorch.inferenceModel(model, options())
    torch.testing.assert_close(executor(X), model(X))
    assert not loaded(executor) and "compiled again" in caplog.text
    again = poptorch.inferenceModel(net(), options())
    again.compile(X)
    assert loaded(again)


def test_a_destroyed_executor_finds_its_executable(options):
    executor, _, weights = trains(net(), options())
    executor.destroy()
    assert_same(weights, dict(executor.model.state_dict()))
    executor(X, Y)
    assert loaded(executor)
