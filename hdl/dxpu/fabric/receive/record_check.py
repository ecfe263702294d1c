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

    What the CRC-32C must be is known but for the register: its complement, and the binding word. So
    the register itself is the CRC with both in it, and the complement of the binding word, added to
    the CRC where that comes by, makes the register zero behind a right one. Zeros that fill the
    last piece leave it so. The data path knows whole pieces only.

    One piece per cycle; ``done`` is :attr:`latency` cycles after ``eof``: 3.

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

    #: Cycles from ``eof`` to ``done``.
    latency = 3

    def elaborate(self, platform):
        m = Module()
        lanes, piece = self._lanes, self.piece
        words = [piece.data.word_select(n, 32) for n in range(lanes)]
        words[0] ^= piece.first.replicate(32)
        if self._split:
            resumes, at = piece.first & piece.resume, min(1, lanes - 1)
            words[0] = Mux(resumes, piece.data[:32] if lanes == 1 else 0, words[0])
            words[at] ^= self.resume & resumes.replicate(32)
        for n in range(lanes):
            closes = (piece.end & (piece.dwords == n + 1)).replicate(32)
            words[n] ^= ~piece.binding & closes

        # First stage: what the piece adds behind its first dword. That goes through the same gates
        # as the register.
        own, begins = Signal(32, reset_less=True), Signal(32, reset_less=True)
        control = Cat(piece.valid, piece.first, piece.end, piece.record, piece.eof)
        marks = Signal.like(control)
        m.d.sync += [begins.eq(words[0]), marks.eq(control)]
        if lanes > 1:
            m.d.sync += own.eq(xor_tree(m, Cat(words[1:]), data_matrix(CRC32C, 4 * (lanes - 1))))

        # Second stage: the register.
        valid, first, *_ = marks
        state = Signal(32, reset_less=True)
        before = begins ^ (state & ~first.replicate(32))
        with m.If(valid):
            m.d.sync += state.eq(own ^ xor_tree(m, before, state_matrix(CRC32C, 4 * lanes)))
        of_state = Signal.like(marks)
        m.d.sync += of_state.eq(marks)

        # Last stage: compare, and remember for the frame.
        valid, _, end, record, eof = of_state
        fresh = Signal(init=1)                  # nothing of this frame was remembered
        bad = valid & end & (state != 0)
        m.d.sync += self.done.eq(eof)
        with m.If(valid | eof):
            m.d.sync += [
                fresh.eq(eof),
                self.bad_record.eq((self.bad_record & ~fresh) | (bad & record)),
                self.bad_body.eq((self.bad_body & ~fresh) | (bad & ~record)),
            ]
        return m
