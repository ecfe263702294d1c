"""Checks the CRC-32C of records and bodies."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.crc import CRC32C, data_matrix, state_matrix, xor_tree
from dxpu.stream import check_width

from .types import Piece

__all__ = ["RecordCheck"]


class RecordCheck(wiring.Component):
    """Checks the CRC-32C that ends each record (with its binding word) and each body.

    In a DATA frame the CRC runs on from the TLP's part before: the register starts at ``resume``.
    Lanes before it are zero, and while the register is zero they leave it zero.

    The register runs on over the CRC itself and over the zeros that fill its last piece, so the
    data path knows whole pieces only. Instead of undoing that, the value that a right record leaves
    is computed: right after the CRC it is ``A(~binding)``, where ``A`` is what 32 zero bits do to
    the register, and each lane of zeros is one ``A`` more. That way has no loop and is pipelined.

    One piece per cycle; ``done`` is :attr:`latency` cycles after ``eof``: 3 at widths to 128, 4 at
    others.

    Parameters
    ----------
    width : int
        Data bits of a piece.
    split : bool
        There are DATA frames.

    Members
    -------
    piece : :class:`~.types.Piece`
    resume : 32
        Register behind the part before, while the first piece of a DATA frame is there.
    done : 1
        Pulse: the frame that ended is checked.
    bad_record, bad_body : 1
        Valid with ``done`` and until the next frame's first end of a record: a CRC was wrong.
    """

    def __init__(self, width, *, split=False):
        self._lanes = check_width(width) // 32
        self._split = split
        super().__init__({
            "piece": In(Piece(width)),
            "resume": In(32),
            "done": Out(1),
            "bad_record": Out(1),
            "bad_body": Out(1),
        })

    @property
    def latency(self):
        """Cycles from ``eof`` to ``done``."""
        return 3 if self._lanes <= 4 else 4

    def elaborate(self, platform):
        m = Module()
        lanes, piece = self._lanes, self.piece
        steps = (lanes - 1).bit_length()
        message = piece.data ^ piece.first.replicate(32)
        if self._split:
            own = piece.data if lanes == 1 else Cat(Const(0, 32), piece.data[32:])
            message = Mux(piece.first & piece.resume,
                          own ^ (self.resume << (0 if lanes == 1 else 32)), message)

        # First stage: what the piece adds, and the value after its CRC.
        own, wanted = Signal(32, reset_less=True), Signal(32, reset_less=True)
        zeros = Signal(range(lanes), reset_less=True)
        control = Cat(piece.valid, piece.first, piece.end, piece.record, piece.eof)
        marks = Signal.like(control)
        m.d.sync += [
            own.eq(xor_tree(m, message[:32 * lanes], data_matrix(CRC32C, 4 * lanes))),
            wanted.eq(xor_tree(m, ~piece.binding, state_matrix(CRC32C, 4))),
            zeros.eq(lanes - piece.dwords),
            marks.eq(control),
        ]

        # Second stage: the register, and up to three lanes of zeros for the wanted value.
        valid, first, *_ = marks
        state = Signal(32, reset_less=True)
        with m.If(valid):
            m.d.sync += state.eq(
                own ^ Mux(first, 0, xor_tree(m, state, state_matrix(CRC32C, 4 * lanes))))
        wanted, zeros, marks = self._register(
            m, "second", self._advance(m, wanted, zeros, range(min(2, steps))), zeros, marks)
        value = state
        if steps > 2:
            value, wanted, marks = self._register(
                m, "third", state, self._advance(m, wanted, zeros, range(2, steps)), marks)

        # Last stage: compare, and remember for the frame.
        valid, _, end, record, eof = marks
        fresh = Signal(init=1)                  # nothing of this frame was remembered
        bad = valid & end & (value != wanted)
        m.d.sync += self.done.eq(eof)
        with m.If(valid | eof):
            m.d.sync += [
                fresh.eq(eof),
                self.bad_record.eq((self.bad_record & ~fresh) | (bad & record)),
                self.bad_body.eq((self.bad_body & ~fresh) | (bad & ~record)),
            ]
        return m

    def _advance(self, m, value, zeros, steps):
        for n in steps:
            value = Mux(zeros[n], xor_tree(m, value, state_matrix(CRC32C, 4 << n)), value)
        return value

    def _register(self, m, name, *values):
        registers = []
        for n, value in enumerate(values):
            value = Value.cast(value)
            register = Signal(len(value), name=f"{name}_{n}", reset_less=n < len(values) - 1)
            m.d.sync += register.eq(value)
            registers.append(register)
        return registers
