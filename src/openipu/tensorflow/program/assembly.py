"""Put captured functions together to a program of the core, and remember which variables its state is."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import attrs
import jax
import numpy as np
import tensorflow as tf

from openipu import environment
from openipu.compiler import digest
from openipu.program import Limit, Plan, Program, Slot, marks
from openipu.runtime import Session, Setting
from openipu.tensorflow.capture.function import Captured
from openipu.tensorflow.capture.variables import dtype_on_device, resident
from openipu.tensorflow.exceptions import as_tensorflow
from openipu.tensorflow.feeds.program import FedFunction
from openipu.tensorflow.program import layers

# How Keras and tf.random.Generator name the variables that hold the state of a random generator.
_SEED_NAMES = ("seed_generator_state", "StateVar")


@attrs.frozen(eq=False)
class VariableProgram:
    """A program whose state are TensorFlow variables, in the order of its slots.

    Attributes:
      program: the program.
      shared, local: the variables of its slots.
    """

    program: Program
    shared: tuple[tf.Variable, ...]
    local: tuple[tf.Variable, ...]

    def session(self, plan: Plan, setting: Setting, rows: int | None = None) -> Session:
        """Compile for a plan, working on the variables' values.

        Args:
          plan: how often and how spread.
          setting: where and how it runs.
          rows: keep the data on the device in tables of so many rows.
        """
        shared, local = [resident(v) for v in self.shared], [resident(v) for v in self.local]
        watched = [i for i, v in enumerate(self.shared) if v.trainable]
        with as_tensorflow():
            return Session(self.program, plan, shared, local, setting, rows, watched)


@attrs.frozen(eq=False)
class Staging:
    """Which stage of a pipeline an operation belongs to.

    Attributes:
      stage_of: the stage of an operation by its TensorFlow name; None for what belongs to no layer.
      stages: how many stages there are.
    """

    stage_of: Callable[[str], int | None]
    stages: int

    def part(self, scope: str) -> contextlib.AbstractContextManager:
        """The mark of an operation: gradients run through the stages backwards."""
        backward = scope.startswith("gradient_tape")
        stage = self.stage_of(scope)
        if stage is None:
            # Of the backward pass but of no layer (the loss): not before the last stage's.
            return marks.part(self.stages) if backward else contextlib.nullcontext()
        return marks.part(2 * self.stages - 1 - stage if backward else stage)


def assemble(
    name: str,
    specs: Sequence[tf.TensorSpec],
    step: Captured | FedFunction,
    gradients: int = 0,
    update: Captured | None = None,
    finish: Captured | None = None,
    staging: Staging | None = None,
    accumulators: tuple[str | None, ...] | None = None,
    traps: bool = False,
    roots: Sequence[str] = (),
) -> VariableProgram:
    """A program from captured functions.

    Args:
      name: for messages and reports.
      specs: one micro-batch.
      step: (micro-batch) -> (gradients..., outputs...).
      gradients: how many of the step's results are gradients.
      update: (gradients) -> ().
      finish: () -> outputs.
      staging: which stage operations belong to; None for a model in one piece.
      accumulators: the dtype of the accumulator of each gradient.
      traps: whether operations are to be found again by their TensorFlow names, when one traps.
      roots: names of layers that operations' names begin with, beside those that the variables' names begin with.
    """
    local = _unique(step.written)
    parts = [part for part in (step, update, finish) if part is not None]
    position = {id(v): i for i, v in enumerate(local)}
    shared = [v for v in _unique([v for part in parts for v in part.used]) if id(v) not in position]

    within = None if staging is None else staging.part
    within = _named(within) if traps else within

    def run_step(shared_values, local_values, batch, key):  # noqa: ANN001, ANN202
        around = layers.named(within, [*roots, *(v.name for v in shared)]) if marks.names_wanted() else within
        results, written = step(batch, _by_id(shared, shared_values) | _by_id(local, local_values), key, around)
        return results[:gradients], [written[id(v)] for v in local], results[gradients:]

    def run_update(shared_values, local_values, reduced):  # noqa: ANN001, ANN202
        assert update is not None
        current = _by_id(shared, shared_values) | _by_id(local, local_values)
        _, written = update(reduced, current)
        changed = {position[i]: value for i, value in written.items() if i in position}
        return [written.get(id(v), current[id(v)]) for v in shared], changed

    def run_finish(shared_values, local_values):  # noqa: ANN001, ANN202
        assert finish is not None
        return finish([], _by_id(shared, shared_values) | _by_id(local, local_values))[0]

    program = Program(
        name=name,
        shared=tuple(_slot(v) for v in shared),
        local=tuple(_slot(v) for v in local),
        batch=_inputs(specs, step.limits),
        step=run_step,
        update=run_update if update is not None else None,
        finish=run_finish if finish is not None else None,
        needs_key=step.graph.draws,
        accumulators=accumulators,
        prepare=lambda: [part.lowered for part in parts],
        identity=_identity(step, update, finish, gradients, [*shared, *local]),
    )
    return VariableProgram(program, tuple(shared), tuple(local))


def _inputs(specs: Sequence[tf.TensorSpec], limits: Sequence[Limit | None]) -> tuple[Slot, ...]:
    pairs = enumerate(zip(specs, limits, strict=True))
    return tuple(Slot(s.name or f"input_{i}", s.shape, s.dtype.as_numpy_dtype, limit=limit) for i, (s, limit) in pairs)


def _by_id(variables: Sequence[tf.Variable], values: Sequence[jax.Array]) -> dict[int, jax.Array]:
    return {id(variable): value for variable, value in zip(variables, values, strict=True)}


def _named(within: Callable[[str], contextlib.AbstractContextManager] | None) -> Callable:
    """Marks every operation with its TensorFlow name, within the context it is evaluated in anyway."""

    @contextlib.contextmanager
    def marked(scope: str) -> Iterator[None]:
        with contextlib.nullcontext() if within is None else within(scope), jax.named_scope(scope or "unnamed"):
            yield

    return marked


def _identity(
    step: Captured | FedFunction,
    update: Captured | None,
    finish: Captured | None,
    gradients: int,
    variables: Sequence[tf.Variable],
) -> str | None:
    """A hash of the captured functions, of which variable each of their inputs is, and of the constants in them.

    There is none for functions whose graph does not tell what they compute.
    """
    if any(part is not None and part.graph.foreign for part in (step, update, finish)):
        return None
    position = {id(v): i for i, v in enumerate(variables)}
    parts: list[str | bytes] = ["tensorflow", tf.__version__, environment.tf_xla_flags(), str(gradients)]
    for captured in (step, update, finish):
        if captured is None:
            parts.append("none")
            continue
        parts += [captured.graph.identity, str(captured.arguments), str(captured.results)]
        for variable, constant in zip(captured.variables, captured.constants, strict=True):
            if variable is not None:
                parts.append(f"variable {position[id(variable)]}")
            else:
                value = np.asarray(constant)
                parts += [f"constant {value.dtype} {value.shape}", value.tobytes()]
    return digest(*parts)


def _slot(variable: tf.Variable) -> Slot:
    seed = any(name in variable.name for name in _SEED_NAMES)
    return Slot(variable.name, variable.shape, dtype_on_device(variable), seed)


def _unique(variables: Sequence[tf.Variable]) -> list[tf.Variable]:
    return list({id(v): v for v in variables}.values())
