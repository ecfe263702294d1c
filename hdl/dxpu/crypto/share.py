"""One cipher for many parts.

Ref: docs/reference/crypto.md
"""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.priority import round_robin

from .aes import AesWord, CipherUse

__all__ = ["CipherShare"]


class CipherShare(wiring.Component):
    """Lets several parts use one :class:`~.aes.Aes128`, in turn (round robin).

    A part that is ``busy`` keeps the cipher until it is not, so each part that waits has its turn
    after at most one use by each other part. Who is alone loses no cycle; a change of hands takes
    one.

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
        busy, turn = Signal(self._count), Signal(range(self._count))
        m.d.comb += busy.eq(Cat(user.busy for user in self.users))
        with m.Switch(turn):
            for n, user in enumerate(self.users):
                with m.Case(n):
                    m.d.comb += [
                        self.i.payload.eq(user.i.payload), self.i.valid.eq(user.i.valid),
                        user.i.ready.eq(self.i.ready),
                        user.o.valid.eq(self.o.valid), self.o.ready.eq(user.o.ready),
                    ]
                    with m.If(~user.busy & busy.any()):
                        m.d.sync += turn.eq(round_robin(busy, turn))
        for user in self.users:
            m.d.comb += user.o.payload.eq(self.o.payload)
        return m
