"""One cipher, and one CMAC, for many parts.

Ref: docs/reference/crypto.md
"""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from dxpu.priority import round_robin
from dxpu.stream import ForwardRegister

from .aes import AesWord, CipherUse
from .cmac import MacUse

__all__ = ["CipherShare", "MacShare"]


class _Results(wiring.Component):
    """Register of results for several parts: a word comes out a cycle later, and there is one in
    each cycle. Each part waits for a bit of its own.

    Parameters
    ----------
    count : int
        Parts.

    Members
    -------
    i : stream of 32
    turn : ``range(count)``
        Whose word that of ``i`` is.
    o : array of streams of 32
    """

    def __init__(self, count):
        self._count = count
        super().__init__({
            "i": In(stream.Signature(32)), "turn": In(range(count)),
            "o": Out(stream.Signature(32)).array(count),
        })

    def elaborate(self, platform):
        m = Module()
        word, offered, taken = Signal(32), Signal(self._count), Signal()
        m.d.comb += [
            taken.eq((Cat(o.ready for o in self.o) & offered).any()),
            self.i.ready.eq(~offered.any() | taken),
        ]
        with m.If(self.i.ready):
            m.d.sync += [word.eq(self.i.payload), offered.eq(Mux(self.i.valid, 1 << self.turn, 0))]
        for n, o in enumerate(self.o):
            m.d.comb += [o.valid.eq(offered[n]), o.payload.eq(word)]
        return m


class CipherShare(wiring.Component):
    """Lets several parts use one :class:`~.aes.Aes128`, in turn (round robin).

    A part that is ``busy`` keeps the cipher until it is not, so each part that waits has its turn
    after at most one use by each other part. A word takes a cycle to the cipher, and one back, so
    a block takes two cycles more; there is a word in each cycle. A change of hands takes one.

    Parameters
    ----------
    count : int
        Parts.

    Members
    -------
    users : array of :class:`~.aes.CipherUse`
    i, o
        Of the cipher.
    """

    def __init__(self, *, count):
        if not isinstance(count, int) or count < 1:
            raise ValueError(f"count must be a positive integer, not {count!r}")
        self._count = count
        super().__init__({
            "users": In(CipherUse()).array(count),
            "i": Out(stream.Signature(AesWord)),
            "o": In(stream.Signature(32)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.register = register = ForwardRegister(AesWord)
        connect(m, register.o, flipped(self.i))
        busy, turn = Signal(self._count), Signal(range(self._count))
        m.d.comb += busy.eq(Cat(user.busy for user in self.users))
        with m.Switch(turn):
            for n, user in enumerate(self.users):
                with m.Case(n):
                    m.d.comb += [
                        register.i.payload.eq(user.i.payload), register.i.valid.eq(user.i.valid),
                        user.i.ready.eq(register.i.ready),
                    ]
                    with m.If(~user.busy & busy.any()):
                        m.d.sync += turn.eq(round_robin(busy, turn))
        m.submodules.results = results = _Results(self._count)
        connect(m, flipped(self.o), results.i)
        m.d.comb += results.turn.eq(turn)
        for user, o in zip(self.users, results.o, strict=True):
            connect(m, o, flipped(user.o))
        return m


class MacShare(wiring.Component):
    """Lets several parts have messages authenticated by one :class:`~.cmac.Cmac`, in turn (round
    robin).

    A part whose message has begun keeps it until the last word of the tag was taken, so each part
    that waits has its turn after at most one message of each other part. A word of a tag takes a
    cycle more; a change of hands takes one, if it is not at the end of a message.

    Parameters
    ----------
    count : int
        Parts.

    Members
    -------
    users : array of :class:`~.cmac.MacUse`
    use : :class:`~.cmac.MacUse`
        Of the CMAC.
    """

    def __init__(self, *, count):
        if not isinstance(count, int) or count < 1:
            raise ValueError(f"count must be a positive integer, not {count!r}")
        self._count = count
        super().__init__({"users": In(MacUse()).array(count), "use": Out(MacUse())})

    def elaborate(self, platform):
        m = Module()
        use = self.use
        waits, turn = Signal(self._count), Signal(range(self._count))
        begun, words, ends = Signal(), Signal(2), Signal()
        m.d.comb += [
            waits.eq(Cat(user.i.valid for user in self.users)),
            ends.eq(use.o.valid & use.o.ready & (words == 3)),
        ]
        with m.Switch(turn):
            for n, user in enumerate(self.users):
                with m.Case(n):
                    m.d.comb += [
                        use.i.payload.eq(user.i.payload), use.i.valid.eq(user.i.valid),
                        user.i.ready.eq(use.i.ready), use.key_column.eq(user.key_column),
                    ]
        m.submodules.results = results = _Results(self._count)
        connect(m, flipped(use.o), results.i)
        m.d.comb += results.turn.eq(turn)
        for user, o in zip(self.users, results.o, strict=True):
            m.d.comb += user.column.eq(use.column)
            connect(m, o, flipped(user.o))
        with m.If(use.i.valid & use.i.ready):
            m.d.sync += begun.eq(1)
        with m.If(use.o.valid & use.o.ready):
            m.d.sync += words.eq(words + 1)
        with m.If(ends):
            m.d.sync += begun.eq(0)
        with m.If(ends | ~begun & ~use.i.valid):
            with m.If(waits.any()):
                m.d.sync += turn.eq(round_robin(waits, turn))
        return m
