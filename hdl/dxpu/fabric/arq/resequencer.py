"""Memory for received frames that came ahead of their turn.

Ref: docs/explanation/selective-repeat.md
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dxpu.counted import Counted
from dxpu.priority import encode, lowest_bit
from dxpu.stream import PacketSignature, check_width

from .early import WINDOW

__all__ = ["FramePlace", "Resequencer"]


def FramePlace(sessions, window=WINDOW):
    """Layout: where a frame is kept; ``number`` is its SEQ modulo the window."""
    return data.StructLayout({"number": range(window), "session": range(max(2, sessions))})


class Resequencer(wiring.Component):
    """Stands before the depacketizer; brings frames that came ahead to it again, when it is time.

    Every frame is written while it passes, as far as there is room; nobody knows yet what it is.
    When it has been judged its cells are given back, or kept in ``place``. So there is one place
    where frames are checked, and a frame is kept only after all of it was.

    A frame that is due goes before those that wait at ``i``, at the next end of a frame. It is
    forgotten as it goes, whatever becomes of it. ``i`` waits while it passes; else there is no
    latency. Its first beat comes five cycles after it was asked for.

    The cells form a list, from which they are taken in order; so those of a frame are in the list
    still, one after the other, and a frame of any size is given back in one cycle. One cell always
    stays in the list. A session is forgotten at a frame in two cycles. After reset nothing is kept
    until all places are marked as empty, one per cycle.

    Parameters
    ----------
    width : int
        Data bits per beat.
    sessions : int
    cells, cell : int
        Cells, and beats of a cell; powers of two.
    window : int
        Places of each session; a power of two.

    Members
    -------
    i, o : packet streams
        Frames, as of the :class:`~dxpu.fabric.receive.depacketizer.Depacketizer`.
    judged, bad : 1
        Pulse: the oldest frame that has passed and was not judged is done with; it was dropped.
    keep, place : 1, :func:`FramePlace`
        With ``judged``: it is to be kept. Only with ``room``, and if nothing is kept there.
    room : 1
        That frame, which has passed, was stored whole, and nothing of its session (of ``place``) is
        being forgotten.
    again : 1
        That frame was kept before. Valid as soon as a beat of it has passed.
    due, due_place : 1, :func:`FramePlace`
        The frame there is to come again, until it was judged or is ``settled``.
    settled : ``sessions``
        Strobes: the frame that was due was not there, or was dropped after all.
    forget : ``sessions``
        Strobes: all that is kept of these sessions is given back.
    forgetting : ``sessions``
        That is not done yet.
    stat_stored : 1
        Pulse: a frame is kept.
    """

    #: Frames that can have passed and wait for their judgement.
    PASSED = 2

    def __init__(self, width, *, sessions, cells, cell, window=WINDOW):
        self._width = check_width(width)
        for name, value, least in (("cells", cells, 4), ("cell", cell, 2)):
            if not isinstance(value, int) or value < least or value & (value - 1):
                raise ValueError(f"{name} must be a power of two of at least {least}, "
                                 f"not {value!r}")
        self._sessions, self._cells, self._cell = sessions, cells, cell
        self._window = window
        place = FramePlace(sessions, window)
        super().__init__({
            "i": In(PacketSignature(width)),
            "o": Out(PacketSignature(width)),
            "judged": In(1),
            "bad": In(1),
            "keep": In(1),
            "place": In(place),
            "room": Out(1),
            "again": Out(1),
            "due": In(1),
            "due_place": In(place),
            "settled": Out(sessions),
            "forget": In(sessions),
            "forgetting": Out(sessions, init=~0),
            "stat_stored": Out(Counted(
                "Frames that came ahead of their turn and were kept for it.")),
        })
        number = range(cells)
        self._chain = data.StructLayout({"first": number, "last": number})
        # A frame that has passed: its cells, if it has any, and whether it is in them whole.
        self._frame = data.StructLayout(
            {"chain": self._chain, "some": 1, "whole": 1, "again": 1})
        self._passed = [Signal(self._frame, name=f"passed{n}") for n in range(self.PASSED)]
        self._waiting = Signal(range(self.PASSED + 1))  #: of these
        self._full = Signal()
        self._within = Signal()                         #: a frame of `i` is passing
        self._replaying = Signal()                      #: a kept one is, or will be the next
        self._filling = Signal(init=1)                  #: the list
        self._give, self._given = Signal(), Signal(self._chain)
        self._start = Signal()

    def elaborate(self, platform):
        m = Module()
        beat = data.StructLayout(
            {"data": self._width, "dwords": range(self._width // 32 + 1), "last": 1})
        m.submodules.beats = beats = Memory(
            shape=beat, depth=self._cells * self._cell, init=[])
        m.submodules.links = links = Memory(shape=range(self._cells), depth=self._cells, init=[])
        take, head = self._list(m, links)
        written = self._write(m, beats.write_port(), take, head)
        chain = self._places(m)
        self._read(m, beats.read_port(), links.read_port(domain="comb"), chain)

        # What has passed, oldest first.
        frame, ends = Signal(self._frame), Signal()
        with m.If(self._replaying):
            m.d.comb += [frame.chain.eq(chain), frame.some.eq(1), frame.whole.eq(1),
                         frame.again.eq(1)]
        with m.Else():
            m.d.comb += frame.eq(written)
        m.d.comb += [
            ends.eq(self.o.valid & self.o.ready & self.o.payload.last),
            self._full.eq(self._waiting == self.PASSED),
        ]
        m.d.sync += self._waiting.eq(self._waiting + ends - self.judged)
        for n, (slot, behind) in enumerate(zip(
                self._passed, [*self._passed[1:], frame], strict=True)):
            with m.If(self.judged):
                m.d.sync += slot.eq(behind)
            with m.If(ends & (self._waiting == n + self.judged)):
                m.d.sync += slot.eq(frame)
        return m

    def _list(self, m, links):
        """The list of free cells; returns "take one", and its head."""
        head, tail = Signal(range(self._cells)), Signal(range(self._cells), init=self._cells - 1)
        take, fill = Signal(), Signal(range(self._cells))
        write, read = links.write_port(), links.read_port(domain="comb")
        self._empty = Signal()
        m.d.comb += [
            self._empty.eq((head == tail) | self._filling),
            read.addr.eq(head),
            write.en.eq(self._filling | self._give),
            write.addr.eq(Mux(self._filling, fill, tail)),
            write.data.eq(Mux(self._filling, fill + 1, self._given.first)),
        ]
        with m.If(take):
            m.d.sync += head.eq(read.data)
        with m.If(self._give):
            m.d.sync += tail.eq(self._given.last)
        with m.If(self._filling):
            m.d.sync += [fill.eq(fill + 1), self._filling.eq(fill != self._cells - 1)]
        return take, head

    def _write(self, m, write, take, head):
        """Write each frame that comes while it passes; returns what is known at its end."""
        i, o = self.i, self.o
        place, full = Signal(range(self._cell)), Signal()
        kept, now = Signal(self._frame), Signal(self._frame)
        beat, needs, go = Signal(), Signal(), Signal()
        m.d.comb += [
            go.eq(~self._replaying & (self._within | ~self._full)),
            o.payload.eq(i.payload),
            o.valid.eq(i.valid & go),
            i.ready.eq(o.ready & go),
            beat.eq(i.valid & i.ready),
            needs.eq(beat & (i.payload.first | full & kept.whole)),
            take.eq(needs & ~self._empty),
            now.eq(kept),
        ]
        with m.If(i.payload.first):
            m.d.comb += [now.some.eq(take), now.whole.eq(take), now.chain.first.eq(head)]
        with m.Elif(needs & ~take):
            m.d.comb += now.whole.eq(0)
        with m.If(take):
            m.d.comb += now.chain.last.eq(head)
        where = write.addr[:exact_log2(self._cell)]
        m.d.comb += [
            write.en.eq(beat & now.whole),
            write.addr.eq(Cat(Mux(needs, 0, place)[:exact_log2(self._cell)], now.chain.last)),
            write.data.data.eq(i.payload.data),
            write.data.dwords.eq(i.payload.dwords),
            write.data.last.eq(i.payload.last),
        ]
        with m.If(beat):
            m.d.sync += [kept.eq(now), place.eq(where + 1), full.eq(where == self._cell - 1),
                         self._within.eq(~i.payload.last)]
        self._pause = Signal()  # a kept frame may come now
        m.d.comb += self._pause.eq(Mux(beat, i.payload.last, ~self._within & ~i.valid))
        return now

    def _places(self, m):
        """What is kept where, and what becomes of frames that were judged; returns the chain that
        was looked up."""
        entry = data.StructLayout({"valid": 1, "chain": self._chain})
        bits = (self._sessions - 1).bit_length()
        depth = self._window << bits
        m.submodules.places = places = Memory(shape=entry, depth=depth, init=[])
        write, read = places.write_port(), places.read_port()
        front, keeps, scan = self._passed[0], Signal(), Signal(range(depth))
        turn, session = Signal(self._sessions), Signal(range(self._sessions))
        chain = Signal(self._chain)
        asked = Signal()               # a kept frame was asked for, and is not judged yet
        gone, missing = Signal(), Signal()
        m.d.comb += [
            self.again.eq(Mux(self._waiting != 0, front.again, self._replaying)),
            self.room.eq(front.whole & ~self.forgetting.bit_select(self.place.session, 1)),
            keeps.eq(self.judged & self.keep),
            self.stat_stored.eq(keeps),
            self._given.eq(front.chain),
            self._give.eq(self.judged & ~self.keep & front.some),
            write.data.valid.eq(keeps),
            write.data.chain.eq(front.chain),
            write.addr.eq(Mux(keeps, self.place.as_value(), scan)),
            write.en.eq(keeps),
            read.addr.eq(scan),
            gone.eq(self.judged & front.again),
            self.settled.eq(Mux(missing | gone & self.bad, 1 << session, 0)),
        ]
        m.d.sync += self.forgetting.eq(self.forgetting | self.forget)
        with m.If(gone | missing):
            m.d.sync += asked.eq(0)
        with m.FSM(name="places"):
            with m.State("Wipe"):
                with m.If(~keeps):
                    m.d.comb += write.en.eq(1)
                    m.d.sync += scan.eq(scan + 1)
                    with m.If(scan == depth - 1):
                        m.d.sync += self.forgetting.eq(0)
                        m.next = "Idle"
            with m.State("Idle"):
                oldest = lowest_bit(self.forgetting)
                m.d.sync += turn.eq(oldest)
                with m.If(self.forgetting.any()):
                    m.d.sync += scan.eq(encode(oldest) << exact_log2(self._window))
                    m.next = "Look"
                with m.Elif(self.due & ~asked & self._pause):
                    m.d.sync += [self._replaying.eq(1), asked.eq(1), scan.eq(self.due_place),
                                 session.eq(self.due_place.session)]
                    m.next = "Find"
            with m.State("Find"):
                m.next = "Start"
            with m.State("Start"):
                # What was there is gone from now on; without it there is nothing to bring.
                with m.If(~self.judged & ~self._full):
                    m.d.sync += chain.eq(read.data.chain)
                    with m.If(read.data.valid & ~self.forgetting.bit_select(session, 1)):
                        m.d.comb += [write.en.eq(1), self._start.eq(1)]
                    with m.Else():
                        m.d.comb += missing.eq(1)
                        m.d.sync += self._replaying.eq(0)
                    m.next = "Idle"
            with m.State("Look"):
                m.next = "Give"
            with m.State("Give"):
                with m.If(~self.judged):
                    m.d.comb += [write.en.eq(1), self._give.eq(read.data.valid),
                                 self._given.eq(read.data.chain)]
                    m.d.sync += scan.eq(scan + 1)
                    m.next = "Look"
                    with m.If(scan[:exact_log2(self._window)] == self._window - 1):
                        m.d.sync += self.forgetting.eq(self.forgetting & ~turn | self.forget)
                        m.next = "Idle"
        return chain

    def _read(self, m, read, link, chain):
        """Bring the frame in ``chain``."""
        o = self.o
        current, place = Signal(range(self._cells)), Signal(range(self._cell))
        active, have, first = Signal(), Signal(), Signal()
        begins = Signal()
        m.d.sync += begins.eq(self._start)
        m.d.comb += [
            link.addr.eq(current),
            read.addr.eq(Cat(place, current)),
            read.en.eq(active & (~have | o.ready & ~read.data.last)),
        ]
        with m.If(begins):
            m.d.sync += [current.eq(chain.first), place.eq(0), active.eq(1), first.eq(1)]
        with m.If(self._replaying):
            m.d.comb += [
                o.valid.eq(have),
                o.payload.data.eq(read.data.data),
                o.payload.dwords.eq(read.data.dwords),
                o.payload.first.eq(first),
                o.payload.last.eq(read.data.last),
                o.payload.discard.eq(0),
            ]
            with m.If(have & o.ready):
                m.d.sync += [have.eq(0), first.eq(0)]
                with m.If(read.data.last):
                    m.d.sync += [active.eq(0), self._replaying.eq(0)]
        with m.If(read.en):
            m.d.sync += [have.eq(1), place.eq(place + 1)]
            with m.If(place == self._cell - 1):
                m.d.sync += current.eq(link.data)
        return m
