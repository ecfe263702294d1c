"""TLPs made and looked at in hardware; their data tell their addresses. Simulation only."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.attach import CreditLimits
from dxpu.stream import PacketSignature, payload_shape

__all__ = ["Job", "Spending", "TlpMaker", "TlpTap", "completion", "request", "swapped"]


class Job(data.Struct):
    """A TLP to be sent: its header as on the line, of four dwords if ``long``, and its data."""

    header: 128
    long: 1
    #: Dwords of data.
    payload: 11
    #: Dword n of the data is this and 4 n.
    base: 32


def swapped(value):
    """The bytes of a value in the other order."""
    return Cat(value[n:n + 8] for n in reversed(range(0, len(value), 8)))


def _first(fmt_type, dwords):
    return Cat(fmt_type, C(0, 8), dwords[8:10], C(0, 6), dwords[:8])


def request(*, write, long, requester, tag, dwords, address):
    """Header of a memory request of whole dwords (PCIe Base 5.0, 2.2.7)."""
    kind = Cat(C(0, 5), long, write, C(0, 1))
    low = Cat(C(0, 2), address[2:32])
    byte_enables = Mux(dwords == 1, 0x0F, 0xFF)
    return Cat(_first(kind, dwords), swapped(requester), tag, C(0, 8) | byte_enables,
               Mux(long, swapped(address[32:64]), swapped(low)), Mux(long, swapped(low), 0))


def completion(*, requester, tag, dwords, byte_count, lower):
    """Header of a completion with data of completer 0 (PCIe Base 5.0, 2.2.9)."""
    return Cat(_first(C(0x4A, 8), dwords), C(0, 16), byte_count[8:12], C(0, 4), byte_count[:8],
               swapped(requester), tag, lower[:7], C(0, 1), C(0, 32))


class TlpMaker(wiring.Component):
    """Sends the TLP of each job. Combinational, a beat per cycle, no gap between TLPs.

    Parameters
    ----------
    width : int
        Data bits per beat.

    Members
    -------
    i : stream of :class:`Job`
    o : packet stream
    """

    def __init__(self, width):
        self._width = width
        super().__init__({"i": In(stream.Signature(Job)), "o": Out(PacketSignature(width))})

    def elaborate(self, platform):
        m = Module()
        lanes, job, o = self._width // 32, self.i.payload, self.o.payload
        beat, at, total = Signal(10), Signal(12), Signal(12)
        header = Signal(3)
        m.d.comb += [
            header.eq(3 + job.long), total.eq(header + job.payload), at.eq(beat * lanes),
            o.first.eq(beat == 0), o.last.eq(total - at <= lanes),
            o.dwords.eq(Mux(o.last, total - at, lanes)),
            self.o.valid.eq(self.i.valid), self.i.ready.eq(self.o.ready & o.last),
        ]
        words = Array(job.header.word_select(n, 32) for n in range(4))
        for lane in range(lanes):
            place = Signal(12, name=f"place{lane}")
            m.d.comb += [place.eq(at + lane), o.data.word_select(lane, 32).eq(Mux(
                place < header, words[place[:2]], job.base + ((place - header) << 2)))]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += beat.eq(Mux(o.last, 0, beat + 1))
        return m


class TlpTap(wiring.Component):
    """Looks at the TLPs of a stream: header, length, and whether the data are those of an address.

    Parameters
    ----------
    width : int
        Data bits per beat.

    Members
    -------
    payload, valid, ready : In
        Of the stream.
    begins, ends : Out(1)
        Strobes: the first, the last beat is taken.
    header : Out, array of four 32-bit words
        As on the line; complete with ``ends``, and with each beat of data.
    dwords : Out(11)
        Of data, by the header.
    base : In(32)
        First dword of right data; may depend on ``header``.
    wrong : Out(1)
        A beat is taken with a wrong dword of data.
    """

    def __init__(self, width):
        self._width = width
        super().__init__({
            "payload": In(payload_shape(PacketSignature(width).create())),
            "valid": In(1), "ready": In(1), "begins": Out(1), "ends": Out(1),
            "header": Out(data.ArrayLayout(32, 4)), "dwords": Out(11), "base": In(32),
            "wrong": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        lanes, beat, held = self._width // 32, Signal(10), Signal(data.ArrayLayout(32, 4))
        moved, length = Signal(), Signal(10)
        at, start, wrong = Signal(12), Signal(3), Signal(lanes)
        m.d.comb += [
            moved.eq(self.valid & self.ready),
            self.begins.eq(moved & self.payload.first), self.ends.eq(moved & self.payload.last),
            length.eq(Cat(self.header[0][24:32], self.header[0][16:18])),
            self.dwords.eq(Mux(self.header[0][6], Cat(length, length == 0), 0)),
            at.eq(beat * lanes), start.eq(3 + self.header[0][5]),
            self.wrong.eq(moved & self.header[0][6] & wrong.any()),
        ]
        for n in range(4):
            now = self.payload.data.word_select(n % lanes, 32)
            m.d.comb += self.header[n].eq(Mux(beat == n // lanes, now, held[n]))
        for lane in range(lanes):
            place = Signal(12, name=f"place{lane}")
            m.d.comb += [place.eq(at + lane), wrong[lane].eq(
                (place >= start) & (lane < self.payload.dwords)
                & (self.payload.data.word_select(lane, 32)
                   != (self.base + ((place - start) << 2))[:32]))]
        with m.If(moved):
            m.d.sync += [beat.eq(Mux(self.payload.last, 0, beat + 1)), held.eq(self.header)]
        return m


class Spending(wiring.Component):
    """Credits left of a class (PCIe Base 5.0, 2.6.1).

    Members
    -------
    limits : In :class:`~dxpu.attach.CreditLimits`
    dwords : In(11)
        Of data, of the next TLP.
    may : Out(1)
        There are credits for the next TLP; in the same cycle.
    begins : In(1)
        Strobe: the next TLP begins.
    """

    limits: In(CreditLimits)
    dwords: In(11)
    may: Out(1)
    begins: In(1)

    def elaborate(self, platform):
        m = Module()
        headers, units, need = Signal(16), Signal(16), Signal(9)
        header_left, unit_left = Signal(16), Signal(16)
        m.d.comb += [
            need.eq((self.dwords + 3)[2:]),
            header_left.eq(self.limits.header - headers - 1),
            unit_left.eq(self.limits.data - units - need),
            # Of what is left none is so much.
            self.may.eq(~header_left[15] & ~unit_left[15]),
        ]
        with m.If(self.begins):
            m.d.sync += [headers.eq(headers + 1), units.eq(units + need)]
        return m
