"""Sends the TLPs of the endpoint one after the other, as credits allow.

Ref: PCIe Base 5.0, 2.4.1 (ordering), 2.6.1 (flow control)
"""

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
    """Looks at its sources in turn; a source with a TLP and credits for that TLP sends the TLP.

    No class waits for credits of another class. A TLP is sent to its end without a pause for other
    sources, and counted then. Throughput is one dword per cycle, with two cycles between TLPs and
    one more for each source that is passed over. The counts survive resets of the link, as the
    limits do.

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
            "cls": TlpClass, "long": 1, "payload": 8, "stored": 1, "address": address_bits,
            "word": 32})

    def elaborate(self, platform):
        m = Module()
        o, chosen = self.o, Signal(self._chosen)
        turn = Signal(range(self._count))
        ask, go, done, allowed = (Signal(name=name) for name in ("ask", "go", "done", "allowed"))
        with m.Switch(turn):
            for n, source in enumerate(self.i):
                with m.Case(n):
                    m.d.comb += [
                        *(chosen[k].eq(getattr(source, k)) for k, _ in self._chosen),
                        ask.eq(source.ask), source.go.eq(go), source.done.eq(done),
                    ]
        self._account(m, chosen, done, allowed)

        index, left = Signal(3), Signal(8)
        address = Signal.like(self.read_address)
        data_phase, have, last = Signal(), Signal(), Signal()
        taken = o.valid & o.ready
        m.d.comb += [
            *(source.index.eq(index) for source in self.i),
            o.payload.data.eq(Mux(data_phase & chosen.stored, self.read_data, chosen.word)),
            o.payload.dwords.eq(1),
            o.payload.first.eq(index == 0),
            o.payload.last.eq(last),
            last.eq(Mux(data_phase, left == 1, (index == 2 + chosen.long) & ~chosen.payload.any())),
            done.eq(taken & last),
        ]
        # The first dword of data is read from memory while the header is sent.
        with m.FSM():
            with m.State("Look"):
                m.d.comb += self.idle.eq(1)
                with m.If(ask & allowed & ~self.hold):
                    m.d.comb += go.eq(1)
                    m.d.sync += [index.eq(0), left.eq(chosen.payload), address.eq(chosen.address),
                                 data_phase.eq(0), have.eq(0)]
                    m.next = "Send"
                with m.Else():
                    m.d.sync += turn.eq(Mux(turn == self._count - 1, 0, turn + 1))
            with m.State("Send"):
                m.d.comb += [
                    o.valid.eq(~data_phase | ~chosen.stored | have),
                    self.read_address.eq(address),
                    self.read_enable.eq(~have | taken & data_phase),
                ]
                with m.If(self.read_enable):
                    m.d.sync += [address.eq(address + 4), have.eq(1)]
                with m.If(taken):
                    m.d.sync += index.eq(index + (index != 7))
                    with m.If(data_phase):
                        m.d.sync += left.eq(left - 1)
                    with m.Elif(index == 2 + chosen.long):
                        m.d.sync += data_phase.eq(1)
                    with m.If(last):
                        m.next = "Settle"
            with m.State("Settle"):
                # Wait a cycle for the account.
                m.d.sync += turn.eq(Mux(turn == self._count - 1, 0, turn + 1))
                m.next = "Look"
        return m

    def _account(self, m, chosen, done, allowed):
        """Credits left, with a latency of one cycle, and whether they suffice for the chosen
        TLP."""
        units = (chosen.payload + 3)[2:]
        for cls in TlpClass:
            name = cls.name.lower()
            limits = getattr(self, name)
            headers, headers_left = (Signal(HEADER_BITS, name=f"headers_{what}_{name}")
                                     for what in ("used", "left"))
            mine, enough = chosen.cls == cls, headers_left.any()
            m.d.sync += headers_left.eq(limits.header - headers)
            with m.If(done & mine):
                m.d.sync += headers.eq(headers + 1)
            if cls is not TlpClass.NP:  # a read has no data
                used, left = (Signal(DATA_BITS, name=f"data_{what}_{name}")
                              for what in ("used", "left"))
                m.d.sync += left.eq(limits.data - used)
                with m.If(done & mine):
                    m.d.sync += used.eq(used + units)
                enough &= left >= units
            with m.If(mine):
                m.d.comb += allowed.eq(enough)
