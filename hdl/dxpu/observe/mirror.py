"""A mirror port: repeats what a MAC sends and receives, for a second MAC.

The encapsulation is an Ethernet frame with an EtherType of its own rather than ERSPAN, which would
need IP addresses at both ends, and whose time is of 32 bits. The receiver is at the other end of a
cable; ``dxpu capture`` makes a capture of what comes.

Ref: docs/reference/mirror.md
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.arbiter import PacketArbiter
from dxpu.counted import Counted
from dxpu.queue import PacketQueue, Queue
from dxpu.stream import PacketLayout, PacketSignature, connect

from .mirror_format import (
    BAD, DESTINATION, ETHERTYPE, FIELDS, HEADER_BYTES, RECEIVED, SOURCE, VERSION,
)

__all__ = ["FrameHead", "FrameRecorder", "HeadPrepender", "Mirror", "Passing", "observe"]

#: Bits of a time.
TIME_BITS = 48
#: Directions, by what the MAC does with a frame, and the inputs of :class:`Mirror` for them.
WAYS = {"sent": "outbound", "received": "inbound"}


class FrameHead(data.Struct):
    """What a :class:`FrameRecorder` says about a frame; members as of
    :class:`~.mirror_format.MirrorHeader`, the length in dwords."""

    bad: 1
    dwords: 14
    number: 32
    lost: 16
    time: TIME_BITS


def Passing(width):
    """Layout of an observed packet stream.

    Members
    -------
    strobe : 1
        ``beat`` passes in this cycle.
    beat : :class:`~dxpu.stream.PacketLayout`
    """
    return data.StructLayout({"strobe": 1, "beat": PacketLayout(width)})


def observe(m, frames, passing):
    """Show the beats of the packet stream ``frames`` to an input of the layout :func:`Passing`."""
    m.d.comb += [
        passing.strobe.eq(frames.valid & frames.ready), passing.beat.eq(frames.payload)]


class FrameRecorder(wiring.Component):
    """Stores observed frames of one direction, or drops them whole; the observed stream never
    waits.

    A frame is taken if, at its first beat, there is room for the largest one and for its head;
    otherwise it is dropped and counted. Of a frame that is longer than ``snap`` bytes, the first
    ``snap`` are stored. A frame that ends with ``discard`` is stored like any other, and marked.

    Latency: a frame is at ``o`` four cycles after its last beat if nothing is before it. Throughput
    a beat per cycle.

    Parameters
    ----------
    width : int
        Data bits per beat.
    depth : int
        Beats of memory; a power of two.
    frames : int
        Frames that may wait, 3 or more.
    snap : int
        Bytes stored of a frame at most; whole beats, and no more than the memory has.

    Members
    -------
    watched : :func:`Passing`
        What is observed.
    now : 48
        Time in cycles.
    o : packet stream
        Frames; none has ``discard``. A frame is there when its head is, and not before.
    heads : stream of :class:`FrameHead`
        The head of each frame of ``o``.
    stat_lost : 1
        A frame was dropped.
    """

    def __init__(self, width, *, depth, frames, snap):
        beats, rest = divmod(8 * snap, width)
        if rest or not 1 <= beats <= depth:
            raise ValueError(f"snap must be a multiple of {width // 8} up to "
                             f"{depth * width // 8}, not {snap!r}")
        if not isinstance(frames, int) or frames < 3:
            raise ValueError(f"frames must be an integer of at least 3, not {frames!r}")
        self._width, self._depth, self._frames, self._beats = width, depth, frames, beats
        super().__init__({
            "watched": In(Passing(width)),
            "now": In(TIME_BITS),
            "o": Out(PacketSignature(width)),
            "heads": Out(stream.Signature(FrameHead)),
            "stat_lost": Out(Counted("Observed frames that the mirror had no room for.")),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = PacketQueue(self._width, depth=self._depth, overflow="drop")
        m.submodules.waiting = waiting = Queue(FrameHead, depth=self._frames, direct=True)
        connect(m, memory.o, wiring.flipped(self.o))
        connect(m, waiting.o, wiring.flipped(self.heads))

        # A cycle later, so that nothing of the path depends on this place.
        passing, start = Signal(Passing(self._width)), Signal(TIME_BITS)
        m.d.sync += passing.eq(self.watched)
        with m.If(self.watched.strobe & self.watched.beat.first):
            m.d.sync += start.eq(self.now)

        beat, strobe = passing.beat, passing.strobe
        position, dwords = Signal(range(self._beats + 1)), Signal(14)
        total, room, was_kept, keeps = Signal(14), Signal(), Signal(), Signal()
        number, lost = Signal(32), Signal(16)
        stored, head = memory.i.payload, waiting.i.payload
        m.d.comb += [
            room.eq((memory.level <= self._depth - self._beats) & waiting.i.ready),
            keeps.eq(Mux(beat.first, room, was_kept)),
            total.eq(dwords + beat.dwords),
            memory.i.valid.eq(strobe & keeps & (position != self._beats)),
            stored.data.eq(beat.data), stored.dwords.eq(beat.dwords), stored.first.eq(beat.first),
            stored.last.eq(beat.last | (position == self._beats - 1)),
            waiting.i.valid.eq(strobe & beat.last & keeps),
            head.bad.eq(beat.discard), head.dwords.eq(total), head.number.eq(number),
            head.lost.eq(lost), head.time.eq(start),
            self.stat_lost.eq(strobe & beat.last & ~keeps),
        ]
        with m.If(strobe):
            m.d.sync += was_kept.eq(keeps)
            with m.If(beat.last):
                m.d.sync += [position.eq(0), dwords.eq(0), number.eq(number + 1)]
            with m.Else():
                m.d.sync += [dwords.eq(total), position.eq(position + (position != self._beats))]
        m.d.sync += lost.eq(lost + self.stat_lost)
        return m


class HeadPrepender(wiring.Component):
    """Puts the header of the mirror's format in front of each frame.

    A frame begins when it and its head are there, and then a beat is offered in each cycle.
    Throughput a beat per cycle; latency none.

    Parameters
    ----------
    width : int
        Data bits per beat: 32, 64, 128 or 256, of which a header is whole beats.
    path : int
        Path of the observed MAC.
    received : bool
        Frames were received, not sent.
    period_ps : int
        Period of the clock in picoseconds, to be written into headers.

    Members
    -------
    i : packet stream
        Frames, none with ``discard``.
    heads : stream of :class:`FrameHead`
        The head of each frame of ``i``.
    o : packet stream
    """

    def __init__(self, width, *, path, received, period_ps):
        if width not in (32, 64, 128, 256):
            raise ValueError(f"width must be one of 32, 64, 128, 256, not {width!r}")
        if path not in range(16):
            raise ValueError(f"path must be from 0 to 15, not {path!r}")
        if period_ps not in range(1, 1 << 16):
            raise ValueError(f"period_ps must be from 1 to 65535, not {period_ps!r}")
        self._width = width
        self._constant = {"EtherType": ETHERTYPE, "version": VERSION, "path": path,
                          "period": period_ps}
        self._received = received
        super().__init__({
            "i": In(PacketSignature(width)),
            "heads": In(stream.Signature(FrameHead)),
            "o": Out(PacketSignature(width)),
        })

    def _header(self):
        """The header in wire order."""
        head = self.heads.payload
        fields = {name: Const(value, 64) for name, value in self._constant.items()} | {
            "flags": Mux(head.bad, BAD, 0) | (RECEIVED if self._received else 0),
            "length": head.dwords << 2, "number": head.number, "lost": head.lost,
            "time": head.time}
        octets = [Const(octet, 8) for octet in DESTINATION + SOURCE]
        octets += [C(0, 8)] * (HEADER_BYTES - len(octets))
        for name, offset, size, msb, lsb in FIELDS:
            word = (fields[name] & (1 << msb - lsb + 1) - 1) << lsb
            for n in range(size):
                place = 8 * (size - 1 - n)
                octets[offset + n] = octets[offset + n] | word[place:place + 8]
        return Cat(octet[:8] for octet in octets)

    def elaborate(self, platform):
        m = Module()
        beats = 8 * HEADER_BYTES // self._width
        index, behind = Signal(range(beats)), Signal()
        payload = self.o.payload
        with m.If(behind):
            m.d.comb += [
                payload.eq(self.i.payload), payload.first.eq(0),
                self.o.valid.eq(self.i.valid), self.i.ready.eq(self.o.ready),
                self.heads.ready.eq(self.o.valid & self.o.ready & payload.last),
            ]
            with m.If(self.heads.ready):
                m.d.sync += behind.eq(0)
        with m.Else():
            m.d.comb += [
                payload.data.eq(self._header().word_select(index, self._width)),
                payload.dwords.eq(self._width // 32), payload.first.eq(index == 0),
                self.o.valid.eq(self.heads.valid & self.i.valid),
            ]
            with m.If(self.o.valid & self.o.ready):
                m.d.sync += index.eq(Mux(index == beats - 1, 0, index + 1))
                m.d.sync += behind.eq(index == beats - 1)
        return m


class Mirror(wiring.Component):
    """Makes frames for a second MAC of those that pass between a core and its MAC.

    The path is observed and never waits. Frames of both directions leave in turn, each direction's
    in order; a frame that finds no room is dropped whole, and the header of the next one says how
    many were. Both directions of a full line are more than a second line of the same rate carries.

    Latency from the last beat of a frame to the first one at ``o``: 5 or 6 cycles if no other
    frame is there.

    Parameters
    ----------
    width : int
        Data bits per beat: 32, 64, 128 or 256.
    period_ps : int
        Period of the clock in picoseconds, 65,535 at most.
    path : int
        Path of the observed MAC.
    memory_bytes : int
        Memory of each direction; a power of two.
    frames : int
        Frames of each direction that may wait.
    snap : int
        Bytes of a frame that are repeated at most, without the header: 1,568 make frames of 1,600
        bytes, for interfaces with an MTU of 1,586 or more; 1,480 do for one of 1,500.

    Members
    -------
    outbound, inbound : :func:`Passing`
        What goes to the observed MAC, and what comes from there; see :func:`observe`.
    o : packet stream
        Frames of docs/reference/mirror.md, without FCS. Once a frame has begun, a beat is offered
        in each cycle.
    stat_sent_lost, stat_received_lost : 1
        A frame of that direction was dropped.
    """

    def __init__(self, width, *, period_ps, path=0, memory_bytes=4096, frames=16, snap=1568):
        self._width = width
        self._ways = {
            name: (FrameRecorder(width, depth=8 * memory_bytes // width, frames=frames, snap=snap),
                   HeadPrepender(width, path=path, received=name == "received",
                                 period_ps=period_ps))
            for name in WAYS}
        super().__init__({
            **{way: In(Passing(width)) for way in WAYS.values()},
            "o": Out(PacketSignature(width)),
            **{f"stat_{name}_lost": Out(Counted(
                f"Frames {name}{{on_path}} that the mirror had no room for."))
               for name in self._ways},
        })

    def elaborate(self, platform):
        m = Module()
        now = Signal(TIME_BITS)
        m.d.sync += now.eq(now + 1)
        m.submodules.arbiter = arbiter = PacketArbiter(self._width, count=2)
        for n, (name, (recorder, prepender)) in enumerate(self._ways.items()):
            m.submodules[f"{name}_recorder"], m.submodules[f"{name}_head"] = recorder, prepender
            m.d.comb += [
                recorder.now.eq(now), recorder.watched.eq(getattr(self, WAYS[name])),
                getattr(self, f"stat_{name}_lost").eq(recorder.stat_lost),
            ]
            connect(m, recorder.o, prepender.i)
            connect(m, recorder.heads, prepender.heads)
            connect(m, prepender.o, arbiter.i[n])
        connect(m, arbiter.o, wiring.flipped(self.o))
        return m
