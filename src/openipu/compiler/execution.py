"""One execution as one pure function: scan over updates and micro-batches, lanes for replicas and for more of them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core

from openipu import environment
from openipu.compiler import folding, replicated
from openipu.compiler.passes import lane_sums, rounding
from openipu.compiler.replicated import Values
from openipu.program import OutputMode, Plan, Program
from openipu.program.replica import Spread, tracing_for

Execution = Callable[[Values, Values, Values, jax.Array], tuple[Values, Values, Values, Values, Values]]

# Beyond it kernels do not become better.
_MOST_EXPECTED = 16


def build(
    program: Program, plan: Plan, spread: Spread, step: core.ClosedJaxpr, structure: Any, tables: bool = False
) -> Execution:
    """The function an execution computes.

    Args:
      program: what one step does.
      plan: how many steps, updates and replicas.
      spread: how the replicas are spread over devices.
      step, structure: the step of one replica and the structure of its results (see `traced_step`).
      tables: the first feed are row numbers; then follows, for every input of a step, the table they choose from.

    Returns:
      A function of one device, (shared, local, feeds, seeds) -> (shared, local, outputs, finished, first). Feeds have
      the axes [device iterations, replica, ...]; local state and seeds have the axis [replica, ...]; all without the
      replica axis when the device has one replica. `first` is the local state of the first of all replicas, for
      programs of several processes: that is what each brings home.
    """

    lanes, run = _steps(program, plan, spread, step, structure)
    update = replicated.update(program, plan, spread)
    # Steps between two updates, as so many runs of `lanes` steps each.
    sequence = plan.gradient_accumulation // lanes if update is not None else 1

    def execution(shared: Values, local: Values, feeds: Values, seeds: jax.Array):  # noqa: ANN202
        indices = jnp.arange(plan.device_iterations, dtype=jnp.uint32)
        feeds, batch_of = _from_tables(feeds) if tables else (feeds, list)
        blocks = (indices, feeds)
        if lanes > 1:
            blocks = jax.tree.map(lambda a: a.reshape(-1, lanes, *a.shape[1:]), blocks)
        one_block = jax.tree.map(lambda a: a[0], blocks)

        def one_run(state: tuple, item: tuple):  # noqa: ANN202
            shared, local, last = state
            index, batch = item
            gradients, local, outputs = run(shared, local, batch_of(batch), index, seeds)
            if plan.outputs is OutputMode.FINAL:
                return gradients, (shared, local, [o[-1] for o in outputs] if lanes > 1 else outputs), []
            return gradients, (shared, local, last), outputs

        def one_update(state: tuple, items: tuple):  # noqa: ANN202
            gradients, (shared, local, last), outputs = _accumulate(one_run, state, items, program, plan, lanes)
            if update is not None:
                gradients = replicated.over_devices(spread, gradients)
                key = replicated.update_key(plan, spread, seeds, items[0])
                shared, local = update(shared, local, gradients, key)
            return (shared, local, last), outputs

        outputs = None
        if plan.outputs is OutputMode.FINAL:
            # What the outputs of a step look like: the carry before the first one.
            shapes = jax.eval_shape(lambda: one_run((shared, local, None), one_block)[1][2])
            outputs = [jnp.zeros(o.shape, o.dtype) for o in shapes]
        if sequence > 1:
            blocks = jax.tree.map(lambda a: a.reshape(-1, sequence, *a.shape[1:]), blocks)
        length = plan.device_iterations // (lanes * sequence)
        (shared, local, last), every = _scan(one_update, (shared, local, outputs), blocks, length)
        if plan.outputs is OutputMode.FINAL:
            every = last
        else:
            every = [o.reshape(plan.device_iterations, *o.shape[1 + (lanes > 1) + (sequence > 1) :]) for o in every]
        finished = replicated.finish(program, spread)(shared, local)
        first = replicated.of_first(spread, local) if plan.instances > 1 and program.together else []
        return shared if update is not None else [], local, every, finished, first

    return execution


def traced_step(program: Program, spread: Spread, stochastic_rounding: bool) -> tuple[core.ClosedJaxpr, Any]:
    """The step of one replica as a jaxpr, and the structure of its results."""
    if program.prepare is not None:
        program.prepare()
    abstract = [[s.abstract for s in group] for group in (program.shared, program.local, program.batch)]
    with tracing_for(spread):
        trace = jax.make_jaxpr(program.step, axis_env=spread.axis_names, return_shape=True)
        closed, shape = trace(*abstract, jax.random.key(0))
    if stochastic_rounding:
        closed = _rounded(closed, spread)
    return closed, jax.tree.structure(shape)


def _rounded(step: core.ClosedJaxpr, spread: Spread) -> core.ClosedJaxpr:
    """The step with casts that draw from its key, its last argument."""

    def run(*arguments):  # noqa: ANN202
        return rounding.stochastic(step, arguments, jax.random.fold_in(arguments[-1], rounding.SALT))

    abstract = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in step.in_avals]
    with tracing_for(spread):
        return jax.make_jaxpr(run, axis_env=spread.axis_names)(*abstract)


def _steps(
    program: Program, plan: Plan, spread: Spread, step: core.ClosedJaxpr, structure: Any
) -> tuple[int, Callable]:
    """How many steps run at once, and what runs them on a device's replicas.

    That is (shared, local, batch, index, seeds) -> (reduced gradients, local, outputs); batch, index and outputs have a
    leading axis of steps if there are several.
    """
    alike = _alike(program, plan)
    cut = None
    if alike > 1 and environment.fold():
        cut = folding.fold(step, (len(program.shared), len(program.local), len(program.batch)), structure)
    lanes = cut.lanes(alike) if cut is not None else 1
    if cut is not None and lanes > 1:
        sums = _summed(program, jax.tree.unflatten(structure, step.out_avals)[0])
        one = folding.folded(cut, lanes, sums, spread.axis_names)
        return lanes, _over_replicas(one, plan, spread, lanes)

    def single(*arguments):  # noqa: ANN202
        return jax.tree.unflatten(structure, core.jaxpr_as_fun(step)(*jax.tree.leaves(arguments)))

    return 1, _over_replicas(single, plan, spread, 1)


def _alike(program: Program, plan: Plan) -> int:
    """How many steps see the same weights."""
    return plan.gradient_accumulation if program.update is not None else plan.device_iterations


def expected_lanes(program: Program, plan: Plan, spread: Spread) -> int:
    """How many steps will probably be computed side by side on a device: replicas, and steps with the same weights."""
    alike = min(_alike(program, plan), _MOST_EXPECTED) if environment.fold() else 1
    return alike * spread.lanes


def _summed(program: Program, gradients: Sequence[Any]) -> list[bool]:
    """Which gradients may be summed over micro-batches before they come to their accumulators.

    Narrow ones are added one by one: their sum could overflow, or be rounded differently.
    """
    dtypes = program.accumulators or (None,) * len(gradients)
    return [g.dtype.itemsize >= 4 and (d is None or g.dtype == d) for g, d in zip(gradients, dtypes, strict=True)]


def _over_replicas(step: Callable, plan: Plan, spread: Spread, lanes: int) -> Callable:
    """The step, or so many steps at once, of a device's replicas (see `_steps`)."""
    # Steps come before replicas.
    axis = int(lanes > 1)
    mapped = spread.mapped(step, in_axes=(None, 0, axis, axis), out_axes=(0, 0, axis))

    def run(shared: Values, local: Values, batch: Values, index: jax.Array, seeds: jax.Array):  # noqa: ANN202
        keys = partial(replicated.keys, spread, seeds)
        arguments = (shared, local, batch, (jax.vmap(keys) if lanes > 1 else keys)(index))
        if not spread.layout.axes:
            gradients, local, outputs = mapped(*arguments)
            return [replicated.reduced(plan, spread, g) for g in gradients], local, outputs
        # Gradients are summed where they are made: over replicas and examples at once.
        closed, shape = jax.make_jaxpr(mapped, return_shape=True)(*arguments)
        sums = jax.tree.leaves(([True] * len(shape[0]), [False] * len(shape[1]), [False] * len(shape[2])))
        flat = lane_sums.summed(closed, sums)(*jax.tree.leaves(arguments))
        gradients, local, outputs = jax.tree.unflatten(jax.tree.structure(shape), flat)
        return [replicated.reduced(plan, spread, g) for g in gradients], local, outputs

    return run


def _accumulate(one_run: Callable, state: tuple, items: tuple, program: Program, plan: Plan, lanes: int):  # noqa: ANN202
    """Steps up to one weight update: their gradients reduced, their outputs stacked."""
    if plan.gradient_accumulation == 1 or program.update is None:
        return one_run(state, items)
    several = plan.gradient_accumulation > lanes
    first = jax.tree.map(lambda a: a[0], items) if several else items
    made = jax.eval_shape(lambda s, i: one_run(s, i)[0], state, first)
    summed = _summed(program, made) if lanes > 1 else [True] * len(made)
    shapes = [g.shape if whole else g.shape[1:] for g, whole in zip(made, summed, strict=True)]
    dtypes = [d or g.dtype for g, d in zip(made, program.accumulators or (None,) * len(made), strict=True)]
    zeros = [jnp.zeros(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]

    def add(total: jax.Array, gradient: jax.Array, whole: bool, seen: jax.Array) -> jax.Array:
        if whole:
            return replicated.add_gradient(total, gradient, seen, plan, lanes)
        for lane in range(lanes):
            total = replicated.add_gradient(total, gradient[lane], seen + lane, plan)
        return total

    def body(carry: tuple, item: tuple):  # noqa: ANN202
        (sums, seen), state = carry
        gradients, state, outputs = one_run(state, item)
        sums = [add(*given, seen) for given in zip(sums, gradients, summed, strict=True)]
        return ((sums, seen + lanes), state), outputs

    start = ((zeros, jnp.zeros((), jnp.int32)), state)
    ((sums, _), state), outputs = lax.scan(body, start, items) if several else body(start, items)
    return [s.astype(g.dtype) for s, g in zip(sums, made, strict=True)], state, outputs


def _scan(body: Callable, state: tuple, items: tuple, length: int):  # noqa: ANN202
    """A scan that is a plain call when there is one item: XLA optimises across its edges then."""
    if length > 1:
        return lax.scan(body, state, items, length=length)
    state, outputs = body(state, jax.tree.map(lambda a: a[0], items))
    return state, jax.tree.map(lambda o: o[None], outputs)


def _from_tables(feeds: Values) -> tuple[Values, Callable[[Values], Values]]:
    """The feed of row numbers, and what makes one step's inputs of its row numbers."""
    numbers, *tables = feeds
    return [numbers], lambda rows: [t.at[rows[0]].get(mode="promise_in_bounds") for t in tables]


def feed_shapes(
    batch: Sequence[jax.ShapeDtypeStruct], plan: Plan, rows: int | None = None
) -> list[jax.ShapeDtypeStruct]:
    """The shapes of the feeds of one execution, of all instances; with tables of so many rows if given."""

    def shape(one: tuple[int, ...]) -> tuple[int, ...]:
        return plan.everyone.shape(one, plan.device_iterations)

    if rows is not None:
        numbers = jax.ShapeDtypeStruct(shape(batch[0].shape[:1]), jnp.int32)
        return [numbers, *(jax.ShapeDtypeStruct((rows, *b.shape[1:]), b.dtype) for b in batch)]
    return [jax.ShapeDtypeStruct(shape(b.shape), b.dtype) for b in batch]
