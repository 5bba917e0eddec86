"""Executables in files of their own: what `save` writes and `load` and `loadExecutable` read."""

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import torch

from openipu.compiler import Cache, archive, cache_file, export, surroundings
from openipu.runtime import DeviceEngine, Engine
from openipu.torch.capture.arguments import Arguments
from openipu.torch.exceptions import Error, UnsupportedError
from openipu.torch.executor import safely
from openipu.torch.logger import logger
from openipu.torch.structures import map_leaves

_EXECUTABLE, _INPUTS, _STATE, _MODEL = "executable", "inputs.pt", "state.pt", "model.pt"


@attrs.frozen(eq=False)
class Exported:
    """The content of a file, read and checked; nothing of it has been unpickled.

    Attributes:
      path: the file.
      record: what it says of itself: version, whether it trains, the state of the random generator.
      executable: an entry as the cache has them.
      arguments: what the model was compiled for.
      state: of the optimizer on the device; None for inference.
      pickled: the module, the optimizer and the options; None when they were not exported.
    """

    path: Path
    record: dict[str, Any]
    executable: bytes
    arguments: Arguments
    state: dict[str, Any] | None
    pickled: bytes | None

    def unpickle(self, weights_only: bool | None = None) -> dict[str, Any]:
        """The module, optimizer and options.

        Args:
          weights_only: make only objects of torch's, of poptorch's and of module classes that the program has loaded
            itself, and refuse a file that holds others; False makes whatever the file names, which may run what its
            author wrote; None does so only where it must, and warns.
        """
        assert self.pickled is not None
        content = safely.load(self.pickled, weights_only, self.path)
        if not isinstance(content, dict) or not {"model", "optimizer", "options", "groupings"} <= content.keys():
            raise Error(f"Invalid file {self.path}: it holds no model, optimizer and options.")
        return content


def write(
    filename: str,
    engine: Engine,
    record: dict[str, Any],
    arguments: Arguments,
    state: dict[str, Any] | None,
    objects: dict[str, Any] | None,
) -> None:
    """Write a file as a whole.

    Args:
      filename: the file, or a folder for a file `model.poptorch`.
      engine: holds the executable.
      record: facts about the file that JSON can hold.
      arguments: what was compiled for; only shapes, dtypes and what is no tensor are kept.
      state: the optimizer's, as tensors.
      objects: what is pickled, or None.
    """
    path = Path(filename)
    if path.is_dir():
        path = path / "model.poptorch"
        logger.warning("save(): %s is a directory, saving model to %s", filename, path)
    if not isinstance(engine, DeviceEngine):
        raise UnsupportedError(
            "Executables of pipelines whose stages run on several JAX devices cannot be saved. Run with one JAX device."
        )
    zeros = [map_leaves(_like, value) for value in arguments.values]
    keywords = {name: map_leaves(_like, value) for name, value in arguments.keywords.items()}
    members = {
        _EXECUTABLE: export(engine.executable),
        _INPUTS: _saved({"names": arguments.names, "values": zeros, "keywords": keywords}),
    }
    if state is not None:
        members[_STATE] = _saved(state)
    if objects is not None:
        members[_MODEL] = _saved(objects)
    archive.write(path, record, members)


def read(filename: str | os.PathLike) -> Exported:
    """Read and check a file; `poptorch.Error` if it is not one of ours, or was changed."""
    path = Path(filename)
    try:
        record, members = archive.read(path)
        version, training, seeds = record["version"], record["training"], record["rng_state"]
        if not isinstance(version, str) or not isinstance(training, bool) or not isinstance(seeds, list | None):
            raise ValueError("what it says of itself makes no sense")
        for name in members.keys() - {_EXECUTABLE}:
            archive.refuse_growing(io.BytesIO(members[name]))
        inputs = torch.load(io.BytesIO(members[_INPUTS]), weights_only=True)
        state = torch.load(io.BytesIO(members[_STATE]), weights_only=True) if _STATE in members else None
        arguments = Arguments(inputs["names"], inputs["values"], inputs["keywords"])
        return Exported(path, record, members[_EXECUTABLE], arguments, state, members.get(_MODEL))
    except FileNotFoundError:
        raise Error(f"Invalid file {filename}: it does not exist.") from None
    except KeyError as error:
        raise Error(f"Invalid file {filename}: it has no {error}") from error
    except Exception as error:
        raise Error(f"Invalid file {filename}: {error or type(error).__name__}") from error


@attrs.frozen
class ExportedCache(Cache):
    """A cache that holds the one executable of a file: `folder` is the file, `data` its executable."""

    data: bytes = attrs.field(default=b"", repr=False)

    def path(self, key: str) -> Path:
        """The file."""
        return self.folder

    def load(self, key: str) -> tuple[dict[str, Any], bytes] | None:
        """The executable; one that was made for another machine is compiled again, with a warning."""
        try:
            header, payload = cache_file.unpack(self.data)
        except cache_file.BadEntry as error:
            raise Error(f"Invalid file {self.folder}: the executable in it cannot be used, {error}.") from None
        if header.get("key") == key:
            return header, payload
        differences = [name for name, value in surroundings().items() if header.get(name) != value]
        if not differences:
            raise Error(
                f"Invalid file {self.folder}: its executable was compiled for another model, other inputs, another "
                "optimizer or other options."
            )
        logger.warning(
            "The executable in %s was compiled under other conditions (%s): compiling again.",
            self.folder,
            ", ".join(differences),
        )
        return None

    def store(self, key: str, header: dict[str, Any], payload: bytes) -> None:
        """The file stays as it is."""

    @contextlib.contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Nobody else waits for it."""
        yield


def _saved(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _like(leaf: Any) -> Any:
    # Of what was compiled for, only shapes are remembered: those tensors have no memory.
    return torch.zeros(leaf.shape, dtype=leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf
