"""Interrupts by MSI or MSI-X, and the answer to PME_Turn_Off.

Ref: PCIe Base 5.0, 5.3.3.2.1 (PME_Turn_Off), 6.1.4 (MSI and MSI-X), 7.7.1, 7.7.2
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.priority import first_one
from dxpu.tlp.types import (
    Fmt, HeaderCommon, MessageCode, MessageHeader1, TlpClass, Type, swap_bytes,
)

from .register_map import VECTORS
from .store import DEPTH
from .types import ConfigState, Departure, WordReader, request_word

__all__ = ["Interrupts"]


class Interrupts(wiring.Component):
    """Keeps raised vectors until they are sent, and holds the MSI-X table.

    A vector raised while neither MSI nor MSI-X is enabled is lost. With MSI-X, a masked vector
    stays pending. With MSI, vector numbers are taken modulo the number of enabled vectors. A vector
    raised again before the first message was sent causes one message.

    Address and data of the table entries are in the :class:`~.store.Store`, outside; after a reset
    the mask bits are 1.

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
    mask_write, mask_vector, mask_value : 1, 3, 1
        Strobe: write the mask bit of a vector.
    table, stored : :class:`~.types.WordReader`, 32
        Reads of the table.
    vector_masks, pending : ``VECTORS``
        Mask bits; vectors raised, and not sent yet.
    o : :class:`~.types.Departure`
    """

    def __init__(self, address_bits):
        super().__init__({
            "vectors": In(VECTORS), "turn_off": In(1), "state": In(ConfigState),
            "mask_write": In(1), "mask_vector": In(range(VECTORS)), "mask_value": In(1),
            "table": Out(WordReader(DEPTH)), "stored": In(32),
            "vector_masks": Out(VECTORS, init=(1 << VECTORS) - 1), "pending": Out(VECTORS),
            "o": Out(Departure(address_bits)),
        })

    def elaborate(self, platform):
        m = Module()
        state, o = self.state, self.o
        ready, vector = Signal(VECTORS), Signal(range(VECTORS))
        mine, sent = Signal(), Signal(VECTORS)
        turned_off, acknowledges = Signal(), Signal()
        # Dword of the message that is read, and dword that is there a cycle later.
        step, place, came = Signal(2), Signal(2), Signal()
        message, word = Signal(data.ArrayLayout(32, 3), reset_less=True), Signal(32)
        with m.If(self.mask_write):
            m.d.sync += self.vector_masks.bit_select(self.mask_vector, 1).eq(self.mask_value)
        m.d.comb += [
            ready.eq(Mux(state.master, self.pending & ~Mux(
                state.msix, self.vector_masks | state.msix_masked.replicate(VECTORS), 0), 0)),
            mine.eq(ready.bit_select(vector, 1)),
            o.cls.eq(TlpClass.P),
            self.table.word_index.eq(Cat(step, vector, 1)),
        ]
        m.d.sync += [place.eq(step), came.eq(0)]
        # The vector number replaces the low bits of the message data: log2 of the enabled vectors.
        low = Cat(Mux(on, v, d) for on, v, d in zip(
            state.msi_vectors, vector, state.msi_data, strict=False))
        m.d.comb += word.eq(Mux(state.msix, self.stored, Array((
            state.msi_address[:32], state.msi_address[32:],
            Cat(low, state.msi_data[3:])))[place]))
        with m.If(came):
            m.d.sync += message[place].eq(word)
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
                m.d.comb += self.table.ask.eq(1)
                with m.If(self.table.granted):
                    m.d.sync += [came.eq(1), step.eq(step + 1)]
                    with m.If(step == 2):
                        m.next = "Loaded"
            with m.State("Loaded"):
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

    def _words(self, m, message, acknowledges):
        """Build the TLP: a write of one dword, or PME_TO_Ack."""
        o = self.o
        common, second = Signal(HeaderCommon), Signal(MessageHeader1)
        # Known in time: the third dword of the message is loaded meanwhile.
        long = Signal()
        m.d.sync += long.eq(message[1].any())
        m.d.comb += [
            common.fmt.eq(Fmt.HEADER_4), common.type.eq(Type.MESSAGE_GATHER),
            second.requester_id.eq(swap_bytes(self.state.requester_id)),
            second.message_code.eq(MessageCode.PME_TO_ACK),
            o.long.eq(acknowledges | long), o.payload.eq(~acknowledges),
        ]
        request = request_word(
            m, o.index, write=1, long=long, length=1, requester_id=self.state.requester_id, tag=0,
            first_be=15, last_be=0, address=Cat(message[0], message[1]), data=message[2],
            shown=o.elected & ~acknowledges)
        answers = o.elected & acknowledges
        m.d.comb += o.word.eq(request | Mux(answers & (o.index == 0), common, 0)
                              | Mux(answers & (o.index == 1), second, 0))
