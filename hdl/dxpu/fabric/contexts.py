"""State of many sessions in memories: a word for each, and a walk over all of them.

Ref: docs/explanation/contexts.md
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dxpu.memory import DisjointMemory

__all__ = ["MOST", "UNIT", "Fetched", "Owned", "Scan", "Sweep", "Words"]

#: Sessions of a proxy, at most.
MOST = 64

#: Cycles: the unit of all times that are kept by session.
UNIT = 64


class Words(wiring.Component):
    """A word for each session, to be looked up by others than its owner; all zero after a reset.

    The words are in distributed RAM: a word that is looked up is there in the same cycle, one that
    is written in the next. Bits that nobody reads at a port cost nothing there.

    Parameters
    ----------
    shape : shape-like
    depth, reads : int
        Words; ports to read them.

    Members
    -------
    at, word : arrays of numbers of a word in, and of words out
        One of each per port.
    put, where, new : 1, number of a word, word
        Pulse: it is written. Not before ``ready``.
    ready : 1
        All words are zero, or were written since. A cycle for each after reset.
    """

    def __init__(self, shape, *, depth, reads=1):
        self._depth = depth
        self._words = Memory(shape=shape, depth=depth, init=[], attrs={"ram_style": "distributed"})
        super().__init__({
            "at": In(range(depth)).array(reads),
            "word": Out(shape).array(reads),
            "put": In(1),
            "where": In(range(depth)),
            "new": In(shape),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = self._words
        write = words.write_port()
        for at, word in zip(self.at, self.word, strict=True):
            read = words.read_port(domain="comb")
            m.d.comb += [read.addr.eq(at), Value.cast(word).eq(Value.cast(read.data))]
        _write(m, write, self._depth, self.ready, self.put, self.where, self.new)
        return m


class Fetched(wiring.Component):
    """A word for each session, to be looked up a cycle ahead by another than its owner; all zero
    after a reset.

    A word that is written while it is fetched is fetched as written, which takes a LUT for each bit
    if the words are in block RAM.

    Parameters
    ----------
    shape : shape-like
    depth : int
        Words.
    block : bool
        The words are in block RAM, 36 bits of 512 words in each on an ECP5, not in distributed RAM.

    Members
    -------
    at : number of a word
    word : word
        The word ``at`` of the cycle before, with what was written in that cycle.
    put, where, new : 1, number of a word, word
        Pulse: it is written. Not before ``ready``.
    ready : 1
        All words are zero, or were written since. A cycle for each after reset.
    """

    def __init__(self, shape, *, depth, block=True):
        self._depth, self._block = depth, block
        self._words = Memory(shape=shape, depth=depth, init=[],
                             attrs={"ram_style": "block" if block else "distributed"})
        super().__init__({
            "at": In(range(depth)),
            "word": Out(shape),
            "put": In(1),
            "where": In(range(depth)),
            "new": In(shape),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = self._words
        write = words.write_port()
        at = self.at
        if self._block:
            read = words.read_port(transparent_for=[write])
        else:
            read, at = words.read_port(domain="comb"), Signal.like(at)
            m.d.sync += at.eq(self.at)
        m.d.comb += [read.addr.eq(at), Value.cast(self.word).eq(Value.cast(read.data))]
        _write(m, write, self._depth, self.ready, self.put, self.where, self.new)
        return m


class Owned(wiring.Component):
    """A word for each session that an agent reads, changes and writes; all zero after a reset.

    The agent picks a session, and acts upon its word two cycles later: a block RAM takes half a
    cycle, so the word goes through a register. One session is acted upon in three cycles. So no
    word is read while it is written, and a memory with one port for each of the two does.

    Parameters
    ----------
    shape : shape-like
    depth : int
        Words.
    block : bool
        The words are in block RAM, 36 bits of 512 words in each on an ECP5, not in distributed RAM.

    Members
    -------
    ready : 1
        All words are zero, or were written since (after reset that takes a cycle for each), and
        none is under way: a session may be picked.
    pick, picks : number of a word, 1
        Pulse, only while ``ready``: that session is picked.
    loads, next_word : 1, word
        Pulse, a cycle after ``picks``; with it ``next_word`` is the word, late in the cycle.
    acts : 1
        Pulse, two cycles after ``picks``.
    session, word : number of a word, word
        The session that was picked last, from ``loads`` on, and its word, from ``acts`` on.
    put, new : 1, word
        Pulse, only with ``acts``: the word of ``session`` is written.
    """

    def __init__(self, shape, *, depth, block=True):
        self._shape, self._depth, self._block = shape, depth, block
        super().__init__({
            "ready": Out(1),
            "pick": In(range(depth)),
            "picks": In(1),
            "loads": Out(1),
            "next_word": Out(shape),
            "acts": Out(1),
            "session": Out(range(depth)),
            "word": Out(shape),
            "put": In(1),
            "new": In(shape),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = DisjointMemory(
            shape=self._shape, depth=self._depth, init=[],
            attrs={"ram_style": "block" if self._block else "distributed"})
        write, read = words.write_port(), words.read_port()
        zeroed, free = Signal(), Signal()
        m.d.comb += [
            read.addr.eq(self.pick), read.en.eq(self.picks),
            free.eq(~self.loads & ~self.acts), self.ready.eq(zeroed & free),
            Value.cast(self.next_word).eq(Value.cast(read.data)),
        ]
        m.d.sync += [self.loads.eq(self.picks), self.acts.eq(self.loads)]
        with m.If(self.picks):
            m.d.sync += self.session.eq(self.pick)
        with m.If(self.loads):
            m.d.sync += Value.cast(self.word).eq(Value.cast(self.next_word))
        _write(m, write, self._depth, zeroed, self.put, self.session, self.new)
        return m


def _write(m, port, depth, ready, put, where, new):
    """Clear a memory, a word in each cycle, until it is ``ready``; then write what is put."""
    zero = Signal(range(depth))
    m.d.comb += [
        port.en.eq(put | ~ready),
        port.addr.eq(Mux(ready, where, zero)),
        Value.cast(port.data).eq(Mux(ready, Value.cast(new), 0)),
    ]
    with m.If(~ready):
        m.d.sync += [zero.eq(zero + 1), ready.eq(zero == depth - 1)]


class Sweep(wiring.Component):
    """Calls one session after the other, each once in a turn.

    Parameters
    ----------
    count : int
        Sessions.
    unit, pace : int
        Cycles of a unit of time, and from one call to the next, at least; powers of two.

    Attributes
    ----------
    step : int
        Units of time that a turn takes, at least.

    Members
    -------
    valid, session, done : 1, number, 1
        ``session`` is called until it is ``done``. If that takes long the turn does.
    """

    def __init__(self, *, count, unit=UNIT, pace=4):
        if count not in range(1, MOST + 1):
            raise ValueError(f"count must be 1 to {MOST}, not {count!r}")
        self._count, self._pace = count, exact_log2(pace)
        self._turn = max(unit, pace << (count - 1).bit_length())
        self.step = self._turn // unit
        super().__init__({"valid": Out(1), "session": Out(range(count)), "done": In(1)})

    def elaborate(self, platform):
        m = Module()
        clock, called = Signal(range(self._turn)), Signal()
        place, begins = clock[self._pace:], clock[:self._pace] == 0
        m.d.comb += self.valid.eq(called)
        with m.If(self.done):
            m.d.sync += called.eq(0)
        with m.If(~(begins & called)):
            m.d.sync += clock.eq(clock + 1)
            with m.If(begins & (place < self._count)):
                m.d.sync += [called.eq(1), self.session.eq(place)]
        return m


class Scan(wiring.Component):
    """A bit for each session; finds one that is set, and stays there as long as it is: one is
    looked at in a cycle. All are zero after a reset. They are in distributed RAM.

    Parameters
    ----------
    count : int

    Members
    -------
    put, where, bit : 1, number of a bit, 1
        Pulse: this bit is written.
    hold, skip : 1
        Stay; go on, though the bit is set.
    at, found : number of a bit, 1
        The one that is looked at; it is set.
    """

    def __init__(self, *, count):
        self._count = count
        number = range(count)
        super().__init__({"put": In(1), "where": In(number), "bit": In(1), "hold": In(1),
                          "skip": In(1), "at": Out(number), "found": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.bits = bits = Words(1, depth=self._count)
        m.d.comb += [
            bits.put.eq(self.put), bits.where.eq(self.where), bits.new.eq(self.bit),
            bits.at[0].eq(self.at), self.found.eq(bits.word[0] & bits.ready),
        ]
        with m.If(self.skip | ~self.found & ~self.hold):
            m.d.sync += self.at.eq(Mux(self.at == self._count - 1, 0, self.at + 1))
        return m
