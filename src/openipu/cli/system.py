"""The command `openipu system`: shows the virtual pod and who holds its IPUs, and chooses another."""

import time

import click
from rich.table import Table

from openipu import settings
from openipu.cli import pod
from openipu.hardware import (
    POD_TARGETS,
    TARGETS,
    System,
    current_system,
    holders,
    ipu_numbers,
    parse_system,
    pod_names,
    short_command,
)


@click.group(invoke_without_command=True)
@click.pass_context
def system(context: click.Context) -> None:
    """Show the virtual pod and who holds its IPUs, or choose another.

    The variable OPENIPU_SYSTEM goes before what was chosen here.
    """
    if context.invoked_subcommand is None:
        with pod.said_plainly():
            _show()


@system.command()
@click.argument("name")
def use(name: str) -> None:
    """Let programs find the virtual system NAME from now on."""
    with pod.said_plainly():
        chosen = parse_system(name, "the command line")
        try:
            settings.choose_system(chosen.name)
        except OSError as error:
            raise click.ClickException(f"The choice cannot be kept in {settings.path()}: {error}.") from None
        click.echo(f"Programs find {chosen.name} ({_kind(chosen)}) from now on; kept in {settings.path()}.")
        _warn_of_variable()


@system.command()
def reset() -> None:
    """Forget the choice: programs find the default again."""
    try:
        forgotten = settings.forget_system()
    except OSError as error:
        raise click.ClickException(f"{settings.path()} cannot be changed: {error}.") from None
    with pod.said_plainly():
        now = current_system()
        click.echo(f"{'The choice is forgotten' if forgotten else 'Nothing was chosen'}: programs find {now.name}.")
        _warn_of_variable()


def _show() -> None:
    name, source = settings.system_choice()
    current = parse_system(name, source)
    held = holders(current)
    target = current.target
    console = pod.console()
    facts = Table.grid(padding=(0, 2))
    busy = sum(len(holding.ipus) for holding in held)
    streaming = f"{pod.size(target.streaming_memory)} of" if target.streaming_memory else "no"
    for key, value in {
        "System": f"{current.name} (virtual), from {source}",
        "IPUs": f"{_kind(current)}: {current.count - busy} free, {busy} held",
        "Each IPU": f"{target.tiles} tiles of {pod.size(target.bytes_per_tile)}, {target.workers} threads a tile, "
        f"{target.clock_hz / 1e9:g} GHz",
        "": f"{target.peak_flops / 1e12:.0f} TFLOPS in float16, {pod.size(target.memory)} on chip, "
        f"{streaming} streaming memory",
    }.items():
        facts.add_row(key, value)
    console.print(facts)
    console.print()
    if held:
        table = Table.grid(padding=(0, 2))
        table.add_row("IPUs", "PID", "User", "Since", "Command")
        for holding in held:
            since = pod.duration(time.time() - holding.since)
            command = short_command(holding.command)
            table.add_row(ipu_numbers(holding.ipus), str(holding.pid), holding.user, since, command)
        console.print(table)
        console.print()
    console.print("Choose another with `openipu system use NAME`, or for one program with OPENIPU_SYSTEM=NAME:")
    for name in POD_TARGETS:
        console.print("  " + ", ".join(pod for pod in pod_names() if pod.startswith(name)))
    console.print(f"  or a count and a target, such as 2xbow (targets: {', '.join(TARGETS)})")


def _kind(system: System) -> str:
    return f"{system.count} virtual {system.target.name} IPU{'' if system.count == 1 else 's'}"


def _warn_of_variable() -> None:
    name, source = settings.system_choice()
    if source == "OPENIPU_SYSTEM":
        click.echo(f"OPENIPU_SYSTEM={name} is set and goes before it. Unset the variable to change that.", err=True)
