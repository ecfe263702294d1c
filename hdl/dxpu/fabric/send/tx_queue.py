"""Queue of TLPs that wait for a frame, each already with its CRC."""

from amaranth import *
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.crc import CrcStream
from dxpu.fabric.wire.crc_appender import CrcAppender
from dxpu.queue import PacketQueue
from dxpu.rows import LIFE_BITS, TlpMeta
from dxpu.stream import PacketLayout, PacketSignature, Register, check_width, connect

__all__ = ["LARGEST_RECORD", "DescriptorQueue", "TlpDescriptor", "TxQueue", "check_depth"]

#: Dwords of the largest TLP (prefixes 4, header 4, data 1024, digest 1) and its CRC.
LARGEST_RECORD = 1034


class TlpDescriptor(data.Struct):
    """A queued TLP: where it goes, when it was sent, and its dwords with the CRC, padded to two."""

    row: 6
    life: LIFE_BITS
    pairs: 10


def reserve(width):
    """Beats that may be under way to the memory."""
    return CrcStream.LATENCY[width] + 4


def check_depth(width, depth, largest=LARGEST_RECORD):
    """Raise :exc:`ValueError` unless ``depth`` beats hold a TLP of ``largest`` dwords, its CRC
    included, and what is under way."""
    least = -(-largest // (width // 32)) + reserve(width)
    if not isinstance(depth, int) or depth < least or depth & (depth - 1):
        raise ValueError(f"depth must be a power of two of at least {least}, not {depth!r}")


class DescriptorQueue(wiring.Component):
    """Queue of descriptors whose output is a register, also where it is empty.

    Latency one cycle, throughput a descriptor per cycle. What comes into an empty queue passes by
    its memory.

    Parameters
    ----------
    depth : int
        Descriptors in the memory; one more is in the register.

    Members
    -------
    i : :class:`TlpDescriptor`
    strobe : 1
        ``i`` is put in. Only while there is space.
    level : number of descriptors in the memory
    o : stream of :class:`TlpDescriptor`
    """

    def __init__(self, depth):
        self._depth = depth
        super().__init__({
            "i": In(TlpDescriptor),
            "strobe": In(1),
            "level": Out(range(depth + 1)),
            "o": Out(stream.Signature(TlpDescriptor)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = fifo.SyncFIFO(
            width=Shape.cast(TlpDescriptor).width, depth=self._depth)
        load = ~self.o.valid | self.o.ready
        m.d.comb += [
            words.w_data.eq(self.i),
            words.w_en.eq(self.strobe & ~(load & ~words.r_rdy)),
            words.r_en.eq(load),
            self.level.eq(words.level),
        ]
        with m.If(load):
            m.d.sync += [
                Value.cast(self.o.payload).eq(Mux(words.r_rdy, words.r_data, self.i)),
                self.o.valid.eq(words.r_rdy | self.strobe),
            ]
        return m


class TxQueue(wiring.Component):
    """Appends CRCs and stores the TLPs in block RAM, with a descriptor of each beside them.

    A descriptor is offered one cycle after the last beat was taken. That is before the TLP itself
    can be read, but by a fixed number of cycles: space for all that is under way is held free, so
    nothing ever waits between ``i`` and the memory. The first beat is offered at most six cycles
    after the descriptor.

    TLPs that end with ``discard`` have no descriptor and never come out. One larger than
    ``largest`` must not be sent; one that ends with ``discard`` may have up to half of ``depth``.

    Parameters
    ----------
    width : int
        Data bits per beat.
    depth : int
        Beats of memory; a power of two, enough for the largest TLP and what is under way.
    tlps : int
        TLPs it holds besides the one whose descriptor is offered.
    largest : int
        Dwords of the largest TLP and its CRC.

    Members
    -------
    i : packet stream with :class:`TlpMeta`
    descriptors : stream of :class:`TlpDescriptor`
    o : packet stream
        The TLPs in the order of the descriptors, each with its CRC as the last dword.
    """

    def __init__(self, width, *, depth, tlps=32, largest=LARGEST_RECORD):
        self._width, self._depth, self._tlps = check_width(width), depth, tlps
        check_depth(width, depth, largest)
        super().__init__({
            "i": In(PacketSignature(width, TlpMeta)),
            "descriptors": Out(stream.Signature(TlpDescriptor)),
            "o": Out(PacketSignature(width)),
        })

    def elaborate(self, platform):
        m = Module()
        i = self.i
        m.submodules.appender = appender = CrcAppender(self._width)
        m.submodules.queue = queue = PacketQueue(self._width, depth=self._depth)
        m.submodules.output = output = Register(PacketLayout(self._width))
        m.submodules.descriptors = descriptors = DescriptorQueue(self._tlps)
        connect(m, descriptors.o, wiring.flipped(self.descriptors))
        # The queue is never full: `room` leaves more than the beats that are on their way to it.
        m.d.comb += [queue.i.payload.eq(appender.o.payload), queue.i.valid.eq(appender.o.valid)]
        connect(m, queue.o, output.i)
        connect(m, output.o, wiring.flipped(self.o))

        room = Signal(init=1)
        m.d.sync += room.eq((queue.level <= self._depth - reserve(self._width))
                            & (descriptors.level <= self._tlps - 3))
        fields = ("data", "dwords", "first", "last", "discard")
        m.d.comb += [
            appender.i.valid.eq(i.valid & room),
            i.ready.eq(appender.i.ready & room),
            *(appender.i.payload[name].eq(i.payload[name]) for name in fields),
        ]

        before = Signal(11, init=2)  # dwords of the TLP before this beat, and CRC and half a pair
        now = Signal(TlpDescriptor)
        taken, strobe = Signal(), Signal()
        m.d.comb += [
            taken.eq(i.valid & i.ready),
            strobe.eq(taken & i.payload.last & ~i.payload.discard),
            now.row.eq(i.payload.meta.row),
            now.life.eq(i.payload.meta.life),
            now.pairs.eq((before + i.payload.dwords) >> 1),
        ]
        with m.If(taken):
            m.d.sync += before.eq(
                Mux(i.payload.last, before.init, before + i.payload.dwords))
        m.d.comb += [descriptors.i.eq(now), descriptors.strobe.eq(strobe)]
        return m
