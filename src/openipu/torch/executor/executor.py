"""Executors: a module with a call that runs on the IPU, for training or for inference."""

import functools
import json
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from openipu.compiler import Cache
from openipu.runtime import Resident, compiling, refuse_forked
from openipu.torch.boundary import own_parameters
from openipu.torch.capture.arguments import Signature
from openipu.torch.capture.grouping import ReplicaGrouping
from openipu.torch.capture.hooks import _OverwriteContextManager, registerPostCompileHook, registerPreCompileHook
from openipu.torch.capture.naming import activations
from openipu.torch.enums import ConnectionType
from openipu.torch.exceptions import Error, as_poptorch
from openipu.torch.executor import exporting
from openipu.torch.executor.measured import Measured
from openipu.torch.executor.proxy import ParameterProxy
from openipu.torch.executor.session import Session
from openipu.torch.logger import logger
from openipu.torch.ops import blocks
from openipu.torch.optim.optimizers import SGD
from openipu.torch.options import Options, resolve
from openipu.torch.program.weights import Link, link_of, shallow_copy
from openipu.version import __version__

__all__ = [
    "PoplarExecutor",
    "_OverwriteContextManager",
    "inferenceModel",
    "load",
    "registerPostCompileHook",
    "registerPreCompileHook",
    "trainingModel",
]


def trainingModel(
    model: "torch.nn.Module | PoplarExecutor",
    options: Options | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> "PoplarExecutor":
    """An executor that trains a module: a call runs forward and backward passes and updates the weights.

    Args:
      model: the module, or an executor to take it from.
      options: how it runs; they become frozen.
      optimizer: how weights are updated; None for gradient descent with a rate of 0.01.
    """
    module = model._source if isinstance(model, PoplarExecutor) else model
    if link_of(module) is not None:
        raise RuntimeError(
            "Model has already been wrapped in 'poptorch.trainingModel'. Call model.destroy() on the model to unwrap "
            "before wrapping again."
        )
    own = resolve(options, training=True)
    if optimizer is None:
        optimizer = SGD(module.parameters(), lr=0.01)
    return PoplarExecutor(shallow_copy(module), own, True, __version__, optimizer, module)


def inferenceModel(model: "torch.nn.Module | PoplarExecutor", options: Options | None = None) -> "PoplarExecutor":
    """An executor that runs a module forwards.

    Args:
      model: the module, or an executor to take it from.
      options: how it runs; they become frozen.
    """
    wrapped = isinstance(model, PoplarExecutor)
    # The copy is the executor's own, so that `executor.model.eval()` decides how it is compiled.
    executor = PoplarExecutor(
        shallow_copy(model.model if wrapped else model), resolve(options, training=False), False, __version__
    )
    executor._source = model._source if wrapped else model
    return executor


def load(
    filename: str, edit_opts_fn: Callable[[Options], None] | None = None, *, weights_only: bool | None = None
) -> "PoplarExecutor":
    """An executor from a file that `save` or `compileAndExport` wrote; nothing is compiled.

    The file holds an executable, which is machine code: only open files that you trust.

    Args:
      filename: the file.
      edit_opts_fn: may change the options of the executor before it is made.
      weights_only: as with `torch.load`, make only objects that cannot run code of the file's author: those of torch,
        of poptorch, and of module classes that the program has imported. None unpickles what else there is with a
        warning, True refuses it, False does not look.
    """
    exported = exporting.read(filename)
    made_by = exported.record["version"]
    assert made_by == __version__, (
        f"Invalid file {filename}: PopTorch version mismatch: File was created with version: {made_by} and this is "
        f"version {__version__}"
    )
    assert exported.pickled is not None, (
        f"{filename} is a valid PopTorch file but was created with 'export_model=False' which means you need to "
        "re-create the PopTorch model using poptorch.inferenceModel or poptorch.trainingModel then call "
        f'poptorch_model.loadExecutable("{filename}").'
    )
    content = exported.unpickle(weights_only)
    options = content["options"]
    options._unfreeze()
    if options.connection_type == ConnectionType.Never:
        options.connectionType(ConnectionType.Always)
    if edit_opts_fn is not None:
        edit_opts_fn(options)
    if exported.record["training"]:
        executor = trainingModel(content["model"], options, content["optimizer"])
    else:
        executor = inferenceModel(content["model"], options)
    executor._session.groupings.update(content["groupings"])
    executor._adopt(exported)
    executor._session.restore(exported.state, exported.record["rng_state"])
    return executor


class PoplarExecutor(Measured):
    """A module that runs on the IPU. Made by `trainingModel` and `inferenceModel`."""

    def __init__(
        self,
        model: torch.nn.Module,
        options: Options,
        training: bool,
        poptorch_version: str,
        optimizer: torch.optim.Optimizer | None = None,
        user_model: torch.nn.Module | None = None,
    ) -> None:
        self._user_model = user_model if user_model is not None else model
        # The module of the program, which another executor may be training.
        self._source = self._user_model
        self._model = model
        self._options = options
        self._training = training
        self._session = Session(model, options, optimizer)
        self._link = Link(self._user_model, self._residents, self.destroy) if training else None
        self._seen_version = -1
        # Threads that call the same executor take turns.
        self._turn = threading.RLock()

    @functools.cached_property
    def _signature(self) -> Signature:
        return Signature(self._model.forward)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run; the first call compiles."""
        assert self._options.connection_type != ConnectionType.Never, (
            "Trying to run a model on an offline device (ConnectionType.Never): use model.compile(inputs) instead of "
            "model(inputs)"
        )
        refuse_forked()
        arguments = self._signature.bind(args, kwargs)
        with self._turn:
            if self._session.compiled is None:
                self._compile(arguments)
            elif not self._session.attached:
                self.attachToDevice()
            self._follow_training()
            with as_poptorch():
                return self._session.run(arguments)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile for arguments like these, without running."""
        if self._session.compiled is not None:
            logger.warning("Call to compile() ignored: the executable is already compiled")
            return
        self._compile(self._signature.bind(args, kwargs))

    def _compile(self, arguments: Any, cache: Cache | None = None) -> None:
        with as_poptorch(), compiling():
            self._session.compile(arguments, cache)
        if self._options.connection_type != ConnectionType.Never:
            self._session.attach()
        if self._link is not None:
            self._link.adopt()
        elif self._training:
            self._link = Link(self._user_model, self._residents, self.destroy)

    def _follow_training(self) -> None:
        """Take the weights of the executor that trains the same module, if they are newer than ours."""
        link = link_of(self._source)
        if self._training or link is None:
            return
        link.refresh()
        if link.version != self._seen_version:
            self._session.forget_weights()
            self._seen_version = link.version

    @property
    def model(self) -> torch.nn.Module:
        """The module that runs: the user's own for training, a shallow copy of it for inference."""
        return self._user_model

    @property
    def options(self) -> Options:
        """The options in force."""
        return self._options

    @property
    def rng_state(self) -> list[int] | None:
        """The state of the random generator: its seed, then how far it is."""
        self._require_compiled()
        return self._session.rng_state

    @rng_state.setter
    def rng_state(self, state: list[int]) -> None:
        self._require_compiled()
        self._session.rng_state = state

    @property
    def random_seed(self) -> int:
        """The seed of the random generator."""
        return self._session.seed

    @property
    def per_replica_params(self) -> dict[str, Any]:
        """Parameters that only groups of replicas share: name -> (group type, replicas in a group, retrieval mode)."""
        return self._session.groupings

    @property
    def _executable(self) -> Any:
        """What was compiled; None before. Libraries on top of poptorch ask for it."""
        return self._session.compiled

    @property
    def _executable_inputs(self) -> Any:
        """What the executable was compiled for, with `args` and `kwargs`; None before."""
        return self._session.expected if self._session.compiled is not None else None

    def _debugGetPopartIR(self) -> str:
        """The operations of the compiled module as JSON: names, as `getTensorNames` has them, and types."""
        self._require_compiled()
        compiled = self._session.compiled
        assert compiled is not None
        names = activations(compiled.captured.graph, self._options._module_namescope)
        types = [{"name": name, "type": name.rpartition("/")[2].partition(":")[0]} for name in names]
        return json.dumps({"maingraph": types})

    def setOptimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Replaces the optimizer, or takes over changed attributes of the present one."""
        if not self._training:
            raise Error("Optimizer can only be set on a training model")
        self._session.set_optimizer(optimizer)

    def load_state_dict(self, state_dict: dict[str, torch.Tensor], strict: bool = True) -> Any:
        """Loads weights into the module and, when attached, onto the device."""
        # The values about to be replaced need not come home.
        self._session.forget_weights()
        missing = self._user_model.load_state_dict(state_dict, strict)
        if self._session.attached:
            self.copyWeightsToDevice()
        return missing

    def copyWeightsToHost(self) -> None:
        """Copies all weights from the device to the module."""
        self._require_compiled()
        self._session.refresh_weights()

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Copies weights to the module if the device has newer ones; whether it did."""
        needed = self._link is not None and self._link.newer
        if self._link is not None:
            self._link.refresh()
        return needed

    def copyWeightsToDevice(self) -> None:
        """Copies the module's weights to the device; what the device has learned since the last copy is lost."""
        self._require_compiled()
        self._session.forget_weights()

    def copyNamedBuffersToDevice(self) -> None:
        """Copies the buffers named by `Options.updatableNamedBuffers` to the device."""
        names = self._options._Popart.options.get("updatableNamedBuffers")
        if not names:
            raise Error("No named buffers marked as updatable via updatableNamedBuffers option")
        self._require_compiled()
        self._session.forget_weights(names)

    def _residents(self) -> list[Resident]:
        compiled = self._session.compiled
        return list(compiled.weights.values()) if compiled is not None else []

    def isCompiled(self) -> bool:
        """Whether there is an executable."""
        return self._session.compiled is not None

    def isAttachedToDevice(self) -> bool:
        """Whether the executor holds its IPUs."""
        return self._session.attached

    def attachToDevice(self) -> None:
        """Takes the IPUs, and puts everything on them again."""
        self._require_compiled()
        assert self._options.connection_type != ConnectionType.Never, (
            "Trying to attach to an offline device (ConnectionType.Never)"
        )
        if self._session.attached:
            raise Error("Device is already attached")
        self._session.forget_weights()
        self._session.attach()

    def detachFromDevice(self) -> None:
        """Brings weights and optimizer state home, and lets the IPUs go."""
        self._require_compiled()
        if not self._session.attached:
            raise Error("Device is not attached")
        self.copyWeightsToHostIfNeeded()
        self._session.detach()

    def destroy(self) -> None:
        """Brings everything home and drops the executable; the next call compiles again."""
        if self._link is not None:
            # Not through the link: it no longer knows an executor that is being deleted.
            self._session.refresh_weights()
        self._session.destroy()
        if self._link is not None:
            self._link.release()
            self._link = None

    def compileAndExport(self, filename: str, *args: Any, export_model: bool = True, **kwargs: Any) -> None:
        """Compiles for arguments like these, and saves the executable to a file."""
        self.compile(*args, **kwargs)
        self.save(filename, export_model)

    def save(self, filename: str, export_model: bool = True, save_rng_state: bool = True) -> None:
        """Saves the executable, and everything needed to go on from here, to a file.

        Args:
          filename: the file; in a folder it is called `model.poptorch`.
          export_model: with the module, its weights, the optimizer and the options, for `poptorch.load`.
          save_rng_state: with the state of the random generator.
        """
        self._require_compiled()
        compiled = self._session.compiled
        assert compiled is not None
        self.copyWeightsToHostIfNeeded()
        record = {
            "version": __version__,
            "training": self._training,
            "rng_state": self._session.rng_state if save_rng_state else None,
        }
        objects = None
        if export_model:
            objects = {"model": self._user_model, "optimizer": self._session.optimizer, "options": self._options}
            objects["groupings"] = self._session.groupings
        state = self._session.optimizer_state() if self._training else None
        exporting.write(filename, compiled.session.engine, record, self._session.expected, state, objects)

    def loadExecutable(self, filename: str) -> None:
        """Takes the executable from a file instead of compiling; the module must be like the one it was made from."""
        self._adopt(exporting.read(filename))

    def _adopt(self, exported: exporting.Exported) -> None:
        if self._session.compiled is not None:
            logger.warning("Call to loadExecutable() ignored: the executable is already compiled")
            return
        self._compile(exported.arguments, exporting.ExportedCache(exported.path, data=exported.executable))

    def getTensorNames(self) -> list[str]:
        """The names of the tensors of the compiled model."""
        assert self._session.compiled is not None, "Model must be compiled before calling getTensorNames"
        return self._session.tensor_names()

    def getAnchoredTensor(self, short_name: str) -> torch.Tensor:
        """The last value of a tensor asked for by `Options.anchorTensor`."""
        assert short_name in self._session.anchored, f"No tensor with name {short_name} found."
        return self._session.anchored[short_name]

    def _require_compiled(self) -> None:
        if self._session.compiled is None:
            raise Error("Model has not been compiled or has been destroyed.")

    def __getattr__(self, attr: str) -> Any:
        if attr.startswith("__") or "_user_model" not in self.__dict__:
            raise AttributeError(attr)
        value = getattr(self._user_model, attr)
        if isinstance(value, torch.nn.Parameter) and attr in own_parameters(self._user_model):
            return ParameterProxy(value, attr, self._group)
        return value

    def _group(self, name: str, grouping: ReplicaGrouping) -> None:
        """Let only groups of replicas share a parameter."""
        if self._session.compiled is not None:
            raise Error(f"replicaGrouping of {name} must be called before the model is compiled. Call destroy() first.")
        self._session.groupings[name] = grouping

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise Error(
            "An executor is a program on a device; it cannot be copied or pickled. Copy its module (executor.model), "
            "or write the executor to a file (executor.save) and read that (poptorch.load)."
        )

    def __repr__(self) -> str:
        return blocks.module_repr(self._model)

    def __del__(self) -> None:
        # What was trained must not be lost with the executor; at the interpreter's end there is no way to save it.
        # No `contextlib.suppress`: at the interpreter's end this module's names are gone already.
        try:  # noqa: SIM105
            self.destroy()
        except Exception:
            pass
