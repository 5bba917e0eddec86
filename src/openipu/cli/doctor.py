"""The command `openipu doctor`: what is installed, what works, and what to do about the rest."""

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from openipu.cli import doctor_checks as checks
from openipu.cli.doctor_checks import Finding


@click.command()
def doctor() -> None:
    """Look whether everything that IPU programs need is there and works.

    Exits with 1 if something is broken. What is merely not installed is told with the command that installs it.

    \b
    Example:
      openipu doctor
    """
    console = Console()
    findings = [*checks.versions(), *checks.packages(), *checks.hook(), *checks.variables(), *checks.virtual_system()]
    findings += checks.folders()
    with console.status("Starting JAX"):
        findings += checks.backend()
    findings += checks.kernels()
    console.print(_table(findings))
    broken = sum(finding.broken for finding in findings)
    if broken:
        console.print(f"{broken} thing(s) to repair, see ✗ above.", style="bold red")
        raise SystemExit(1)
    console.print("Everything is in order.", style="bold green")


def _table(findings: list[Finding]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column()
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        sign, style = ("✗", "red") if finding.broken else ("!", "yellow") if finding.advice else ("✓", "green")
        # As text, not markup: paths and messages have brackets of their own.
        table.add_row(Text(sign, style), finding.topic, Text(finding.text))
        if finding.advice:
            table.add_row("", "", Text(f"→ {finding.advice}", style))
    return table
