"""Interrupts by MSI or MSI-X, and the answer to PME_Turn_Off.

Ref: PCIe Base 5.0, 5.3.3.2.1 (PME_Turn_Off), 6.1.4 (MSI and MSI-X), 7.7.1, 7.7.2
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.priority import first_one
from dxpu.tlp.types import (
    Fmt, HeaderCommon, MessageCode, MessageHeader1, TlpClass, Type, swap_bytes,
)

from .register_map import VECTORS
from .types import ConfigState, Departure, request_words

__all__ = ["Interrupts"]


class Interrupts(wiring.Component):
    """Keeps raised vectors until they are sent, and holds the MSI-X table.

    A vector raised while neither MSI nor MSI-X is enabled is lost. With MSI-X, a masked vector
    stays pending. With MSI, vector numbers are taken modulo the number of enabled vectors. A vector
    raised again before the first message was sent causes one message.

    Address and data of the table entries survive a reset; the mask bits return to 1.

    Parameters
    ----------
    address_bits : int
        Width of :class:`~.types.Departure`.

    Members
    -------
    vectors : ``VECTORS``
        Pulses: raise the interrupt of this vector.
    turn_off : 1
        Pulse: PME_Turn_Off came.
    state : :class:`~.types.ConfigState`
    table_write, table_index, table_data : 1, 5, 32
        Strobe: write dword ``table_index`` of the table.
    reading, read_index, read_data : 1, 5, 32
        Read a dword of the table; combinational, valid while ``reading``.
    pending : ``VECTORS``
        Vectors raised, and not sent yet.
    o : :class:`~.types.Departure`
    """

    def __init__(self, address_bits):
        super().__init__({
            "vectors": In(VECTORS), "turn_off": In(1), "state": In(ConfigState),
            "table_write": In(1), "table_index": In(5), "table_data": In(32),
            "reading": In(1), "read_index": In(5), "read_data": Out(32), "pending": Out(VECTORS),
            "o": Out(Departure(address_bits)),
        })

    def elaborate(self, platform):
        m = Module()
        state, o = self.state, self.o
        masked = Signal(VECTORS, init=(1 << VECTORS) - 1)
        ready, vector = Signal(VECTORS), Signal(range(VECTORS))
        mine, sent = Signal(), Signal(VECTORS)
        turned_off, acknowledges = Signal(), Signal()
        step, message = Signal(2), Signal(data.ArrayLayout(32, 3), reset_less=True)
        word = Signal(32)
        table = self._table(m, masked)

        m.d.comb += [
            ready.eq(Mux(state.master, self.pending & ~Mux(
                state.msix, masked | state.msix_masked.replicate(VECTORS), 0), 0)),
            mine.eq(ready.bit_select(vector, 1)),
            o.cls.eq(TlpClass.P),
            table.addr.eq(Mux(self.reading, self.read_index, Cat(step, vector))),
        ]
        with m.If(self.turn_off):
            m.d.sync += turned_off.eq(1)
        with m.FSM():
            with m.State("Idle"):
                m.d.sync += [vector.eq(first_one(ready)), step.eq(0),
                             acknowledges.eq(turned_off)]
                with m.If(turned_off):
                    m.next = "Ask"
                with m.Elif(ready.any()):
                    m.next = "Load"
            with m.State("Load"):
                # The vector number replaces the low bits of the message data: log2 of the enabled
                # vectors.
                low = Cat(Mux(on, v, d) for on, v, d in zip(
                    state.msi_vectors, vector, state.msi_data, strict=False))
                m.d.comb += word.eq(Mux(state.msix, table.data, Array((
                    state.msi_address[:32], state.msi_address[32:],
                    Cat(low, state.msi_data[3:])))[step]))
                with m.If(~self.reading):
                    m.d.sync += [message[step].eq(word), step.eq(step + 1)]
                    with m.If(step == 2):
                        m.next = "Ask"
            with m.State("Ask"):
                m.d.comb += o.ask.eq(acknowledges | mine)
                with m.If(o.go):
                    with m.If(acknowledges):
                        m.d.sync += turned_off.eq(self.turn_off)
                    with m.Else():
                        m.d.comb += sent.eq(1 << vector)
                    m.next = "Send"
                with m.Elif(~o.ask):
                    m.next = "Idle"
            with m.State("Send"):
                with m.If(o.done):
                    m.next = "Idle"
        enabled = (state.msi | state.msix).replicate(VECTORS)
        m.d.sync += self.pending.eq((self.pending & ~sent | self.vectors) & enabled)
        self._words(m, message, acknowledges)
        return m

    def _table(self, m, masked):
        """Make the MSI-X table; return its read port."""
        m.submodules.table = table = Memory(shape=32, depth=4 * VECTORS, init=[])
        write, read = table.write_port(), table.read_port(domain="comb")
        control = self.table_index[:2] == 3
        m.d.comb += [
            write.addr.eq(self.table_index), write.data.eq(self.table_data),
            write.en.eq(self.table_write & ~control),
            self.read_data.eq(Mux(self.read_index[:2] == 3,
                                  masked.bit_select(self.read_index[2:], 1), read.data)),
        ]
        with m.If(self.table_write & control):
            m.d.sync += masked.bit_select(self.table_index[2:], 1).eq(self.table_data[0])
        return read

    def _words(self, m, message, acknowledges):
        """Build the TLP: a write of one dword, or PME_TO_Ack."""
        o = self.o
        common, second = Signal(HeaderCommon), Signal(MessageHeader1)
        # Known in time: the third dword of the message is loaded meanwhile.
        long = Signal()
        m.d.sync += long.eq(message[1].any())
        words = request_words(
            m, write=1, long=long, length=1, requester_id=self.state.requester_id, tag=0,
            first_be=15, last_be=0, address=Cat(message[0], message[1]))
        m.d.comb += [
            common.fmt.eq(Fmt.HEADER_4), common.type.eq(Type.MESSAGE_GATHER),
            second.requester_id.eq(swap_bytes(self.state.requester_id)),
            second.message_code.eq(MessageCode.PME_TO_ACK),
            o.long.eq(acknowledges | long), o.payload.eq(~acknowledges),
        ]
        with m.Switch(o.index):
            for n, (request, answer) in enumerate(zip(words, (common, second, 0, 0), strict=True)):
                with m.Case(n):
                    m.d.comb += o.word.eq(Mux(acknowledges, answer, request))
        with m.If(~acknowledges & (o.index == 3 + long)):
            m.d.comb += o.word.eq(message[2])
