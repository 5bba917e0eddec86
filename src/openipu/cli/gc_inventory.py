"""The command `gc-inventory`: the attributes of every device of the virtual pod, for people and for programs."""

import json

import click

from openipu.cli import pod
from openipu.cli.device_facts import device_facts
from openipu.hardware import current_system, holders
from openipu.version import __version__


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-j", "--json", "as_json", is_flag=True, help="Print JSON.")
@click.version_option(__version__, prog_name="gc-inventory (openipu)")
def main(as_json: bool) -> None:
    """List the attributes of every virtual device."""
    with pod.said_plainly():
        system = current_system()
        holdings = holders(system)
        loads = pod.loads(holdings)
        devices = [device_facts(system, device, holdings, loads) for device in system.devices()]
    if as_json:
        content = {"openipu": __version__, "virtual": True, "partition": system.name, "devices": devices}
        click.echo(json.dumps(content, indent=2))
        return
    click.echo(f"Virtual devices in partition {system.name}: {len(devices)}")
    for facts in devices:
        click.echo("")
        for key, value in facts.items():
            click.echo(f"{key}: {value}")


if __name__ == "__main__":
    main()
