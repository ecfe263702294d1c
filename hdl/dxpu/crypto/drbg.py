"""CTR_DRBG with AES-128, without derivation function (NIST SP 800-90A, 10.2.1).

Ref: docs/reference/crypto.md
"""

from amaranth import *
from amaranth.lib import enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .aes import CipherUse, swapped

__all__ = ["CtrDrbg"]


class _Block(enum.Enum, shape=2):
    """What a block is for."""

    KEY = 0
    V = 1
    OUT = 2


class CtrDrbg(wiring.Component):
    """Random words from a seed, four a draw, until the next seed is due.

    It uses an :class:`~.aes.Aes128` of its owner, one block at a time. Nothing is drawn before the
    first seed, nor after the last draw until it is seeded again. Key and V change with each draw
    before its words are offered, so these cannot be computed from them.

    A draw begins when the words of the last one were taken, and takes 199 cycles.

    Parameters
    ----------
    draws : int
        Draws of a seed, at most (reseed_interval: 2^48 at most).

    Members
    -------
    seed : stream of 32
        Eight words, for key and V: 256 bits of entropy. A seed adds to those before it. Taken when
        no draw is left, or with ``reseed``.
    reseed : 1
        The next thing to do is to take a seed. What was drawn before is still offered.
    cipher : :class:`~.aes.CipherUse`
    o : stream of 32
    """

    def __init__(self, *, draws=1 << 16):
        if not isinstance(draws, int) or not 1 <= draws <= 1 << 48:
            raise ValueError(f"draws must be 1 to 2^48, not {draws!r}")
        self._draws = draws
        super().__init__({
            "seed": In(stream.Signature(32)),
            "reseed": In(1),
            "cipher": Out(CipherUse()),
            "o": Out(stream.Signature(32)),
        })

    def elaborate(self, platform):
        m = Module()
        to_aes, from_aes = self.cipher.i, self.cipher.o
        # Key and V; and what comes in their place, and what goes out. Places are those of _Block.
        m.submodules.state = state = Memory(shape=32, depth=8, init=[])
        m.submodules.made = made = Memory(shape=32, depth=16, init=[])
        key, v = state.read_port(domain="comb"), state.read_port(domain="comb")
        write, read, put = state.write_port(), made.read_port(domain="comb"), made.write_port()
        column, what, advance = Signal(2), Signal(_Block), Signal()
        left = Signal(range(self._draws + 1))
        # Key and V are not 0 any more; this update is with a seed.
        live, counted, seeded = Signal(), Signal(), Signal()
        place = Cat(column, what)
        m.d.comb += [
            key.addr.eq(column), v.addr.eq(4 | column), read.addr.eq(place), put.addr.eq(place),
            to_aes.payload.key.eq(Mux(live, key.data, 0)), to_aes.payload.data.eq(v.data),
            self.o.payload.eq(read.data),
        ]
        with m.If(advance):
            m.d.sync += column.eq(column + 1)

        # V + 1: the first byte is the highest, so the last word is counted first.
        carry, number = Signal(), Signal(33)
        m.d.comb += number.eq(Mux(counted, swapped(v.data), 0) + carry)

        def count(block):
            m.d.sync += [what.eq(block), column.eq(3), carry.eq(1)]
            m.next = "Count"

        with m.FSM() as fsm:
            m.d.comb += self.cipher.busy.eq(fsm.ongoing("Send") | fsm.ongoing("Keep"))
            with m.State("Idle"):
                with m.If((left == 0) | self.reseed):
                    m.d.sync += [seeded.eq(1), what.eq(_Block.KEY)]
                    m.next = "Seed"
                with m.Else():
                    m.d.sync += seeded.eq(0)
                    count(_Block.OUT)
            with m.State("Seed"):
                m.d.comb += [self.seed.ready.eq(1), put.en.eq(self.seed.valid),
                             put.data.eq(self.seed.payload), advance.eq(self.seed.valid)]
                with m.If(advance & (column == 3)):
                    m.d.sync += what.eq(_Block.V)
                    with m.If(what == _Block.V):
                        count(_Block.KEY)
            with m.State("Count"):
                m.d.comb += [write.en.eq(1), write.addr.eq(4 | column),
                             write.data.eq(swapped(number))]
                m.d.sync += [column.eq(column - 1), carry.eq(number[32])]
                with m.If(column == 0):
                    m.d.sync += [column.eq(0), counted.eq(1)]
                    m.next = "Send"
            with m.State("Send"):
                m.d.comb += [to_aes.valid.eq(1), advance.eq(to_aes.ready)]
                with m.If(advance & (column == 3)):
                    m.next = "Keep"
            with m.State("Keep"):
                m.d.comb += [
                    from_aes.ready.eq(1), advance.eq(from_aes.valid), put.en.eq(from_aes.valid),
                    put.data.eq(from_aes.payload ^ Mux(seeded, read.data, 0)),
                ]
                with m.If(advance & (column == 3)):
                    with m.Switch(what):
                        with m.Case(_Block.OUT):
                            count(_Block.KEY)
                        with m.Case(_Block.KEY):
                            count(_Block.V)
                        with m.Default():
                            m.d.sync += what.eq(_Block.KEY)
                            m.next = "Move"
            with m.State("Move"):
                m.d.comb += [advance.eq(1), write.en.eq(1), write.addr.eq(place[:3]),
                             write.data.eq(read.data)]
                with m.If(column == 3):
                    m.d.sync += what.eq(_Block.V)
                    with m.If(what == _Block.V):
                        m.d.sync += [
                            live.eq(1), left.eq(Mux(seeded, self._draws, left - 1)),
                            what.eq(_Block.OUT),
                        ]
                        m.next = "Give"
                        with m.If(seeded):
                            m.next = "Idle"
            with m.State("Give"):
                m.d.comb += [self.o.valid.eq(1), advance.eq(self.o.ready)]
                with m.If(advance & (column == 3)):
                    m.next = "Idle"
        return m
