"""Bits of a noise source are made into seeds (NIST SP 800-90B, 3.1.5).

Ref: docs/reference/crypto.md
"""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .cmac import MacUse

__all__ = ["HALF_BITS", "Conditioner"]

#: Bits of noise that make half of a seed. With a claim of 0.25 bit each these have 256 bits of
#: entropy: twice as many as AES-CMAC makes of them, so that these have full entropy, which
#: CTR_DRBG without derivation function asks of its seeds (SP 800-90A, 10.2.1; 800-90C).
HALF_BITS = 1024

_WORDS = HALF_BITS // 32


class Conditioner(wiring.Component):
    """Makes a seed of eight words of 2 x :data:`HALF_BITS` bits: each half is their AES-CMAC.

    Bits are taken until there are enough, and no more until the seed was taken. So a seed is ready
    before it is needed, and the CMAC is used for 563 cycles at a time, however slowly bits come.
    The first bit is in the lowest bit of the first byte.

    Members
    -------
    i : stream of 1
        Bits of a noise source that has passed its tests.
    column, key_column : 2 out, 32 in
        That column of a key, in the same cycle. It need not be secret.
    cmac : :class:`~.cmac.MacUse`
    o : stream of 32
        Seeds for a :class:`~.drbg.CtrDrbg`.
    """

    def __init__(self):
        super().__init__({
            "i": In(stream.Signature(1)),
            "column": Out(2),
            "key_column": In(32),
            "cmac": Out(MacUse()),
            "o": Out(stream.Signature(32)),
        })

    def elaborate(self, platform):
        m = Module()
        mac = self.cmac
        # Bits of a half, then the seed.
        m.submodules.kept = kept = Memory(shape=32, depth=_WORDS + 8, init=[])
        read, write = kept.read_port(domain="comb"), kept.write_port()
        place, half = Signal(range(_WORDS)), Signal()
        bits = Signal(31)
        fill = Signal(range(32))
        m.d.comb += [
            self.column.eq(mac.column), mac.key_column.eq(self.key_column),
            mac.i.payload.data.eq(read.data), mac.i.payload.bytes.eq(4),
            mac.i.payload.last.eq(place == _WORDS - 1),
            read.addr.eq(place), self.o.payload.eq(read.data),
            write.addr.eq(place), write.data.eq(Cat(bits, self.i.payload)),
        ]
        with m.FSM():
            with m.State("Fill"):
                m.d.comb += self.i.ready.eq(1)
                with m.If(self.i.valid):
                    m.d.sync += [bits.eq(Cat(bits, self.i.payload)[1:]), fill.eq(fill + 1)]
                    with m.If(fill == 31):
                        m.d.comb += write.en.eq(1)
                        m.d.sync += place.eq(place + 1)
                        with m.If(place == _WORDS - 1):
                            m.next = "Give"
            with m.State("Give"):
                m.d.comb += mac.i.valid.eq(1)
                with m.If(mac.i.ready):
                    m.d.sync += place.eq(place + 1)
                    with m.If(place == _WORDS - 1):
                        m.next = "Tag"
            with m.State("Tag"):
                m.d.comb += [
                    mac.o.ready.eq(1), write.en.eq(mac.o.valid), write.data.eq(mac.o.payload),
                    write.addr.eq(_WORDS | Cat(place[:2], half)),
                ]
                with m.If(mac.o.valid):
                    m.d.sync += place.eq(place + 1)
                    with m.If(place == 3):
                        m.d.sync += [place.eq(0), half.eq(~half)]
                        m.next = "Fill"
                        with m.If(half):
                            m.next = "Offer"
            with m.State("Offer"):
                m.d.comb += [self.o.valid.eq(1), read.addr.eq(_WORDS | place[:3])]
                with m.If(self.o.ready):
                    m.d.sync += place.eq(place + 1)
                    with m.If(place == 7):
                        m.d.sync += place.eq(0)
                        m.next = "Fill"
        return m
