"""Runs a pipelined executable: stages on devices of their own, overlapping as the schedule says."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from openipu.compiler import replicated
from openipu.compiler.pipeline import PipelineExecutable, sharding_of
from openipu.program import OutputMode
from openipu.program.order import order
from openipu.program.schedule import Kind, timeline
from openipu.runtime.engine import ExecutableEngine, Results, State
from openipu.runtime.resident import Resident
from openipu.runtime.turns import alone

Environment = dict[Any, jax.Array]


class PipelineEngine(ExecutableEngine):
    """Runs one pipelined executable on resident values.

    Python only hands out work: every call returns at once, each device works through what it was given, and values
    go from device to device without visiting the host.
    """

    executable: PipelineExecutable

    def __init__(self, executable: PipelineExecutable, shared: Sequence[Resident], local: Sequence[Resident]) -> None:
        super().__init__(executable)
        plan = executable.plan
        assert plan.pipeline is not None
        self._state = State(executable.program, plan, shared, local)
        self._homes = [[sharding_of(device) for device in devices] for devices in executable.homes]
        self._training = executable.program.update is not None
        count = plan.gradient_accumulation if self._training else plan.device_iterations
        line = timeline(
            plan.pipeline.schedule, plan.pipeline.stages, count, self._training, plan.pipeline.device_mapping
        )
        self._count = count
        self._work = [w for w in order(line) if w.kind is not Kind.UPDATE]

    def place_tables(self, arrays: Sequence[np.ndarray]) -> list:
        """There are no tables."""
        raise AssertionError("a pipeline over devices has no tables")

    def place_rows(self, numbers: np.ndarray) -> Any:
        """There are no row numbers."""
        raise AssertionError("a pipeline over devices has no row numbers")

    def place(self, feeds: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
        """The feeds of one execution, step by step; each goes to its device with the part that uses it."""
        slots = self.executable.program.batch
        typed = [np.asarray(f, s.dtype) for f, s in zip(feeds, slots, strict=True)]
        return [[f[step] for f in typed] for step in range(self.executable.plan.device_iterations)]

    def run(self, feeds: Sequence[Sequence[np.ndarray]], seeds: Sequence[int]) -> Results:
        """One execution."""
        return alone(lambda: self._run(feeds, seeds))

    def _run(self, feeds: Sequence[Sequence[np.ndarray]], seeds: Sequence[int]) -> Results:
        plan = self.executable.plan
        own_seeds = plan.layout.seeds(seeds)
        shared, local = self._state.take(*self._homes)
        outputs: list[list[jax.Array]] = []
        for start in range(0, plan.device_iterations, self._count):
            block = feeds[start : start + self._count]
            gradients, local, made = self._micro_batches(shared, local, block, own_seeds, start)
            outputs.extend(made)
            if self._training:
                shared = self._update(shared, local, gradients)
        finished = self._finish(shared, local)
        results = Results(self._outputs(outputs), finished)
        # A computation that failed raises here.
        jax.block_until_ready((shared, local, results.outputs, results.finished))
        self._state.stage(shared, local).done = True
        return results

    def _micro_batches(self, shared: list, local: list, feeds: Sequence, seeds: Any, start: int):  # noqa: ANN202
        """All micro-batches of one pipeline execution, in the order of the schedule."""
        executable = self.executable
        names, results = executable.arguments, executable.results
        parts = len(executable.parts)
        weights: Environment = dict(zip(names[0], shared, strict=True))
        state = dict(zip(names[1], local, strict=True))
        environments: dict[int, Environment] = {}
        totals: list[jax.Array | None] = [None] * len(results[0])
        outputs: list = [None] * self._count
        for work in self._work:
            micro = work.micro_batch
            assert micro is not None
            if micro not in environments:
                key = replicated.keys(executable.plan.over(1), seeds, start + micro)
                environments[micro] = dict(zip((*names[2], *names[3]), (*feeds[micro], key), strict=True))
            environment = environments[micro]
            index = work.stage if work.kind is Kind.FORWARD else parts - 1 - work.stage
            part = executable.parts[index]
            values = [self._value(v, environment, state, weights) for v in part.inputs]
            made = part.call(*jax.device_put(values, part.device))
            environment.update(zip(part.outputs, made, strict=True))
            for old, new in zip(names[1], results[1], strict=True):
                if new in part.outputs:
                    # Later parts of this micro-batch still mean the value from before it.
                    environment.setdefault(old, state[old])
                    state[old] = environment[new]
            for position, gradient in enumerate(results[0]):
                if gradient in part.outputs:
                    totals[position] = self._add(totals[position], environment.pop(gradient), position, micro)
            if index == parts - 1:
                outputs[micro] = [self._value(v, environment, state, weights) for v in results[2]]
                del environments[micro]
        return totals, [state[v] for v in names[1]], outputs

    @staticmethod
    def _value(name: Any, environment: Environment, state: Environment, weights: Environment) -> Any:
        for place in (environment, state, weights):
            if name in place:
                return place[name]
        return name.val

    def _add(self, total: jax.Array | None, gradient: jax.Array, position: int, seen: int) -> jax.Array:
        plan = self.executable.plan
        if plan.gradient_accumulation == 1:
            return gradient
        if total is None:
            accumulators = self.executable.program.accumulators
            dtype = accumulators[position] if accumulators else None
            total = jax.device_put(jnp.zeros(gradient.shape, dtype or gradient.dtype), gradient.sharding)
        return self.executable.add(total, gradient, jax.device_put(np.int32(seen), gradient.sharding))

    def _update(self, shared: list, local: list, gradients: list) -> list:
        """Every stage updates its own weights."""
        new = list(shared)
        for part in self.executable.updates:
            lanes = [self.executable.plan.layout.first(local[i]) for i in part.local_in]
            given = [*(shared[i] for i in part.shared_in), *lanes, *(gradients[i] for i in part.gradients_in)]
            made = part.call(*jax.device_put(given, part.device))
            for index, value in zip(part.shared_out, made, strict=True):
                new[index] = value
        return new

    def _finish(self, shared: list, local: list) -> list[jax.Array]:
        last = self.executable.parts[len(self.executable.parts) // 2].device if self._training else None
        device = last or self.executable.parts[-1].device
        return list(self.executable.finish(*jax.device_put((shared, local), device)))

    def _outputs(self, outputs: list[list[jax.Array]]) -> list[jax.Array]:
        if self.executable.plan.outputs is OutputMode.FINAL:
            return outputs[-1]
        return [jnp.stack(step) for step in zip(*outputs, strict=True)]
