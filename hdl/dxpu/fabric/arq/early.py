"""Which frames of each session came ahead of the one that is expected.

Ref: docs/explanation/selective-repeat.md; docs/reference/wire-format.md, SACK
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.priority import encode, lowest_bit

__all__ = ["WINDOW", "EarlyMap"]

#: Frames from the expected one on that may be under way: it, and those of a word of a SACK that
#: need a place of their own (numbers modulo this).
WINDOW = 64


class EarlyMap(wiring.Component):
    """A word for each session: bit i stands for the frame behind the expected one by ``1 + i``.

    When the expected frame takes effect the word moves down by a bit. If the next one is in it, it
    is *due* from then on, until it is ``settled``.

    The words are in distributed RAM. What is read is what is known in that cycle; it changes in
    the cycle after a strobe, as the link's numbers do, so that number and word always fit.

    Parameters
    ----------
    sessions : int
    window : int
        Bits of a word.

    Members
    -------
    route, route_word : in, out
        The word of session ``route``; zero while a frame is due: the word would not say that it
        came, and a peer would believe that it did not.
    session, word : in, out
        That of another, while nothing is in ``took``.
    stores, place : 1, ``range(window)``
        Pulse: bit ``place`` of ``session`` is set.
    took : ``sessions``
        Strobes, at most one: the expected frame took effect.
    settled, forget : ``sessions``
        Strobes: the due frame is not due any more; nothing of the session came.
    early, due : ``sessions``
        Any bit of the word is set; the expected frame came before it was expected.
    """

    def __init__(self, *, sessions, window=WINDOW):
        self._sessions, self._window = sessions, window
        number = range(sessions)
        super().__init__({
            "route": In(number), "route_word": Out(window),
            "session": In(number), "word": Out(window),
            "stores": In(1), "place": In(range(window)),
            "took": In(sessions), "settled": In(sessions), "forget": In(sessions),
            "early": Out(sessions), "due": Out(sessions),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = Memory(shape=self._window, depth=self._sessions, init=[])
        self._write = write = words.write_port()
        route, own = (words.read_port(domain="comb") for _ in range(2))
        # What is in memory does not count for these; so it is after a reset.
        stale = Signal(self._sessions, init=~0)
        taking, wipe = self.took.any(), Signal(self._sessions)
        m.d.comb += [
            route.addr.eq(self.route),
            own.addr.eq(Mux(taking, encode(self.took), self.session)),
            self.route_word.eq(Mux((stale | self.due).bit_select(route.addr, 1), 0, route.data)),
            self.word.eq(Mux(stale.bit_select(own.addr, 1), 0, own.data)),
            wipe.eq(Mux(taking | self.stores, 0, lowest_bit(stale))),
            write.en.eq(taking | self.stores | wipe.any()),
            write.addr.eq(Mux(wipe.any(), encode(wipe), own.addr)),
            write.data.eq(Mux(wipe.any(), 0, Mux(
                taking, self.word >> 1, self.word | (1 << self.place)))),
        ]
        m.d.sync += stale.eq(stale & ~wipe | self.forget)
        for n in range(self._sessions):
            took = self.took[n]
            with m.If(took):
                m.d.sync += [self.early[n].eq(self.word[1:].any()), self.due[n].eq(self.word[0])]
            with m.Elif(self.settled[n]):
                m.d.sync += self.due[n].eq(0)
            with m.If(self.stores & (self.session == n)):
                m.d.sync += self.early[n].eq(1)
            with m.If(self.forget[n]):
                m.d.sync += [self.early[n].eq(0), self.due[n].eq(0)]
        return m
