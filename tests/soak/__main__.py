"""`python -m tests.soak`: random models and plans beside stock until the time is over, and the seeds that failed."""

import collections
import json
import pathlib
import queue
import random
import subprocess
import sys
import tempfile
import threading
import time

import click

from tests.soak import flavours, kills

# Cases for one process: what XLA compiles is never given back. Seconds for one case.
CASES, LIMIT = 40, 240
# MiB that a process may take.
MEMORY = 6000


@click.command()
@click.option("--minutes", default=60.0, show_default=True, help="How long.")
@click.option("--workers", default=2, show_default=True, help="Processes at a time.")
@click.option("--first", type=int, help="The first seed; random by default.")
@click.option("--seed", "seeds", type=int, multiple=True, help="Repeat these seeds, and nothing else.")
@click.option("--cases", default=CASES, show_default=True, help="Cases of one process.")
@click.option("--log", type=click.Path(path_type=pathlib.Path), help="A file for all outcomes, as lines of JSON.")
def main(minutes, workers, first, seeds, cases, log):
    """Random models beside stock, with interrupts and kills."""
    soak = Soak(time.monotonic() + 60 * minutes, log)
    if seeds:
        for seed in seeds:
            soak.batch([seed])
        sys.exit(soak.report())
    first = random.randrange(10**8) if first is None else first
    click.echo(f"Soaking for {minutes:g} minutes with {workers} processes, from seed {first}.")
    jobs = queue.SimpleQueue()
    width, lanes = len(flavours.FLAVOURS), []
    for number in range(10**4):
        # Every flavour in turn, beginning with that of the first seed.
        turn = first % width + number
        base = first - first % width + turn // width * cases * width
        jobs.put([base + turn % width + case * width for case in range(cases)])

    def work():
        while not soak.over:
            soak.batch(jobs.get())

    for number in range(workers):
        lanes.append(threading.Thread(target=work, name=f"lane {number}"))
        lanes[-1].start()
    killing = random.Random(first)
    while not soak.over:
        soak.killed(killing.randrange(10**8))
        time.sleep(max(0.0, min(120.0, soak.end - time.monotonic())))
    for lane in lanes:
        lane.join()
    sys.exit(soak.report())


class Soak:
    """What was tried, and how it went."""

    def __init__(self, end, log):
        self.end, self._log = end, log
        self._began = time.monotonic()
        self._done, self._lock = [], threading.Lock()
        self._folder = tempfile.TemporaryDirectory()

    @property
    def over(self):
        """Whether the time is."""
        return time.monotonic() > self.end

    def batch(self, seeds):
        """Work through seeds of one flavour, in as many processes as it takes."""
        left = list(seeds)
        while left and (not self.over or len(seeds) == 1):
            left = self._process(left)

    def killed(self, seed):
        """One case of programs that are killed."""
        self._note({"seed": seed, "flavour": "kills", **kills.run(seed, self._folder.name)})

    def _process(self, seeds):
        flavour = flavours.of(seeds[0])
        command = [sys.executable, "-m", "tests.soak.worker", flavour.front_end, *map(str, seeds)]
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True,
                                       env=flavour.environment())  # fmt: skip
            lines = queue.SimpleQueue()
            reader = threading.Thread(target=_read, args=(process.stdout, lines), daemon=True)
            reader.start()
            started, why = None, ""
            while True:
                try:
                    line = lines.get(timeout=LIMIT)
                except queue.Empty:
                    why = f"no answer for {LIMIT} s"
                    process.kill()
                    continue
                if not line:
                    break
                said = json.loads(line)
                if "started" in said:
                    started = said["started"]
                    continue
                seeds, started = seeds[seeds.index(said["seed"]) + 1 :], None
                self._note({**said, "flavour": flavour.name})
                if said["memory"] > MEMORY or (self.over and seeds):
                    process.kill()
            code = process.wait()
            if started is not None and not self.over:
                errors.seek(0)
                why = why or f"the process ended with {code}"
                trace = errors.read()[-6000:]
                self._note({"seed": started, "flavour": flavour.name, "outcome": "failed", "what": "", "why": why,
                            "trace": trace, "seconds": 0, "memory": 0})  # fmt: skip
                seeds = seeds[seeds.index(started) + 1 :]
            elif code and not why and seeds and not self.over and not self._tried(seeds[0]):
                return seeds[1:] if len(seeds) > 1 else []
        return seeds

    def _tried(self, seed):
        return any(done["seed"] == seed for done in self._done)

    def _note(self, done):
        with self._lock:
            self._done.append(done)
            if self._log is not None:
                with self._log.open("a") as file:
                    file.write(json.dumps(done) + "\n")
            if done["outcome"] == "failed":
                click.echo(f"\nseed {done['seed']} ({done['flavour']}) failed: {done['why']}\n  {done['what']}")
                click.echo(done.get("trace", "")[-2500:])
            elif len(self._done) % 25 == 0:
                click.echo(f"{len(self._done)} cases after {(time.monotonic() - self._began) / 60:.1f} minutes")

    def report(self):
        """Prints the sums; the number of failures."""
        hours = (time.monotonic() - self._began) / 3600
        click.echo(f"\n{len(self._done)} cases in {hours * 60:.1f} minutes, {len(self._done) / hours:.0f} an hour")
        sums = collections.Counter((done["flavour"], done["outcome"]) for done in self._done)
        for (flavour, outcome), count in sorted(sums.items()):
            click.echo(f"  {flavour:24} {outcome:10} {count}")
        largest = max((done["memory"] for done in self._done), default=0)
        click.echo(f"  largest process: {largest} MiB")
        bad = [done for done in self._done if done["outcome"] == "failed"]
        for done in bad:
            click.echo(f"  repeat with: python -m tests.soak --seed {done['seed']}   # {done['why'][:150]}")
        return min(len(bad), 100)


def _read(stream, lines):
    for line in stream:
        lines.put(line)
    lines.put("")


if __name__ == "__main__":
    main()
