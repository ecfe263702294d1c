"""Walks over the dwords of received frames and takes them apart.

Ref: docs/reference/wire-format.md, "TLP records", "HDR and DATA"; PCIe Base 5.0, 2.2.1
"""

from itertools import groupby

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.fabric.wire.format import MIN_FRAME_BYTES, SACK_WORD_BYTES
from dxpu.fabric.wire.frame_fields import any_of, header_field, natural
from dxpu.fabric.wire.frame_types import Body, End, types_with
from dxpu.priority import encode, one_hot_mux
from dxpu.stream import check_width

from .types import DATA_DWORDS, PartSize, Piece, Verdicts

__all__ = ["FrameWalker"]

#: Dwords of the fixed header, and with the credit extension.
_PLAIN, _EXTENDED = 8, 10
#: Dwords of a SACK without words; where their number is, and the dwords of one.
_SACK, _SACK_COUNT, _SACK_WORD = Body.SACK.dwords, Body.SACK.find("count")[0] // 4, (
    SACK_WORD_BYTES // 4)
#: Of HELLO: where in a dword its security mode is, and which one; what a keyed one has more.
_MODE, _MODE_BYTE = divmod(Body.HELLO.find("security mode")[0], 4)
_KEYED = Body.KEYED.dwords - Body.HELLO.dwords


def _bodies_of_known_size(keyed):
    """Yields groups of types and the dwords of their bodies, CRC included. A SACK counts without
    its words, a HELLO as one without a key: the walk finds out on the way. Bodies of the same
    length are one group."""
    known = (body for body in Body if body.end in (End.FIXED, End.WORDS, End.KEYED)
             and (keyed or body is not Body.KEYED))
    for (_, dwords), alike in groupby(known, lambda body: (body.end, body.dwords)):
        yield types_with(*alike), dwords


class FrameWalker(wiring.Component):
    """Takes the header off each frame, and cuts the rest into records.

    In each cycle the walk moves over the header, or one piece of one record or body, or padding, by
    up to ``width // 32`` dwords. It follows the frame's own lengths, whatever they say, and never
    leaves the frame: a frame that ends too early ends the walk.

    Parameters
    ----------
    width : int
        Data bits per beat.
    split : bool
        HDR and DATA frames are walked over too; else skipped.
    keyed : bool
        So is HELLO_DONE.

    Members
    -------
    data, have, ended, discard, enough, take, clear
        To a :class:`~.frame_window.FrameWindow`.
    header : 320
        The first 40 bytes of the frame (MAC addresses missing), from ``header_valid`` to
        ``header_taken``. Only then the next frame's header comes in.
    piece : :class:`~.types.Piece`
        Registered. There is no back-pressure.
    room : in
        There is space to store one more piece after ``piece``; else the walk waits.
    hopeless : in
        There will be no space: the frame is the only one in memory. Without ``room``, the frame is
        marked (``overflow``) and walked to its end.
    result : :class:`~.types.Verdicts`
        Of the frame whose ``eof`` came last; holds until ``judged``.
    judged : in
        The frame is done with. The next ``eof``, and the next body, HDR and DATA, wait for it.
    resumable : in
        The TLP that a DATA frame continues is known with the next ``piece``; the frame waits.
    part : :class:`~.types.PartSize`
        Of the HDR or DATA frame, from its ``eof`` to ``judged``.
    """

    def __init__(self, width, *, split=False, keyed=False):
        self._split, self._keyed = split, keyed
        self._lanes = lanes = check_width(width) // 32
        #: Dwords that are left of a SACK without words when their number is in the window; of a
        #: HELLO without a key when its security mode is.
        self._behind = _SACK - _SACK_COUNT // lanes * lanes
        self._behind_mode = Body.HELLO.dwords - _MODE // lanes * lanes
        self._piece = Piece(width)
        super().__init__({
            "data": In(width),
            "have": In(range(2 * lanes + 1)),
            "ended": In(1),
            "discard": In(1),
            "enough": In(1),
            "take": Out(range(lanes + 1)),
            "clear": Out(1),
            "header": Out(320),
            "header_valid": Out(1),
            "header_taken": In(1),
            "piece": Out(self._piece),
            "room": In(1),
            "hopeless": In(1),
            "result": Out(Verdicts),
            "judged": In(1),
            "resumable": In(1),
            "part": Out(PartSize),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self._lanes
        self._flags = Signal(Verdicts)                       # of this frame before this cycle
        self._found = Signal(Verdicts)                       # in this cycle
        self._pending = Signal()                             # a frame waits for its judge
        self._eof = Signal()
        self._missing = Signal(range(16), init=MIN_FRAME_BYTES // 4)  # dwords left to 60 bytes
        self._records = Signal(5)                            # records to come, this one included
        self._shared = Signal()                              # the frame has more than one
        self._body = Signal()                                # no record
        # Not to be stored; waits for its judge. Both go for bodies of fixed size.
        self._plain, self._hold = Signal(), Signal()
        self._taken = Signal()                               # a piece, in this cycle
        # A SACK whose number of words is to come; a HELLO whose security mode is.
        self._sack, self._hello = Signal(), Signal()
        self._part = Signal()                                # HDR or DATA
        self._remaining = Signal(12)                         # dwords of this record to come
        self._more = Signal()                                # more than fit in a piece
        # That is in `data`.
        self._counts, self._modes = Signal(), Signal()
        self._odd = Signal()                                 # lane 0 of `data` was used already
        self._first = Signal(init=1)                         # a record starts at lane 0
        self._parity = Signal()                              # of the dwords of this record

        m.d.sync += [self.piece.valid.eq(0), self.piece.eof.eq(0), self.piece.write.eq(0)]
        with m.FSM(name="walk") as self._walk:
            with m.State("Header"):
                self._walk_header(m)
            with m.State("Head"):
                self._walk_head(m)
            with m.State("Body"):
                self._walk_body(m)
            if self._split:
                with m.State("Place"):
                    self._walk_place(m)
            if lanes == 1:
                with m.State("Pad"):
                    self._walk_pad(m)
            with m.State("Rest"):
                self._walk_rest(m)
            with m.State("Skip"):
                with m.If(self.enough & ~(self.ended & self._pending)):
                    m.d.comb += self.take.eq(lanes)
                    with m.If(self.ended):
                        self._end(m)

        with m.If(self.header_taken):
            m.d.sync += self.header_valid.eq(0)
        with m.If(self.judged):
            m.d.sync += self._pending.eq(0)
        m.d.sync += [
            self._missing.eq(Mux(self.take < self._missing, self._missing - self.take, 0)),
            self._flags.eq(self._flags.as_value() | self._found.as_value()),
        ]
        # A cycle later: that the frame ends is known late.
        m.d.sync += self.clear.eq(self._eof)
        with m.If(self._eof):
            m.d.comb += [
                self._found.taken_back.eq(self.discard),
                self._found.runt.eq(self.have < self._missing),
            ]
            m.d.sync += [
                self.piece.eof.eq(1),
                self.result.eq(self._flags.as_value() | self._found.as_value()),
                self._pending.eq(1),
                self._missing.eq(self._missing.init),
                self._flags.eq(0),
                self._first.eq(1),
            ]
        return m

    def _end(self, m):
        m.d.comb += self._eof.eq(1)
        m.next = "Header"

    def _walk_header(self, m):
        lanes = self._lanes
        self._step = step = Signal(range(-(-_EXTENDED // lanes)))
        # Version, type and count are in dword 3: in the window now, or stored some steps ago.
        word = self.header.word_select(3, 32)
        if (3 // lanes + 1) * lanes >= _PLAIN:  # the step that has them may be the last
            word = Mux(step == 3 // lanes, self.data.word_select(3 % lanes, 32), word)
        start = Cat(Const(0, 96), word)
        left, used = Signal(range(_EXTENDED + 1)), Signal(range(lanes + 1))
        short = self.ended & (self.have < used)
        m.d.comb += [
            left.eq(Mux(header_field(start, "CRX"), _EXTENDED, _PLAIN) - step * lanes),
            used.eq(lanes if lanes <= 2 else Mux(left < lanes, left, lanes)),
        ]
        with m.If(self.enough & ~self.header_valid & ~(short & self._pending)):
            m.d.sync += step.eq(step + 1)
            for n in range(3, _EXTENDED):
                with m.If(step == n // lanes):
                    m.d.sync += self.header.word_select(n, 32).eq(
                        self.data.word_select(n % lanes, 32))
            m.d.comb += self.take.eq(used)      # of no effect if the frame ends
            with m.If(short):                   # without EtherType nobody is asked about it
                m.d.sync += [step.eq(0), self.header_valid.eq(1),
                             self.header.word_select(3, 32).eq(0)]
                self._end(m)
            with m.Elif(left <= lanes):
                m.d.sync += [step.eq(0), self.header_valid.eq(1)]
                self._choose_body(m, header_field(start, "type"), header_field(start, "count"))

    def _choose_body(self, m, kind, count):
        m.d.sync += [
            self._records.eq(1), self._shared.eq(0), self._parity.eq(0),
            self._body.eq(1), self._plain.eq(1), self._hold.eq(1), self._part.eq(0),
            self._sack.eq(any_of(kind, types_with(Body.SACK))),
            self._hello.eq(any_of(kind, types_with(Body.HELLO))),
        ]
        with m.If(any_of(kind, types_with(Body.RECORDS)) & (count != 0)):
            m.d.sync += [self._records.eq(count), self._shared.eq(count > 1), self._body.eq(0),
                         self._plain.eq(0), self._hold.eq(0)]
            m.next = "Head"
        for types, dwords in _bodies_of_known_size(self._keyed):
            with m.Elif(any_of(kind, types)):
                m.d.sync += [
                    self._remaining.eq(dwords), self._more.eq(dwords > self._lanes),
                    self._counts.eq(types == types_with(Body.SACK) and dwords == self._behind),
                    self._modes.eq(types == types_with(Body.HELLO)
                                   and dwords == self._behind_mode),
                ]
                m.next = "Body"
        if self._split:
            with m.Elif(any_of(kind, types_with(Body.HEADER))):
                m.d.sync += [self._plain.eq(0), self._part.eq(1)]
                m.next = "Head"
            with m.Elif(any_of(kind, types_with(Body.DATA))):
                m.d.sync += [self._body.eq(0), self._plain.eq(0), self._part.eq(1)]
                m.next = "Place"
        with m.Else():
            m.next = "Skip"

    def _walk_body(self, m):
        """What is left of a record or body; a SACK tells on the way if it has a word, a HELLO if it
        has a key."""
        lanes = self._lanes
        number = natural(self.data.word_select(_SACK_COUNT % lanes, 32), 0, 2)
        mode = self.data.word_select(_MODE % lanes, 32).word_select(_MODE_BYTE, 8)
        longer, keyed, need = Signal(), Signal(), Signal.like(self._remaining)
        with_word, with_key = self._behind + _SACK_WORD, self._behind_mode + _KEYED
        m.d.comb += [
            # Of a number above 1, which is wrong in any case, all that matters is that it is one.
            longer.eq(self._counts & number[0]),
            keyed.eq(self._modes & (mode != 0)),
            need.eq(Mux(keyed, with_key, Mux(longer, with_word, self._remaining))),
        ]
        with m.If(self._taken & self._counts):
            m.d.sync += self._sack.eq(0)
        with m.If(self._taken & self._modes):
            m.d.sync += self._hello.eq(0)
        self._walk_record(
            m, need,
            more=Mux(keyed, with_key > lanes, Mux(longer, with_word > lanes, self._more)),
            follows=Mux(keyed, with_key > 2 * lanes,
                        Mux(longer, with_word > 2 * lanes, self._remaining > 2 * lanes)))

    def _walk_head(self, m):
        """A record, or a TLP header after prefixes that filled the last piece."""
        lanes = self._lanes
        words = [self.data.word_select(n, 32) for n in range(lanes)]
        prefix = Cat(word[5:8] == 4 for word in words)
        head = Signal(lanes)                    # one-hot: the first dword that is no prefix
        m.d.comb += head.eq(Cat(~prefix[n] & prefix[:n].all() if n else ~prefix[0]
                                for n in range(lanes)))
        word, before, size = Signal(32), Signal(range(lanes + 1)), Signal(12)
        tail = Signal(11)
        length = Cat(word[24:32], word[16:18])
        m.d.comb += [
            word.eq(one_hot_mux(head, words)),
            before.eq(encode(head)),
            # Prefixes, header, digest, CRC-32C; then the payload. HDR has no digest nor payload.
            size.eq((before + 4 + word[5] + (word[23] & ~self._part))
                    + Mux(word[6] & ~self._part, Cat(length, length == 0), 0)),
            tail.eq(Mux(word[6], Cat(length, length == 0), 0) + word[23]),
        ]
        with m.If(word[7]):                     # reserved Fmt: no length follows
            m.d.comb += self._found.length.eq(1)
            m.next = "Skip"
        with m.Else():
            if lanes <= 2:
                # A record has at least four dwords: a narrow piece never ends it, and the length,
                # which is late, decides nothing in this cycle.
                follows = 1 if lanes == 1 else (
                    (before != 0) | word[5] | (word[6] | word[23]) & ~self._part)
                self._walk_record(m, size, unknown=prefix.all(), long=True, follows=follows,
                                  tail=tail)
            else:
                self._walk_record(m, size, unknown=prefix.all(),
                                  more=prefix.all() | (size > lanes), tail=tail)

    def _walk_place(self, m):
        """Offset and length of DATA."""
        lanes, place = self._lanes, self.data[:32]
        offset, length = natural(place, 0, 2), natural(place, 2, 2)
        with m.If(self.enough & ~self._pending & self.resumable):
            m.d.sync += [self.part.offset.eq(offset[2:]), self.part.length.eq(length[2:])]
            with m.If(Cat(offset[:2], length[:2]).any() | (length == 0)
                      | (length[2:] > DATA_DWORDS)):
                m.d.comb += self._found.length.eq(1)
                m.next = "Skip"
            with m.Elif(Const(lanes == 1)):
                m.d.comb += self.take.eq(~self.ended | (self.have != 0))
                m.d.sync += [self._remaining.eq(length[2:] + 1), self._more.eq(1)]
                m.next = "Body"
            with m.Else():
                self._walk_record(m, length[2:] + 2, more=length[2:] + 2 > lanes)

    def _walk_record(self, m, need, *, more=Const(1), follows=None, unknown=Const(0), long=False,
                     tail=None):
        """One piece of a record of which ``need`` dwords are left, or ``unknown`` many.

        ``more`` says whether these are more than fit in the piece, ``follows`` the same of the next
        piece. If it is ``long``, there are at least two more dwords than fit in the piece. ``tail``
        dwords of the TLP are not in this frame (of HDR only).
        """
        lanes = self._lanes
        used, rest, move = Signal(range(lanes + 1)), Signal(12), Signal(range(lanes + 1))
        end, short, full = Signal(), Signal(), Signal()
        parity = Signal()
        m.d.comb += [
            end.eq(~Value.cast(more)),
            used.eq(Mux(more, lanes, need)),
            rest.eq(need - used),
            parity.eq(self._parity ^ used[0]),
            # Up to the next even position if records are padded, else down to it.
            move.eq(used if lanes == 1 else Mux(self._shared, used + used[0], used & ~1)),
            short.eq(self.ended & (self.have < Mux(self._shared & end, move, used))),
            full.eq(~self._plain & ~self.room & ~self._flags.overflow),
        ]
        pad = self.data.word_select(used, 32) if lanes > 1 else Const(0, 32)

        with m.If(self.enough & full & self.hopeless):
            m.d.comb += self._found.overflow.eq(1)
        with m.If(self.enough & ~full & ~(self._pending & (self.ended | self._hold))):
            m.d.comb += self._taken.eq(1)
            m.d.sync += [
                self.piece.valid.eq(1),
                self.piece.data.eq(Cat(Mux(used > n, self.data.word_select(n, 32), 0)
                                       for n in range(lanes))),
                self.piece.dwords.eq(used),
                self.piece.first.eq(self._first),
                self.piece.end.eq(end),
                self.piece.binding.eq(Mux(self._body, 0, Cat(
                    header_field(self.header, "SEQ")[:16],
                    header_field(self.header, "session tag")))),
                self.piece.record.eq(~self._body),
                self.piece.part.eq(self._part),
                self.piece.resume.eq(self._part & ~self._body),
                self.piece.write.eq(~self._plain & ~(end & (used == 1)) & ~self._flags.overflow),
                self.piece.last.eq(0 if long else ~unknown & (rest <= 1)),
                self._remaining.eq(rest),
                self._more.eq(rest > lanes if follows is None else follows),
                self._counts.eq(self._sack & ~self._counts & (need == self._behind + lanes)),
                self._modes.eq(self._hello & ~self._modes & (need == self._behind_mode + lanes)),
                self._first.eq(end),
                self._parity.eq(parity),
            ]
            if self._split:
                with m.If(self._part & self._body):
                    count = Signal(12)
                    m.d.comb += count.eq(Mux(self._first, 0, self.part.header[:-1]) + used - end)
                    m.d.sync += self.part.header.eq(
                        count | (self.part.header & Mux(self._first, 0, 0x800)))
                    if tail is not None:
                        m.d.sync += self.part.data.eq(tail)
            # Of no effect if the frame ends.
            m.d.comb += self.take.eq(Mux(end, move, used))
            with m.If(short):
                self._cut(m)
            with m.Elif(~end):
                with m.If(unknown):
                    m.next = "Head"
                with m.Else():
                    m.next = "Body"
            with m.Else():
                if lanes > 1:
                    with m.If(self._shared & used[0] & pad.any()):
                        m.d.comb += self._found.padding.eq(1)
                    self._next_record(m, Mux(self._shared, move, used), odd=~self._shared & used[0])
                else:
                    with m.If(self._shared & parity):
                        m.next = "Pad"
                    with m.Else():
                        self._next_record(m, used)

    def _walk_pad(self, m):
        """The padding dword after a record (with one lane only)."""
        with m.If(self.enough & ~(self.ended & self._pending)):
            with m.If(self.data.any()):
                m.d.comb += self._found.padding.eq(1)
            m.d.comb += self.take.eq(1)
            with m.If(self.ended & (self.have == 0)):
                self._cut(m)
            with m.Else():
                self._next_record(m, 1)

    def _next_record(self, m, used, *, odd=0):
        """A record ended after ``used`` dwords of the window."""
        m.d.sync += [self._records.eq(self._records - 1), self._parity.eq(0), self._odd.eq(odd)]
        with m.If(self._records != 1):
            m.next = "Head"
        with m.Elif(self.ended & (self.have == used)):
            self._end(m)
        with m.Else():
            m.next = "Rest"

    def _cut(self, m):
        """The frame ends inside a record."""
        m.d.comb += self._found.length.eq(1)
        self._end(m)

    def _walk_rest(self, m):
        """Padding to 60 bytes, and whatever else follows."""
        allowed = Mux(self._missing > self._odd, self._missing, self._odd)
        noise = self.data.any() if self._lanes == 1 else (
            (self.data[:32].any() & ~self._odd) | self.data[32:].any())
        with m.If(self.enough & ~(self.ended & self._pending)):
            m.d.sync += self._odd.eq(0)
            with m.If(self.have > allowed):
                m.d.comb += self._found.length.eq(1)
            with m.If(noise):
                m.d.comb += self._found.padding.eq(1)
            m.d.comb += self.take.eq(self._lanes)
            with m.If(self.ended & (self.have <= self._lanes)):  # all of it is in `data`
                self._end(m)
