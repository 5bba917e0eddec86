"""Put captured functions together to a program of the core, and remember which variables its state is."""

import contextlib
import logging
from collections.abc import Callable, Sequence

import attrs
import jax
import numpy as np
import tensorflow as tf

from openipu import environment
from openipu.compiler import Cache, Executable, compile_program, digest, progress, progress_bar
from openipu.compiler.pipeline import compile_pipeline, devices_for
from openipu.errors import UnsupportedError
from openipu.program import Plan, Program, Slot, marks
from openipu.runtime import Engine, OfflineEngine, PipelineEngine
from openipu.tensorflow import devices, synthetic
from openipu.tensorflow.capture import Captured
from openipu.tensorflow.variables import dtype_on_device, resident

log = logging.getLogger("openipu.tensorflow")

# How Keras and tf.random.Generator name the variables that hold the state of a random generator.
_SEED_NAMES = ("seed_generator_state", "StateVar")


@attrs.frozen(eq=False)
class VariableProgram:
    """A program whose state are TensorFlow variables, in the order of its slots.

    Attributes:
      program: the program.
      shared, local: the variables of its slots.
      trained: of the variables that are to be trained, which have a gradient.
    """

    program: Program
    shared: tuple[tf.Variable, ...]
    local: tuple[tf.Variable, ...]
    trained: tuple[bool, ...] = ()

    def engine(self, plan: Plan, ordinal: int, rows: int | None = None) -> Engine | PipelineEngine:
        """Compile for a plan on `/device:IPU:<ordinal>`, working on the variables' values.

        Args:
          plan: how often and how spread.
          ordinal: of the device; one that is never attached gives an engine that runs nothing.
          rows: keep the data on the device in tables of so many rows.
        """
        shared, local = [resident(v) for v in self.shared], [resident(v) for v in self.local]
        if synthetic.instead_of("parameters"):
            shared, local = synthetic.parameters(self.program.shared), synthetic.parameters(self.program.local)
        if plan.accumulation_dtypes is not None and self.trained:
            kept = (d for d, trained in zip(plan.accumulation_dtypes, self.trained, strict=True) if trained)
            plan = attrs.evolve(plan, accumulation_dtypes=tuple(kept))
        cache = executable_cache()
        if devices.precompiles(ordinal):
            return OfflineEngine(precompiled(self.program, plan, rows, cache), shared, local)
        places = devices_for(plan)
        if places is not None:
            return PipelineEngine(compile_pipeline(self.program, plan, places, cache), shared, local)
        return Engine(compile_program(self.program, plan, rows, cache), shared, local)


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


def executable_cache() -> Cache | None:
    """Where executables are kept (`--executable_cache_path`, else OPENIPU_CACHE)."""
    folder = environment.poplar_flags().executable_cache_path or environment.cache_dir()
    return Cache(folder) if folder else None


def precompiled(program: Program, plan: Plan, rows: int | None, cache: Cache | None) -> Executable:
    """An executable that is kept for another run of the program."""
    if cache is None:
        raise tf.errors.FailedPreconditionError(
            None,
            None,
            "DeviceConnectionType.PRE_COMPILE keeps executables in the executable cache, which has no folder. "
            "Set TF_POPLAR_FLAGS=--executable_cache_path=<folder>.",
        )
    executable = compile_program(program, plan, rows, cache)
    if executable.file is None:
        raise UnsupportedError(
            f"{program.name} cannot be compiled in advance: its executable could not be kept in {cache.folder}. "
            "Programs that print from the device are never kept; for other reasons see the warnings before this."
        )
    log.info("A pre-compiled Poplar program has been saved to %s", executable.file)
    return executable


def compiling(name: str) -> contextlib.AbstractContextManager:
    """Shows the compilation of a module to the user, as `--show_progress_bar` says."""
    wish = {"true": True, "false": False, "auto": None}[environment.poplar_flags().show_progress_bar]
    first = "Lowering" if executable_cache() is not None else "Capture"
    return progress.compiling(name, progress_bar.display(wish, first))


def assemble(
    name: str,
    specs: Sequence[tf.TensorSpec],
    step: Captured,
    gradients: int = 0,
    update: Captured | None = None,
    finish: Captured | None = None,
    staging: Staging | None = None,
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
    """
    local = _unique(step.written)
    parts = [part for part in (step, update, finish) if part is not None]
    mine = {id(v) for v in local}
    shared = [v for v in _unique([v for part in parts for v in part.used]) if id(v) not in mine]
    position = {id(v): i for i, v in enumerate(local)}

    def values(shared_values: Sequence[jax.Array], local_values: Sequence[jax.Array]) -> dict[int, jax.Array]:
        pairs = [*zip(shared, shared_values, strict=True), *zip(local, local_values, strict=True)]
        return {id(variable): value for variable, value in pairs}

    def run_step(shared_values, local_values, batch, key):  # noqa: ANN001, ANN202
        within = None if staging is None else staging.part
        results, written = step(batch, values(shared_values, local_values), key, within)
        return results[:gradients], [written[id(v)] for v in local], results[gradients:]

    def run_update(shared_values, local_values, reduced):  # noqa: ANN001, ANN202
        assert update is not None
        current = values(shared_values, local_values)
        _, written = update(reduced, current)
        changed = {position[i]: value for i, value in written.items() if i in position}
        return [written.get(id(v), current[id(v)]) for v in shared], changed

    def run_finish(shared_values, local_values):  # noqa: ANN001, ANN202
        assert finish is not None
        return finish([], values(shared_values, local_values))[0]

    program = Program(
        name=name,
        shared=tuple(_slot(v) for v in shared),
        local=tuple(_slot(v) for v in local),
        batch=tuple(Slot(s.name or f"input_{i}", s.shape, s.dtype.as_numpy_dtype) for i, s in enumerate(specs)),
        step=run_step,
        update=run_update if update is not None else None,
        finish=run_finish if finish is not None else None,
        needs_key=step.graph.draws,
        prepare=lambda: [part.lowered for part in parts],
        identity=_identity(step, update, finish, gradients, [*shared, *local]),
    )
    return VariableProgram(program, tuple(shared), tuple(local))


def _identity(
    step: Captured, update: Captured | None, finish: Captured | None, gradients: int, variables: Sequence[tf.Variable]
) -> str:
    """A hash of the captured functions, of which variable each of their inputs is, and of the constants in them."""
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
