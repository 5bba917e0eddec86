"""What replicas do together in one execution: random keys, reduced gradients, the update, the end."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from openipu.compiler.passes import rounding
from openipu.program import Plan, Program, Reduction
from openipu.program.replica import ALONE, DEVICES, Spread, tracing_for

Values = list[jax.Array]


def keys(spread: Spread, seeds: jax.Array, index: jax.Array | int) -> jax.Array:
    """The random keys of one step, one for every replica."""
    return spread.mapped(lambda seed: jax.random.fold_in(jax.random.key(seed), index))(seeds)


def reduced(plan: Plan, spread: Spread, total: jax.Array) -> jax.Array:
    """A gradient that was summed over the replicas of a device, as the plan's reduction wants it."""
    if plan.replica_reduction is Reduction.SUM or spread.replicas == 1:
        return total
    return total / total.dtype.type(spread.replicas)


def over_devices(spread: Spread, gradients: Values) -> Values:
    """The gradients of an update, summed over devices: once, all of one type together, whatever was accumulated."""
    if spread.devices == 1:
        return gradients
    made = list(gradients)
    for dtype in dict.fromkeys(g.dtype for g in gradients):
        chosen = [i for i, g in enumerate(gradients) if g.dtype == dtype]
        summed = lax.psum(jnp.concatenate([gradients[i].ravel() for i in chosen]), DEVICES)
        ends = np.cumsum([gradients[i].size for i in chosen])[:-1]
        for index, piece in zip(chosen, jnp.split(summed, ends), strict=True):
            made[index] = piece.reshape(gradients[index].shape)
    return made


def of_first(spread: Spread, values: Values) -> Values:
    """What the first of all replicas has, known to all devices."""
    firsts = [spread.layout.first(v) for v in values]
    if spread.devices == 1 or not firsts:
        return firsts
    # Bit patterns: whatever a value is, a sum of it and zeros is the same value.
    patterns = [_bits(v) for v in firsts]
    here = lax.axis_index(DEVICES) == 0
    joined = jnp.where(here, jnp.concatenate([p.ravel() for p in patterns]), 0)
    pieces = jnp.split(lax.psum(joined, DEVICES), np.cumsum([p.size for p in patterns])[:-1])
    return [
        _value(piece.reshape(pattern.shape), first.dtype)
        for piece, pattern, first in zip(pieces, patterns, firsts, strict=True)
    ]


def _bits(value: jax.Array) -> jax.Array:
    if jnp.issubdtype(value.dtype, jnp.bool_):
        return value.astype(jnp.uint8)
    return lax.bitcast_convert_type(value, jnp.uint8)


def _value(bits: jax.Array, dtype: np.dtype) -> jax.Array:
    return bits.astype(dtype) if jnp.issubdtype(dtype, jnp.bool_) else lax.bitcast_convert_type(bits, dtype)


def add_gradient(total: jax.Array, gradient: jax.Array, seen: jax.Array, plan: Plan, count: int = 1) -> jax.Array:
    """One more micro-batch's gradient, or the sum of several's, into the accumulator as the plan's reduction says."""
    gradient = gradient.astype(total.dtype)
    if plan.accumulation_reduction is Reduction.SUM:
        return total + gradient
    if plan.accumulation_reduction is Reduction.MEAN:
        return total + gradient / total.dtype.type(plan.gradient_accumulation)
    so_far = seen.astype(total.dtype)
    return total * (so_far / (so_far + count)) + gradient / (so_far + count)


def update_key(plan: Plan, spread: Spread, seeds: jax.Array, steps: jax.Array) -> jax.Array:
    """What a weight update may draw from, by the numbers of its steps: the same for all replicas."""
    seed = of_first(spread, [seeds])[0] if plan.stochastic_rounding else spread.layout.first(seeds)
    key = jax.random.fold_in(jax.random.key(seed), jnp.max(steps))
    return jax.random.fold_in(key, rounding.SALT + 1)


def update(
    program: Program, plan: Plan, spread: Spread
) -> Callable[[Values, Values, Values, jax.Array], tuple[Values, Values]] | None:
    """(shared, local, gradients, key) -> (shared, local).

    Local state is read of the first replica, written for all. The key is only drawn from for stochastic rounding.
    """
    if program.update is None:
        return None
    one = program.update

    def apply(shared: Values, local: Values, gradients: Values, key: jax.Array) -> tuple[Values, Values]:
        arguments = (shared, _firsts(one, spread, shared, local, gradients), gradients)
        with tracing_for(ALONE):
            if plan.stochastic_rounding:
                closed, shape = jax.make_jaxpr(one, return_shape=True)(*arguments)
                results = rounding.stochastic(closed, jax.tree.leaves(arguments), key)
                new, written = jax.tree.unflatten(jax.tree.structure(shape), results)
            else:
                new, written = one(*arguments)
        local = list(local)
        for index, value in written.items():
            local[index] = jnp.broadcast_to(value, local[index].shape)
        return list(new), local

    return apply


def _firsts(update: Callable, spread: Spread, shared: Values, local: Values, gradients: Values) -> Values:
    """Local state of the first replica; over devices, only what the update reads is told to all."""
    firsts = [spread.layout.first(v) for v in local]
    if spread.devices == 1 or not firsts:
        return firsts
    with tracing_for(ALONE):
        jaxpr = jax.make_jaxpr(update)(shared, firsts, gradients).jaxpr
    used = {id(v) for equation in jaxpr.eqns for v in equation.invars} | {id(v) for v in jaxpr.outvars}
    variables = jaxpr.invars[len(shared) : len(shared) + len(local)]
    read = [i for i, variable in enumerate(variables) if id(variable) in used]
    for index, value in zip(read, of_first(spread, [local[i] for i in read]), strict=True):
        firsts[index] = value
    return firsts


def finish(program: Program, spread: Spread) -> Callable[[Values, Values], Values]:
    """(shared, local) -> what every replica computes once at the end of an execution.

    Over several processes, each is told what the replicas of all of them have computed.
    """
    if program.finish is None:
        return lambda shared, local: []
    mapped = spread.mapped(program.finish, in_axes=(None, 0))

    def run(shared: Values, local: Values) -> Values:
        finished = list(mapped(shared, local))
        if spread.instances == 1:
            return finished
        lanes = [f if spread.layout.axes else f[None] for f in finished]
        return [lax.all_gather(f, DEVICES, tiled=True) for f in lanes]

    return run
