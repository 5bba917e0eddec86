"""What `openipu doctor` looks at: each function answers with findings, and none of them changes anything."""

import importlib.metadata
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import attrs
from packaging.requirements import Requirement

from openipu import environment, frameworks, settings
from openipu.environment import declared
from openipu.version import __version__

# What a user chooses between, and why.
EXTRAS = {
    "tensorflow": "TensorFlow and Keras programs",
    "torch": "PopTorch programs",
    "report": "report pages and pictures",
    "native": "faster convolutions, recurrent layers and products on CPUs",
}


@attrs.frozen
class Finding:
    """One thing that was looked at.

    Args:
      topic: its heading.
      text: what was found.
      advice: what to do about it; empty if nothing is to be done.
      broken: whether it keeps programs from running.
    """

    topic: str
    text: str
    advice: str = ""
    broken: bool = False


def versions() -> Iterator[Finding]:
    """Python and openipu."""
    yield Finding("Python", f"{platform.python_version()} ({sys.executable})")
    yield Finding("openipu", f"{__version__} ({Path(__file__).parents[1]})")


def packages() -> Iterator[Finding]:
    """What openipu needs, what is installed, and what command installs the rest."""
    wanted = frameworks.requirements()
    if not wanted:
        text = "can be imported, but is not installed, so what it needs is unknown"
        yield Finding("packages", text, "pip install openipu", broken=True)
        return
    yield from _group("needed", [r for r in wanted if r.marker is None], "pip install --upgrade openipu")
    complete = set()
    for extra, purpose in EXTRAS.items():
        command = f"pip install 'openipu[{extra}]'"
        members = [r for r in wanted if r.marker and r.marker.evaluate({"extra": extra})]
        missing = [r.name for r in members if _version(r.name) is None]
        if missing:
            text = f"not installed: {', '.join(missing)}; needed for {purpose}"
            yield Finding(extra, text, f"If you want them: {command}")
        else:
            complete.add(extra)
            yield from _group(extra, members, command)
    if complete.isdisjoint(("tensorflow", "torch")):
        advice = "pip install 'openipu[tensorflow]' or pip install 'openipu[torch]'"
        yield Finding("front ends", "there is neither TensorFlow nor PyTorch to run programs with", advice, broken=True)


def _group(topic: str, members: list[Requirement], command: str) -> Iterator[Finding]:
    good = []
    for requirement in members:
        name, version = requirement.name, _version(requirement.name)
        if version is None:
            yield Finding(
                topic, f"{name} is not installed; needed is {name}{requirement.specifier}", command, broken=True
            )
        elif not requirement.specifier.contains(version, prereleases=True):
            yield Finding(topic, f"{name} {version} does not fit {requirement.specifier}", command, broken=True)
        else:
            good.append(f"{name} {version}")
    if good:
        yield Finding(topic, ", ".join(good))


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def backend() -> Iterator[Finding]:
    """Whether JAX starts, and what it computes on; imports JAX."""
    environment.quiet_libraries()
    try:
        import jax

        devices = jax.devices()
    except Exception as error:
        advice = "Install it again with `pip install --upgrade openipu`, and look at JAX_PLATFORMS."
        yield Finding("JAX", f"does not start: {type(error).__name__}: {error}", advice, broken=True)
        return
    kinds = ", ".join(sorted({device.device_kind for device in devices}))
    yield Finding("backend", f"{jax.default_backend()}, {len(devices)} device(s): {kinds}; {os.cpu_count()} processors")


def kernels() -> Iterator[Finding]:
    """Whether programs use native kernels, and why not; compiles them if nobody has."""
    from openipu.compiler import native

    try:
        found = native.library()
    except (RuntimeError, ValueError) as error:
        yield Finding("native kernels", str(error), broken=True)
        return
    if found is not None:
        yield Finding("native kernels", f"{found.description} ({found.path})")
        return
    text = f"none, XLA's operations are used: {native.why_not()}"
    advice = "" if environment.native() == "off" else "Programs run without them, and take longer."
    yield Finding("native kernels", text, advice)


def hook() -> Iterator[Finding]:
    """Whether `from tensorflow.python import ipu` finds openipu in every new interpreter."""
    # Nothing but `openipu_hook.pth` imports the module in a process like this one.
    if "openipu._hook" in sys.modules:
        yield Finding("import hook", "active: `from tensorflow.python import ipu` and `keras.ipu` find openipu")
    else:
        text = "not active: openipu_hook.pth was not read when this interpreter started"
        yield Finding("import hook", text, "pip install --force-reinstall --no-deps openipu", broken=True)


def variables() -> Iterator[Finding]:
    """The environment variables that are set."""
    for text in environment.unknown_names().values():
        yield Finding("environment", text, "Rename or unset it.")
    parsers = {
        "TF_POPLAR_FLAGS": environment.poplar_flags,
        "POPLAR_ENGINE_OPTIONS": environment.poplar_engine_options,
    }
    for variable in declared():
        # The virtual system has a line of its own, wherever it comes from.
        if not variable.is_given() or variable.name == "OPENIPU_SYSTEM":
            continue
        try:
            parsers.get(variable.name, variable.read)()
            yield Finding("environment", f"{variable.name}={variable.read()}")
        except ValueError as error:
            yield Finding("environment", str(error), "See docs/environment.md.", broken=True)
        except SystemExit:
            yield Finding("environment", "TF_POPLAR_FLAGS has --help: programs print all flags and end", "Remove it.")


def virtual_system() -> Iterator[Finding]:
    """The virtual system that programs find."""
    from openipu.hardware import current_system

    try:
        system = current_system()
        _, source = settings.system_choice()
    except ValueError as error:
        yield Finding("virtual system", str(error), "`openipu system` chooses one.", broken=True)
        return
    target = system.target
    text = f"{system.name}: {system.count} IPUs of kind {target.name}, {target.tiles} tiles each (from {source})"
    yield Finding("virtual system", text)


def folders() -> Iterator[Finding]:
    """Whether the folders that openipu writes to can be written to."""
    from openipu.hardware import registry_directory

    for topic, find, variable in (
        ("runtime folder", registry_directory, "OPENIPU_RUNTIME_DIR"),
        ("settings folder", lambda: settings.path().parent, "OPENIPU_CONFIG_DIR"),
        ("cache folder", lambda: Path(environment.cache_dir()).absolute(), "OPENIPU_CACHE"),
    ):
        if variable == "OPENIPU_CACHE" and not environment.cache_dir():
            yield Finding(topic, "none: OPENIPU_CACHE is not set")
            continue
        try:
            path = find()
            note = "" if path.is_dir() else ", will be made"
            _try_to_write(path)
        except (OSError, RuntimeError) as error:
            yield Finding(topic, f"cannot be written to: {error}", f"Set {variable} to another.", broken=True)
        else:
            yield Finding(topic, f"{path}{note}")


def _try_to_write(path: Path) -> None:
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    with tempfile.TemporaryDirectory(dir=existing):
        pass
