"""Hatch's build hook: compiles the native kernels into the wheel if this machine has what that takes.

Without a compiler, oneDNN or XLA's headers the wheel is as good: the kernels are compiled on first use then.
"""

import importlib.util
import os
import sys
import sysconfig
import tempfile
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = Path("src") / "openipu" / "compiler" / "native"


class NativeHook(BuildHookInterface):
    """Adds the library to a wheel. An editable installation compiles it on first use, as its sources change."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before the wheel is made."""
        if version == "editable" or not sys.platform.startswith("linux"):
            return
        build, onednn = (self._module(name) for name in ("build", "onednn"))
        found = onednn.find(os.environ.get("OPENIPU_ONEDNN", ""), os.environ.get("CONDA_PREFIX", ""))
        command = build.compiler(os.environ.get("CXX", ""))
        jaxlib = importlib.util.find_spec("jaxlib")
        if found is None or found.include is None or command is None or jaxlib is None or jaxlib.origin is None:
            self.app.display_info("No native kernels in this wheel: they are compiled on first use, where that works.")
            return
        name = build.fingerprint(metadata.version("jaxlib"), f"oneDNN {found.version}")
        target = Path(tempfile.mkdtemp(prefix="openipu-native-")) / f"{name}.so"
        try:
            build.build(target, command, [Path(jaxlib.origin).parent / "include", found.include], found.library)
        except build.CompilerError as error:
            self.app.display_warning(f"The native kernels are not in this wheel: {error}")
            return
        build_data["force_include"][str(target)] = str(Path("openipu") / "compiler" / "native" / target.name)
        build_data["pure_python"] = False
        # It is bound to this platform, but to no version of Python.
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

    def _module(self, name: str) -> ModuleType:
        """A module of the package, without importing the package: what it needs is not installed yet."""
        path = Path(self.root) / NATIVE / f"{name}.py"
        spec = importlib.util.spec_from_file_location(f"openipu_native_{name}", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        # Dataclasses look their module up.
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module
