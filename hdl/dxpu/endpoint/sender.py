"""Sends the TLPs of the endpoint one after the other, as credits allow.

Ref: PCIe Base 5.0, 2.4.1 (ordering), 2.6.1 (flow control)
"""

from functools import reduce
from operator import or_

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.attach.ingress import CreditLimits
from dxpu.stream import PacketSignature
from dxpu.tlp.types import TlpClass

from .types import Departure

__all__ = ["Sender"]

#: Significant bits of header and data credits, as in flow control packets (2.6.1).
HEADER_BITS, DATA_BITS = 8, 12


class Sender(wiring.Component):
    """Sends the TLPs of its sources, in turn among the sources that have a TLP and its credits.

    No class waits for credits of another class. A TLP is counted when it begins, and is sent to its
    end without a pause for other sources. Throughput is one dword per cycle, with two cycles
    between the TLPs of different sources. The first dword of a TLP is offered three cycles after
    ``ask`` at the earliest. The counts survive resets of the link, as the limits do.

    Parameters
    ----------
    count : int
        Number of sources.
    address_bits : int
        Width of :class:`~.types.Departure`.

    Members
    -------
    i : array of :class:`~.types.Departure`
    p, np, cpl : :class:`~dxpu.attach.CreditLimits`
        Credit limits since reset.
    hold : 1
        Begin no TLP.
    idle : 1
        No TLP is under way.
    read_address, read_enable, read_data
        Read port of the video memory.
    o : packet stream of 32 bits
    """

    def __init__(self, count, address_bits):
        super().__init__({
            "i": In(Departure(address_bits)).array(count),
            **{cls.name.lower(): In(CreditLimits) for cls in TlpClass},
            "hold": In(1), "idle": Out(1),
            "read_address": Out(address_bits), "read_enable": Out(1), "read_data": In(32),
            "o": Out(PacketSignature(32)),
        })
        self._count = count
        self._chosen = data.StructLayout({
            "cls": TlpClass, "long": 1, "payload": 8, "stored": 1, "address": address_bits})

    def elaborate(self, platform):
        m = Module()
        o, chosen = self.o, Signal(self._chosen)
        turn, able = Signal(range(self._count)), Signal(self._count)
        ask, go, begun, sending = (
            Signal(name=name) for name in ("ask", "go", "begun", "sending"))
        index, left = Signal(3), Signal(8)
        address = Signal.like(self.read_address)
        long, stored, data_phase, last = (
            Signal(name=name) for name in ("long", "stored", "data_phase", "last"))
        advance, done = Signal(), Signal()
        with m.Switch(turn):
            for n, source in enumerate(self.i):
                with m.Case(n):
                    m.d.comb += [
                        *(chosen[k].eq(getattr(source, k)) for k, _ in self._chosen),
                        ask.eq(source.ask), source.go.eq(go), source.done.eq(done),
                        source.elected.eq(1),
                    ]
        self._account(m, begun, chosen.cls, (left + 3)[2:], able)
        m.d.sync += begun.eq(go)
        m.d.comb += [
            *(s.eq(v) for source in self.i
              for s, v in ((source.index, index), (source.advance, advance))),
            o.payload.data.eq(Mux(
                data_phase & stored, self.read_data,
                reduce(or_, (source.word for source in self.i)))),
            o.payload.dwords.eq(1),
            o.payload.first.eq(index == 0),
            o.payload.last.eq(last),
            advance.eq(sending & o.ready),
            done.eq(advance & last),
            self.read_address.eq(address),
            self.idle.eq(~sending),
        ]
        with m.FSM():
            with m.State("Choose"):
                for n in reversed(range(self._count)):
                    with m.If(able[n]):
                        m.d.sync += turn.eq(n)
                # The sources behind the last one go first.
                for last_turn in range(self._count - 1):
                    with m.If(turn == last_turn):
                        for n in reversed(range(last_turn + 1, self._count)):
                            with m.If(able[n]):
                                m.d.sync += turn.eq(n)
                with m.If(able.any()):
                    m.next = "Begin"
            with m.State("Begin"):
                m.d.sync += [index.eq(0), left.eq(chosen.payload), address.eq(chosen.address),
                             long.eq(chosen.long), stored.eq(chosen.stored),
                             data_phase.eq(0), last.eq(0)]
                m.next = "Choose"
                with m.If(ask & ~self.hold):
                    m.d.comb += go.eq(1)
                    m.next = "Send"
            with m.State("Send"):
                # The first dword of data is read from memory while the header is sent.
                m.d.comb += [
                    sending.eq(1),
                    o.valid.eq(1),
                    self.read_enable.eq(begun | advance & data_phase),
                ]
                with m.If(self.read_enable):
                    m.d.sync += address[2:].eq(address[2:] + 1)
                with m.If(advance):
                    m.d.sync += index.eq(index + (index != 7))
                    with m.If(data_phase):
                        m.d.sync += [left.eq(left - 1), last.eq(left == 2)]
                    with m.Elif(index == 2 + long):
                        m.d.sync += [data_phase.eq(1), last.eq(left == 1)]
                    with m.Elif(index == 1 + long):
                        m.d.sync += last.eq(left == 0)
                    with m.If(last):
                        m.next = "Choose"
        return m

    def _account(self, m, begun, cls_begun, units_begun, able):
        """Count the TLP that has begun, and compare the TLPs of the sources with the limits.

        ``able`` has a bit for each source: it asked in the cycle before, and had credits for its
        TLP then. The credits left have a latency of two cycles, and no TLP is shorter than three.
        """
        room = {}
        for cls in TlpClass:
            name = cls.name.lower()
            limits = getattr(self, name)
            headers = Signal(HEADER_BITS, name=f"headers_used_{name}")
            header_left = Signal(name=f"header_left_{name}")
            m.d.sync += header_left.eq(limits.header[:HEADER_BITS] != headers)
            mine = begun & (cls_begun == cls)
            with m.If(mine):
                m.d.sync += headers.eq(headers + 1)
            room[cls] = header_left, None
            if cls is not TlpClass.NP:  # a read has no data
                used, left = (Signal(DATA_BITS, name=f"data_{what}_{name}")
                              for what in ("used", "left"))
                m.d.sync += left.eq(limits.data - used)
                with m.If(mine):
                    m.d.sync += used.eq(used + units_begun)
                room[cls] = header_left, left
        for n, source in enumerate(self.i):
            units, enough = (source.payload + 3)[2:], Signal(name=f"enough{n}")
            with m.Switch(source.cls):
                for cls, (header, left) in room.items():
                    with m.Case(cls):
                        m.d.comb += enough.eq(header & (1 if left is None else left >= units))
            m.d.sync += able[n].eq(source.ask & enough)
