"""What becomes of every public name of the original: it works, is accepted without effect, or is refused.

`docs/compatibility.md` is written from three things by `python -m openipu.compatibility.page`:

- An inventory, a JSON file below `tests/`, has the public names of one package of the original with their signatures.
  Tests hold the code against it, so a name in it exists.
- A note says what to expect of a name. It stands with the object (`noted(function, refused("why"))`, which the tables
  of refused names do for theirs), or in the `NOTES` of the package's table of notes, whose keys are names below the
  package's root; patterns such as `ops.op_util.*` are allowed. A name without a note works.
- `packages.PACKAGES` has a line for each package: its title, its inventory and its table of notes.

A new package therefore needs an inventory, a table (which may be empty) and a line.
"""

from openipu.compatibility.note import Note, Status, accepted, note_of, noted, refused, works

__all__ = ["Note", "Status", "accepted", "note_of", "noted", "refused", "works"]
