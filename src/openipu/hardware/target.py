"""What kinds of IPU there are: tiles, memory, clock, arithmetic and links."""

import attrs


@attrs.frozen
class Target:
    """One kind of IPU.

    Args:
      name: short name, as in `2xbow`.
      architecture: Poplar's name; Mk2 and Bow share one because they run the same code.
      tiles: processors with their own memory.
      workers: hardware threads of a tile, without the supervisor.
      bytes_per_tile: memory of a tile, for code and data together.
      executable_bytes_per_tile: the lower part of that memory, the only one that can hold code.
      clock_hz: cycles per second.
      half_macs: multiply-accumulates per tile and cycle, float16 inputs and float16 partial sums.
      half_float_macs: the same with float32 partial sums.
      float_macs: the same, all in float32.
      read_bytes_per_cycle: what a tile reads from its memory in a cycle.
      write_bytes_per_cycle: what it writes.
      exchange_bytes_per_cycle: what a tile sends (and receives) in a cycle over the exchange.
      link_bandwidth: bytes per second one way over one IPU-Link.
      links_per_pair: IPU-Links that join two neighbours.
      host_bandwidth: bytes per second one way between one IPU and its host or gateway.
      ipus_per_host_link: IPUs that share one way to the host.
      shared_host_bandwidth: bytes per second of that shared way.
      streaming_memory: bytes of off-chip memory per IPU.
    """

    name: str
    architecture: str
    tiles: int
    workers: int
    bytes_per_tile: int
    executable_bytes_per_tile: int
    clock_hz: float
    half_macs: int
    half_float_macs: int
    float_macs: int
    read_bytes_per_cycle: int
    write_bytes_per_cycle: int
    exchange_bytes_per_cycle: int
    link_bandwidth: float
    links_per_pair: int
    host_bandwidth: float
    ipus_per_host_link: int
    shared_host_bandwidth: float
    streaming_memory: int

    @property
    def memory(self) -> int:
        """Bytes of memory on the chip."""
        return self.tiles * self.bytes_per_tile

    @property
    def peak_flops(self) -> float:
        """Floating-point operations per second in float16 with float16 partial sums."""
        return self._flops(self.half_macs)

    @property
    def peak_flops_half_float(self) -> float:
        """Floating-point operations per second in float16 with float32 partial sums."""
        return self._flops(self.half_float_macs)

    @property
    def peak_flops_float(self) -> float:
        """Floating-point operations per second in float32."""
        return self._flops(self.float_macs)

    @property
    def memory_bandwidth(self) -> float:
        """Bytes per second that all tiles together read and write."""
        return self.tiles * self.clock_hz * (self.read_bytes_per_cycle + self.write_bytes_per_cycle)

    @property
    def exchange_bandwidth(self) -> float:
        """Bytes per second that all tiles together send."""
        return self.tiles * self.clock_hz * self.exchange_bytes_per_cycle

    @property
    def pair_bandwidth(self) -> float:
        """Bytes per second one way between two neighbouring IPUs."""
        return self.link_bandwidth * self.links_per_pair

    def seconds(self, cycles: float) -> float:
        """How long `cycles` cycles take."""
        return cycles / self.clock_hz

    def _flops(self, macs: int) -> float:
        return 2.0 * self.tiles * macs * self.clock_hz


# Sources: the hardware reference, sections 1.1 (chip), 1.2 (arithmetic), 1.3 (memory map), 1.5 (links and memory).
# Where it gives a data-sheet figure and a measurement, the nominal rate is here; losses belong to the cost model.
MK1 = Target(
    name="mk1",
    architecture="ipu1",
    tiles=1216,
    workers=6,
    bytes_per_tile=256 * 1024,
    executable_bytes_per_tile=128 * 1024,
    clock_hz=1.6e9,
    half_macs=32,
    half_float_macs=32,
    float_macs=8,
    read_bytes_per_cycle=16,
    write_bytes_per_cycle=8,
    exchange_bytes_per_cycle=4,
    link_bandwidth=32e9,
    links_per_pair=2,
    # Only measurements exist for the Mk1 host link: one IPU alone, and four together.
    host_bandwidth=6.0e9,
    ipus_per_host_link=4,
    shared_host_bandwidth=13.8e9,
    streaming_memory=0,
)

MK2 = Target(
    name="mk2",
    architecture="ipu2",
    tiles=1472,
    workers=6,
    bytes_per_tile=624 * 1024,
    executable_bytes_per_tile=208 * 1024,
    clock_hz=1.325e9,
    half_macs=64,
    half_float_macs=32,
    float_macs=16,
    read_bytes_per_cycle=16,
    write_bytes_per_cycle=8,
    exchange_bytes_per_cycle=4,
    link_bandwidth=16e9,
    links_per_pair=6,
    host_bandwidth=16e9,
    ipus_per_host_link=4,
    shared_host_bandwidth=12.5e9,
    streaming_memory=34_082_914_304,
)

BOW = attrs.evolve(MK2, name="bow", clock_hz=1.85e9)

# The card that Poplar calls ipu21: here because programs compile for that version. Its clock is derived from its
# advertised rate, and the reference has no figure for its streaming memory.
C600 = attrs.evolve(
    MK2,
    name="c600",
    architecture="ipu21",
    clock_hz=1.49e9,
    links_per_pair=4,
    ipus_per_host_link=1,
    shared_host_bandwidth=16e9,
    streaming_memory=0,
)

TARGETS = {target.name: target for target in (MK1, MK2, BOW, C600)}


def target_for(architecture: str) -> Target:
    """The target that Poplar calls `architecture` (Mk2 for "ipu2", which Bow also answers to)."""
    for target in TARGETS.values():
        if target.architecture == architecture:
            return target
    valid = ", ".join(dict.fromkeys(target.architecture for target in TARGETS.values()))
    raise ValueError(f"The IPU version must be one of: {valid}. Received: {architecture!r}.")
