"""What happens to TLPs that end in the switch, or that it makes."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.priority import encode, lowest_bit
from dxpu.rows import LIFE_BITS
from dxpu.stream import PacketLayout, PacketSignature, check_width
from dxpu.tlp.completion import CompletionBuilder
from dxpu.tlp.types import TlpClass

from .types import Answer, ConfigRequest, SlotMeta, Target, Verdict

__all__ = ["Answerer", "Broadcaster", "ConfigAgent"]


class ConfigAgent(wiring.Component):
    """Carries out requests to the configuration spaces of the switch, one after the other.

    Also keeps what the last Set_Slot_Power_Limit message said (PCIe Base 5.0, 2.2.8.5).

    Parameters
    ----------
    width : int
        Data bits per beat.

    Members
    -------
    i : packet stream with :class:`Verdict`
        With targets ``CONFIG`` and ``POWER``.
    request : stream of :class:`ConfigRequest`
    response : stream of 32 bits
    answer : stream of :class:`Answer`
    slot_power : 10
        Captured Slot Power Limit: value [7:0], scale [9:8].
    done : 1
        Pulse: a request was carried out and its completion is on its way.
    """

    def __init__(self, width):
        self._width = check_width(width)
        super().__init__({
            "i": In(PacketSignature(width, Verdict)),
            "request": Out(stream.Signature(ConfigRequest)),
            "response": In(stream.Signature(32)),
            "answer": Out(stream.Signature(Answer)),
            "slot_power": Out(10),
            "done": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        i, lanes = self.i, self._width // 32
        verdict = Signal(Verdict, reset_less=True)
        value = Signal(32, reset_less=True)
        word, payload = Signal(32), Signal(32, reset_less=True)
        beat = Signal(4)

        # The payload dword follows prefixes and header: 3 dwords of a request, 4 of a message.
        meta, found = i.p.meta, Signal()
        power = meta.target == Target.POWER
        for lane in range(lanes):
            with m.If(meta.prefix_dwords + Mux(power, 4, 3) == beat * lanes + lane):
                m.d.comb += [word.eq(i.p.data[32 * lane:]), found.eq(1)]
        with m.If(i.valid & i.ready):
            m.d.sync += beat.eq(Mux(i.p.last, 0, beat + 1))
            with m.If(found):
                m.d.sync += payload.eq(word)
                with m.If(power):
                    m.d.sync += self.slot_power.eq(word)

        m.d.comb += [
            self.request.p.function.eq(verdict.function),
            self.request.p.register.eq(verdict.register),
            self.request.p.write.eq(verdict.write),
            self.request.p.enables.eq(verdict.enables),
            self.request.p.data.eq(payload),
            self.answer.p.completion.eq(verdict.completion),
            self.answer.p.completion.has_data.eq(~verdict.write),
            self.answer.p.completion.data.eq(value),
        ]
        with m.FSM():
            with m.State("Gather"):
                m.d.comb += i.ready.eq(1)
                m.d.sync += verdict.eq(meta)
                with m.If(i.valid & i.p.last & ~power):
                    m.next = "Request"
            with m.State("Request"):
                m.d.comb += self.request.valid.eq(1)
                with m.If(self.request.ready):
                    m.next = "Response"
            with m.State("Response"):
                # Taken at once: the answer may wait for TLPs whose errors need the space.
                m.d.comb += self.response.ready.eq(1)
                m.d.sync += value.eq(self.response.payload)
                with m.If(self.response.valid):
                    m.next = "Answer"
            with m.State("Answer"):
                m.d.comb += self.answer.valid.eq(1)
                with m.If(self.answer.ready):
                    m.d.comb += self.done.eq(1)
                    m.next = "Gather"
        return m


class Answerer(wiring.Component):
    """Builds completions, each from a register that is free again when its last beat was taken.

    So ``i.ready`` does not depend on ``o.ready``. Latency one cycle; as many cycles as a completion
    has beats, and one more.

    Parameters
    ----------
    width : int
        Data bits per beat.

    Members
    -------
    i : stream of :class:`Answer`
    o : packet stream with :class:`SlotMeta`
    """

    def __init__(self, width):
        self._width = check_width(width)
        super().__init__({
            "i": In(stream.Signature(Answer)),
            "o": Out(PacketSignature(width, SlotMeta)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.builder = builder = CompletionBuilder(self._width)
        answer, full = Signal(Answer, reset_less=True), Signal()
        m.d.comb += [
            builder.i.payload.eq(answer.completion),
            builder.i.valid.eq(full),
            self.i.ready.eq(~full),
            *(self.o.p[k].eq(builder.o.p[k]) for k, _ in PacketLayout(self._width)),
            self.o.p.meta.port.eq(answer.port),
            self.o.p.meta.life.eq(answer.life),
            self.o.p.meta.cls.eq(TlpClass.CPL),
            self.o.valid.eq(builder.o.valid),
            builder.o.ready.eq(self.o.ready),
        ]
        with m.If(~full):
            m.d.sync += [answer.eq(self.i.payload), full.eq(self.i.valid)]
        with m.Elif(builder.i.ready):
            m.d.sync += full.eq(0)
        return m


class Broadcaster(wiring.Component):
    """Sends a message to each slot whose link is active, and stays so, in the order of the ports.

    The message is kept in a block RAM and sent from there, one beat per cycle; the next one is
    taken after the last copy. Until then ``busy`` tells that no other TLP may overtake it.

    Parameters
    ----------
    width : int
        Data bits per beat.
    ports : int
        Slots.

    Members
    -------
    i : packet stream
        Messages of up to :attr:`LIMIT` dwords.
    o : packet stream with :class:`SlotMeta`
    link_active : ``ports``
    lives : array of numbers
    busy : 1
        A whole message is waiting to be sent.
    """

    #: Dwords of the largest message: 4 prefixes, header, Max_Payload_Size of 512 bytes, digest.
    LIMIT = 4 + 4 + 128 + 1

    def __init__(self, width, ports):
        self._width = check_width(width)
        self._ports = ports
        super().__init__({
            "i": In(PacketSignature(width)),
            "o": Out(PacketSignature(width, SlotMeta)),
            "link_active": In(ports),
            "lives": In(data.ArrayLayout(LIFE_BITS, ports)),
            "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self._width // 32
        m.submodules.memory = memory = Memory(
            shape=data.StructLayout({"data": self._width, "dwords": range(lanes + 1)}),
            depth=-(-self.LIMIT // lanes), init=[])
        write, read = memory.write_port(), memory.read_port()
        place, final, following = (Signal(range(memory.depth)) for _ in range(3))
        left, first = Signal(self._ports), Signal(self._ports)
        port, last = Signal(range(self._ports)), Signal()

        i, o = self.i, self.o
        m.d.comb += [
            write.addr.eq(place),
            write.data.data.eq(i.p.data),
            write.data.dwords.eq(i.p.dwords),
            read.addr.eq(following),
            first.eq(lowest_bit(left)),
            port.eq(encode(first)),
            last.eq(place == final),
            o.p.data.eq(read.data.data),
            o.p.dwords.eq(read.data.dwords),
            o.p.first.eq(place == 0),
            o.p.last.eq(last),
            o.p.meta.port.eq(port),
            o.p.meta.life.eq(Array(self.lives)[port]),
            o.p.meta.cls.eq(TlpClass.P),
        ]
        with m.FSM():
            with m.State("Store"):
                m.d.comb += [i.ready.eq(1), write.en.eq(i.valid)]
                with m.If(i.valid):
                    m.d.sync += [place.eq(place + 1), final.eq(place)]
                    with m.If(i.p.last):
                        m.d.sync += [place.eq(0), left.eq(self.link_active)]
                        m.next = "Next"
            with m.State("Next"):
                m.d.comb += self.busy.eq(1)
                m.d.sync += left.eq(left & self.link_active)
                # Beat 0 is fetched here, each other beat while the one before it is taken.
                with m.If((left & self.link_active).any()):
                    m.next = "Send"
                with m.Else():
                    m.next = "Store"
            with m.State("Send"):
                m.d.comb += [self.busy.eq(1), o.valid.eq(1), following.eq(place)]
                with m.If(o.ready):
                    m.d.comb += following.eq(place + 1)
                    m.d.sync += place.eq(place + 1)
                    with m.If(last):
                        m.d.sync += [place.eq(0), left.eq(left & ~first)]
                        m.next = "Next"
        return m
