"""Regions of a shared egress: one for each slot and class; and their interfaces.

A *queue* is the region of a slot and class: its number is the slot, and above it the class. A
*waiter* is a queue whose TLPs may wait for posted requests; its number is the slot, and above it 0
for non-posted requests, 1 for completions.
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.rows import UNIT_BITS
from dxpu.stream import PacketLayout, check_width
from dxpu.tlp.types import TlpClass

__all__ = ["Lookup", "Regions", "Sweep", "Table"]


class Regions:
    """Sizes and numbers of the regions.

    Parameters
    ----------
    width, slots, space, packets
        Those of :class:`~.shared_egress.SharedEgress`.

    Attributes
    ----------
    beats : three int
        Beats of a region, by class.
    packets : int
        Most TLPs in a region.
    queues, waiters : int
        Limits of their numbers.
    beat : layout
        What is stored of a beat.
    point : layout
        Beats and TLPs that passed one end of a region, modulo twice the most that it stores.
    stamp_bits : int
        Bits of a count of posted requests.
    stored : layout
        A TLP that is stored: ``queue``, ``waiter``; ``index``, its number among the TLPs of the
        queue; ``beats`` and ``units`` of it; ``tail``, the end of the region behind it.
    """

    def __init__(self, width, *, slots, space, packets):
        if slots not in range(1, 17):
            raise ValueError(f"slots must be 1 to 16, not {slots!r}")
        beats = tuple(8 * size // check_width(width) for size in space)
        if len(beats) != 3 or any(n < 2 or n & (n - 1) for n in beats):
            raise ValueError(
                f"space must be three powers of two of at least two beats, not {space!r}")
        if not isinstance(packets, int) or packets < 2 or packets & (packets - 1):
            raise ValueError(f"packets must be a power of two of at least 2, not {packets!r}")
        self.slots, self.beats, self.packets = slots, beats, packets
        self.slot_bits = max(1, (slots - 1).bit_length())
        self.queues, self.waiters = 3 << self.slot_bits, 2 << self.slot_bits
        self.beat = data.StructLayout(
            {k: PacketLayout(width)[k].shape for k in ("data", "dwords", "last")})
        self.point = data.StructLayout({
            "beats": max(beats).bit_length(), "packets": packets.bit_length()})
        # A TLP is admitted before so many posted requests have left that the comparison wraps: its
        # queue gets turns, between two of which the other waiters have two each and one check takes
        # four cycles, while a posted request takes two to leave.
        self.stamp_bits = (packets * (self.waiters + 4)).bit_length() + 1
        self.stored = data.StructLayout({
            "queue": range(self.queues), "waiter": range(self.waiters), "index": range(packets),
            "beats": self.point["beats"].shape, "units": UNIT_BITS, "tail": self.point})

    def slot(self, number):
        """Slot of a queue or a waiter."""
        return number[:self.slot_bits]

    def cls(self, queue):
        """Class of a queue."""
        return queue[self.slot_bits:]

    def waiter(self, queue):
        """Waiter that is this queue; without a meaning for posted requests."""
        return Cat(self.slot(queue), self.cls(queue) == TlpClass.CPL.value)

    def is_full(self, queue, end, start):
        """Whether the beats from ``start`` to ``end`` fill the region of a queue."""
        # Then the two differ in their top bit alone.
        least, other = min(self.beats), end ^ start
        above = [other[least.bit_length() - 1:n.bit_length()] == n // least for n in self.beats]
        return (other[:least.bit_length() - 1] == 0) & Array(above)[self.cls(queue)]


def Lookup(index, value):
    """Word of a :class:`Table` of a neighbour, in the same cycle; seen from who reads it."""
    return wiring.Signature({"index": Out(index), "value": In(value)})


def Sweep(regions):
    """Words to be set to 0 after reset, one in each cycle; seen from where they are counted.

    ``strobe`` : the words at ``index`` of all tables are cleared, and nothing else is written.
    """
    return wiring.Signature({"strobe": Out(1), "index": Out(range(regions.queues))})


class Table(wiring.Component):
    """Words in distributed RAM, which reset clears.

    Parameters
    ----------
    regions : :class:`Regions`
    shape : shape-like
    depth, reads : int
        Words, and lookups in a cycle.

    Members
    -------
    sweep : :func:`Sweep`
    write_en, write_index, write_value : 1, ``range(depth)``, ``shape``
        A word; read from the next cycle on.
    lookups : array of :func:`Lookup`
    """

    def __init__(self, regions, shape, *, depth, reads):
        self._shape, self._depth = shape, depth
        super().__init__({
            "sweep": In(Sweep(regions)),
            "write_en": In(1),
            "write_index": In(range(depth)),
            "write_value": In(shape),
            "lookups": In(Lookup(range(depth), shape)).array(reads),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = Memory(shape=self._shape, depth=self._depth, init=[])
        write, sweep = words.write_port(), self.sweep
        m.d.comb += [
            write.en.eq(self.write_en | sweep.strobe),
            write.addr.eq(Mux(sweep.strobe, sweep.index, self.write_index)),
            Value.cast(write.data).eq(Mux(sweep.strobe, 0, Value.cast(self.write_value))),
        ]
        for lookup in self.lookups:
            port = words.read_port(domain="comb")
            m.d.comb += [port.addr.eq(lookup.index), lookup.value.eq(port.data)]
        return m
