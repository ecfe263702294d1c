"""Numbers of the frames that come, of all sessions, in one block RAM.

Ref: docs/explanation/contexts.md, "Which memory"
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.memory import DisjointMemory

__all__ = ["ReceivedNumbers"]


class ReceivedNumbers(wiring.Component):
    """Of each session the number of the frame that is expected, and the newest acknowledgement.

    The verdict on a frame needs the one and then the other, a frame that takes effect the latter,
    and nobody both in one cycle. So one memory with one read port does for both. All numbers are 0
    after a reset.

    Latency of a fetch one cycle. The expected number is written in the cycle of its strobe, the
    newest acknowledgement in the next one.

    Parameters
    ----------
    sessions : int

    Members
    -------
    fetch, fetch_session, fetch_newest : 1, number of a session, 1
        Strobe: the newest acknowledgement of that session is read, or else its expected number. Not
        while ``busy``; no number in the cycle in which it is written.
    fetched_number : 24
        The number that was fetched last, from the next cycle on.
    put_expected, put_newest, put_session, expected, newest : 1, 1, number of a session, 24, 24
        Strobes: these are the new values. Not while ``writes_newest``.
    clear, clear_session, first_expected, first_newest : 1, number of a session, 24, 24
        Strobe: these are the numbers of the session. Not while ``writes_newest``.
    writes_newest : 1
        A newest acknowledgement is written in this cycle.
    busy : 1
        Nothing may be fetched: after a reset, for two cycles for each session, and in the cycle
        after ``clear``.
    """

    def __init__(self, *, sessions):
        self._words = DisjointMemory(
            shape=24, depth=2 << (sessions - 1).bit_length(), init=[],
            attrs={"ram_style": "block"})
        number = range(sessions)
        super().__init__({
            "fetch": In(1),
            "fetch_session": In(number),
            "fetch_newest": In(1),
            "fetched_number": Out(24),
            "put_expected": In(1),
            "put_newest": In(1),
            "put_session": In(number),
            "expected": In(24),
            "newest": In(24),
            "clear": In(1),
            "clear_session": In(number),
            "first_expected": In(24),
            "first_newest": In(24),
            "writes_newest": Out(1),
            "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = self._words
        write, read = words.write_port(), words.read_port()
        where, session = Signal.like(self.put_session), Signal.like(self.put_session)
        newest, cleared, zero = Signal(24), Signal(), Signal.like(write.addr)
        zeroed = Signal()
        m.d.comb += [
            read.en.eq(self.fetch), read.addr.eq(Cat(self.fetch_newest, self.fetch_session)),
            self.fetched_number.eq(read.data),
            where.eq(Mux(self.clear, self.clear_session, self.put_session)),
            write.en.eq(self.put_expected | self.clear | self.writes_newest | ~zeroed),
            self.busy.eq(~zeroed | cleared),
        ]
        m.d.sync += [
            self.writes_newest.eq(self.put_newest | self.clear), cleared.eq(self.clear),
            session.eq(where), newest.eq(Mux(self.clear, self.first_newest, self.newest)),
        ]
        with m.If(~zeroed):
            m.d.sync += [zero.eq(zero + 1), zeroed.eq(zero.all())]
            m.d.comb += write.addr.eq(zero)
        with m.Elif(self.writes_newest):
            m.d.comb += [write.addr.eq(Cat(C(1, 1), session)), write.data.eq(newest)]
        with m.Else():
            m.d.comb += [write.addr.eq(Cat(C(0, 1), where)),
                         write.data.eq(Mux(self.clear, self.first_expected, self.expected))]
        return m
