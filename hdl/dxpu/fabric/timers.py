"""Timers of many contexts, for little more than their memory."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

__all__ = ["UNIT", "Timers"]

#: Cycles from one look at a timer to the next: the unit of time.
UNIT = 64


class Timers(wiring.Component):
    """Timers of which one is looked at in a cycle, each once in :data:`UNIT` cycles.

    A timer that was started takes its ``value`` when it is looked at next, and counts each look
    after that while it ``runs``. It is ``over`` when these are ``value`` many (one, if that is 0),
    and at each look from then on, until it is started again. So it takes ``value * UNIT`` to
    ``(value + 1) * UNIT`` cycles from the start.

    All words are in one memory, of distributed RAM.

    Parameters
    ----------
    count : int
        Timers, 1 to :data:`UNIT`.
    width : int
        Of a value.

    Members
    -------
    start : ``count``
        Strobes.
    turn : number of a timer
        The one that is looked at, or 0.
    looks : ``count``
        That one, one-hot; none in what is left of a unit.
    value : ``width``
        Of the timer that is looked at, if it was started.
    runs : 1
        The timer that is looked at counts.
    over : 1
        The timer that is looked at is over. If it is started in this cycle, that counts. Not
        combinational from ``start``, so that it may start timers.
    """

    def __init__(self, *, count, width):
        if count not in range(1, UNIT + 1):
            raise ValueError(f"count must be 1 to {UNIT}, not {count!r}")
        self._count, self._width = count, width
        super().__init__({
            "start": In(count),
            "turn": Out(range(count)),
            "looks": Out(count),
            "value": In(width),
            "runs": In(1),
            "over": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.left = left = Memory(shape=self._width, depth=self._count, init=[])
        read, write = left.read_port(domain="comb"), left.write_port()
        clock, started = Signal(range(UNIT)), Signal(self._count)
        active, again, last = Signal(), Signal(), Signal()
        m.d.sync += [clock.eq(clock + 1), started.eq(started & ~self.looks | self.start)]
        m.d.comb += [
            active.eq(clock < self._count),
            self.turn.eq(Mux(active, clock, 0)),
            self.looks.eq(Mux(active, 1 << self.turn, 0)),
            again.eq((started & self.looks).any()),
            read.addr.eq(self.turn),
            last.eq(read.data[1:] == 0),
            self.over.eq(active & self.runs & last & ~again),
            write.addr.eq(self.turn),
            write.en.eq(active & (again | self.runs)),
            write.data.eq(Mux(again, self.value, Mux(last, 0, read.data - 1))),
        ]
        return m
