"""Runs a pipelined executable: stages on devices of their own, overlapping as the schedule says."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from openipu.compiler.pipeline import PipelineExecutable, keys_of, sharding_of
from openipu.program import OutputMode
from openipu.program.order import order
from openipu.program.schedule import Kind, timeline
from openipu.runtime.engine import Results
from openipu.runtime.resident import Resident

Environment = dict[Any, jax.Array]


class PipelineEngine:
    """Runs one pipelined executable on resident values.

    Python only hands out work: every call returns at once, each device works through what it was given, and values
    go from device to device without visiting the host.
    """

    def __init__(self, executable: PipelineExecutable, shared: Sequence[Resident], local: Sequence[Resident]) -> None:
        self.executable = executable
        self._shared = list(shared)
        self._local = list(local)
        plan = executable.plan
        assert plan.pipeline is not None
        self._lanes = plan.replicas if plan.replicas > 1 else 0
        self._training = executable.program.update is not None
        count = plan.gradient_accumulation if self._training else plan.device_iterations
        line = timeline(
            plan.pipeline.schedule, plan.pipeline.stages, count, self._training, plan.pipeline.device_mapping
        )
        self._count = count
        self._work = [w for w in order(line) if w.kind is not Kind.UPDATE]

    def place(self, feeds: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
        """The feeds of one execution, step by step; each goes to its device with the part that uses it."""
        slots = self.executable.program.batch
        typed = [np.asarray(f, s.dtype) for f, s in zip(feeds, slots, strict=True)]
        return [[f[step] for f in typed] for step in range(self.executable.plan.device_iterations)]

    def run(self, feeds: Sequence[Sequence[np.ndarray]], seeds: Sequence[int]) -> Results:
        """One execution."""
        executable, plan = self.executable, self.executable.plan
        given = np.array([s % 2**64 for s in seeds], np.uint64)
        given = given if self._lanes else given[0]
        with jax.enable_x64(True):
            shared = [r.take(sharding_of(d)) for r, d in zip(self._shared, executable.homes[0], strict=True)]
            slots = executable.program.local
            local = [
                r.take(sharding_of(d), self._lanes, s.seed)
                for r, d, s in zip(self._local, executable.homes[1], slots, strict=True)
            ]
            outputs: list[list[jax.Array]] = []
            for start in range(0, plan.device_iterations, self._count):
                block = feeds[start : start + self._count]
                gradients, local, made = self._micro_batches(shared, local, block, given, start)
                outputs.extend(made)
                if self._training:
                    shared = self._update(shared, local, gradients)
            finished = self._finish(shared, local)
            stacked = self._outputs(outputs)
        if self._training:
            for resident, value in zip(self._shared, shared, strict=True):
                resident.give(value)
        for resident, value in zip(self._local, local, strict=True):
            resident.give(value, self._lanes)
        return Results(stacked, finished)

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
                key = keys_of(seeds, start + micro)
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
            dtype = plan.accumulation_dtypes[position] if plan.accumulation_dtypes else None
            total = jax.device_put(jnp.zeros(gradient.shape, dtype or gradient.dtype), gradient.sharding)
        return self.executable.add(total, gradient, jax.device_put(np.int32(seen), gradient.sharding))

    def _update(self, shared: list, local: list, gradients: list) -> list:
        """Every stage updates its own weights."""
        new = list(shared)
        for part in self.executable.updates:
            lanes = [local[i][0] if self._lanes else local[i] for i in part.local_in]
            given = [*(shared[i] for i in part.shared_in), *lanes, *(gradients[i] for i in part.gradients_in)]
            made = part.call(*jax.device_put(given, part.device))
            for index, value in zip(part.shared_out, made, strict=True):
                new[index] = value
        return new

    def _finish(self, shared: list, local: list) -> list[jax.Array]:
        if self.executable.finish is None:
            return []
        last = self.executable.parts[len(self.executable.parts) // 2].device if self._training else None
        device = last or self.executable.parts[-1].device
        return list(self.executable.finish(*jax.device_put((shared, local), device)))

    def _outputs(self, outputs: list[list[jax.Array]]) -> list[jax.Array]:
        if self.executable.plan.outputs is OutputMode.FINAL:
            return outputs[-1]
        return [jnp.stack(step) for step in zip(*outputs, strict=True)]
