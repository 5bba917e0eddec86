"""One execution as one pure function: scan over updates, over accumulated micro-batches, lanes for replicas."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core

from openipu.compiler.passes import lane_sums
from openipu.program import OutputMode, Plan, Program, Reduction
from openipu.program.replica import AXIS, tracing_for

Values = list[jax.Array]
Execution = Callable[[Values, Values, Values, jax.Array], tuple[Values, Values, Values, Values]]


def build(program: Program, plan: Plan, step: core.ClosedJaxpr, structure: Any, tables: bool = False) -> Execution:
    """The function an execution computes.

    Args:
      program: what one step does.
      plan: how many steps, updates and replicas.
      step, structure: the step of one replica and the structure of its results (see `traced_step`).
      tables: the first feed are row numbers; then follows, for every input of a step, the table they choose from.

    Returns:
      A function (shared, local, feeds, seeds) -> (shared, local, outputs, finished). Feeds have the axes
      [device iterations, replica, ...]; local state and seeds have the axis [replica, ...]; all without the replica
      axis when there is one replica.
    """

    def one(*arguments):  # noqa: ANN202
        return jax.tree.unflatten(structure, core.jaxpr_as_fun(step)(*jax.tree.leaves(arguments)))

    run = _over_replicas(one, plan)
    update = _update_of(program, plan)

    def execution(shared: Values, local: Values, feeds: Values, seeds: jax.Array):  # noqa: ANN202
        indices = jnp.arange(plan.device_iterations, dtype=jnp.uint32)
        feeds, batch_of = _from_tables(feeds) if tables else (feeds, list)
        first = batch_of([f[0] for f in feeds])
        outputs = _zeros(run, shared, local, first, seeds) if plan.outputs is OutputMode.FINAL else None

        def one_step(state: tuple, item: tuple):  # noqa: ANN202
            shared, local, last = state
            index, batch = item
            gradients, local, outputs = run(shared, local, batch_of(batch), index, seeds)
            if plan.outputs is OutputMode.FINAL:
                return gradients, (shared, local, outputs), []
            return gradients, (shared, local, last), outputs

        def one_update(state: tuple, items: tuple):  # noqa: ANN202
            gradients, (shared, local, last), outputs = _accumulate(one_step, state, items, plan)
            if update is not None:
                shared, local = update(shared, local, gradients)
            return (shared, local, last), outputs

        blocks = (indices, feeds)
        if plan.gradient_accumulation > 1:
            blocks = jax.tree.map(lambda a: a.reshape(plan.updates, plan.gradient_accumulation, *a.shape[1:]), blocks)
        (shared, local, last), every = _scan(one_update, (shared, local, outputs), blocks, plan.updates)
        if plan.outputs is OutputMode.FINAL:
            every = last
        elif plan.gradient_accumulation > 1:
            every = [o.reshape(plan.device_iterations, *o.shape[2:]) for o in every]
        finished = _finish(program, plan, shared, local)
        return shared if update is not None else [], local, every, finished

    return execution


def traced_step(program: Program, plan: Plan) -> tuple[core.ClosedJaxpr, Any]:
    """The step of one replica as a jaxpr, and the structure of its results."""
    if program.prepare is not None:
        program.prepare()
    abstract = [[s.abstract for s in group] for group in (program.shared, program.local, program.batch)]
    with tracing_for(plan.replicas):
        axis = [(AXIS, plan.replicas)] if plan.replicas > 1 else []
        closed, shape = jax.make_jaxpr(program.step, axis_env=axis, return_shape=True)(*abstract, jax.random.key(0))
    return closed, jax.tree.structure(shape)


def _over_replicas(step: Callable, plan: Plan) -> Callable:
    """The step of all replicas: (shared, local, batch, index, seeds) -> (reduced gradients, local, outputs)."""

    def one(shared: Values, local: Values, batch: Values, index: jax.Array, seeds: jax.Array):  # noqa: ANN202
        return step(shared, local, batch, jax.random.fold_in(jax.random.key(seeds), index))

    if plan.replicas == 1:
        return one

    def lanes(shared: Values, local: Values, batch: Values, index: jax.Array, seeds: jax.Array):  # noqa: ANN202
        keys = jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(seed), index))(seeds)
        mapped = jax.vmap(step, in_axes=(None, 0, 0, 0), axis_name=AXIS, axis_size=plan.replicas)
        closed, shape = jax.make_jaxpr(mapped, return_shape=True)(shared, local, batch, keys)
        sums = jax.tree.leaves(([True] * len(shape[0]), [False] * len(shape[1]), [False] * len(shape[2])))
        flat = lane_sums.summed(closed, sums)(*jax.tree.leaves((shared, local, batch, keys)))
        gradients, local, outputs = jax.tree.unflatten(jax.tree.structure(shape), flat)
        if plan.replica_reduction is not Reduction.SUM:
            gradients = [g / g.dtype.type(plan.replicas) for g in gradients]
        return gradients, local, outputs

    return lanes


def _update_of(program: Program, plan: Plan) -> Callable | None:
    """(shared, local, gradients) -> (shared, local); local state is read from and written for all replicas."""
    if program.update is None:
        return None
    update = program.update

    def apply(shared: Values, local: Values, gradients: Values) -> tuple[Values, Values]:
        lane = local if plan.replicas == 1 else [v[0] for v in local]
        with tracing_for(1):
            new, written = update(shared, lane, gradients)
        local = list(local)
        for index, value in written.items():
            local[index] = value if plan.replicas == 1 else jnp.broadcast_to(value, local[index].shape)
        return list(new), local

    return apply


def _accumulate(one_step: Callable, state: tuple, items: tuple, plan: Plan):  # noqa: ANN202
    """Steps up to one weight update: their gradients reduced, their outputs stacked."""
    if plan.gradient_accumulation == 1:
        return one_step(state, items)
    count = plan.gradient_accumulation
    first = jax.tree.map(lambda a: a[0], items)
    gradients = jax.eval_shape(lambda s, i: one_step(s, i)[0], state, first)
    dtypes = plan.accumulation_dtypes or (None,) * len(gradients)
    zeros = [jnp.zeros(g.shape, d or g.dtype) for g, d in zip(gradients, dtypes, strict=True)]

    def body(carry: tuple, item: tuple):  # noqa: ANN202
        (sums, seen), state = carry
        gradients, state, outputs = one_step(state, item)
        sums = [add_gradient(s, g.astype(s.dtype), seen, plan) for s, g in zip(sums, gradients, strict=True)]
        return ((sums, seen + 1), state), outputs

    ((sums, _), state), outputs = lax.scan(body, ((zeros, jnp.zeros((), jnp.int32)), state), items, length=count)
    return [s.astype(g.dtype) for s, g in zip(sums, gradients, strict=True)], state, outputs


def add_gradient(total: jax.Array, gradient: jax.Array, seen: jax.Array, plan: Plan) -> jax.Array:
    """One more gradient into the accumulator, as the plan's reduction says."""
    if plan.accumulation_reduction is Reduction.SUM:
        return total + gradient
    if plan.accumulation_reduction is Reduction.MEAN:
        return total + gradient / total.dtype.type(plan.gradient_accumulation)
    so_far = seen.astype(total.dtype)
    return total * (so_far / (so_far + 1)) + gradient / (so_far + 1)


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


def _zeros(step: Callable, shared: Values, local: Values, first: Values, seeds: jax.Array) -> Values:
    """What the outputs of a step look like, as zeros: the carry before the first step."""
    outputs = jax.eval_shape(lambda: step(shared, local, first, jnp.uint32(0), seeds)[2])
    return [jnp.zeros(o.shape, o.dtype) for o in outputs]


def _finish(program: Program, plan: Plan, shared: Values, local: Values) -> Values:
    if program.finish is None:
        return []
    if plan.replicas == 1:
        with tracing_for(1):
            return list(program.finish(shared, local))
    with tracing_for(plan.replicas):
        lanes = jax.vmap(program.finish, in_axes=(None, 0), axis_name=AXIS, axis_size=plan.replicas)
        return list(lanes(shared, local))


def feed_shapes(
    batch: Sequence[jax.ShapeDtypeStruct], plan: Plan, rows: int | None = None
) -> list[jax.ShapeDtypeStruct]:
    """The shapes of the feeds of one execution; with tables of so many rows if given."""
    lead = (plan.device_iterations,) if plan.replicas == 1 else (plan.device_iterations, plan.replicas)
    if rows is not None:
        numbers = jax.ShapeDtypeStruct((*lead, batch[0].shape[0]), jnp.int32)
        return [numbers, *(jax.ShapeDtypeStruct((rows, *b.shape[1:]), b.dtype) for b in batch)]
    return [jax.ShapeDtypeStruct((*lead, *b.shape), b.dtype) for b in batch]
