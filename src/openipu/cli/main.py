"""The command `openipu`: a list of commands, each imported only when it is used."""

import importlib

import click

from openipu.version import __version__

# Name: where the command is, and what the list says of it (so that `openipu --help` imports none of them).
COMMANDS = {
    "cache": ("openipu.cli.cache:cache", "List, check and prune compiled executables."),
    "demo": ("openipu.cli.demo:demo", "Compare virtual IPUs with stock Keras on small models."),
    "doctor": ("openipu.cli.doctor:doctor", "Look whether everything that IPU programs need is there and works."),
    "plan": ("openipu.cli.plan:plan", "Compare ways to spread a training program over IPUs."),
    "report": ("openipu.cli.report:report", "Run a program and report what real IPUs would need for it."),
    "run": ("openipu.cli.run:run", "Run a Python program on virtual IPUs."),
    "schedule": ("openipu.cli.schedule:schedule", "Show when each IPU works on which pipeline stage."),
    "system": ("openipu.cli.system:system", "Show the virtual pod and who holds it, or choose another."),
}


class _LazyGroup(click.Group):
    """A group that knows the names of its commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        return getattr(importlib.import_module(module), name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="openipu")
def main() -> None:
    """Run programs written for Graphcore IPUs on the machine you have."""
