"""Files that somebody else could have written, or that only look right: never run, never a traceback, never a hang."""

import hashlib
import json
import multiprocessing
import os
import signal
import stat
import time
import zipfile
import zlib

import pytest
import torch

import poptorch
from openipu import environment, hardware
from openipu.compiler import Cache, cache_file, compile_program, trust
from openipu.compiler.key import key_of
from openipu.hardware import registry
from openipu.program import Plan
from openipu.torch.exceptions import ConfigFileError
from tests.compiler.test_cache import adding, loaded, result
from tests.faults.children import hold

KEY = key_of(adding(1), Plan(), None)
STRANGER = 54321


@pytest.fixture
def cache(tmp_path):
    made = Cache(tmp_path / "cache")
    compile_program(adding(1), Plan(), cache=made)
    assert loaded(compile_program(adding(1), Plan(), cache=made))
    return made


@pytest.fixture
def given_away(monkeypatch):
    """Gives a file or folder to another user; who is not root becomes another user instead."""

    def give(path):
        if os.getuid() == 0:
            os.chown(path, STRANGER, -1)
            return STRANGER
        owner = os.getuid()
        monkeypatch.setattr(trust.os, "getuid", lambda: owner + 1)
        return owner

    return give


def refused(cache, caplog):
    caplog.clear()
    made = compile_program(adding(1), Plan(), cache=cache)
    assert list(result(made)) == [1, 1]
    return not loaded(made) and "compiled again" in caplog.text


@pytest.mark.parametrize("what", ["file", "folder"])
@pytest.mark.parametrize("mode", [stat.S_IWOTH, stat.S_IWGRP])
def test_what_others_can_write_is_not_run(cache, caplog, what, mode, monkeypatch):
    monkeypatch.setattr(trust, "_only_this_user", lambda status: False)
    path = cache.path(KEY) if what == "file" else cache.folder
    path.chmod(path.stat().st_mode | mode)
    assert refused(cache, caplog) and f"{path} can be written by others" in caplog.text


def test_what_lies_where_others_can_exchange_folders_is_not_run(cache, caplog):
    above = cache.folder.parent
    above.chmod(0o777)
    assert refused(cache, caplog) and f"{above} can be written by others" in caplog.text
    above.chmod(0o1777)
    assert loaded(compile_program(adding(1), Plan(), cache=cache))


def test_a_link_is_as_good_as_what_it_leads_to(cache, caplog, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(cache.folder)
    assert loaded(compile_program(adding(1), Plan(), cache=Cache(link)))
    cache.folder.chmod(0o777)
    assert refused(Cache(link), caplog)


@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_belongs_to_somebody_else_is_run_only_if_their_name_is_trusted(
    cache, caplog, what, given_away, monkeypatch
):
    path = cache.path(KEY) if what == "file" else cache.folder
    before = cache.path(KEY).read_bytes()
    owner = given_away(path)
    # Of a folder that is somebody else's nothing can be changed.
    path.chmod(path.stat().st_mode & ~0o222)
    assert cache.load(KEY) is None and f"{path} belongs to" in caplog.text
    monkeypatch.setenv("OPENIPU_CACHE_OWNERS", f"root, {owner}")
    caplog.clear()
    assert loaded(compile_program(adding(1), Plan(), cache=cache))
    assert not caplog.records and cache.path(KEY).read_bytes() == before
    monkeypatch.setenv("OPENIPU_CACHE_OWNERS", "nobody-has-this-name")
    with pytest.raises(ValueError, match="OPENIPU_CACHE_OWNERS must name users"):
        cache.load(KEY)


def test_folders_are_made_for_their_owner_alone_to_write(tmp_path):
    before = os.umask(0)
    try:
        cache = Cache(tmp_path / "a" / "b")
        compile_program(adding(2), Plan(), cache=cache)
    finally:
        os.umask(before)
    assert not cache.folder.stat().st_mode & 0o022


def signed(body):
    return body + hashlib.sha256(body).digest()


def entry(header, packed):
    return signed(cache_file.MAGIC + len(header).to_bytes(8, "little") + header + packed)


def with_header(**changes):
    header = {"key": KEY, "name": "x", "seconds": 1, "shapes": [[], [], [], []], "bytes": 3, **changes}
    return entry(json.dumps(header).encode(), zlib.compress(b"abc"))


BOMB = zlib.compress(bytes(2**26))
CONTENTS = {
    "no JSON": entry(b"{", zlib.compress(b"abc")),
    "no object": entry(b"[1, 2]", zlib.compress(b"abc")),
    "no text": entry(b"\xff\xfe", zlib.compress(b"abc")),
    "deep": entry(b"[" * 100_000, zlib.compress(b"abc")),
    "no compression": entry(json.dumps({"key": KEY, "bytes": 3}).encode(), b"abc"),
    "bomb": entry(json.dumps({"key": KEY, "bytes": 3}).encode(), BOMB),
    "huge": entry(json.dumps({"key": KEY, "bytes": 2**60}).encode(), BOMB),
    "negative": entry(json.dumps({"key": KEY, "bytes": -1}).encode(), BOMB),
    "endless header": signed(cache_file.MAGIC + b"\xff" * 8),
    "too short": signed(cache_file.MAGIC),
    "no executable": with_header(),
    "no shapes": with_header(shapes=None),
    "odd shapes": with_header(shapes=[[], [], [[["a"], "float99"]], []]),
    "few groups": with_header(shapes=[[]]),
    "other shapes": with_header(shapes=[[[[2], "float32"]], [], [], []]),
    "no key": with_header(key=5),
}


def test_a_good_hash_over_bad_contents_is_a_compilation(cache, caplog):
    for name, content in CONTENTS.items():
        cache.path(KEY).write_bytes(content)
        assert refused(cache, caplog), name
    cache.path(KEY).unlink()
    os.mkfifo(cache.path(KEY), 0o600)
    assert cache.load(KEY) is None and "it is not a file" in caplog.text


@pytest.mark.parametrize("dies", [True, False])
def test_waiting_for_another_compiler_ends(tmp_path, caplog, monkeypatch, dies):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    holder = context.Process(target=hold, args=(tmp_path, ready))
    holder.start()
    assert ready.wait(100)
    monkeypatch.setenv("OPENIPU_CACHE_WAIT", "60" if dies else "1")
    if dies:
        os.kill(holder.pid, signal.SIGKILL)
    else:
        os.kill(holder.pid, signal.SIGSTOP)
    began = time.monotonic()
    with Cache(tmp_path).locked("key"):
        took = time.monotonic() - began
    holder.kill()
    holder.join()
    if dies:
        assert took < 30
    else:
        assert took < 30 and "for at most 1 s" in caplog.text and "compiled here as well" in caplog.text


@pytest.mark.parametrize("value", ["soon", "-1", "nan", "inf"])
def test_the_limit_is_a_number_of_seconds(monkeypatch, value):
    monkeypatch.setenv("OPENIPU_CACHE_WAIT", value)
    with pytest.raises(ValueError, match="OPENIPU_CACHE_WAIT must be a number of seconds"):
        environment.cache_wait()


@pytest.fixture
def record(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENIPU_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("OPENIPU_SYSTEM", "bow-pod16")
    hardware.detach(hardware.acquire(1))
    return tmp_path / "runtime" / "bow-pod16.json"


def holding(**changes):
    mine = hardware.processes.this_process()
    entry = {"pid": os.getppid(), "started": mine.started, "device": 0, "ipus": [0], "since": 0.0, "command": "x"}
    return {**entry, "user": "x", **changes}


IMPOSSIBLE = [
    {"pid": -1}, {"pid": 0}, {"pid": 2**70}, {"pid": True, "started": None}, {"started": float("nan")},
    {"started": float("inf")}, {"since": float("nan")}, {"since": 1e300}, {"ipus": [-1]}, {"ipus": [2**80]},
    {"ipus": [1.5]}, {"device": -3}, {"device": 10**30}, {"command": 5}, {"user": None},
]  # fmt: skip


def test_a_record_of_impossible_holders_is_survived(record, caplog):
    for change in IMPOSSIBLE:
        record.write_text(json.dumps({"format": 1, "holdings": [holding(**change)]}))
        caplog.clear()
        assert hardware.holders() == (), change
        device = hardware.acquire(1)
        assert device.ipus == (0,), change
        hardware.detach(device)
    record.write_text("x" * (registry.LARGEST + 10))
    assert hardware.holders() == ()


def test_an_impossible_holder_does_not_free_what_others_hold(record):
    device = hardware.acquire(2)
    content = json.loads(record.read_text())
    content["holdings"].append(holding(pid=-1))
    record.write_text(json.dumps(content))
    assert [held.ipus for held in registry.read("bow-pod16")] == [(0, 1)]
    hardware.detach(device)


def test_texts_of_the_record_do_not_steer_terminals(record, monkeypatch):
    from click.testing import CliRunner

    from openipu.cli import gc_info, gc_monitor
    from openipu.cli.main import main

    evil = "\x1b]0;owned\x07\x1b[2J\r\n[red]x[/red]"
    parent = hardware.processes.psutil.Process(os.getppid())
    entry = holding(started=hardware.processes._started(parent), command=evil, user=evil, since=time.time())
    record.write_text(json.dumps({"format": 1, "holdings": [entry]}))
    assert hardware.holders()
    for command, arguments in ((gc_monitor.main, []), (gc_info.main, ["-l"]), (main, ["system"])):
        shown = CliRunner().invoke(command, arguments)
        assert shown.exit_code == 0, shown.output
        assert not {"\x1b", "\x07", "\r"} & set(shown.output)


def archive(path, members, kind=zipfile.ZIP_STORED):
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
    record = {"version": "1", "training": False, "rng_state": None, "hashes": hashes}
    with zipfile.ZipFile(path, "w", kind) as file:
        file.writestr("record.json", json.dumps(record))
        for name, data in members.items():
            file.writestr(name, data)


def saved(value):
    import io

    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


INPUTS = saved({"names": ["x"], "values": [torch.zeros(2, 3)], "keywords": {}})
EXPORTED = {
    "nothing": {},
    "no executable": {"inputs.pt": INPUTS},
    "no inputs": {"executable": b"x"},
    "odd inputs": {"executable": b"x", "inputs.pt": saved([1, 2])},
    "inputs that run code": {"executable": b"x", "inputs.pt": saved({"names": time.sleep})},
    "other members": {"executable": b"x", "inputs.pt": INPUTS, "../../etc/passwd": b"x"},
    "garbage": {"executable": b"x" * 1000, "inputs.pt": INPUTS},
    "bad entry": {"executable": CONTENTS["bomb"], "inputs.pt": INPUTS},
}


def test_garbage_is_no_executable(tmp_path):
    path = tmp_path / "file"
    executor = poptorch.inferenceModel(torch.nn.Linear(3, 2))
    for name, members in EXPORTED.items():
        archive(path, members)
        with pytest.raises(poptorch.Error, match="Invalid file"):
            executor.loadExecutable(str(path))
            pytest.fail(name)
    archive(path, {"executable": bytes(2**22), "inputs.pt": INPUTS}, zipfile.ZIP_DEFLATED)
    with pytest.raises(poptorch.Error, match="is compressed"):
        executor.loadExecutable(str(path))
    path.write_bytes(os.urandom(5000))
    with pytest.raises(poptorch.Error, match="Invalid file"):
        executor.loadExecutable(str(path))
    assert not executor.isCompiled()


class Own(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())

    def forward(self, x):
        return self.layer(x)


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/openipu-was-here-$PPID",)


def test_a_model_is_loaded_without_running_code_where_its_classes_are_known(tmp_path, monkeypatch):
    lines = []
    monkeypatch.setattr(poptorch.logger, "warning", lambda text, *args: lines.append(text % args))
    x = torch.ones(2, 3)
    path = str(tmp_path / "file")
    for model in (torch.nn.Linear(3, 2), Own()):
        poptorch.inferenceModel(model).compileAndExport(path, x)
        for wish in (None, True, False):
            torch.testing.assert_close(poptorch.load(path, weights_only=wish)(x), model(x))
    assert not lines


def test_a_model_that_would_run_code_is_refused_or_warned_of(tmp_path, monkeypatch):
    lines = []
    monkeypatch.setattr(poptorch.logger, "warning", lambda text, *args: lines.append(text % args))
    ran = []
    monkeypatch.setattr(os, "system", ran.append)
    path = str(tmp_path / "file")
    model = Own()
    poptorch.inferenceModel(model).compileAndExport(path, torch.ones(2, 3))
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    record = json.loads(members.pop("record.json"))
    members["model.pt"] = saved({"model": Evil(), "optimizer": None, "options": None, "groupings": {}})
    record["hashes"]["model.pt"] = hashlib.sha256(members["model.pt"]).hexdigest()
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("record.json", json.dumps(record))
        for name, data in members.items():
            file.writestr(name, data)
    with pytest.raises(poptorch.Error, match="weights_only=True: it names"):
        poptorch.load(path, weights_only=True)
    assert not ran and not lines


@pytest.mark.parametrize("text, expected", [
    ("deviceIterations(" + "(" * 3000 + "1" + ")" * 3000 + ")", "nested"),
    ("deviceIterations(" + "-" * 9000 + "1)", "nested"),
    ("deviceIterations(" + "[" * 150 + "]" * 150 + ")", "list"),
    ("deviceIterations(" + "1+" * 50_000 + "1)", "more than"),
    ("deviceIterations(1)\x00", "null bytes|no text"),
])  # fmt: skip
def test_options_files_that_are_nested_deeply(tmp_path, text, expected):
    path = tmp_path / "options"
    path.write_text(text)
    with pytest.raises((ConfigFileError, ValueError, TypeError, AssertionError), match=expected) as caught:
        poptorch.Options().loadFromFile(str(path))
    assert len(str(caught.value)) < 1000


def test_options_files_that_load_themselves(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text(f'deviceIterations(2)\nloadFromFile("{two}")')
    two.write_text(f'loadFromFile("{one}")')
    with pytest.raises(ConfigFileError, match="one loads itself"):
        poptorch.Options().loadFromFile(str(one))
    two.write_text("replicationFactor(2)")
    options = poptorch.Options()
    options.loadFromFile(str(one))
    assert options.replication_factor == 2
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigFileError, match="not a text file"):
        options.loadFromFile(str(tmp_path / "binary"))


def test_options_in_json_that_are_nested_deeply(monkeypatch):
    monkeypatch.setenv("POPTORCH_DEFAULT_OPTIONS", '{"deviceIterations": ' + "[" * 100_000)
    with pytest.raises(ValueError):
        poptorch.Options()
