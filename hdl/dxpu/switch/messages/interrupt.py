"""Interrupts of the downstream ports, as TLPs."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.mapping.types import ConfigUpdate
from dxpu.priority import first_one, round_robin
from dxpu.stream import PacketSignature, check_width
from dxpu.switch.config.port_map import DOWNSTREAM, function_map
from dxpu.tlp.types import (
    Fmt, HeaderCommon, MessageCode, MessageHeader1, RequestHeader1, TlpClass, Type, swap_bytes,
)

__all__ = ["InterruptSender"]


class InterruptSender(wiring.Component):
    """Sends an MSI for each request of a port, and INTx messages when a wire changes.

    An MSI is a memory write of one dword to the address in the port's MSI capability, with the
    port's identifier. Of the ports that request, each has its turn. A request may be withdrawn:
    ``o`` becomes valid only in the cycle after one in which the request is high.

    Assert_INTx and Deassert_INTx tell of each wire's last change. Wires go before MSIs.

    Latency 6 cycles from ``request`` to ``o`` for an MSI, one for a message; then a beat per cycle.

    Ref: PCIe Base 5.0, 2.2.8.1, 6.1.4

    Parameters
    ----------
    width : int
        Data bits per beat.
    ports : int
        Downstream ports.

    Members
    -------
    config : :class:`~dxpu.mapping.ConfigUpdate`
        The MSI registers are followed.
    secondary : 8
        Bus number of the ports.
    upstream_id : 13
        Bus and device number of the upstream port.
    request, taken : ``ports``
        MSIs; ``taken`` is a pulse when one is about to be offered.
    wires : 4
        Levels of INTA to INTD of the upstream port.
    o : packet stream with :class:`~dxpu.tlp.types.TlpClass`
    stat_interrupt : 1
        Pulse: an MSI or INTx message has left.
    """

    #: Registers of an MSI, in the order in which they are fetched.
    MSI = ("MSI Message Address", "MSI Message Upper Address", "MSI Message Data")

    def __init__(self, width, ports):
        self._width = check_width(width)
        self._ports = ports
        super().__init__({
            "config": In(ConfigUpdate),
            "secondary": In(8),
            "upstream_id": In(13),
            "request": In(ports),
            "taken": Out(ports),
            "wires": In(4),
            "o": Out(PacketSignature(width, TlpClass)),
            "stat_interrupt": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        words = Array(Signal(32, name=f"word{n}", reset_less=True) for n in range(3))
        port, step, message = Signal(range(self._ports)), Signal(2), Signal()
        wire, letter = Signal(4), Signal(2)  # as told upstream; the one that changes
        read = self._registers(m, port, step)

        with m.FSM():
            with m.State("Idle"):
                m.d.sync += step.eq(0)
                with m.If((wire ^ self.wires).any()):
                    changing = first_one(wire ^ self.wires)
                    m.d.sync += [letter.eq(changing), wire.eq(wire ^ (1 << changing)[:4]),
                                 message.eq(1)]
                    m.next = "Send"
                with m.Elif(self.request.any()):
                    m.d.sync += [port.eq(round_robin(self.request, port)), message.eq(0)]
                    m.next = "Fetch"
            with m.State("Fetch"):
                m.d.sync += step.eq(step + 1)
                with m.If(step != 0):
                    m.d.sync += words[(step - 1)[:2]].eq(read.data)
                with m.If(step == 3):
                    m.next = "Idle"
                    with m.If(self.request.bit_select(port, 1)):
                        m.d.comb += self.taken.eq(1 << port)
                        m.next = "Send"
            with m.State("Send"):
                with m.If(self._send(m, self._dwords(m, words, port, message, wire, letter))):
                    m.next = "Idle"
        return m

    def _registers(self, m, port, step):
        """Keep the MSI registers of all ports; read number ``step`` of ``port``."""
        fmap = function_map(DOWNSTREAM)
        m.submodules.memory = memory = Memory(shape=32, depth=4 * self._ports, init=[])
        write, read = memory.write_port(), memory.read_port()
        own = self.config.function - 1
        m.d.comb += [
            write.data.eq(self.config.value),
            read.addr.eq(Cat(step, port)),
        ]
        for n, name in enumerate(self.MSI):
            with m.If(self.config.register == fmap.dword(name)):
                m.d.comb += [
                    write.addr.eq(Cat(C(n, 2), own[:5])),
                    write.en.eq(self.config.strobe & (self.config.function != 0)),
                ]
        return read

    def _dwords(self, m, words, port, message, wire, letter):
        """The TLP, as dwords in lane order, and their number."""
        common, request = Signal(HeaderCommon), Signal(RequestHeader1)
        about = Signal(MessageHeader1)
        low, high, value = words
        wide = high.any()
        requester = Mux(message, Cat(C(0, 3), self.upstream_id),
                        Cat(C(0, 3), (port + C(0, 5))[:5], self.secondary))
        asserted = wire.bit_select(letter, 1)
        m.d.comb += [
            common.type.eq(Mux(message, Type.MESSAGE_LOCAL, Type.MEMORY)),
            common.fmt.eq(Mux(message, Fmt.HEADER_4,
                              Mux(wide, Fmt.HEADER_4_DATA, Fmt.HEADER_3_DATA))),
            common.length_low.eq(~message),
            request.requester_id.eq(swap_bytes(requester)),
            request.first_be.eq(0xF),
            about.requester_id.eq(request.requester_id),
            about.message_code.eq(Mux(asserted, MessageCode.ASSERT_INTA, MessageCode.DEASSERT_INTA)
                                  | letter),
        ]
        second = Mux(message, Value.cast(about), Value.cast(request))
        narrow = [Value.cast(common), second, swap_bytes(low), value, C(0, 32)]
        long = [Value.cast(common), second, swap_bytes(high), swap_bytes(low), value]
        none = [Value.cast(common), second, C(0, 32), C(0, 32), C(0, 32)]
        dwords = [Mux(message, c, Mux(wide, b, a)) for a, b, c in zip(narrow, long, none,
                                                                      strict=True)]
        return dwords, Mux(message | ~wide, 4, 5)

    def _send(self, m, tlp):
        """Put the TLP on ``o``; returns whether this is the last cycle."""
        dwords, total = tlp
        o, lanes, done = self.o, self._width // 32, Signal()
        beats = -(-5 // lanes)
        index, left = Signal(range(beats)), Signal(range(6))
        m.d.comb += left.eq(total - index * lanes)
        with m.Switch(index):
            for n in range(beats):
                with m.Case(n):
                    m.d.comb += o.p.data.eq(Cat(dwords[n * lanes:(n + 1) * lanes]))
        m.d.comb += [
            o.valid.eq(1),
            o.p.first.eq(index == 0),
            o.p.last.eq(left <= lanes),
            o.p.dwords.eq(Mux(o.p.last, left, lanes)),
            o.p.meta.eq(TlpClass.P),
            done.eq(o.ready & o.p.last),
            self.stat_interrupt.eq(done),
        ]
        with m.If(o.ready):
            m.d.sync += index.eq(Mux(o.p.last, 0, index + 1))
        return done
