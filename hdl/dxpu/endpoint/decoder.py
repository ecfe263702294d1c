"""Decodes TLPs from a queue: a parsed header, then data dword by dword.

Ref: PCIe Base 5.0, 2.2.1 (general format), 7.5.1.2.1 (base addresses)
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.stream import PacketSignature
from dxpu.tlp.header import TlpHeader, decode
from dxpu.tlp.types import HeaderCommon, swap_bytes

from .register_map import REGISTER_BAR_SIZE
from .types import ConfigState, TlpTap

__all__ = ["Decoder"]


class Decoder(wiring.Component):
    """Reads TLPs, decodes their headers and compares their addresses with the BARs.

    A TLP takes one cycle per dword and three more. Data and ``end`` leave one cycle after the dword
    was taken, out of registers. The decoder drops a digest, as there is no ECRC check.

    Parameters
    ----------
    vram_bytes : int
        Size of BAR 2.

    Members
    -------
    i : packet stream of 32 bits
        Well-formed TLPs without prefixes.
    state : :class:`~.types.ConfigState`
    o : :class:`~.types.TlpTap`
    """

    def __init__(self, vram_bytes):
        super().__init__({"i": In(PacketSignature(32)), "state": In(ConfigState),
                          "o": Out(TlpTap())})
        self._bits = vram_bytes.bit_length() - 1

    def elaborate(self, platform):
        m = Module()
        i, o = self.i, self.o
        words = Signal(data.ArrayLayout(32, 4), reset_less=True)
        common = HeaderCommon(words[0])
        raw = Signal(TlpHeader)
        # Headers that have anything but an address there are short.
        m.d.comb += [raw.words[n].eq(words[n]) for n in (0, 1, 3)]
        m.d.comb += raw.words[2].eq(words[3])
        index, ended = Signal(2), Signal()
        left = Signal.like(o.info.payload_dwords)
        decode(m, raw, o.info)
        # The last dword of a header is in the last place, whatever the header's size is; the place
        # before it is 0 then, as the upper half of a short address.
        low = swap_bytes(words[3])
        m.d.comb += o.info.address.eq(Cat(C(0, 2), low[2:], swap_bytes(words[2])))

        below = REGISTER_BAR_SIZE.bit_length() - 1
        address, state = o.info.address, self.state
        with m.If(o.begin):
            memory = o.info.is_memory & state.memory
            m.d.sync += [
                o.hit0.eq(memory & ~address[32:].any() & (address[below:32] == state.bar0[below:])),
                o.hit2.eq(memory & (address[self._bits:] == state.bar2[self._bits:])),
                left.eq(o.info.payload_dwords),
            ]
        # The memory of the queue is slow, so its data is registered before it acts. `end` overlaps
        # the first dword of the next header, which changes `info` only afterwards.
        m.d.sync += [o.data.eq(i.payload.data), o.strobe.eq(0), o.end.eq(0)]
        m.d.comb += [
            o.whole.eq((o.info.first_be == 15) & (
                (o.info.length == 1) | (o.info.length == 2) & (o.info.last_be == 15))),
        ]
        with m.FSM():
            with m.State("Header"):
                m.d.comb += i.ready.eq(1)
                with m.If(i.valid):
                    with m.Switch(index):
                        for n in range(4):
                            with m.Case(n):
                                m.d.sync += words[n].eq(i.payload.data)
                                if n == 2:
                                    m.d.sync += words[3].eq(i.payload.data)
                                    with m.If(~common.fmt[0]):
                                        m.d.sync += words[2].eq(0)
                    m.d.sync += [index.eq(index + 1), ended.eq(i.payload.last)]
                    with m.If((index == 3) | (index == 2) & ~common.fmt[0]):
                        m.d.sync += index.eq(0)
                        m.next = "Begin"
            with m.State("Begin"):
                m.d.comb += o.begin.eq(1)
                m.next = "Settle"
            with m.State("Settle"):
                m.next = "Data"
                with m.If(ended):
                    m.next = "End"
            with m.State("Data"):
                m.d.comb += i.ready.eq(1)
                with m.If(i.valid):
                    m.d.sync += [o.strobe.eq(left.any()), left.eq(left - left.any())]
                    with m.If(i.payload.last):
                        m.next = "End"
            with m.State("End"):
                m.d.sync += o.end.eq(1)
                m.next = "Header"
        return m
