"""What to expect of the names of `popdist`, where there is something to say (`openipu.compatibility`)."""

from openipu.compatibility import Note, accepted, refused, works

NOTES: dict[str, Note] = {
    "finalizeBackend": accepted("instances part when their processes end"),
    "isPopdistEnvSet": works("also under `mpirun` and `srun`, with several processes"),
    "popart.getDevice": refused("there are no PopART sessions"),
    "registerBackend": refused("instances talk through JAX's distributed runtime"),
    "registerDefaultBackend": accepted("nothing is to be loaded"),
}
