"""Thirty programs that attach and detach at the same time, some of them killed: no IPU is ever held twice."""

import os
import random
import signal
import subprocess
import sys
import time

from openipu import hardware

PROGRAMS, ROUNDS, KILLED = 30, 6, 6

# Who holds an IPU holds a file of its name too, which only one program can make.
RACER = """
import os, random, sys, time
from openipu import hardware
from openipu.errors import OutOfIpusError
marks, draw = sys.argv[1], random.Random(int(sys.argv[2]))
print("ready", flush=True)
sys.stdin.readline()
done = 0
while done < int(sys.argv[3]):
    try:
        device = hardware.acquire(draw.choice([1, 1, 2, 4]), hardware.Wait(poll=0.005))
    except OutOfIpusError:
        continue
    for ipu in device.ipus:
        try:
            handle = os.open(f"{marks}/{ipu}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            with open(f"{marks}/{ipu}") as file:
                other = file.read()
            if other and os.path.exists(f"/proc/{other}") and "Z" not in open(f"/proc/{other}/stat").read().split()[2]:
                sys.exit(f"IPU {ipu} is held by {other} as well")
            # Its holder was killed before it could take its mark away.
            handle = os.open(f"{marks}/{ipu}", os.O_TRUNC | os.O_WRONLY)
        os.write(handle, str(os.getpid()).encode())
        os.close(handle)
    time.sleep(draw.uniform(0, 0.002))
    for ipu in device.ipus:
        os.unlink(f"{marks}/{ipu}")
    hardware.detach(device)
    done += 1
"""


def test_thirty_programs_race_and_some_are_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENIPU_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("OPENIPU_SYSTEM", "bow-pod16")
    marks = tmp_path / "marks"
    marks.mkdir()
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(marks), str(seed), str(10**6 if seed < KILLED else ROUNDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in range(PROGRAMS)
    ]
    try:
        for racer in racers:
            assert racer.stdout.readline() == "ready\n", racer.stderr.read()
        for racer in racers:
            racer.stdin.write("go\n")
            racer.stdin.flush()
        draw = random.Random(0)
        for victim in racers[:KILLED]:
            time.sleep(draw.uniform(0.05, 0.3))
            os.kill(victim.pid, signal.SIGKILL)
        for racer in racers[KILLED:]:
            _, error = racer.communicate(timeout=200)
            assert racer.returncode == 0, error
        for victim in racers[:KILLED]:
            # What the others met ended them, not the victims.
            assert "held by" not in victim.communicate()[1]
    finally:
        for racer in racers:
            with racer:
                racer.kill()
    assert hardware.attached_ipus() == frozenset()
