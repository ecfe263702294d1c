"""Cyclic redundancy checks of whole dwords, any number per beat, one beat per cycle.

A CRC register is linear over GF(2): after ``n`` more message bits it is ``S * state + D * data``,
with matrices that depend on the polynomial and ``n`` only. They are computed here in Python and
become XOR trees of logarithmic depth (a reduction of a masked word, never a chain).

The register counts as the first bits of the message do: while it is zero, it may be added to them
instead. Narrow beats are taken dword by dword in this way.

Tails of wide beats: while the register is zero, zero bits leave it zero. So the dwords of a short
last beat are moved to the end, zeros before them, and one full-width ``D`` serves every length.
What the older state contributes is ``S`` for as many dwords as are valid, outside of the feedback
loop: two bits of their number at a time choose one of four matrices of 32 x 32.
"""

from dataclasses import dataclass
from functools import cache

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .stream import check_width

__all__ = ["CRC16_CCITT_FALSE", "CRC32C", "CRC32_ETHERNET", "Algorithm", "CrcStream", "data_matrix",
           "state_matrix", "xor_tree"]


@dataclass(frozen=True)
class Algorithm:
    """Parameters of a CRC (the "Rocksoft" model with refin = refout = ``reflect``).

    ``polynomial``, ``initial`` and ``final_xor`` are written most significant bit first, also for
    reflected algorithms.
    """

    width: int
    polynomial: int
    initial: int
    final_xor: int
    reflect: bool


#: iSCSI's CRC (RFC 3720, 12.1); check value 0xE3069283. Guards TLPs and bodies of DXF frames.
CRC32C = Algorithm(32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, True)
#: Check value 0x29B1. Guards headers of DXF frames.
CRC16_CCITT_FALSE = Algorithm(16, 0x1021, 0xFFFF, 0x0000, False)
#: Frame check sequence (IEEE 802.3, 3.2.9); check value 0xCBF43926.
CRC32_ETHERNET = Algorithm(32, 0x04C11DB7, 0xFFFFFFFF, 0xFFFFFFFF, True)


def _step(algorithm, state, bit):
    """Register after one message bit. A reflected register holds x^0 in its top bit."""
    width, polynomial = algorithm.width, algorithm.polynomial
    if algorithm.reflect:
        polynomial = int(f"{polynomial:0{width}b}"[::-1], 2)
        return (state >> 1) ^ (polynomial if (state ^ bit) & 1 else 0)
    top = (state >> (width - 1)) ^ bit
    return ((state << 1) & ((1 << width) - 1)) ^ (polynomial if top else 0)


def _transpose(columns, rows):
    """Masks of rows (bit ``c`` of row ``r``) from columns (bit ``r`` of column ``c``)."""
    return tuple(sum(((column >> r) & 1) << c for c, column in enumerate(columns))
                 for r in range(rows))


@cache
def data_matrix(algorithm, count):
    """Contribution of ``count`` bytes of message to a register that was zero before them.

    Returns one mask per register bit: the message bits, byte 0 in bits 7:0, whose XOR it is.
    """
    # Backwards from the last message bit: the register after a one there, then one bit earlier, ...
    columns = [0] * (8 * count)
    state = _step(algorithm, 0, 1)
    for byte in reversed(range(count)):
        for n in (reversed(range(8)) if algorithm.reflect else range(8)):
            columns[8 * byte + n] = state
            state = _step(algorithm, state, 0)
    return _transpose(columns, algorithm.width)


@cache
def state_matrix(algorithm, count):
    """The register after ``count`` bytes of zeros; masks as in :func:`data_matrix`."""
    columns = []
    for n in range(algorithm.width):
        state = 1 << n
        for _ in range(8 * count):
            state = _step(algorithm, state, 0)
        columns.append(state)
    return _transpose(columns, algorithm.width)


def xor_tree(m, value, masks):
    """Parities of ``value`` under each mask, as a signal; Yosys makes a balanced tree of each.

    The form is chosen for simulators. ``value`` becomes a signal in ``m``, since an
    expression would be written out, and evaluated, once for each mask; and the bits that count
    are named, since a constant mask reaches Verilog as one assignment per bit.
    """
    operand, parities = Signal(len(value)), Signal(len(masks))
    m.d.comb += [
        operand.eq(value),
        parities.eq(Cat(Cat(operand[n] for n in range(len(operand)) if mask >> n & 1).xor()
                        for mask in masks)),
    ]
    return parities


def _initial(algorithm):
    """The initial value as a register value."""
    if algorithm.reflect:
        return int(f"{algorithm.initial:0{algorithm.width}b}"[::-1], 2)
    return algorithm.initial


def _final(algorithm, value):
    """The CRC as a number, from a register value (of either kind: no bit moves)."""
    return value ^ algorithm.final_xor


def _absorbed(algorithm, message, register):
    """``message`` with the register in its first bits, which count alike: it begins with zeros
    then."""
    if not algorithm.reflect:
        register = Cat(register[n:n + 8] for n in reversed(range(0, algorithm.width, 8)))
    return message ^ register


class CrcStream(wiring.Component):
    """CRC of each packet of a sequence of beats.

    One beat per cycle, with packets back to back or any gaps. The CRC of a packet is valid
    :attr:`latency` cycles (with ``enable``) after the cycle that took its last beat: two cycles at
    32 and 64 bits, three above.

    At 32 and 64 bits the dwords of a beat are added one after the other. Above, the wide tree is a
    pipeline stage, and the only loop is that of the register, one 32 x 32 matrix.

    Parameters
    ----------
    width : int
        Bits per beat; one of :data:`dxpu.stream.WIDTHS`.
    algorithm : :class:`Algorithm`
        Default :data:`CRC32C`.

    Members
    -------
    enable : in
        Clock enable of all registers.
    valid, data, dwords, last : in
        A beat, taken in each cycle with ``valid`` and ``enable``. ``dwords`` is ``width // 32``
        in all beats but the last, as in :class:`dxpu.stream.PacketLayout`. The beat after a last
        one is the first of the next packet.
    crc_valid, crc : out
        CRC of a packet; ``crc_valid`` is 1 for one cycle with ``enable`` per packet.
    resume : in
        With ``crc_valid``: the next packet continues this one, so its CRC will be that of both. No
        beat may be in the pipeline; one may be taken in the same cycle.
    """

    def __init__(self, width, *, algorithm=CRC32C):
        self._lanes = check_width(width) // 32
        self._algorithm = algorithm
        super().__init__({
            "enable": In(1, init=1),
            "valid": In(1),
            "data": In(width),
            "dwords": In(range(self._lanes + 1)),
            "last": In(1),
            "resume": In(1),
            "crc_valid": Out(1),
            "crc": Out(algorithm.width),
        })

    #: Width to cycles from a last beat to its ``crc_valid``.
    LATENCY = {32: 2, 64: 2, 128: 3, 256: 3, 512: 3}

    @property
    def latency(self):
        """That of this width."""
        return self.LATENCY[32 * self._lanes]

    def elaborate(self, platform):
        m = Module()
        (self._narrow if self._lanes <= 2 else self._wide)(m)
        return m

    def _narrow(self, m):
        """One or two lanes: dword by dword. The register goes through the same gates as the first
        bits of a dword."""
        algorithm = self._algorithm
        valid, last, dwords, data = self._stage(m, "held", self.valid, self.last, self.dwords,
                                                self.data)
        state = Signal(algorithm.width, init=_initial(algorithm))
        begins = Signal(init=1)
        # The initial value is all ones: a gate less than a choice.
        assert state.init == (1 << len(state)) - 1
        register = state | begins.replicate(len(state))
        for n in range(self._lanes):
            dword = data.word_select(n, 32)
            after = xor_tree(m, _absorbed(algorithm, dword, register),
                             data_matrix(algorithm, 4))
            register = after if n == 0 else Mux(dwords[1], after, register)
        with m.If(self.enable):
            m.d.sync += self.crc_valid.eq(valid & last)
            with m.If(valid):
                m.d.sync += [state.eq(register), begins.eq(last)]
            with m.If(self.resume):
                m.d.sync += begins.eq(0)
        m.d.comb += self.crc.eq(_final(algorithm, state))

    def _wide(self, m):
        """Any number of lanes: the beat's own contribution is made beside the register."""
        algorithm, lanes = self._algorithm, self._lanes
        steps = (lanes - 1).bit_length()  # conditional matrices; `lanes` itself is a step too

        # Align: the valid dwords to the end of the beat.
        missing = Signal(range(lanes))
        aligned = self.data
        m.d.comb += missing.eq(lanes - self.dwords)
        # Lanes past the valid dwords fall off the top; zeros come in at the bottom.
        for n in range(steps):
            aligned = Mux(missing[n], (aligned << (32 << n))[:32 * lanes], aligned)
        valid, last, dwords = self.valid, self.last, self.dwords
        valid, last, dwords, aligned = self._stage(m, "aligned", valid, last, dwords, aligned)

        # Reduce: the beat's own contribution.
        own = xor_tree(m, aligned, data_matrix(algorithm, 4 * lanes))
        valid, last, dwords, own = self._stage(m, "own", valid, last, dwords, own)

        # Accumulate: the only loop.
        initial = _initial(algorithm)
        state = Signal(algorithm.width, init=initial)
        full = xor_tree(m, state, state_matrix(algorithm, 4 * lanes))
        with m.If(self.enable & valid):
            m.d.sync += state.eq(Mux(last, initial, full ^ own))
        with m.If(self.enable & self.resume):
            m.d.sync += state.eq(self.crc ^ algorithm.final_xor)

        # Advance: the state by as many dwords as are valid.
        value = state
        for n in range(0, steps, 2):
            value = self._advance(m, value, dwords[n:min(n + 2, steps)], 4 << n)
        value = Mux(dwords[steps], full, value)
        with m.If(self.enable):
            m.d.sync += [
                self.crc.eq(_final(algorithm, value ^ own)),
                self.crc_valid.eq(valid & last),
            ]

    def _advance(self, m, value, count, unit):
        """``value`` after ``count`` times ``unit`` bytes of zeros: a choice of all results, which
        are made side by side."""
        results = [value, *(xor_tree(m, value, state_matrix(self._algorithm, n * unit))
                            for n in range(1, 1 << len(count)))]
        return Array(results)[count]

    def _stage(self, m, name, valid, *values):
        """Registers for ``valid`` and what it qualifies; only ``valid`` has a reset."""
        registers = []
        for n, value in enumerate((valid, *values)):
            value = Value.cast(value)
            register = Signal(len(value), name=f"{name}_{n}", reset_less=n > 0)
            with m.If(self.enable):
                m.d.sync += register.eq(value)
            registers.append(register)
        return registers
