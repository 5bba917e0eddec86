"""Executables in files: training goes on where it was, and a file that is not right is refused."""

import json
import subprocess
import sys
import textwrap
import zipfile

import pytest
import torch
from torch import nn

import poptorch
from openipu import hardware
from openipu.compiler.serialised import Loaded
from openipu.errors import UnsupportedError
from openipu.torch.ops.custom_ops import register_custom_op
from openipu.version import __version__

X = torch.linspace(-1, 1, 24).reshape(8, 3)
Y = X.sum(1, keepdim=True)


class Net(nn.Module):
    def __init__(self, width=4, dropout=0.0):
        super().__init__()
        self.first, self.second, self.dropout = nn.Linear(3, width), nn.Linear(width, 1), nn.Dropout(dropout)

    def forward(self, x, target=None):
        out = self.second(self.dropout(torch.tanh(self.first(x))))
        if target is None:
            return out
        return out, nn.functional.mse_loss(out, target)


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    for name in ("POPTORCH_CACHE_DIR", "OPENIPU_CACHE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def said(monkeypatch):
    """What PopTorch warns of."""
    lines = []
    monkeypatch.setattr(poptorch.logger, "warning", lambda text, *args: lines.append(text % args))
    return lines


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The content of a file of a model that infers."""
    path = tmp_path_factory.mktemp("exported") / "file"
    poptorch.inferenceModel(net()).compileAndExport(str(path), X)
    return path.read_bytes()


@pytest.fixture
def file(exported, tmp_path):
    """A file of a model that infers."""
    path = tmp_path / "inference.poptorch"
    path.write_bytes(exported)
    return path


def net(seed=0, **how):
    torch.manual_seed(seed)
    return Net(**how)


def loaded(executor):
    return isinstance(executor._session.compiled.session.engine.executable.call, Loaded)


def weights(executor):
    return {name: value.clone() for name, value in executor.model.state_dict().items()}


def training(model, options=None, rate=0.1):
    return poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=rate, momentum=0.9))


def assert_same(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


OPTIMIZERS = {
    "momentum": lambda p: poptorch.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: poptorch.optim.Adam(p, lr=0.01),
    "torch's": lambda p: torch.optim.AdamW(p, lr=0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_on_exactly_where_it_was(tmp_path, name):
    model = net(dropout=0.5)
    optimizer = OPTIMIZERS[name](model.parameters())
    executor = poptorch.trainingModel(model, poptorch.Options().randomSeed(3).deviceIterations(2), optimizer)
    executor(X, Y)
    optimizer.param_groups[0]["lr"] = 0.05
    executor.setOptimizer(optimizer)
    executor(X, Y)
    path = tmp_path / "deep" / "folder" / "model.poptorch"
    executor.save(str(path))
    saved = weights(executor)

    restored = poptorch.load(str(path))
    assert restored.isCompiled() and restored.isAttachedToDevice() and loaded(restored)
    assert_same(saved, weights(restored))
    for _ in range(2):
        for one, other in zip(executor(X, Y), restored(X, Y), strict=True):
            assert torch.equal(one, other)
    assert_same(weights(executor), weights(restored))
    assert not torch.equal(saved["first.weight"], weights(restored)["first.weight"])
    states = [e._session.optimizer_state()["ipu_state"] for e in (executor, restored)]
    assert_same(*states)
    assert states[0]


def test_loaded_executors_are_independent(tmp_path):
    executor = training(net())
    executor(X, Y)
    path = str(tmp_path / "model.poptorch")
    executor.save(path)
    before = weights(executor)
    first, second = poptorch.load(path), poptorch.load(path)
    first(X, Y)
    assert_same(before, weights(executor))
    assert_same(before, weights(second))
    assert not torch.equal(before["first.weight"], weights(first)["first.weight"])


def test_inference_follows_the_training_it_was_made_from(tmp_path, file):
    train, alone = training(net()), poptorch.load(str(file))
    train.compileAndExport(str(tmp_path / "training.poptorch"), X, Y)
    restored = poptorch.load(str(tmp_path / "training.poptorch"))
    follower = poptorch.inferenceModel(restored)
    follower.loadExecutable(str(file))
    assert loaded(follower)
    before = alone(X)
    torch.testing.assert_close(follower(X), before)
    for _ in range(3):
        restored(X, Y)
    torch.testing.assert_close(follower(X), restored.model(X))
    assert not torch.allclose(follower(X), before)
    assert torch.equal(alone(X), before)


def test_inference_is_loaded_with_its_weights(file):
    model = net()
    restored = poptorch.load(str(file))
    assert loaded(restored) and restored.model is not model
    torch.testing.assert_close(restored(X), model(X))


def test_random_numbers_go_on_or_begin_anew(tmp_path):
    executor = poptorch.inferenceModel(net(dropout=0.5).train(), poptorch.Options().randomSeed(11))
    first = executor(X)
    executor.save(str(tmp_path / "with"))
    executor.save(str(tmp_path / "without"), save_rng_state=False)
    assert torch.equal(poptorch.load(str(tmp_path / "with"))(X), executor(X))
    assert torch.equal(poptorch.load(str(tmp_path / "without"))(X), first)


def test_a_folder_gets_a_file_with_the_usual_name(tmp_path, said):
    executor = poptorch.inferenceModel(net())
    executor.compileAndExport(str(tmp_path), X)
    path = tmp_path / "model.poptorch"
    assert said == [f"save(): {tmp_path} is a directory, saving model to {path}"]
    assert [p.name for p in tmp_path.iterdir()] == ["model.poptorch"]
    torch.testing.assert_close(poptorch.load(str(path))(X), executor(X))


class Unpicklable(Net):
    def __init__(self):
        super().__init__()
        self.hook = lambda x: x


def test_a_file_without_the_model(tmp_path):
    torch.manual_seed(0)
    model = Unpicklable()
    executor = training(model)
    executor.compile(X, Y)
    path = tmp_path / "bare.poptorch"
    with pytest.raises(Exception, match=r"[Pp]ickle"):
        executor.save(str(path))
    assert not path.exists()
    executor.save(str(path), export_model=False)
    text = f"{path} is a valid PopTorch file but was created with 'export_model=False'"
    with pytest.raises(AssertionError) as caught:
        poptorch.load(str(path))
    assert str(caught.value).startswith(text) and f'loadExecutable("{path}")' in str(caught.value)

    # A fresh model brings its own weights, the file only the executable.
    fresh, twin = training(net(seed=5)), training(net(seed=5))
    fresh.loadExecutable(str(path))
    assert loaded(fresh)
    fresh(X, Y)
    twin(X, Y)
    assert not loaded(twin)
    assert_same(weights(twin), weights(fresh))


class Steeper(Net):
    def forward(self, x, target=None):
        return super().forward(2 * x, target)


def test_the_executable_of_another_model_is_refused(file):
    for other in (net(width=5), Steeper()):
        executor = poptorch.inferenceModel(other)
        with pytest.raises(poptorch.Error, match=f"Invalid file {file}: its executable was compiled for another model"):
            executor.loadExecutable(str(file))
        assert not executor.isCompiled()
        torch.testing.assert_close(executor(X), other(X))


def test_options_can_be_edited_before_the_executor_is_made(file):
    restored = poptorch.load(str(file), lambda options: options.modelName("edited").logDir("somewhere"))
    assert loaded(restored)
    assert restored.options.model_name == "edited" and restored.options.log_dir == "somewhere"
    with pytest.raises(poptorch.Error, match="other options"):
        poptorch.load(str(file), lambda options: options.deviceIterations(2))


def test_what_was_compiled_offline_runs_when_it_is_loaded(tmp_path):
    path = str(tmp_path / "offline.poptorch")
    held = hardware.attached()
    executor = training(net(), poptorch.Options().useOfflineIpuTarget())
    executor.compileAndExport(path, X, Y)
    assert executor.isCompiled() and not executor.isAttachedToDevice() and hardware.attached() == held
    state = executor._session.optimizer.state_dict()
    assert state["ipu_state"] is None and state["ipu_param"] is None
    with pytest.raises(AssertionError, match="offline device"):
        executor(X, Y)
    with pytest.raises(AssertionError, match="offline device"):
        executor.attachToDevice()
    seen = []
    restored = poptorch.load(path, lambda options: seen.append(options.connection_type))
    assert seen == [poptorch.ConnectionType.Always.value] and loaded(restored)
    online = training(net())
    for one, other in zip(online(X, Y), restored(X, Y), strict=True):
        assert torch.equal(one, other)
    assert_same(weights(online), weights(restored))


def changed(path, member, change):
    """Rewrite one member of a file."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members[member] = change(members[member])
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def test_another_version_is_refused(file):
    changed(file, "record.json", lambda data: json.dumps({**json.loads(data), "version": "0.0.1"}).encode())
    text = (
        f"Invalid file {file}: PopTorch version mismatch: File was created with version: 0.0.1 and this is version "
        f"{__version__}"
    )
    with pytest.raises(AssertionError) as caught:
        poptorch.load(str(file))
    assert str(caught.value) == text


def flipped(data):
    return data[:100] + bytes([data[100] ^ 1]) + data[101:]


DAMAGE = {
    "executable": lambda path: changed(path, "executable", flipped),
    "model": lambda path: changed(path, "model.pt", flipped),
    "inputs": lambda path: changed(path, "inputs.pt", flipped),
    "record": lambda path: changed(path, "record.json", lambda data: b"{}"),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "flipped": lambda path: path.write_bytes(flipped(path.read_bytes())),
    "foreign": lambda path: path.write_text("not a file of ours"),
    "empty": lambda path: path.write_bytes(b""),
    "missing": lambda path: path.unlink(),
    "folder": lambda path: (path.unlink(), path.mkdir()),
}


def test_files_that_are_not_whole_are_refused(file):
    whole = file.read_bytes()
    executor = poptorch.inferenceModel(net())
    for name, damage in DAMAGE.items():
        if file.is_dir():
            file.rmdir()
        file.write_bytes(whole)
        damage(file)
        for read in (poptorch.load, executor.loadExecutable):
            with pytest.raises(poptorch.Error, match=f"Invalid file {file}: ") as caught:
                read(str(file))
            assert not isinstance(caught.value, AssertionError), name
    assert not executor.isCompiled()


def test_what_cannot_be_saved_is_said(tmp_path):
    class Doubled(nn.Module):
        def forward(self, x):
            return poptorch.custom_op([x], "Double", "tests.exporting", 1, [x])[0]

    register_custom_op("tests.exporting", "Double")(lambda inputs, attributes: [inputs[0] * 2])
    executor = poptorch.inferenceModel(Doubled())
    with pytest.raises(poptorch.Error, match="not been compiled"):
        executor.save(str(tmp_path / "file"))
    executor.compile(X)
    with pytest.raises(UnsupportedError, match="Doubled cannot be stored"):
        executor.save(str(tmp_path / "file"), export_model=False)
    assert list(tmp_path.iterdir()) == []


def test_an_executor_that_is_compiled_stays_as_it_is(file, said):
    executor = poptorch.inferenceModel(net(width=7))
    before = executor(X)
    executor.loadExecutable(str(file))
    assert said == ["Call to loadExecutable() ignored: the executable is already compiled"]
    assert torch.equal(executor(X), before)


def test_a_loaded_executor_is_saved_again(file, tmp_path):
    again = tmp_path / "again.poptorch"
    first = poptorch.load(str(file))
    first.save(str(again))
    restored = poptorch.load(str(again))
    assert loaded(restored) and torch.equal(first(X), restored(X))


MODULE = """
    import torch

    class Line(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def forward(self, x, target):
            out = self.layer(x)
            return out, torch.nn.functional.mse_loss(out, target)
"""
READER = """
    import logging, sys
    import poptorch, torch

    logging.basicConfig(level="INFO", stream=sys.stdout, format="%(message)s")
    executor = poptorch.load(sys.argv[1])
    x = torch.linspace(0, 1, 8).reshape(4, 2)
    executor(x, x[:, :1])
    print([v.tolist() for v in executor.model.state_dict().values()])
"""


def test_another_process_goes_on(tmp_path, monkeypatch):
    (tmp_path / "line_module.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(tmp_path)
    from line_module import Line

    x = torch.linspace(0, 1, 8).reshape(4, 2)
    executor = training(Line())
    executor(x, x[:, :1])
    executor.save(str(tmp_path / "model.poptorch"))
    executor(x, x[:, :1])
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(READER), "model.poptorch"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    said, result = ran.stdout.splitlines()[-2:]
    assert said == "Loaded the executable of Line from model.poptorch."
    assert result == str([v.tolist() for v in weights(executor).values()])
