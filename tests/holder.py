"""A real program that holds IPUs in a process of its own and does as it is told."""

import json
import os
import signal
import subprocess
import sys

SCRIPT = """
import json, os, sys
from openipu import hardware

held = []
print(json.dumps(os.getpid()), flush=True)
for line in sys.stdin:
    verb, *numbers = line.split()
    try:
        if verb == "acquire":
            held.append(hardware.acquire(int(numbers[0])))
        elif verb == "attach":
            held.append(hardware.current_system().by_id(int(numbers[0])))
            hardware.attach(held[-1])
        elif verb == "wait":
            held.append(hardware.acquire(int(numbers[0]), hardware.Wait(poll=0.01)))
        elif verb == "detach":
            hardware.detach(held.pop())
        answer = sorted(hardware.attached_ipus() if verb == "look" else held[-1].ipus if held else ())
    except Exception as error:
        answer = f"{type(error).__name__}: {error}"
    print(json.dumps(answer), flush=True)
"""


class Holder:
    """Starts the program; `tell` gives it an order and returns the IPUs it got, or the words of its refusal."""

    def __init__(self, **variables):
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables},
        )
        self.pid = self.process.pid

    def begin(self, order):
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        return json.loads(line)

    def started(self):
        assert self.answer() == self.pid
        return self

    def tell(self, order):
        self.begin(order)
        return self.answer()

    def kill(self):
        """kill -9, and nobody waits for the process: it stays behind as a zombie."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def end(self):
        self.process.kill()
        self.process.communicate()
