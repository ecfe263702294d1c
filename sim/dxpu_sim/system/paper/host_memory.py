"""A host's root complex and memory: answers reads after a time, counts writes. Simulation only."""

from amaranth import *
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from dxpu.attach import CreditLimits
from dxpu.stream import PacketSignature, connect

from .gpu import swapped_address
from .tlps import Job, Spending, TlpMaker, TlpTap, completion

__all__ = ["HostMemory"]


class Read(data.Struct):
    """A read under way to memory."""

    requester: 16
    tag: 8
    dwords: 11
    #: Low bits of the address.
    address: 32
    #: Cycle from which on the data are there.
    due: 32


class HostMemory(wiring.Component):
    """Answers each read ``latency`` cycles after the read's end, in order, by completions of at
    most ``boundary`` bytes, cut at multiples of ``boundary``.

    Parameters
    ----------
    width : int
        Data bits per beat.
    reads : int
        Room for reads; a power of two. More are errors.
    boundary : int
        Bytes; a power of two (Read Completion Boundary).
    credits : bool
        Completions wait for credits of ``rx_cpl``.

    Members
    -------
    p, np : packet streams
        Requests, taken at once.
    o : packet stream
        Completions.
    rx_cpl : In :class:`~dxpu.attach.CreditLimits`
    latency : In(16)
    cycle : In(32)
    written_bytes : Out(40)
        Data of writes.
    errors : Out(16)
        Reads without room; wrong data.
    """

    def __init__(self, width, *, reads=4096, boundary=64, credits=False):
        self._width, self._reads, self._boundary = width, reads, boundary
        self._credits = credits
        super().__init__({
            "p": In(PacketSignature(width)), "np": In(PacketSignature(width)),
            "o": Out(PacketSignature(width)), "rx_cpl": In(CreditLimits),
            "latency": In(16), "cycle": In(32), "written_bytes": Out(40), "errors": Out(16),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.read_tap, m.submodules.write_tap = reads, writes = (
            TlpTap(self._width), TlpTap(self._width))
        for tap, stream in ((reads, self.np), (writes, self.p)):
            m.d.comb += [stream.ready.eq(1), tap.payload.eq(stream.payload),
                         tap.valid.eq(stream.valid), tap.ready.eq(1)]
        is_write, is_read = writes.header[0][:5] == 0, reads.header[0][:5] == 0
        m.d.comb += writes.base.eq(swapped_address(writes.header))
        with m.If(writes.ends & is_write):
            m.d.sync += self.written_bytes.eq(self.written_bytes + (writes.dwords << 2))
        m.submodules.queue = queue = memory.Memory(shape=Read, depth=self._reads, init=[])
        enter, leave = queue.write_port(), queue.read_port(domain="comb")
        tail, head = (Signal(range(2 * self._reads), name=name) for name in ("tail", "head"))
        full, length = Signal(), Signal(10)
        m.d.comb += [
            full.eq((tail - head)[:len(tail)] == self._reads),
            length.eq(Cat(reads.header[0][24:32], reads.header[0][16:18])),
            enter.addr.eq(tail), leave.addr.eq(head),
            enter.data.requester.eq(Cat(reads.header[1][8:16], reads.header[1][:8])),
            enter.data.tag.eq(reads.header[1][16:24]),
            enter.data.dwords.eq(Cat(length, length == 0)),
            enter.data.address.eq(swapped_address(reads.header)),
            enter.data.due.eq(self.cycle + self.latency),
            enter.en.eq(reads.ends & is_read & ~full),
        ]
        with m.If(enter.en):
            m.d.sync += tail.eq(tail + 1)
        with m.If(reads.ends & is_read & full | writes.wrong & is_write):
            m.d.sync += self.errors.eq(self.errors + 1)
        self._answer(m, leave.data, tail != head, head)
        return m

    def _answer(self, m, read, some, head):
        """Completions of the oldest read."""
        m.submodules.maker = maker = TlpMaker(self._width)
        m.submodules.credits = credits = Spending()
        connect(m, maker.o, wiring.flipped(self.o))
        job, full, gone = Signal(Job), Signal(), Signal(13)
        place, room, left, size, due = Signal(32), Signal(13), Signal(13), Signal(13), Signal(32)
        begins, free = Signal(), Signal()
        m.d.comb += [
            place.eq(read.address + gone), left.eq((read.dwords << 2) - gone),
            room.eq(self._boundary - (place & self._boundary - 1)),
            size.eq(Mux(left < room, left, room)), due.eq(self.cycle - read.due),
            maker.i.payload.eq(job), maker.i.valid.eq(full), free.eq(~full | maker.i.ready),
            credits.limits.eq(self.rx_cpl), credits.dwords.eq(size >> 2),
            begins.eq(some & ~due[31] & free
                      & (credits.may | (not self._credits))), credits.begins.eq(begins),
        ]
        with m.If(free):
            m.d.sync += full.eq(begins)
        with m.If(begins):
            m.d.sync += [
                job.header.eq(completion(requester=read.requester, tag=read.tag,
                                         dwords=(size >> 2)[:10], byte_count=left[:12],
                                         lower=place[:7])),
                job.payload.eq(size >> 2), job.base.eq(place),
                gone.eq(Mux(size == left, 0, gone + size)), head.eq(head + (size == left)),
            ]
