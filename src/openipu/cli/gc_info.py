"""The command `gc-info`: lists the devices of the virtual pod, and tells what one of them is."""

import click

from openipu.cli import pod
from openipu.cli.device_facts import device_facts
from openipu.hardware import Device, System, attached_ipus, current_system, holders
from openipu.version import __version__

TILES_PER_ROW = 64


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-l", "--list-devices", "listing", is_flag=True, help="List all devices: single IPUs, pairs, fours, …")
@click.option("-i", "--device-info", "info", is_flag=True, help="Print the attributes of the device given by -d.")
@click.option("--tile-overview", "tiles", is_flag=True, help="Draw the tiles of the device given by -d.")
@click.option(
    "-d", "--device-id", "device_id", type=int, metavar="N", help="The id of a device, as --list-devices has it."
)
@click.option("--all-partitions", is_flag=True, help="List every virtual pod in which a program holds IPUs.")
@click.version_option(__version__, prog_name="gc-info (openipu)")
@click.pass_context
def main(
    context: click.Context, listing: bool, info: bool, tiles: bool, device_id: int | None, all_partitions: bool
) -> None:
    """Tell about the devices of the virtual pod."""
    if not (listing or info or tiles or all_partitions):
        click.echo(context.get_help())
        return
    if (info or tiles) and device_id is None:
        raise click.UsageError("--device-info and --tile-overview need the id of a device. Add -d 0, for example.")
    with pod.said_plainly():
        if listing or all_partitions:
            for system in pod.partitions(all_partitions):
                click.echo("\n".join(_listing(system)))
        if device_id is not None:
            system = current_system()
            device = system.by_id(device_id)
            if info:
                holdings = holders(system)
                facts = device_facts(system, device, holdings, pod.loads(holdings))
                click.echo("\n".join(f"{key}: {value}" for key, value in facts.items()))
            if tiles:
                click.echo("\n".join(_overview(system, device)))


def _listing(system: System) -> list[str]:
    lines = [f"Virtual devices in partition {system.name}:"]
    rows = pod.ipus(system)
    for device in system.devices():
        name = f"-+- Id: [{device.id}], target:"
        if device.count == 1:
            lines.append(f"{name} [Virtual], {_place(rows[device.ipus[0]])}")
            continue
        lines.append(f"{name} [Virtual Multi IPU]")
        for number, ipu in enumerate(device.ipus):
            lines.append(f" |--- Id: [{ipu}], DNC Id: [{number}], {_place(rows[ipu])}")
    return lines


def _place(ipu: pod.Ipu) -> str:
    return f"IPU-M host: [{ipu.host}], IPU#: [{ipu.number}]"


def _overview(system: System, device: Device) -> list[str]:
    held = attached_ipus(system)
    count = system.target.tiles
    lines = [f"Device {device.id} of {system.name} (virtual): {count} tiles an IPU; # attached, . free"]
    for ipu in device.ipus:
        mark = "#" if ipu in held else "."
        lines.append(f"IPU {ipu}:")
        for first in range(0, count, TILES_PER_ROW):
            lines.append(f"{first:5} {mark * min(TILES_PER_ROW, count - first)}")
    return lines


if __name__ == "__main__":
    main()
