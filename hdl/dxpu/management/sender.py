"""Sends the frame that is in the store."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dxpu.stream import PacketSignature

from .store import BANK_WORDS, Bank, WordAddress

__all__ = ["FrameOut", "ManagementSender"]


class FrameOut(data.Struct):
    """The frame in the store has so many dwords, and goes to this path."""

    dwords: range(BANK_WORDS + 1)
    path: 4


class ManagementSender(wiring.Component):
    """Makes beats of the frame in the bank OUT of the store.

    The first beat is offered two cycles after the frame, and one in each cycle from then on.
    Nothing else may be read in the store meanwhile.

    Parameters
    ----------
    width, paths : int

    Members
    -------
    outgoing : stream of :class:`FrameOut`
        Taken with its last beat. One for a path that is not there is taken at once.
    get, get_at, beat
        From :class:`~.store.WordStore`.
    path_o : array of packet streams
    """

    def __init__(self, width, paths):
        self._width, self._count = width, paths
        super().__init__({
            "outgoing": In(stream.Signature(FrameOut)),
            "get": Out(1), "get_at": Out(WordAddress), "beat": In(width),
            "path_o": Out(PacketSignature(width)).array(paths),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self._width // 32
        bits = exact_log2(lanes)
        row, there, frame = Signal(range(BANK_WORDS // lanes)), Signal(), self.outgoing.payload
        following, ready, last = Signal.like(row), Signal(), Signal()
        # Of the frame, from the cycle behind it on: its last row, and how many dwords that has.
        end, rest, before = Signal.like(row), Signal(range(lanes + 1)), Signal(7)
        m.d.comb += [
            self.get.eq(self.outgoing.valid), following.eq(row + (there & ready)),
            self.get_at.eq(Cat(Const(0, bits), following, Const(Bank.OUT.value, 3))),
            before.eq(frame.dwords - 1), last.eq(row == end),
        ]
        m.d.sync += [end.eq(before >> bits), rest.eq(before[:bits] + 1)]
        with m.Switch(frame.path):
            for n, path in enumerate(self.path_o):
                with m.Case(n):
                    m.d.comb += [path.valid.eq(there), ready.eq(path.ready)]
            with m.Default():
                m.d.comb += ready.eq(1)
        for path in self.path_o:
            m.d.comb += [
                path.payload.data.eq(self.beat), path.payload.first.eq(row == 0),
                path.payload.last.eq(last), path.payload.dwords.eq(Mux(last, rest, lanes)),
            ]
        m.d.comb += self.outgoing.ready.eq(there & ready & last)
        m.d.sync += [there.eq(self.outgoing.valid & ~self.outgoing.ready),
                     row.eq(Mux(self.outgoing.ready, 0, following))]
        return m
