"""The import hook that makes openipu's modules answer to the names IPU programs use.

`openipu_hook.pth` imports this module at every interpreter start, so it imports nothing but `sys` until
one of the names below is asked for.
"""

import sys

TYPE_CHECKING = False  # typing's own constant would cost an import of typing.
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

# All the modules that users know as "keras"; TensorFlow loads a copy of its own under its own name.
KERAS_NAMESPACES = (
    "keras",
    "keras._tf_keras.keras",
    "tensorflow.keras",
    "tensorflow.compat.v1.keras",
    "tensorflow.compat.v2.keras",
    "tf_keras",
    "tf_keras.api._v1.keras",
    "tf_keras.api._v2.keras",
)

# The name in the user's program: the module that answers, for itself and everything below it.
ALIASES = {
    "tensorflow.python.ipu": "openipu.tensorflow.ipu",
    **{f"{namespace}.ipu": "openipu.tensorflow.keras.ipu" for namespace in KERAS_NAMESPACES},
}

# Modules of operations are one level deeper; early programs import from them as if they were not.
OPS_ABOVE = "openipu.tensorflow.ipu"

# Where TensorFlow had Keras; some of it is still there for its own use.
OLD_KERAS = "tensorflow.python.keras."

# Modules that were packages of the original: each of these parts is the whole.
_KERAS_IPU = "openipu.tensorflow.keras.ipu"
PARTS = {
    f"{_KERAS_IPU}.extensions": (
        "data_adapter",
        "data_feed_manager",
        "extensions_base",
        "extensions_util",
        "functional_extensions",
        "model_extensions",
        "pipeline_stage_assignment",
        "polling_thread",
        "sequential_extensions",
    ),
}
# As above, where no package of that name is installed.
STAND_INS = {"horovod": "openipu.horovod"}

# What a program of theirs always needs: an import is when it expects to wait, not its first step.
ENGINES = {
    "openipu.tensorflow.ipu": ("openipu.tensorflow.keras.model_methods", "openipu.tensorflow.estimators.namespace")
}


def real_name(name: str) -> str | None:
    """The name of the openipu module that answers to `name`, or None where the name is not ours."""
    if ".ipu" not in name:
        return None
    for alias, real in ALIASES.items():
        if name == alias or name.startswith(alias + "."):
            return real + name[len(alias) :]
    return None


def keras_2_name(name: str) -> str | None:
    """The module of Keras 2 that answers to a name of `keras`, where `tf.keras` is Keras 2 and a program has IPUs.

    Such programs were written when there was one Keras. Whoever has loaded Keras 3 before keeps it.
    """
    if name != "keras" and not name.startswith("keras."):
        return None
    loaded = sys.modules.get("keras")
    if loaded is not None:
        return "tf_" + name if loaded.__name__ == "tf_keras" else None
    if not program_names_ipu():
        return None
    from openipu import environment

    return "tf_" + name if environment.legacy_keras() else None


class AliasLoader:
    """Loads one module under a second name: both names give the same module object."""

    def __init__(self, real: str) -> None:
        self.real = real

    def create_module(self, spec: "ModuleSpec") -> None:
        """Import the real module while the alias is still free, so that it may itself import the alias."""
        from importlib import import_module

        self.module = import_module(self.real)
        if self.real in PARTS and not hasattr(self.module, "__path__"):
            # What makes a module a package to the import system.
            self.module.__path__ = []
            for part in PARTS[self.real]:
                self.module.__dict__.setdefault(part, self.module)
        for engine in ENGINES.get(self.real, ()):
            import_module(engine)
        # The import system writes the spec into what is returned here. It gets to write it into a throw-away
        # module: the real one keeps its own, which reload, pickle and inspect rely on.
        return None

    def exec_module(self, module: "ModuleType") -> None:
        """Put the real module in the place of the throw-away one."""
        assert module.__spec__ is not None
        sys.modules[module.__spec__.name] = self.module


def alias_spec(name: str, real: str) -> "ModuleSpec | None":
    """The spec that loads the module `real` under `name`, or None if there is no such module."""
    from importlib.machinery import ModuleSpec
    from importlib.util import find_spec

    try:
        found = find_spec(real)
    except ModuleNotFoundError as error:
        # A missing parent is an ordinary "no such module"; a missing dependency of the parent is an error to see.
        if error.name and (real == error.name or real.startswith(error.name + ".")):
            return None
        raise
    if found is None:
        return None
    spec = ModuleSpec(name, AliasLoader(real), origin=found.origin)  # pyright: ignore[reportArgumentType]
    spec.submodule_search_locations = found.submodule_search_locations
    return spec


def current_keras(name: str) -> "ModuleSpec | None":
    """The spec of a module of Keras that TensorFlow once had inside and has no more, in programs with IPUs."""
    if not program_names_ipu():
        return None
    from openipu import environment

    package = "tf_keras." if environment.legacy_keras() else "keras."
    return alias_spec(name, package + name[len(OLD_KERAS) :])


def offer_ipu(module: "ModuleType") -> None:
    """Give a Keras namespace the attribute `ipu`, imported when it is first touched."""
    earlier = module.__dict__.get("__getattr__")

    def __getattr__(name: str) -> object:
        if name == "ipu":
            from importlib import import_module

            return import_module(f"{module.__name__}.ipu")
        if earlier is not None:
            return earlier(name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}", name=name, obj=module)

    module.__dict__["__getattr__"] = __getattr__


def offer_keras_sample(module: "ModuleType") -> None:
    """Let a Keras dataset module read sample data where the user asks for it."""
    from openipu.datasets.keras import steer

    steer(module)


def offer_torchvision_sample(module: "ModuleType") -> None:
    """Let the datasets of a torchvision module hold sample data where the user asks for it."""
    from openipu.datasets.torchvision import steer

    steer(module)


def program_names_ipu() -> bool:
    """Whether code that is waiting for the running import names `ipu`: `from tensorflow.python import ipu`, ..."""
    frame = sys._getframe(1)
    while frame is not None:
        names = frame.f_code.co_names if frame.f_code.co_filename != __file__ else ()
        if any(name == "ipu" or ".ipu" in name or name.startswith("ipu_") for name in names):
            return True
        frame = frame.f_back
    return False


def before_tensorflow(spec: "ModuleSpec") -> None:
    """Set TensorFlow up for programs with IPUs, leave others alone, and keep triton out of the process."""
    if program_names_ipu():
        from openipu import environment, quiet

        environment.without_onednn()
        quiet.begin(BEFORE_IMPORT)
    when_loaded(spec, bar_triton)


def bar_triton() -> None:
    """Have `import triton` fail as if it were not installed: after TensorFlow, loading its library crashes the process.

    PyTorch does without it except on a GPU. Where it was imported first, both work.
    """
    if "triton" in sys.modules:
        return
    import logging

    sys.modules["triton"] = None  # pyright: ignore[reportArgumentType]
    # It would complain in every such program.
    flops = logging.getLogger("torch.utils.flop_counter")
    flops.addFilter(lambda record: not record.getMessage().startswith("triton not found"))


# The datasets of Keras that have sample data.
SAMPLES = ("mnist", "fashion_mnist", "cifar10", "cifar100", "imdb", "reuters")

# What is done to the spec of a module of others before the module is loaded.
BEFORE_IMPORT: "dict[str, Callable[[ModuleSpec], None]]" = {"tensorflow": before_tensorflow}

# What is done to a module of others right after it has run, before anything is re-exported from it.
AFTER_IMPORT: "dict[str, Callable[[ModuleType], None]]" = {
    **dict.fromkeys(KERAS_NAMESPACES, offer_ipu),
    **{f"{keras}.src.datasets.{name}": offer_keras_sample for keras in ("keras", "tf_keras") for name in SAMPLES},
    "torchvision.datasets.mnist": offer_torchvision_sample,
    "torchvision.datasets.cifar": offer_torchvision_sample,
}


class Finder:
    """Finds the aliases, and adds to the modules of `BEFORE_IMPORT` and `AFTER_IMPORT` that other finders find."""

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """Called by the import system for every module that is not loaded yet."""
        real = real_name(name) or keras_2_name(name)
        if real is not None:
            whole, _, part = real.rpartition(".")
            if whole == OPS_ABOVE and part.endswith(("_op", "_ops")):
                return alias_spec(name, f"{whole}.ops.{part}")
            return alias_spec(name, real) or (alias_spec(name, whole) if part in PARTS.get(whole, ()) else None)
        if name.startswith(OLD_KERAS):
            return self.find_elsewhere(name, path, target) or current_keras(name)
        top = name.partition(".")[0]
        if top in STAND_INS:
            return self.find_stand_in(name, top, path, target)
        prepare, complete = BEFORE_IMPORT.get(name), AFTER_IMPORT.get(name)
        if prepare is None and complete is None:
            return None
        spec = self.find_elsewhere(name, path, target)
        if spec is not None and spec.loader is not None:
            if prepare is not None:
                prepare(spec)
            if complete is not None:
                run_after(spec, complete)
        return spec

    def find_stand_in(
        self, name: str, top: str, path: "Sequence[str] | None", target: "ModuleType | None"
    ) -> "ModuleSpec | None":
        """The installed package if there is one, else what stands in for it."""
        ours = STAND_INS[top]
        if name == top or getattr(sys.modules.get(top), "__name__", ours) != ours:
            spec = self.find_elsewhere(name, path, target)
            if spec is not None or name != top:
                return spec
        return alias_spec(name, ours + name[len(top) :])

    def find_elsewhere(
        self, name: str, path: "Sequence[str] | None", target: "ModuleType | None"
    ) -> "ModuleSpec | None":
        """What the import system would have found without this finder."""
        # Only those behind it: the ones before it have been asked, and may be asking on behalf of others.
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:  # pyright: ignore[reportArgumentType]
            find_spec = getattr(finder, "find_spec", None)
            spec = find_spec(name, path, target) if find_spec else None
            if spec is not None:
                return spec
        return None


def when_loaded(spec: "ModuleSpec", prepare: "Callable[[], None]") -> None:
    """Have `prepare` called right before the module is really loaded; many programs only look whether it is there."""
    loader = spec.loader
    assert loader is not None

    def create_module(spec: "ModuleSpec") -> "ModuleType | None":
        del loader.create_module  # The loader stays the one that was found, and unchanged.
        prepare()
        return loader.create_module(spec)

    loader.create_module = create_module


def run_after(spec: "ModuleSpec", complete: "Callable[[ModuleType], None]") -> None:
    """Have `complete` called with the module once it has run."""
    loader = spec.loader
    assert loader is not None

    def exec_module(module: "ModuleType") -> None:
        # The loader stays the one that was found, and unchanged: resources, inspect and reload ask it questions.
        del loader.exec_module
        loader.exec_module(module)
        complete(module)

    loader.exec_module = exec_module


def install() -> None:
    """Put the finder before all others; later ones would load a second copy of what lies below an alias."""
    # By name, because reloading this module makes a new class.
    others = [finder for finder in sys.meta_path if type(finder).__module__ != __name__]
    sys.meta_path[:] = [Finder(), *others]  # pyright: ignore[reportArgumentType]


def offer_tensorflow1() -> None:
    """Give programs of TensorFlow 1 what they import, where the user says that it is one."""
    import os  # Python has it already.

    if os.environ.get("OPENIPU_TF1", "").strip():
        from openipu import tensorflow1

        tensorflow1.install()


install()
offer_tensorflow1()
