"""Where an execution runs: the mesh of the devices of all instances, and one program for every device of it."""

from collections.abc import Callable
from typing import Any

import attrs
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from openipu import instances
from openipu.errors import InstanceError
from openipu.program import OutputMode, Plan
from openipu.program.replica import DEVICES, Spread

_EVERYWHERE = PartitionSpec()
_SPREAD = PartitionSpec(DEVICES)
_STEPS = PartitionSpec(None, DEVICES)


@attrs.frozen
class Places:
    """Where values of each kind live.

    Attributes:
      devices: that run the program, in the order of the replicas.
      shared: values that are equal for all replicas.
      local: values that every replica has its own of.
      feeds: those of every step of every replica.
    """

    devices: tuple[Any, ...]
    shared: Sharding
    local: Sharding
    feeds: Sharding


def here(plan: Plan) -> Spread:
    """A plan's replicas on the devices there are: the most that carry the same number of replicas each."""
    most = min(plan.replicas, jax.local_device_count())
    return plan.over(max(n for n in range(1, most + 1) if plan.replicas % n == 0))


def places(spread: Spread) -> Places:
    """Where the values of a program live whose replicas are spread so."""
    mesh = _mesh(spread)
    devices = tuple(mesh.devices.flat)
    if len(devices) == 1:
        alone = SingleDeviceSharding(devices[0])
        return Places(devices, alone, alone, alone)
    shardings = [NamedSharding(mesh, spec) for spec in (_EVERYWHERE, _SPREAD, _STEPS)]
    return Places(devices, *shardings)


def results(plan: Plan, where: Places) -> tuple[Sharding, ...]:
    """Where an execution leaves shared and local state, outputs, what its end computes, and the first's local state."""
    outputs = where.local if plan.outputs is OutputMode.FINAL else where.feeds
    return where.shared, where.local, outputs, where.shared if plan.instances > 1 else where.local, where.shared


def over_devices(execution: Callable, plan: Plan, spread: Spread, tables: int | None) -> Callable:
    """The execution of one device's replicas as one of all devices'; values are whole to its caller.

    Args:
      execution: see `openipu.compiler.execution.build`.
      plan, spread: what it returns, and how its replicas are spread.
      tables: how many of the feeds are tables, after the row numbers; None when feeds are the data themselves.
    """
    if spread.devices == 1:
        return execution
    outputs = _SPREAD if plan.outputs is OutputMode.FINAL else _STEPS
    finished = _EVERYWHERE if plan.instances > 1 else _SPREAD
    feeds = _STEPS if tables is None else [_STEPS] + [_EVERYWHERE] * tables

    def of_device(shared: list, local: list, feeds: list, seeds: jax.Array) -> tuple:
        if spread.layout.axes:
            return execution(shared, local, feeds, seeds)
        # A device with a single replica: its axis is only there for the other devices.
        fed = [f[:, 0] for f in feeds] if tables is None else [feeds[0][:, 0], *feeds[1:]]
        shared, local, outputs, finished, first = execution(shared, [v[0] for v in local], fed, seeds[0])
        outputs = [o[None] if plan.outputs is OutputMode.FINAL else o[:, None] for o in outputs]
        finished = finished if plan.instances > 1 else [f[None] for f in finished]
        return shared, [v[None] for v in local], outputs, finished, first

    return jax.shard_map(
        of_device,
        mesh=_mesh(spread),
        in_specs=(_EVERYWHERE, _SPREAD, feeds, _SPREAD),
        out_specs=(_EVERYWHERE, _SPREAD, outputs, finished, _EVERYWHERE),
        check_vma=False,
    )


def _mesh(spread: Spread) -> Mesh:
    """As many devices of every instance that acts together."""
    if spread.instances == 1:
        return Mesh(np.array(jax.local_devices()[: spread.devices]), (DEVICES,))
    members = instances.current()
    if len(members) != spread.instances:
        raise InstanceError(
            f"The program is made for {spread.instances} instances, but {len(members)} act together here. "
            "Call popdist.init() before models are made, and use a model on the instances it was made on."
        )
    each = spread.devices // spread.instances
    chosen = [[d for d in jax.devices() if d.process_index == member][:each] for member in members]
    return Mesh(np.array(chosen).reshape(-1), (DEVICES,))
