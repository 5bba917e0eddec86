"""What to expect of the names of `poptorch`, where there is something to say (`openipu.compatibility`)."""

from openipu.compatibility import Note, accepted

_MEMORY = accepted("virtual IPUs have the memory of the host")

NOTES: dict[str, Note] = {
    "Liveness": _MEMORY,
    "TensorLocationSettings": _MEMORY,
    "options._TensorLocationOptions": _MEMORY,
    "set_available_memory": _MEMORY,
}
