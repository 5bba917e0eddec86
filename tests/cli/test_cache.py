"""`openipu cache`: what is kept, whether it is whole, and what may go."""

import os
import time

import pytest

from openipu.cli.main import main
from openipu.compiler import cache as caches
from openipu.compiler.cache import POPTORCH, TENSORFLOW

KEYS = {name: f"{number:x}" * 64 for number, name in enumerate(("one", "two", "three"), 10)}
DAY = 86400


@pytest.fixture
def cache(call, monkeypatch):
    for name in ("OPENIPU_CACHE", "TF_POPLAR_FLAGS", "POPTORCH_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    return lambda *arguments, **options: call(main, "cache", *map(str, arguments), **options)


def keep(folder, name, size=1000, age=0.0, suffix=TENSORFLOW, program=None):
    """An entry, made as compilation makes it, that was used `age` seconds ago."""
    kept = caches.Cache(folder, suffix)
    header = {"name": program or f"model_{name}/train", "seconds": 1.5}
    path = kept.store(KEYS[name], header, os.urandom(size))
    assert path is not None
    os.utime(path, (time.time() - age,) * 2)
    return path


def row(output, key):
    """The cells of the first line of an entry."""
    (line,) = (line for line in output.splitlines() if line.rstrip().endswith(KEYS[key][:8]))
    return line.split()


def test_the_list_names_programs_and_fits_the_screen(cache, tmp_path):
    keep(tmp_path, "one", size=3 * 2**20)
    keep(tmp_path, "two", suffix=POPTORCH, program="Classifier", age=3600)
    keep(tmp_path, "three", program="a_model_whose_author_likes_long_names_very_much/train", age=400 * DAY)
    result = cache("--folder", tmp_path, columns=80)
    assert result.exit_code == 0
    assert "3 executables, 3 MiB" in " ".join(result.output.split())
    assert row(result.output, "one")[:6] == ["model_one/train", "TensorFlow", "3", "MiB", "1.5", "s"]
    assert row(result.output, "two")[:2] == ["Classifier", "PopTorch"]
    # The time of what was used this year, the year of what was not.
    used = time.localtime(time.time() - 3600)
    if used.tm_year == time.localtime().tm_year:
        assert row(result.output, "two")[-3:-1] == time.strftime("%m-%d %H:%M", used).split()
    assert row(result.output, "three")[-2] == time.strftime("%Y-%m-%d", time.localtime(time.time() - 400 * DAY))
    # A long name goes on in the next lines, nothing of it is lost.
    table = result.output[result.output.index("Program") :]
    pieces = "".join(line[1:].split("  ")[0].strip() for line in table.splitlines())
    assert "a_model_whose_author_likes_long_names_very_much/train" in pieces
    assert "…" not in table
    assert all(len(line) <= 80 for line in table.splitlines())
    assert [KEYS[name][:8] in table for name in KEYS] == [True] * 3 and KEYS["one"][:9] not in table


def test_a_broken_executable_is_listed_as_such(cache, tmp_path):
    keep(tmp_path, "one").write_bytes(b"")
    assert row(cache("--folder", tmp_path).output, "one")[:2] == ["broken", "TensorFlow"]


def truncated(folder):
    path = keep(folder, "one")
    path.write_bytes(path.read_bytes()[:-7])
    return [path]


def flipped(folder):
    path = keep(folder, "one")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return [path]


def swapped(folder):
    one, two = keep(folder, "one"), keep(folder, "two", suffix=POPTORCH)
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    return [one, two]


def renamed(folder):
    path = keep(folder, "one")
    return [path.rename(path.with_stem(KEYS["three"]))]


def empty(folder):
    path = keep(folder, "one")
    path.write_bytes(b"")
    return [path]


def foreign(folder):
    path = keep(folder, "one")
    path.write_text("an executable of somebody else")
    return [path]


@pytest.mark.parametrize("damage", [truncated, flipped, swapped, renamed, empty, foreign])
def test_verify_finds_what_is_broken(cache, tmp_path, damage):
    whole = keep(tmp_path, "two")
    bad = damage(tmp_path)
    result = cache("--folder", tmp_path, "verify")
    assert result.exit_code == 1
    for path in bad:
        assert f"{path}: it " in result.output
    if whole not in bad:
        assert str(whole) not in result.output
    assert f"{tmp_path}: {len(caches.entries(tmp_path))} executables, {len(bad)} broken" in result.output


def test_verify_counts_for_every_folder(cache, tmp_path):
    bad, good = tmp_path / "bad", tmp_path / "good"
    truncated(bad)
    keep(bad, "two")
    keep(good, "one", suffix=POPTORCH)
    for order in ((bad, good), (good, bad)):
        result = cache("--folder", order[0], "--folder", order[1], "verify")
        assert result.exit_code == 1
        assert f"{bad}: 2 executables, 1 broken" in result.output
        assert f"{good}: 1 executables, 0 broken" in result.output
    result = cache("--folder", good, "verify")
    assert result.exit_code == 0 and "can be deleted" not in result.output


def test_pruning_by_size_keeps_what_was_used_last(cache, tmp_path):
    new = keep(tmp_path, "one", size=50_000)
    middle = keep(tmp_path, "two", size=50_000, age=100, suffix=POPTORCH)
    keep(tmp_path, "three", size=50_000, age=200)
    result = cache("--folder", tmp_path, "prune", "--larger-than", "110k")
    assert result.output == f"{tmp_path}: 1 deleted, 2 kept\n"
    assert caches.entries(tmp_path) == [new, middle]
    assert "0 deleted" in cache("--folder", tmp_path, "prune", "--larger-than", "2G").output
    assert cache("--folder", tmp_path, "prune", "--larger-than", "0").output == f"{tmp_path}: 2 deleted, 0 kept\n"


def test_pruning_by_age(cache, tmp_path):
    new = keep(tmp_path, "one", age=DAY)
    old = keep(tmp_path, "two", age=3 * DAY)
    assert "0 deleted" in cache("--folder", tmp_path, "prune", "--older-than", "30d").output
    assert old.exists()
    cache("--folder", tmp_path, "prune", "--older-than", "48h")
    assert caches.entries(tmp_path) == [new]


def test_pruning_by_both(cache, tmp_path):
    new = keep(tmp_path, "one", size=50_000)
    keep(tmp_path, "two", size=50_000, age=100)
    keep(tmp_path, "three", size=10, age=DAY)
    result = cache("--folder", tmp_path, "prune", "--larger-than", "60k", "--older-than", "12h")
    assert result.exit_code == 0 and caches.entries(tmp_path) == [new]


def test_pruning_leaves_other_files_alone(cache, tmp_path):
    keep(tmp_path, "one")
    (tmp_path / "notes.txt").write_text("mine")
    cache("--folder", tmp_path, "prune", "--larger-than", "0")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("option", ["--larger-than", "--older-than"])
@pytest.mark.parametrize("value", ["", "much", "-1", "5x", "1.2.3M", "M"])
def test_amounts_that_are_none_are_refused_and_nothing_is_deleted(cache, tmp_path, option, value):
    keep(tmp_path, "one", age=400 * DAY)
    result = cache("--folder", tmp_path, "prune", option, value)
    assert result.exit_code == 2 and f"Received: {value!r}" in result.output and "such as" in result.output
    assert len(caches.entries(tmp_path)) == 1


def test_a_time_without_a_unit_is_refused(cache, tmp_path):
    assert "such as 12h" in cache("--folder", tmp_path, "prune", "--older-than", "30").output


def test_pruning_wants_to_know_what(cache, tmp_path):
    keep(tmp_path, "one")
    result = cache("--folder", tmp_path, "prune")
    assert result.exit_code == 2 and "--larger-than" in result.output and "--older-than" in result.output
    assert len(caches.entries(tmp_path)) == 1


@pytest.mark.parametrize("command", [(), ("verify",), ("prune", "--larger-than", "1G")])
def test_without_a_folder_it_says_how_to_set_one(cache, command):
    result = cache(*command)
    assert result.exit_code == 2
    for name in ("OPENIPU_CACHE", "--executable_cache_path", "POPTORCH_CACHE_DIR", "--folder"):
        assert name in result.output


def test_the_folders_are_those_that_programs_use(cache, tmp_path, monkeypatch):
    folders = {name: tmp_path / name for name in ("tensorflow", "poptorch", "both")}
    monkeypatch.setenv("TF_POPLAR_FLAGS", f"--executable_cache_path={folders['tensorflow']}")
    monkeypatch.setenv("POPTORCH_CACHE_DIR", str(folders["poptorch"]))
    monkeypatch.setenv("OPENIPU_CACHE", str(folders["both"]))
    keep(folders["tensorflow"], "one")
    keep(folders["poptorch"], "two", suffix=POPTORCH)
    assert cache("verify").output.splitlines() == [
        f"{folders['tensorflow']}: 1 executables, 0 broken",
        f"{folders['poptorch']}: 1 executables, 0 broken",
        f"{folders['both']}: 0 executables, 0 broken",
    ]
    # A folder that two of them name is shown once; one that is given goes before them.
    monkeypatch.setenv("POPTORCH_CACHE_DIR", str(folders["tensorflow"]))
    assert len(cache("verify").output.splitlines()) == 2
    assert (
        cache("--folder", folders["poptorch"], "verify").output == f"{folders['poptorch']}: 1 executables, 0 broken\n"
    )


def test_a_folder_that_does_not_exist_is_empty(cache, tmp_path):
    result = cache("--folder", tmp_path / "none", columns=200)
    assert result.exit_code == 0 and "0 executables, 0 B" in result.output
    assert not (tmp_path / "none").exists()
