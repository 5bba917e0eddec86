"""The cache of executables: found again, never wrong, never a crash."""

import logging
import os
import random
import subprocess
import sys
import textwrap
import time

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openipu.compiler import Cache, cache, cache_file, compile_program
from openipu.compiler.key import key_of
from openipu.compiler.serialised import Loaded
from openipu.program import OutputMode, Plan, Program, Slot
from openipu.runtime import DeviceEngine, rows_for
from tests.compiler import toy


def adding(number: float) -> Program:
    """A program that is compiled in no time: adds a number."""
    return Program(
        "adding",
        (),
        (),
        (Slot("x", (2,), np.float32),),
        lambda shared, local, batch, key: ([], [], [batch[0] + jnp.float32(number)]),
        identity=f"adding {number}",
    )


def result(executable) -> np.ndarray:
    engine = DeviceEngine(executable, [], [])
    return np.asarray(engine.run(engine.place([np.zeros((1, 2), np.float32)]), [0]).outputs[0])[0]


def loaded(executable) -> bool:
    return isinstance(executable.call, Loaded)


@pytest.mark.parametrize("outputs", list(OutputMode))
@pytest.mark.parametrize(("replicas", "accumulation"), [(1, 1), (2, 2)])
def test_an_executable_from_the_cache_trains_as_the_compiled_one(tmp_path, replicas, accumulation, outputs):
    plan = Plan(4, replicas, accumulation, outputs=outputs)
    program = attrs.evolve(toy.program(noise=0.1), identity="toy")
    homes, results = [], []
    for again in (False, True):
        executable = compile_program(program, plan, cache=Cache(tmp_path))
        assert loaded(executable) is again
        store = toy.Store(program)
        engine = DeviceEngine(executable, store.shared, store.local)
        for seed in range(2):
            made = engine.run(engine.place(toy.feeds(4, replicas, seed=seed)), range(replicas))
        homes.append(store.home())
        results.append([np.asarray(value) for value in (*made.outputs, *made.finished)])
    for name, value in homes[0].items():
        np.testing.assert_array_equal(value, homes[1][name], err_msg=name)
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first, second)


def test_tables_are_cached_too(tmp_path):
    program = attrs.evolve(toy.program(), identity="toy")
    arrays = [np.ones((9, toy.WIDTH), np.float32)] * 2
    got = []
    for _ in range(2):
        executable = compile_program(program, Plan(2), rows_for(arrays), Cache(tmp_path))
        store = toy.Store(program)
        engine = DeviceEngine(executable, store.shared, store.local)
        numbers = engine.place_rows(np.zeros((2, toy.BATCH), np.int32))
        got.append(np.asarray(engine.run([numbers, *engine.place_tables(arrays)], [0]).outputs[0]))
    assert loaded(executable)
    np.testing.assert_array_equal(*got)


def test_what_decides_about_the_executable_is_in_its_key():
    program = attrs.evolve(toy.program(), identity="toy")
    other = [
        (attrs.evolve(program, identity="other"), Plan(4), None),
        (
            attrs.evolve(program, batch=tuple(attrs.evolve(s, shape=(2, toy.WIDTH)) for s in program.batch)),
            Plan(4),
            None,
        ),
        (program, Plan(2), None),
        (program, Plan(4, outputs=OutputMode.FINAL), None),
        (program, Plan(4), 64),
    ]
    keys = [key_of(*arguments) for arguments in [(program, Plan(4), None), *other]]
    assert len(set(keys)) == len(keys)
    renamed = attrs.evolve(program, name="another", shared=tuple(attrs.evolve(s, name="w") for s in program.shared))
    assert key_of(renamed, Plan(4), None) == keys[0]


def test_programs_that_text_cannot_tell_apart_are_compiled_every_time(tmp_path):
    program = attrs.evolve(adding(1), identity=None)
    assert not any(loaded(compile_program(program, Plan(), cache=Cache(tmp_path))) for _ in range(2))
    assert cache.entries(tmp_path) == []


def test_programs_that_call_into_this_process_are_not_kept(tmp_path):
    def step(shared, local, batch, key):
        jax.debug.callback(lambda x: None, batch[0])
        return [], [], [batch[0]]

    program = attrs.evolve(adding(1), step=step)
    assert not any(loaded(compile_program(program, Plan(), cache=Cache(tmp_path))) for _ in range(2))
    assert cache.entries(tmp_path) == []


def test_two_hundred_broken_entries_are_two_hundred_compilations_and_right_results(tmp_path, caplog):
    caplog.set_level(logging.WARNING, "openipu")
    draw = random.Random(0)
    folder = Cache(tmp_path)
    programs = [adding(number) for number in (1, 2)]
    paths = [folder.path(key_of(program, Plan(), None)) for program in programs]
    for program in programs:
        compile_program(program, Plan(), cache=folder)
    whole = [path.read_bytes() for path in paths]

    def truncated(data: bytes) -> bytes:
        return data[: draw.randrange(len(data))]

    def flipped(data: bytes) -> bytes:
        at = draw.randrange(len(data))
        return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]

    for count in range(200):
        damage = (truncated, flipped, lambda data: whole[1])[count % 3]
        paths[0].write_bytes(damage(whole[0]))
        executable = compile_program(programs[0], Plan(), cache=folder)
        assert not loaded(executable)
        np.testing.assert_array_equal(result(executable), [1, 1])
    warnings = [r for r in caplog.records if "compiled again" in r.message]
    assert len(warnings) == 200
    repaired = compile_program(programs[0], Plan(), cache=folder)
    assert loaded(repaired)
    np.testing.assert_array_equal(result(repaired), [1, 1])


def test_a_whole_entry_that_xla_does_not_take_is_compiled_again(tmp_path, caplog):
    folder = Cache(tmp_path)
    key = key_of(adding(1), Plan(), None)
    compile_program(adding(1), Plan(), cache=folder)
    header, _ = cache_file.read(folder.path(key), key)
    folder.store(key, header, b"not an executable")
    executable = compile_program(adding(1), Plan(), cache=folder)
    assert not loaded(executable)
    assert "compiled again" in caplog.text


def test_a_folder_that_cannot_be_made_is_a_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    executable = compile_program(adding(1), Plan(), cache=Cache(tmp_path / "file" / "folder"))
    np.testing.assert_array_equal(result(executable), [1, 1])
    assert "cannot be kept" in caplog.text


def test_pruning_deletes_what_was_used_longest_ago(tmp_path):
    folder = Cache(tmp_path)
    for age, key in enumerate(("new", "middle", "old")):
        folder.store(key, {}, bytes(1000))
        path = folder.path(key)

        os.utime(path, (time.time() - 1000 * age,) * 2)
    size = folder.path("new").stat().st_size
    assert cache.prune(tmp_path, oldest=1500) == [folder.path("old")]
    assert cache.prune(tmp_path, largest=size) == [folder.path("middle")]
    assert cache.entries(tmp_path) == [folder.path("new")]


RACER = """
    import sys
    from openipu.compiler import Cache, compile_program
    from openipu.program import Plan
    from tests.compiler.test_cache import adding, loaded, result
    for number in (1, 2):
        executable = compile_program(adding(number), Plan(), cache=Cache(sys.argv[1]))
        assert list(result(executable)) == [number, number]
        print("loaded" if loaded(executable) else "compiled")
"""


def test_eight_processes_that_race_for_a_folder_compile_each_program_once(tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(RACER), str(tmp_path)]
    racers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(8)]
    ended = [racer.communicate(timeout=300) for racer in racers]
    assert [(racer.returncode, error) for racer, (_, error) in zip(racers, ended, strict=True)] == [(0, "")] * 8
    said = [word for output, _ in ended for word in output.split()]
    assert said.count("compiled") == 2 and said.count("loaded") == 14
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in cache.entries(tmp_path))
    assert len([cache.check(path) for path in cache.entries(tmp_path)]) == 2
