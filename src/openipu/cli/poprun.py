"""The command `poprun`: starts the instances of a program on one host or many."""

import ipaddress
import os
import sys
import time
from pathlib import Path
from typing import Any

import click

from openipu import environment
from openipu.launch import arguments, configuration, hosts, topology, variables
from openipu.launch.arguments import Switch
from openipu.launch.connection import shell_of
from openipu.launch.errors import LaunchError
from openipu.launch.job import Job, Wishes
from openipu.launch.output import Output

# Options that steer hardware, or a launcher that is not here: accepted, so that scripts run unchanged.
WITHOUT_EFFECT: dict[str, tuple[str, Any]] = {
    "--num-ilds": ("link domains of the partition", int),
    "--vipu-server-host": ("the V-IPU controller", str),
    "--vipu-server-port": ("the V-IPU controller's port", int),
    "--vipu-server-timeout": ("seconds for the V-IPU controller", int),
    "--vipu-partition": ("the partition", str),
    "--vipu-partition-attempts": ("attempts to bind to the partition", int),
    "--update-partition": ("whether a partition that does not fit is changed", Switch()),
    "--reset-partition": ("whether the partition is reset before the run", Switch()),
    "--remove-partition": ("whether the partition is removed afterwards", Switch()),
    "--vipu-cluster": ("the cluster of a new partition", str),
    "--vipu-allocation": ("the allocation of a new partition", str),
    "--numa-aware": ("whether instances are bound to NUMA nodes", Switch()),
    "--process-placement": ("how instances are bound to processors", str),
    "--allow-run-as-root": ("whether mpirun may run as root", Switch()),
}


class Subnet(click.ParamType):
    """A network of addresses."""

    name = "network"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            ipaddress.ip_network(str(value), strict=False)
        except ValueError as error:
            self.fail(f"Expected a network such as 10.1.0.0/16. Received: {value!r} ({error}).", param, ctx)
        return str(value)


class _Poprun(click.Command):
    """A command whose options end where the program begins."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        kinds: dict[str, set[str]] = {"valued": set(), "switches": set(), "flags": {"--help"}}
        for parameter in self.params:
            if not isinstance(parameter, click.Option):
                continue
            kind = "switches" if isinstance(parameter.type, Switch) else "valued"
            kinds["flags" if parameter.is_flag or parameter.count else kind].update(parameter.opts)
        return super().parse_args(ctx, arguments.expanded(args, **kinds))

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS]", "PROGRAM", "[ARGS]..."]


def _without_effect(command: Any) -> Any:
    for name, (meaning, kind) in reversed(WITHOUT_EFFECT.items()):
        command = click.option(name, type=kind, help=f"No effect here: {meaning}.")(command)
    return command


@click.command(cls=_Poprun, context_settings={"help_option_names": ["--help"], "max_content_width": 110})
@click.option("-H", "--host", metavar="LIST", help="Hosts of the instances, such as a,b:2,node[0-2,4]; b has two.")
@click.option("--hostfile", type=click.Path(path_type=Path), help="A file with one host a line, in place of --host.")
@click.option("--num-replicas", type=click.IntRange(1), default=1, show_default=True, help="Replicas of all instances.")
@click.option("--ipus-per-replica", type=click.IntRange(1), default=1, show_default=True, help="IPUs of a replica.")
@click.option("--num-instances", type=click.IntRange(1), help="Processes; replicas are divided evenly. Default: 1.")
@click.option("--executable-cache-path", metavar="DIR", help="Where all instances share compiled executables.")
@click.option(
    "--host-subnet", type=Subnet(), metavar="CIDR", help="The network that the instances meet in, such as 10.1.0.0/16."
)
@click.option("--only-output-from-instance", type=click.IntRange(0), metavar="N", help="Hide the others' output.")
@click.option("--print-topology", type=Switch(), default=False, help="Draw hosts, instances and replicas.")
@click.option("--offline-mode", type=Switch(), default=False, help="Attach no IPUs.")
@click.option(
    "--mpi-global-args", multiple=True, metavar="ARGS", help="Of mpirun's, -x and --mca plm_rsh_* have effect."
)
@click.option("--mpi-local-args", multiple=True, metavar="ARGS", help="Of mpirun's, -x has effect.")
@click.option("--instance-mpi-local-args", multiple=True, metavar="N:ARGS", help="The same for one instance.")
@click.option("--import-config", type=click.Path(path_type=Path), help="Read options from a file; these here win.")
@click.option("--export-config", type=click.Path(path_type=Path), help="Write the options to a file.")
@click.option("--overwrite-config", type=Switch(), default=False, help="Whether that file may exist.")
@click.option("-v", "--verbose", count=True, help="Say the steps; twice: all of them, and the topology.")
@click.option("--vv", is_flag=True, help="As -vv.")
@click.option("--debug", is_flag=True, help="As -vv.")
@click.option("--version", is_flag=True, help="Show the version.")
@click.option("--version-format", type=click.Choice(["text", "full-text", "full-json"]), default="text")
@_without_effect
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def poprun(ctx: click.Context, program: tuple[str, ...], **options: Any) -> None:
    """Run a program in several instances: processes on this host or on others, with replicas divided among them.

    Everything after the program is the program's own. When an instance dies, the others are ended, and the exit code
    is that of the one that died first.

    \b
    Examples:
      poprun --num-instances 2 --num-replicas 4 python train.py --epochs 3
      poprun --host node[0-3] --num-instances 8 --num-replicas 8 python train.py
    """
    if options["version"]:
        click.echo(configuration.versions(options["version_format"]))
        return
    try:
        given = {n for n in options if ctx.get_parameter_source(n) is click.core.ParameterSource.COMMANDLINE}
        if options["import_config"] is not None:
            imported = configuration.read(options["import_config"], options, given)
            options |= imported
            given |= set(imported)
        if options["export_config"] is not None:
            configuration.write(options["export_config"], options, options["overwrite_config"])
        if not program:
            if options["export_config"] is not None:
                return
            raise click.UsageError("Expected a program. Try `poprun --num-instances 2 python train.py`.")
        sys.exit(_launch(program, options, given))
    except LaunchError as error:
        _complain(str(error))
        sys.exit(1)


def _launch(program: tuple[str, ...], options: dict[str, Any], given: set[str]) -> int:
    verbose = 2 if options["vv"] or options["debug"] else options["verbose"]
    made = topology.arrange(
        _hosts(options), options["num_instances"], options["num_replicas"], options["ipus_per_replica"]
    )
    only = options["only_output_from_instance"]
    if only is not None and only >= len(made.instances):
        raise LaunchError(f"--only-output-from-instance must be below {len(made.instances)}. Received: {only}.")
    if options["print_topology"] or verbose > 1:
        click.echo(made.picture())
    shared, parameters, rest = variables.of_mpi_arguments(
        variables.joined([*options["mpi_global_args"], *options["mpi_local_args"]])
    )
    unused = [name for name in WITHOUT_EFFECT if name[2:].replace("-", "_") in given]
    unused += [f"{word} (of mpirun)" for word in rest if word.startswith("-")]
    if options["host_subnet"] is not None and all(host.local for host in made.hosts):
        unused.append("--host-subnet (there is no other host)")
    if unused:
        _complain(f"No effect here: {', '.join(unused)}.")
    if options["offline_mode"]:
        shared |= configuration.large_enough(made.local_replicas * made.ipus_per_replica)
    wishes = Wishes(
        command=program,
        topology=made,
        attach=not options["offline_mode"],
        variables=variables.merged(variables.of_cache(options["executable_cache_path"]), shared),
        own_variables=_own_variables(options["instance_mpi_local_args"], len(made.instances)),
        shell=shell_of(parameters),
        subnet=options["host_subnet"],
    )

    def say(level: str, text: str) -> None:
        if verbose > 1 or (verbose == 1 and level == "I"):
            now = time.time()
            stamp = f"{time.strftime('%H:%M:%S', time.localtime(now))}.{int(now % 1 * 1000):03d}"
            click.echo(f"{stamp} {os.getpid()} POPRUN [{level}] {text}", err=True)

    return Job(wishes, Output(only, verbose > 0), say, _complain).run()


def _hosts(options: dict[str, Any]) -> list[hosts.Host]:
    if options["host"] is not None and options["hostfile"] is not None:
        raise LaunchError("--host and --hostfile exclude each other. Give one of them.")
    if options["host"] is not None:
        return hosts.parse(options["host"])
    if options["hostfile"] is not None:
        return hosts.read(options["hostfile"])
    nodes = environment.slurm_nodes()
    return hosts.parse(nodes) if nodes else [hosts.LOCALHOST]


def _own_variables(given: tuple[str, ...], instances: int) -> dict[int, dict[str, str]]:
    made: dict[int, dict[str, str]] = {}
    for text in given:
        number, colon, rest = text.partition(":")
        if not colon or not number.isdigit() or int(number) >= instances:
            raise LaunchError(
                f"--instance-mpi-local-args needs the number of an instance, below {instances}, a colon and arguments, "
                f"as in 0:'-x A=1'. Received: {text!r}."
            )
        made.setdefault(int(number), {}).update(variables.of_mpi_arguments(rest.strip("\"'"))[0])
    return made


def _complain(text: str) -> None:
    click.echo(f"poprun: {text}", err=True)


def main() -> None:
    """The command."""
    poprun(prog_name="poprun")


if __name__ == "__main__":
    main()
