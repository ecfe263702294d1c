"""A memory of the last events, with their times."""

import enum

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In

from dxpu.csr import Block, Field, Register, RegisterFile, RegisterPort, Rows
from dxpu.priority import encode, lowest_bit

__all__ = ["EventRing", "event_block"]

#: Number of events kept.
DEPTH = 64


def event_block(kinds, *, unit):
    """Registers of an :class:`EventRing`; ``unit`` is the text for its unit of time."""
    names = enum.IntEnum("Kind", {name.upper(): n for n, name in enumerate(kinds)})
    return Block("events", (
        Register("recorded", (Field("count", 32, "ro", doc="Events recorded since reset; wraps. "
                 "Event n is in entry n modulo the number of entries."),),
                 "Number of events."),
        Register("now", (Field("time", 24, "ro", doc=f"Time in {unit} since reset; wraps."),),
                 "Present time."),
        Register("merged", (Field("count", 16, "ro", doc="Events merged with an earlier event of "
                 "the same kind, which still waited to be recorded; stays at 65,535."),),
                 "Events without an entry."),
        Rows("entry", DEPTH, (
            Register("event", (
                Field("time", 24, "mem", doc="Time of the event, in the unit of `now`."),
                Field("kind", 8, "mem", values=names, doc="Kind of the event.")), "One event."),
        ), "Last events.", address=4 * DEPTH),
    ), "Last events, with their times.")


class EventRing(wiring.Component):
    """Keeps the last 64 events; records one per cycle, the lowest kind first.

    An event waits until it is recorded, so simultaneous events are not lost. An event whose kind is
    still waiting is merged with the waiting event and counted in ``merged``.

    Latency from an event to its entry: 2 cycles if no other event waits.

    Parameters
    ----------
    kinds : list of str
        Names of the events, at most 255; lower case.
    unit : int
        Clock cycles of a unit of time.
    unit_name : str
        Name of the unit, for documentation.

    Members
    -------
    events : In(len(kinds))
        Events of this cycle, kind n in bit n.
    bus : In :class:`~dxpu.csr.RegisterPort`
        Registers of :func:`event_block`.
    """

    def __init__(self, kinds, *, unit, unit_name="units"):
        if not 0 < len(kinds) < 256:
            raise ValueError(f"kinds must be 1 to 255 names, not {len(kinds)}")
        if not isinstance(unit, int) or unit < 1:
            raise ValueError(f"unit must be a positive integer, not {unit!r}")
        self._unit = unit
        #: The register block (:class:`~dxpu.csr.Block`).
        self.block = event_block(kinds, unit=unit_name)
        super().__init__({"events": In(len(kinds)), "bus": In(RegisterPort())})

    def elaborate(self, platform):
        m = Module()
        m.submodules.file = file = RegisterFile(self.block)
        m.submodules.memory = memory = Memory(shape=32, depth=DEPTH, init=[])
        write, read = memory.write_port(), memory.read_port()
        wiring.connect(m, wiring.flipped(self.bus), file.bus)

        time, within = Signal(24), Signal(range(self._unit))
        m.d.sync += within.eq(Mux(within == self._unit - 1, 0, within + 1))
        with m.If(within == self._unit - 1):
            m.d.sync += time.eq(time + 1)

        waiting, total, merged = Signal(len(self.events)), Signal(32), Signal(16)
        chosen = Signal(len(self.events))
        m.d.comb += [
            chosen.eq(lowest_bit(waiting)),
            write.addr.eq(total),
            write.en.eq(waiting.any()),
            write.data.eq(Cat(time, encode(chosen))),
        ]
        m.d.sync += waiting.eq(waiting & ~chosen | self.events)
        with m.If(waiting.any()):
            m.d.sync += total.eq(total + 1)
        # Events that merge are counted a cycle later: events come late in a cycle.
        merging, more = Signal(len(self.events)), Signal(17)
        m.d.comb += more.eq(merged + sum(merging))
        m.d.sync += [merging.eq(waiting & ~chosen & self.events),
                     merged.eq(Mux(more[16], 0xFFFF, more))]

        base = self.block.address("entry[0].event")
        requested = Signal()
        m.d.comb += [
            read.addr.eq((file.mem_address - base)[2:]),
            file.mem_read_data.eq(read.data),
            file.mem_done.eq(requested),
            file.recorded.count.eq(total),
            file.now.time.eq(time),
            file.merged.count.eq(merged),
        ]
        m.d.sync += requested.eq(file.mem_request & ~requested)
        return m
