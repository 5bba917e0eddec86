"""The command `gc-monitor`: the IPUs of the virtual pod and the processes that hold them."""

import json
import time
from typing import Any

import attrs
import click
from rich import box
from rich.console import Console
from rich.table import Table

from openipu.cli import pod
from openipu.hardware import Holding, System, holders, ipu_numbers, short_command
from openipu.version import __version__

MAX_COLUMNS = 140
ROOMY_COLUMNS = 100


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--no-card-info", is_flag=True, help="Leave out the table of IPUs.")
@click.option("--all-partitions", is_flag=True, help="Show every virtual pod in which a program holds IPUs.")
@click.option("-j", "--json", "as_json", is_flag=True, help="Print JSON.")
@click.version_option(__version__, prog_name="gc-monitor (openipu)")
def main(no_card_info: bool, all_partitions: bool, as_json: bool) -> None:
    """Show the virtual IPUs and the processes attached to them.

    Virtual IPUs have no temperature and draw no power. CPU and RSS are the load of the process on this machine:
    processor time in per cent of one core, and memory.
    """
    with pod.said_plainly():
        found = [(system, holders(system)) for system in pod.partitions(all_partitions)]
    loads = pod.loads(holding for _, holdings in found for holding in holdings)
    if as_json:
        content = [_content(system, holdings, loads, not no_card_info) for system, holdings in found]
        click.echo(json.dumps({"openipu": __version__, "virtual": True, "partitions": content}, indent=2))
        return
    console = pod.console()
    for system, holdings in found:
        if not no_card_info:
            _show_cards(console, system)
        _show_processes(console, system, holdings, loads)


def _content(system: System, holdings: tuple[Holding, ...], loads: dict[int, pod.Load], cards: bool) -> dict[str, Any]:
    content: dict[str, Any] = {"name": system.name, "state": "active", "ipus": system.count}
    if cards:
        content["cards"] = [{**attrs.asdict(ipu), "routing": "DNC"} for ipu in pod.ipus(system)]
    content["processes"] = [
        {
            "pid": holding.pid,
            "command": holding.command,
            "user": holding.user,
            "seconds": round(time.time() - holding.since, 1),
            "device": holding.device,
            "ipus": list(holding.ipus),
            "clock": pod.clock(system.target),
            "host cpu percent": loads[holding.pid].cpu,
            "host rss bytes": loads[holding.pid].rss,
        }
        for holding in holdings
        if holding.pid in loads
    ]
    return content


def _show_cards(console: Console, system: System) -> None:
    _show_title(console, "gc-monitor", f"Partition: {system.name} [active] has {system.count} virtual IPUs")
    table = _table(console, "IPU-M", "Serial", "IPU-M SW", "Type", "ID", "IPU#", "Routing")
    size = pod.BOARDS[system.target.name][1]
    for ipu in pod.ipus(system):
        last_of_board = ipu.id % size == size - 1
        cells = (ipu.host, ipu.serial, __version__, ipu.board, ipu.id, ipu.number, "DNC")
        table.add_row(*map(str, cells), end_section=last_of_board)
    console.print(table)


def _show_processes(
    console: Console, system: System, holdings: tuple[Holding, ...], loads: dict[int, pod.Load]
) -> None:
    rows = [holding for holding in holdings if holding.pid in loads]
    if not rows:
        _show_title(console, f"No attached processes in partition {system.name} (virtual)")
        return
    _show_title(console, f"Attached processes in partition {system.name} (virtual)", "CPU, RSS: host process")
    table = _table(console, "PID", "Command", "Time", "User", "ID", "Clock", "CPU", "RSS")
    table.columns[1].ratio = 1
    table.columns[1].justify = "left"
    for holding in rows:
        load = loads[holding.pid]
        table.add_row(
            str(holding.pid),
            short_command(holding.command),
            pod.duration(time.time() - holding.since),
            holding.user,
            ipu_numbers(holding.ipus),
            pod.clock(system.target),
            f"{load.cpu:.0f}%",
            pod.size(load.rss),
        )
    console.print(table)


def _show_title(console: Console, *cells: str) -> None:
    table = _table(console, *cells)
    table.show_header = False
    table.columns[max(range(len(cells)), key=lambda i: len(cells[i]))].ratio = 1
    table.add_row(*cells)
    console.print(table)


def _table(console: Console, *headers: str) -> Table:
    width = min(console.width, MAX_COLUMNS)
    table = Table(box=box.ASCII2, width=width, padding=(0, 1 if width >= ROOMY_COLUMNS else 0), header_style="")
    for header in headers:
        table.add_column(header, justify="center", no_wrap=True, overflow="crop")
    return table


if __name__ == "__main__":
    main()
