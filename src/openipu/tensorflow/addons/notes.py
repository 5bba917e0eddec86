"""What to expect of the names of `ipu_tensorflow_addons`, where there is something to say (`openipu.compatibility`)."""

from openipu.compatibility import Note

NOTES: dict[str, Note] = {}
