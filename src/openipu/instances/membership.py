"""Which instance of how many this process is, as whoever launched it says."""

import attrs

from openipu import environment


@attrs.frozen
class Membership:
    """The place of a process among those that run the same program.

    Attributes:
      index: of this process, from 0.
      count: how many there are.
      local_index: of this process among those of its host.
      local_count: how many there are on its host.
      launcher: who started them; empty for a process that was started alone.
    """

    index: int = 0
    count: int = 1
    local_index: int = 0
    local_count: int = 1
    launcher: str = ""


def membership() -> Membership:
    """This process' place: from poprun's variables, else from those of an MPI launcher or of SLURM."""
    launched = environment.launched()
    if environment.started_by_poprun():
        local, total, offset = environment.local_replicas(), environment.total_replicas(), environment.replica_offset()
        if local < 1 or total % local or offset % local or not 0 <= offset < total:
            raise ValueError(
                "POPDIST_NUM_LOCAL_REPLICAS must divide POPDIST_NUM_TOTAL_REPLICAS and POPDIST_REPLICA_INDEX_OFFSET. "
                f"Received: {local}, {total} and {offset}. They are set by poprun; start the program with it."
            )
        here = launched[3] if launched is not None else 1
        return Membership(offset // local, total // local, environment.local_instance(), here, "poprun")
    if launched is None:
        return Membership()
    launcher, count, index, local_count, local_index = launched
    return Membership(index, count, local_index, local_count, launcher)
