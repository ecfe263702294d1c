"""Messages that end in the switch, and those it makes: INTx wires, PME_TO_Ack, slot power.

Ref: PCIe Base 5.0, 2.2.8 (messages), 5.3.3.2.1 (PME_Turn_Off handshake), 6.9 (slot power limit).
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.mapping.types import ConfigUpdate
from dxpu.priority import first_one
from dxpu.rows import LIFE_BITS
from dxpu.stream import PacketSignature, check_width
from dxpu.switch.config.port_map import DOWNSTREAM, function_map
from dxpu.switch.types import SlotMeta
from dxpu.tlp.types import (
    Fmt, HeaderCommon, MessageCode, MessageHeader1, Routing, TlpClass, Type, swap_bytes,
)

__all__ = ["IntxWires", "MessageMerge", "MessageRequest", "MessageSender", "PmeGatherer",
           "PowerLimits", "SlotMessage"]


class SlotMessage(data.Struct):
    """A message from a slot that ends in the switch, all older TLPs from slots having left."""

    strobe: 1
    port: 5
    code: 8
    life: LIFE_BITS  #: of the slot, when the message came


class MessageRequest(data.Struct):
    """A message that the switch makes, in natural order."""

    code: MessageCode
    routing: Routing
    requester_id: 16
    port: 5       #: slot it goes to
    life: LIFE_BITS  #: of that slot
    has_data: 1
    data: 32      #: of that, or the last dword of the header: byte 0 least significant


class IntxWires(wiring.Component):
    """The four virtual interrupt wires of each slot, folded to those of the upstream port.

    Assert_INTx and Deassert_INTx from a slot set and clear a wire of its port. A wire falls when
    the link of its slot is not active. Pin p of port n, and with ``own`` its pin 0, is wire
    (p + n) modulo 4 of the upstream port: n is the port's device number on the bus inside. A wire
    is high while any of its pins is. Interrupt Disable does not concern what comes from slots
    (7.5.1.1.3).

    Latency one cycle. Ref: PCIe Base 5.0, 2.2.8.1 and Table 2-19

    Parameters
    ----------
    ports : int
        Downstream ports.

    Members
    -------
    message : :class:`SlotMessage`
        Those that are not about INTx are ignored.
    link_active : ``ports``
    lives : array of numbers
        Of the slots; messages of an earlier life are not heard.
    own : ``ports``
        INTA of the downstream ports themselves.
    wires : 4
        INTA is bit 0.
    """

    def __init__(self, ports):
        self._ports = ports
        super().__init__({
            "message": In(SlotMessage),
            "lives": In(data.ArrayLayout(LIFE_BITS, ports)),
            "link_active": In(ports),
            "own": In(ports),
            "wires": Out(4),
        })

    def elaborate(self, platform):
        m = Module()
        message = self.message
        letter, falls = message.code[:2], message.code[2]
        about = message.strobe & (message.code[3:] == MessageCode.ASSERT_INTA.value >> 3)
        pins = [Signal(4, name=f"pins{n}") for n in range(self._ports)]
        for n, pin in enumerate(pins):
            with m.If(~self.link_active[n]):
                m.d.sync += pin.eq(0)
            with m.Elif(about & (message.port == n) & (message.life == self.lives[n])):
                m.d.sync += pin.bit_select(letter, 1).eq(~falls)
        for wire in range(4):
            m.d.comb += self.wires[wire].eq(
                Cat(self.own[wire::4], *(pin[(wire - n) % 4] for n, pin in enumerate(pins))).any())
        return m


class PmeGatherer(wiring.Component):
    """Collects PME_TO_Ack of the slots after a PME_Turn_Off, and answers for all of them.

    The slots that must answer are those that the broadcast goes to. A slot is done when it answers,
    or when its link is not active; when all are, one PME_TO_Ack goes up. If there are none it goes
    at once. An answer that nobody waits for has no effect. A PME_Turn_Off while an earlier one is
    not answered yet starts anew; both get one answer.

    Ref: PCIe Base 5.0, 2.2.8.2, 5.3.3.2.1

    Parameters
    ----------
    ports : int
        Downstream ports.

    Members
    -------
    start : 1
        Pulse: PME_Turn_Off is broadcast to all slots in ``link_active``.
    message : :class:`SlotMessage`
        Those that are not PME_TO_Ack are ignored.
    link_active : ``ports``
    lives : array of numbers
        Of the slots; messages of an earlier life are not heard.
    upstream_id : 13
        Bus and device number of the upstream port.
    o : stream of :class:`MessageRequest`
    """

    def __init__(self, ports):
        self._ports = ports
        super().__init__({
            "start": In(1),
            "message": In(SlotMessage),
            "lives": In(data.ArrayLayout(LIFE_BITS, ports)),
            "link_active": In(ports),
            "upstream_id": In(13),
            "o": Out(stream.Signature(MessageRequest)),
        })

    def elaborate(self, platform):
        m = Module()
        message = self.message
        waits, asked, done = Signal(self._ports), Signal(), Signal(self._ports)
        sender = Signal.like(self.upstream_id)
        ack = message.strobe & (message.code == MessageCode.PME_TO_ACK)
        m.d.comb += [
            *(done[n].eq(ack & (message.port == n) & (message.life == life))
              for n, life in enumerate(self.lives)),
            self.o.p.code.eq(MessageCode.PME_TO_ACK),
            self.o.p.routing.eq(Routing.GATHER),
            self.o.p.requester_id.eq(Cat(C(0, 3), sender)),
        ]
        m.d.sync += waits.eq(waits & self.link_active & ~done)
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(asked & ~waits.any() & ~self.o.valid):
            m.d.sync += [asked.eq(0), self.o.valid.eq(1), sender.eq(self.upstream_id)]
        with m.If(self.start):
            m.d.sync += [asked.eq(1), waits.eq(self.link_active)]
        return m


class PowerLimits(wiring.Component):
    """Set_Slot_Power_Limit for a slot whose link comes up, or whose Slot Capabilities is written.

    Not when it comes up, where Auto Slot Power Limit Disable is set.
    The limit is what Slot Capabilities says. A message that is due is forgotten when the link goes.
    Lower ports first.

    Ref: PCIe Base 5.0, 2.2.8.5, 6.9, 7.5.3.9

    Parameters
    ----------
    ports : int
        Downstream ports.
    identity : Identity
        What the slots are.

    Members
    -------
    config : :class:`~dxpu.mapping.ConfigUpdate`
    link_active : ``ports``
    lives : array of numbers
        Of the slots.
    silent : ``ports``
        Auto Slot Power Limit Disable.
    secondary : 8
        Bus number of the ports.
    o : stream of :class:`MessageRequest`
    """

    def __init__(self, ports, identity):
        self._ports = ports
        self._map = function_map(DOWNSTREAM, identity)
        super().__init__({
            "config": In(ConfigUpdate),
            "link_active": In(ports),
            "lives": In(data.ArrayLayout(LIFE_BITS, ports)),
            "silent": In(ports),
            "secondary": In(8),
            "o": Out(stream.Signature(MessageRequest)),
        })

    def elaborate(self, platform):
        m = Module()
        config, register = self.config, self._map.by_name["Slot Capabilities"]
        limit = {f.name: f.reset for f in register.fields}
        value, scale = limit["Slot Power Limit Value"], limit["Slot Power Limit Scale"]
        before, due, taken = (Signal(self._ports, name=n) for n in ("before", "due", "taken"))
        written = config.strobe & (config.register == register.offset // 4)
        mine = Cat(written & (config.function == n + 1) for n in range(self._ports))
        bus, port, life = Signal(8), Signal(range(self._ports)), Signal(LIFE_BITS)
        m.d.sync += [
            before.eq(self.link_active),
            due.eq((due & ~taken | self.link_active & ~before & ~self.silent | mine)
                   & self.link_active),
        ]
        with m.If(~self.o.valid | self.o.ready):
            m.d.comb += taken.eq(due & -due)
            m.d.sync += [self.o.valid.eq(due.any()), port.eq(first_one(due)),
                         life.eq(Array(self.lives)[first_one(due)]), bus.eq(self.secondary)]
        m.d.comb += [
            self.o.p.code.eq(MessageCode.SET_SLOT_POWER_LIMIT),
            self.o.p.routing.eq(Routing.LOCAL),
            self.o.p.requester_id.eq(Cat(C(0, 3), (port + C(0, 5))[:5], bus)),
            self.o.p.port.eq(port),
            self.o.p.life.eq(life),
            self.o.p.has_data.eq(1),
            self.o.p.data.eq(value | scale << 8),
        ]
        return m


class MessageMerge(wiring.Component):
    """Messages of several sources, one after the other; of those that wait, the lowest first.

    Combinational.

    Parameters
    ----------
    count : int
        Sources.

    Members
    -------
    i : array of streams of :class:`MessageRequest`
    o : stream of :class:`MessageRequest`
    """

    def __init__(self, count):
        self._count = count
        super().__init__({
            "i": In(stream.Signature(MessageRequest)).array(count),
            "o": Out(stream.Signature(MessageRequest)),
        })

    def elaborate(self, platform):
        m = Module()
        begun, last, chosen = Signal(), *(Signal(range(self._count)) for _ in range(2))
        m.d.sync += [begun.eq(self.o.valid & ~self.o.ready), last.eq(chosen)]
        m.d.comb += [
            chosen.eq(Mux(begun, last, first_one(Cat(i.valid for i in self.i)))),
            self.o.valid.eq(Cat(i.valid for i in self.i).any()),
            self.o.p.eq(Array(i.p.as_value() for i in self.i)[chosen]),
            *(i.ready.eq(self.o.ready & (chosen == n)) for n, i in enumerate(self.i)),
        ]
        return m


class MessageSender(wiring.Component):
    """Makes message TLPs: a header of 4 dwords, and one dword of data if asked. No digest.

    Combinational; a message takes as many cycles as it has beats.

    Parameters
    ----------
    width : int
        Data bits per beat.

    Members
    -------
    i : stream of :class:`MessageRequest`
    o : packet stream with :class:`SlotMeta`
    """

    def __init__(self, width):
        self._width = check_width(width)
        super().__init__({
            "i": In(stream.Signature(MessageRequest)),
            "o": Out(PacketSignature(width, SlotMeta)),
        })

    def elaborate(self, platform):
        m = Module()
        i, o, lanes = self.i.p, self.o, self._width // 32
        common, about = Signal(HeaderCommon), Signal(MessageHeader1)
        m.d.comb += [
            common.fmt.eq(Mux(i.has_data, Fmt.HEADER_4_DATA, Fmt.HEADER_4)),
            common.type.eq(Type.MESSAGE_TO_ROOT | Value.cast(i.routing)),
            common.length_low.eq(i.has_data),
            about.requester_id.eq(swap_bytes(i.requester_id)),
            about.message_code.eq(i.code),
        ]
        words = [Value.cast(common), Value.cast(about), C(0, 32), Mux(i.has_data, 0, i.data),
                 i.data]
        words += [C(0, 32)] * (-len(words) % lanes)
        beats = len(words) // lanes
        index, left, last = Signal(range(beats)), Signal(range(6)), Signal()
        m.d.comb += [left.eq(Mux(i.has_data, 5, 4) - index * lanes), last.eq(left <= lanes)]
        with m.Switch(index):
            for n in range(beats):
                with m.Case(n):
                    m.d.comb += o.p.data.eq(Cat(words[n * lanes:(n + 1) * lanes]))
        m.d.comb += [
            o.valid.eq(self.i.valid),
            o.p.first.eq(index == 0),
            o.p.last.eq(last),
            o.p.dwords.eq(Mux(last, left, lanes)),
            o.p.meta.port.eq(i.port),
            o.p.meta.life.eq(i.life),
            o.p.meta.cls.eq(TlpClass.P),
            self.i.ready.eq(o.ready & last),
        ]
        with m.If(o.valid & o.ready):
            m.d.sync += index.eq(Mux(last, 0, index + 1))
        return m
