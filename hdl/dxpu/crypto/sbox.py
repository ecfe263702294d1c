"""The S-box of AES (FIPS 197, 5.1.1), as logic or in block RAM.

In GF(2^8) an inverse is a function of eight bits. The same field is also GF(16)[y] / (y^2 + y + v),
pairs of elements of GF(16), in which an inverse costs three products of GF(16) and one inverse
there, which is four functions of four bits. Python finds a v and the change of basis; both linear
maps around the inverse, the affine one of the S-box among them, are trees of XORs.
"""

from functools import cache

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.crc import xor_tree

__all__ = ["SubWord", "table"]

_AES = 0x11B     #: x^8 + x^4 + x^3 + x + 1 (FIPS 197, 4.2)
_SMALL = 0x13    #: x^4 + x + 1


def _times(a, b, modulus):
    """Product of polynomials over GF(2) modulo another one."""
    product, top = 0, modulus.bit_length() - 1
    while b:
        product ^= a if b & 1 else 0
        a <<= 1
        a ^= modulus if a >> top else 0
        b >>= 1
    return product


def _inverse(a, modulus):
    """Inverse of a polynomial; that of 0 is 0."""
    size = 1 << modulus.bit_length() - 1
    return next((b for b in range(size) if _times(a, b, modulus) == 1), 0)


def _affine(value):
    """The affine map of the S-box without its constant (FIPS 197, (5.2))."""
    return sum((value >> n ^ value >> (n + 4) % 8 ^ value >> (n + 5) % 8 ^ value >> (n + 6) % 8
                ^ value >> (n + 7) % 8 & 1) % 2 << n for n in range(8))


_CONSTANT = 0x63


@cache
def table():
    """Substitution of each byte."""
    return tuple(_affine(_inverse(n, _AES)) ^ _CONSTANT for n in range(256))


def _pair_times(a, b, v):
    """Product in GF(16)[y] / (y^2 + y + v); the upper four bits belong to y."""
    ah, al, bh, bl = a >> 4, a & 15, b >> 4, b & 15
    high = _times(ah, bh, _SMALL)
    low = _times(al, bl, _SMALL)
    both = _times(ah ^ al, bh ^ bl, _SMALL)
    return (both ^ low) << 4 | low ^ _times(high, v, _SMALL)


def _apply(columns, value):
    """Linear map, by the images of the bits."""
    result = 0
    for n, column in enumerate(columns):
        result ^= column if value >> n & 1 else 0
    return result


@cache
def _tower():
    """v, and the images in the tower of the bits of a byte."""
    # y^2 + y + v has no root in GF(16).
    v = next(v for v in range(16) if all(_times(y, y, _SMALL) ^ y != v for y in range(16)))
    for root in range(2, 256):
        powers = [1]
        for _ in range(8):
            powers.append(_pair_times(powers[-1], root, v))
        # A root of the polynomial of AES stands for x.
        if powers[8] == powers[4] ^ powers[3] ^ powers[1] ^ powers[0]:
            return v, tuple(powers[:8])
    raise AssertionError("a field of 256 elements contains the roots of a polynomial of degree 8")


def _masks(columns, bits):
    """For each bit of the result the mask of those of the operand whose parity it is."""
    return [sum((column >> bit & 1) << n for n, column in enumerate(columns))
            for bit in range(bits)]


def _product(a, b):
    """Product in GF(16) of two values."""
    terms = [(n, k, _times(1 << n, 1 << k, _SMALL)) for n in range(4) for k in range(4)]
    return Cat(Cat(a[n] & b[k] for n, k, term in terms if term >> bit & 1).xor()
               for bit in range(4))


def _substitute(m, byte):
    """The S-box of ``byte`` as logic."""
    v, to_tower = _tower()
    from_tower = [0] * 8
    for n in range(256):
        image = _apply(to_tower, n)
        if image.bit_count() == 1:
            from_tower[image.bit_length() - 1] = _affine(n)
    pair, inverse = Signal(8), Signal(8)
    over, under = Signal(4), Signal(4)
    m.d.comb += pair.eq(xor_tree(m, byte, _masks(to_tower, 8)))
    high, low = pair[4:], pair[:4]
    # (h y + l)^-1 = (h y + h + l) / (v h^2 + h l + l^2)
    squares = [_times(1 << n, 1 << n, _SMALL) for n in range(4)]
    squares += [_times(square, v, _SMALL) for square in squares]
    m.d.comb += over.eq(_product(high, low) ^ xor_tree(m, pair, _masks(squares, 4)))
    with m.Switch(over):
        for n in range(16):
            with m.Case(n):
                m.d.comb += under.eq(_inverse(n, _SMALL))
    m.d.comb += inverse.eq(Cat(_product(high ^ low, under), _product(high, under)))
    return xor_tree(m, inverse, _masks(from_tower, 8)) ^ _CONSTANT


class SubWord(wiring.Component):
    """SubWord() of AES (FIPS 197, 5.2): four bytes by the S-box, one cycle later.

    Parameters
    ----------
    ram : bool
        The S-box is a table in block RAM, with two bytes a RAM; else it is logic.

    Members
    -------
    i, o : 32
    """

    def __init__(self, *, ram=False):
        self._ram = bool(ram)
        super().__init__({"i": In(32), "o": Out(32)})

    def elaborate(self, platform):
        m = Module()
        if self._ram:
            for n in range(2):
                m.submodules[f"table{n}"] = rom = Memory(
                    shape=8, depth=256, init=table(),
                    attrs={"rom_style": "block", "ram_style": "block"})
                for k in (2 * n, 2 * n + 1):
                    port = rom.read_port()
                    m.d.comb += [port.addr.eq(self.i.word_select(k, 8)), port.en.eq(1),
                                 self.o.word_select(k, 8).eq(port.data)]
        else:
            for k in range(4):
                byte = Signal(8, name=f"byte{k}")
                m.d.comb += byte.eq(self.i.word_select(k, 8))
                m.d.sync += self.o.word_select(k, 8).eq(_substitute(m, byte))
        return m
