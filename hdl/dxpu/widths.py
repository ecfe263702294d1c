"""Converters between packets of any width and packets of 32 bits."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .stream import PacketLayout, PacketSignature

__all__ = ["Narrow", "Widen"]


class Narrow(wiring.Component):
    """Converts packets of ``width`` bits per beat to 32.

    Latency 0, throughput one dword per cycle. ``discard`` stays on the last beat.

    Parameters
    ----------
    width : int
        Data bits per beat of ``i``.

    Members
    -------
    i : packet stream of ``width`` bits
        Packets.
    o : packet stream of 32 bits
        The same packets.
    """

    def __init__(self, width):
        self._layout = PacketLayout(width)
        super().__init__({"i": In(PacketSignature(width)), "o": Out(PacketSignature(32))})

    def elaborate(self, platform):
        m = Module()
        i, o = self.i, self.o
        lane, final = Signal(range(self._layout.lanes)), Signal()
        m.d.comb += [
            final.eq(lane + 1 == i.payload.dwords),
            o.valid.eq(i.valid),
            o.payload.data.eq(i.payload.data.word_select(lane, 32)),
            o.payload.dwords.eq(1),
            o.payload.first.eq(i.payload.first & (lane == 0)),
            o.payload.last.eq(i.payload.last & final),
            o.payload.discard.eq(i.payload.discard & o.payload.last),
            i.ready.eq(o.ready & final),
        ]
        with m.If(o.valid & o.ready):
            m.d.sync += lane.eq(Mux(final, 0, lane + 1))
        return m


class Widen(wiring.Component):
    """Converts packets of 32 bits per beat to ``width``.

    A beat is offered one cycle after its last dword was taken, whether the next dword has come or
    not. Throughput one dword per cycle while beats are taken at once; above 32 bits a cycle less
    behind each beat that is not, and in front of a last beat of one dword, as ``i.ready`` does not
    depend on ``o.ready`` then.

    Parameters
    ----------
    width : int
        Data bits per beat of ``o``.

    Members
    -------
    i : packet stream of 32 bits
        Packets.
    o : packet stream of ``width`` bits
        The same packets.
    """

    def __init__(self, width):
        self._layout = PacketLayout(width)
        super().__init__({"i": In(PacketSignature(32)), "o": Out(PacketSignature(width))})

    def elaborate(self, platform):
        m = Module()
        i, o, lanes = self.i, self.o, self._layout.lanes
        lane, first = Signal(range(lanes)), Signal()
        held = Signal(self._layout.width, reset_less=True)
        full = Signal()
        m.d.comb += [
            full.eq((lane == lanes - 1) | i.payload.last),
            i.ready.eq(~full | ~o.valid | (o.ready if lanes == 1 else 0)),
        ]
        with m.If(o.ready):
            m.d.sync += o.valid.eq(0)
        with m.If(i.valid & i.ready):
            m.d.sync += lane.eq(Mux(full, 0, lane + 1))
            with m.If(lane == 0):
                m.d.sync += first.eq(i.payload.first)
            with m.If(full):
                m.d.sync += [
                    o.valid.eq(1),
                    o.payload.data.eq(held),
                    # The last lane holds the dword or nothing.
                    o.payload.data.word_select(lane, 32).eq(i.payload.data),
                    o.payload.data.word_select(lanes - 1, 32).eq(i.payload.data),
                    o.payload.dwords.eq(lane + 1),
                    o.payload.first.eq(Mux(lane == 0, i.payload.first, first)),
                    o.payload.last.eq(i.payload.last),
                    o.payload.discard.eq(i.payload.discard),
                ]
            with m.Else():
                m.d.sync += held.word_select(lane, 32).eq(i.payload.data)
        return m
