"""Queues from the PCIe ports of all slots, in shared memory, merged to one stream."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.memory import DisjointMemory
from dxpu.stage import counted_fill
from dxpu.stream import PacketSignature, check_width, connect

from .ingress_fetch import IngressReader
from .ingress_store import IngressWriter

__all__ = ["SharedIngress"]


class SharedIngress(wiring.Component):
    """A queue of whole TLPs for each slot, in one block RAM, whose TLPs leave in turn.

    Each slot has a region that works as a :class:`~dxpu.queue.PacketQueue` with ``overflow="cut"``:
    a TLP that ends with ``discard`` is removed, one that finds too little space waits, and of one
    larger than the region the first ``depth`` beats leave. Whatever a region holds, other slots
    wait for it no more than a cycle for each of their beats.

    Latency two cycles from the last beat of a TLP to its first, if nothing is before it and its
    slot was the last one to send; the first beat of another slot waits for one cycle. Throughput
    one beat per cycle in total, in and out, of the same slot or of several with TLPs of two beats
    at least. A TLP waits for at most ``turn`` beats and two TLPs of each other slot. After reset it
    takes a cycle for each slot until beats are taken.

    Parameters
    ----------
    width : int
        Data bits per beat.
    slots : int
        Slots, 1 to 16.
    depth : int
        Beats of each region; a power of two of at least 2.
    turn : int
        Beats after which it is the turn of another slot; 1: after each TLP.

    Members
    -------
    i : array of packet streams
        TLPs of each slot.
    can_start : ``slots``
        Bit n: a TLP of slot n may begin to leave; one that has begun leaves in any case.
    o : packet stream
        TLPs of all slots; never has ``discard``.
    source : slot
        Slot of the beat on ``o``.
    empty : ``slots``
        Bit n: no beat of slot n is stored, and no TLP of it has begun to enter.
    stat_discarded, stat_overflow : ``slots``
        Pulses: a TLP of slot n ended with ``discard``; one was cut.
    """

    def __init__(self, width, *, slots, depth, turn=1):
        if slots not in range(1, 17):
            raise ValueError(f"slots must be 1 to 16, not {slots!r}")
        if not isinstance(depth, int) or depth < 2 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two of at least 2, not {depth!r}")
        self._slots, self._depth = slots, depth
        self._writer = IngressWriter(check_width(width), slots=slots, depth=depth)
        self._beat = self._writer.write_beat.shape()
        self._reader = IngressReader(width, self._beat, slots=slots, depth=depth,
                                     turn=turn)
        super().__init__({
            "i": In(PacketSignature(width)).array(slots),
            "can_start": In(slots),
            "o": Out(PacketSignature(width)),
            "source": Out(range(max(2, slots))),
            "empty": Out(slots),
            "stat_discarded": Out(slots),
            "stat_overflow": Out(slots),
        })

        #: How many whole TLPs are stored (:class:`~dxpu.stage.Fill`).
        self.fill = counted_fill(
            self._writer.stored, self.o.valid & self.o.ready & self.o.payload.last, slots * depth,
            "Whole TLPs from slots that wait for their turn, or for credits of their host.")

    def elaborate(self, platform):
        m = Module()
        m.submodules.writer = writer = self._writer
        m.submodules.reader = reader = self._reader
        m.submodules.memory = memory = DisjointMemory(
            shape=self._beat, depth=self._slots * self._depth, init=[])
        write, read = memory.write_port(), memory.read_port()
        clear, cleared = Signal(init=1), Signal(range(self._slots + 1))
        with m.If(clear):
            m.d.sync += [cleared.eq(cleared + 1), clear.eq(cleared != self._slots - 1)]
        for outer, inner in zip(self.i, writer.i, strict=True):
            connect(m, wiring.flipped(outer), inner)
        connect(m, reader.o, wiring.flipped(self.o))
        wiring.connect(m, reader.end_of, writer.end_of)
        bits = (self._depth - 1).bit_length()
        m.d.comb += [
            writer.clear.eq(clear), reader.clear.eq(clear),
            writer.head.eq(reader.writer_head), reader.writer_slot.eq(writer.slot),
            reader.can_start.eq(self.can_start), reader.stored.eq(writer.stored),
            write.en.eq(writer.write_en), write.data.eq(writer.write_beat),
            write.addr.eq(Cat(writer.write_position[:bits], writer.write_slot)),
            read.en.eq(reader.read_en), reader.read_beat.eq(read.data),
            read.addr.eq(Cat(reader.read_position[:bits], reader.read_slot)),
            self.source.eq(reader.source), self.empty.eq(~(reader.busy | writer.entering)),
            self.stat_discarded.eq(writer.stat_discarded),
            self.stat_overflow.eq(writer.stat_overflow),
        ]
        return m
