"""The attributes of a virtual device by the names that gc-info and gc-inventory give them."""

from collections.abc import Iterable, Sequence

from openipu.cli import pod
from openipu.hardware import Device, Holding, System, ipu_numbers, short_command
from openipu.version import __version__

# The link between an IPU and its gateway (reference, 1.5).
LINKS = {"mk1": ("8 GT/s", "8")}
GATEWAY_LINK = ("16 GT/s", "8")


def device_facts(
    system: System, device: Device, holdings: Sequence[Holding], loads: dict[int, pod.Load]
) -> dict[str, str]:
    """What is to be told of a device; everything is text, as the original tools have it.

    Args:
      system: the partition it is in.
      device: the device.
      holdings: who holds which IPUs of the partition.
      loads: the load of these processes.
    """
    target = device.target
    rows = [pod.ipus(system)[ipu] for ipu in device.ipus]
    speed, width = LINKS.get(target.name, GATEWAY_LINK)
    facts = {
        "id": str(device.id),
        "target": "Virtual" if device.count == 1 else "Virtual Multi IPU",
        "partition id": system.name,
        "board type": rows[0].board,
        "board serial": _distinct(row.serial for row in rows),
        "IPU-M host": _distinct(row.host for row in rows),
        "IPU#": _distinct(str(row.number) for row in rows) if device.count == 1 else "multiple",
        "number of IPUs": str(device.count),
        "IPUs": ipu_numbers(device.ipus),
        "ipu architecture": target.architecture,
        "clock": pod.clock(target),
        "number of tiles": str(target.tiles),
        "threads per tile": str(target.workers),
        "memory per tile": str(target.bytes_per_tile),
        "memory per IPU": str(target.memory),
        "exchange memory per IPU": str(target.streaming_memory),
        "graph streaming": _flag(target.streaming_memory > 0),
        "remote buffers": "1" if target.streaming_memory else "0",
        "driver version": f"openipu {__version__}",
        "firmware version": "N/A (virtual)",
        "gateway version": "N/A (virtual)",
        "server version": "N/A (virtual)",
        "error state": "no error",
        "power": "N/A (virtual)",
        "temperature": "N/A (virtual)",
        "routing": "DNC",
        "link speed": speed,
        "link width": width,
        "sync type": "virtual",
        "number of replicas": "1",
        "reconfigurable partition": _flag(True),
    }
    using = [holding for holding in holdings if not set(holding.ipus).isdisjoint(device.ipus)]
    return facts | _use(using, loads)


def _use(using: Sequence[Holding], loads: dict[int, pod.Load]) -> dict[str, str]:
    if not using:
        return {"attached": _flag(False)}
    processes = {holding.pid: short_command(holding.command) for holding in using}
    load = [loads[pid] for pid in processes if pid in loads]
    return {
        "attached": _flag(True),
        "attached process": "; ".join(f"{pid} {command}" for pid, command in processes.items()),
        "host cpu": f"{sum(one.cpu for one in load):.0f}%",
        "host rss": str(sum(one.rss for one in load)),
    }


def _flag(value: bool) -> str:
    return "yes" if value else "no"


def _distinct(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))
