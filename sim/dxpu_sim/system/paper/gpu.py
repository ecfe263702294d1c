"""A GPU's DMA engine: reads with many tags and writes, as fast as they may go. Simulation only."""

from amaranth import *
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from dxpu.attach import CreditLimits
from dxpu.stream import PacketSignature, connect
from dxpu_sim.fabric.chance import Chance

from .tlps import Job, Spending, TlpMaker, TlpTap, request

__all__ = ["FIELDS", "TAGS", "DmaEngine", "Work"]

#: Most tags.
TAGS = 256


class Work(data.Struct):
    """What an engine does; sizes in dwords."""

    reads: 1
    writes: 1
    #: Reads under way, at most.
    tags: 9
    read_dwords: 11
    write_dwords: 11
    #: Probability, in 1/65536, that a TLP begins in a cycle in which one can; 65536: always.
    chance: 17
    #: Of a host's memory, or of another GPU; its low 20 bits are 0.
    read_address: 64
    write_address: 64


#: Fields of :class:`Work`, each with its shape.
FIELDS = {name: Shape.cast(field.shape) for name, field in data.Layout.cast(Work)}


class DmaEngine(wiring.Component):
    """Reads blocks of memory, of which each tag has its own, and writes.

    A TLP begins when there are credits for it, and a tag, if the chance of ``work`` says so; reads
    and writes take turns. Tags are used in turn. All completions are taken at once and must be
    right: tag, byte count, data. Writes that come from elsewhere are counted.

    Parameters
    ----------
    width : int
        Data bits per beat.
    seed : int
    credits : bool
        TLPs wait for credits of ``rx_p`` and ``rx_np``.

    Members
    -------
    o : packet stream
        TLPs of the GPU.
    p, np, cpl : packet streams
        TLPs to the GPU.
    rx_p, rx_np : In :class:`~dxpu.attach.CreditLimits`
    requester : In(16)
    work : In(Work)
        May change at any time.
    cycle : In(32)
    begun, done : Out(1)
        Strobes: the first beat of a read leaves, the last one of its last completion is here.
    latency : Out(20)
        With ``done``: cycles between both.
    under_way : Out(9)
        Reads.
    read_bytes, written_bytes, arrived_bytes : Out(40)
        Data of completions, of writes sent, of writes that came.
    errors : Out(16)
    """

    def __init__(self, width, *, seed=1, credits=False):
        self._width, self._seed, self._credits = width, seed, credits
        super().__init__({
            "o": Out(PacketSignature(width)),
            **{name: In(PacketSignature(width)) for name in ("p", "np", "cpl")},
            "rx_p": In(CreditLimits), "rx_np": In(CreditLimits),
            "requester": In(16), "work": In(Work), "cycle": In(32),
            "begun": Out(1), "done": Out(1), "latency": Out(20), "under_way": Out(9),
            "read_bytes": Out(40), "written_bytes": Out(40), "arrived_bytes": Out(40),
            "errors": Out(16),
        })

    def elaborate(self, platform):
        m = Module()
        busy, tag = Signal(TAGS), Signal(8)
        m.submodules.left = left = memory.Memory(shape=13, depth=TAGS, init=[])
        m.submodules.starts = starts = memory.Memory(shape=32, depth=TAGS, init=[])
        begins, ends = Signal(), Signal()
        self._send(m, busy, tag, begins, left, starts)
        finished = self._take(m, busy, ends, left, starts)
        m.d.sync += [
            busy.eq(busy & ~Mux(ends, 1 << finished, 0) | Mux(begins, 1 << tag, 0)),
            self.under_way.eq(self.under_way + begins - ends),
        ]
        return m

    def _send(self, m, busy, tag, begins, left, starts):
        work, job, full = self.work, Signal(Job), Signal()
        m.submodules.maker = maker = TlpMaker(self._width)
        m.submodules.chance = chance = Chance(seed=self._seed)
        m.submodules.p_credits, m.submodules.np_credits = p, np = Spending(), Spending()
        connect(m, maker.o, wiring.flipped(self.o))
        lucky, free, turn = Signal(), Signal(), Signal()
        may_read, may_write, writes = Signal(), Signal(), Signal()
        m.d.comb += [
            maker.i.payload.eq(job), maker.i.valid.eq(full),
            free.eq(~full | maker.i.ready), lucky.eq(chance.value[:16] < work.chance),
            p.limits.eq(self.rx_p), p.dwords.eq(work.write_dwords), np.limits.eq(self.rx_np),
            may_read.eq(work.reads & (np.may | (not self._credits)) & ~busy.bit_select(tag, 1)),
            may_write.eq(work.writes & (p.may | (not self._credits))),
            writes.eq(may_write & (turn | ~may_read)),
            begins.eq(free & lucky & may_read & ~writes), np.begins.eq(begins),
            p.begins.eq(free & lucky & writes),
        ]
        place, offset = Signal(64), Signal(20)
        here = Mux(writes, work.write_address, work.read_address)
        count = Mux(writes, work.write_dwords, work.read_dwords)
        m.d.comb += place.eq(here | Mux(writes, offset, tag << 12))
        with m.If(free):
            m.d.sync += full.eq(p.begins | begins)
            with m.If(p.begins | begins):
                m.d.sync += [
                    job.header.eq(request(
                        write=writes, long=here[32:].any(), requester=self.requester, tag=tag,
                        dwords=count[:10], address=place)),
                    job.long.eq(here[32:].any()),
                    job.payload.eq(Mux(writes, work.write_dwords, 0)), job.base.eq(place[:32]),
                    turn.eq(begins),
                ]
        with m.If(p.begins):
            m.d.sync += [offset.eq(offset + (work.write_dwords << 2)),
                         self.written_bytes.eq(self.written_bytes + (work.write_dwords << 2))]
        with m.If(begins):
            m.d.sync += tag.eq(Mux(tag + 1 >= work.tags, 0, tag + 1))
        # The first beat is offered in the cycle after `begins`, and counts from when it is taken.
        reads = ~job.header[6]
        start = starts.write_port()
        m.d.comb += [
            self.begun.eq(self.o.valid & self.o.ready & self.o.payload.first & reads),
            start.en.eq(self.begun), start.addr.eq(job.header[48:56]), start.data.eq(self.cycle),
        ]

    def _take(self, m, busy, ends, left, starts):
        """Returns the tag of the read that ends."""
        m.submodules.tap, m.submodules.written = tap, written = (
            TlpTap(self._width), TlpTap(self._width))
        for one, stream in ((tap, self.cpl), (written, self.p)):
            m.d.comb += [stream.ready.eq(1), one.payload.eq(stream.payload),
                         one.valid.eq(stream.valid), one.ready.eq(1)]
        m.d.comb += self.np.ready.eq(1)
        work, tag = self.work, Signal(8)
        byte_count, lower, size, gone = Signal(12), Signal(7), Signal(13), Signal(13)
        look, write, began = (left.read_port(domain="comb"), left.write_port(),
                              starts.read_port(domain="comb"))
        good = Signal()
        m.d.comb += [
            byte_count.eq(Cat(tap.header[1][24:32], tap.header[1][16:20])),
            tag.eq(tap.header[2][16:24]), lower.eq(tap.header[2][24:31]),
            size.eq(tap.dwords << 2), look.addr.eq(tag), began.addr.eq(tag),
            # What is 0 for a read of which nothing has come, and counts up.
            gone.eq(look.data),
            tap.base.eq((work.read_address[:32] | tag << 12) + gone),
            good.eq((tap.header[0][:8] == 0x4A) & busy.bit_select(tag, 1) & ~tap.wrong
                    & (tap.header[1][21:24] == 0) & (lower == gone[:7])
                    & (byte_count + gone == work.read_dwords << 2)),
            ends.eq(tap.ends & good & (byte_count == size)),
            write.addr.eq(tag), write.en.eq(tap.ends & good),
            write.data.eq(Mux(ends, 0, gone + size)),
            self.done.eq(ends), self.latency.eq(self.cycle - began.data),
            # Of a posted TLP that is no message.
            written.base.eq(swapped_address(written.header)),
        ]
        with m.If(tap.ends & good):
            m.d.sync += self.read_bytes.eq(self.read_bytes + size)
        is_write = written.header[0][:5] == 0
        with m.If(written.ends & is_write):
            m.d.sync += self.arrived_bytes.eq(self.arrived_bytes + (written.dwords << 2))
        with m.If((tap.ends & ~good) | tap.wrong | written.wrong & is_write):
            m.d.sync += self.errors.eq(self.errors + 1)
        return tag


def swapped_address(header):
    """Low 32 bits of the address of a memory request."""
    word = Mux(header[0][5], header[3], header[2])
    return Cat(word[n:n + 8] for n in (24, 16, 8, 0))
