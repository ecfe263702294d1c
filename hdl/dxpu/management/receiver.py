"""Takes the frames of management out of what comes on all paths."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.counted import Counted
from dxpu.fabric.wire.format import ETHERTYPE, HEADER_BYTES, VERSION
from dxpu.fabric.wire.frame_fields import wire
from dxpu.fabric.wire.frame_types import FrameType
from dxpu.priority import first_one, one_hot_mux
from dxpu.stream import PacketLayout

from .format import BODY_BYTES_MAX
from .store import BANK_WORDS, Bank, WordAddress

__all__ = ["Came", "FrameTap", "ManagementReceiver", "TYPE_WORD"]

#: Dword of a frame with EtherType and type, first byte lowest; flags and count are 0.
_TYPE_AT = 3
TYPE_WORD = wire(ETHERTYPE << 16 | (VERSION << 4 | FrameType.MGMT) << 8, 4)
#: Dwords of the longest frame.
LONGEST = (HEADER_BYTES + BODY_BYTES_MAX) // 4


class Came(data.Struct):
    """A frame in the store: in the second of its banks, its dwords, and its path."""

    second: 1
    dwords: range(BANK_WORDS + 1)
    path: 4


class FrameTap(wiring.Signature):
    """Frames of a path, as somebody else takes them.

    Members
    -------
    valid : 1
        A beat is taken in this cycle.
    beat : :class:`~dxpu.stream.PacketLayout`
    """

    def __init__(self, width):
        super().__init__({"valid": Out(1), "beat": Out(PacketLayout(width))})


class ManagementReceiver(wiring.Component):
    """Copies frames of type MGMT into the store, two at most, and hands them on in order.

    Of frames of other types nothing is kept, nor of those with ``discard``. One that begins while
    another one comes, on any path, or while both banks are full, is dropped and counted, as is one
    that is too long. What a frame says is not looked at.

    A frame is handed on up to five cycles after its last beat. Each path is looked at behind a
    register, so nothing of the unit hangs on the way of the datapath.

    Parameters
    ----------
    width, paths : int

    Members
    -------
    taps : array of :class:`FrameTap`
    put, put_at, put_beat
        To :class:`~.store.WordStore`.
    came : stream of :class:`Came`
        It stays in its bank until it is taken.
    stat_busy, stat_long : 1
        Pulses.
    """

    def __init__(self, width, paths):
        self._width, self._count = width, paths
        super().__init__({
            "taps": In(FrameTap(width)).array(paths),
            "put": Out(1), "put_at": Out(WordAddress), "put_beat": Out(width),
            "came": Out(stream.Signature(Came)),
            "stat_busy": Out(Counted("Frames of management that found no room.")),
            "stat_long": Out(Counted("Frames of management that were too long.")),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self._width // 32
        # Which frame it is is known with this beat; the beats before it are kept until its end.
        known = _TYPE_AT // lanes
        begins, kept = Signal(self._count), []
        # `like`: the word at the place of the type is that of management.
        looked_at = data.StructLayout({"valid": 1, "like": 1, "beat": PacketLayout(self._width)})
        taps = [Signal(looked_at, name=f"tap{n}") for n in range(self._count)]
        for n, (tap, of) in enumerate(zip(taps, self.taps, strict=True)):
            number = Signal(range(known + 2), name=f"number{n}")
            now = Signal(range(known + 2), name=f"now{n}")
            m.d.sync += [
                tap.valid.eq(of.valid), tap.beat.eq(of.beat),
                tap.like.eq(of.beat.data.word_select(_TYPE_AT % lanes, 32)[:24] == TYPE_WORD[:24]),
            ]
            m.d.comb += [
                now.eq(Mux(tap.beat.first, 0, number)),
                begins[n].eq(tap.valid & (now == known) & tap.like),
            ]
            with m.If(tap.valid):
                m.d.sync += number.eq(Mux(now == known + 1, now, now + 1))
            rows = [Signal(self._width, name=f"kept{n}_{row}") for row in range(known)]
            for row, keeps in enumerate(rows):
                with m.If(tap.valid & (now == row)):
                    m.d.sync += keeps.eq(tap.beat.data)
            kept.append(rows)

        filled, oldest, newest = Signal(2), Signal(), Signal()
        #: Of the frame that comes: its path, one-hot; the row of its next beat.
        mine, row = Signal(self._count), Signal(range(BANK_WORDS // lanes + 1))
        dwords, path, long = [Signal.like(Came(Signal(Came)).dwords, name=f"dwords{n}")
                              for n in range(2)], Signal(4), Signal()
        paths = [Signal(4, name=f"path{n}") for n in range(2)]
        beats = [tap.beat for tap in taps]
        free = Signal()
        beat, here = Signal(PacketLayout(self._width)), Signal()
        at = Signal.like(row)
        takes = Signal(self._count)
        closing = Signal(range(known + 1))
        m.d.comb += [
            free.eq(~filled.bit_select(newest, 1) & ~mine.any() & (closing == 0)),
            takes.eq(Mux(mine.any(), mine, Mux(free, begins & -begins, 0))[:self._count]),
            beat.eq(one_hot_mux(takes, beats)),
            here.eq((takes & Cat(tap.valid for tap in taps)).any()),
            at.eq(Mux(mine.any(), row, known)),
            self.stat_busy.eq((begins & ~takes).any()),
            self.put_beat.eq(beat.data),
            self.put_at.eq(Cat(Const(0, WordAddress - 3), Bank.CAME0.value | newest)
                           | at * lanes),
        ]
        fits = Signal()
        m.d.comb += [fits.eq(~(mine.any() & long) & (at < -(-LONGEST // lanes))),
                     self.put.eq(here & fits)]
        ends = Signal()
        with m.If(here):
            m.d.sync += [mine.eq(takes), row.eq(at + 1), long.eq(~fits)]
            with m.If(~mine.any()):
                m.d.sync += path.eq(first_one(takes))
            with m.If(beat.last):
                m.d.sync += mine.eq(0)
                m.d.comb += ends.eq(~beat.discard & fits)
                m.d.comb += self.stat_long.eq(~beat.discard & ~fits)
        count = Signal.like(dwords[0])
        m.d.comb += count.eq(at * lanes + beat.dwords)
        whole = Signal()
        if known:
            # What was kept of the beats before is written behind the last one. The path may bring
            # another frame meanwhile, whose beats come into their places after these are read.
            of = Signal(range(self._count))
            place = Signal(range(known))
            m.d.comb += place.eq(known - closing)
            with m.If(ends):
                m.d.sync += [closing.eq(known), of.eq(first_one(takes))]
            with m.If(closing != 0):
                m.d.sync += closing.eq(closing - 1)
                m.d.comb += [
                    self.put.eq(1), whole.eq(closing == 1),
                    self.put_at.eq(Cat(Const(0, WordAddress - 3), Bank.CAME0.value | newest)
                                   | place * lanes),
                    self.put_beat.eq(Array(Array(rows)[place] for rows in kept)[of]),
                ]
        else:
            m.d.comb += whole.eq(ends)
        for n in range(2):
            with m.If(ends & (newest == n)):
                m.d.sync += [dwords[n].eq(count),
                             paths[n].eq(Mux(mine.any(), path, first_one(takes)))]
            with m.If(whole & (newest == n)):
                m.d.sync += filled[n].eq(1)
        with m.If(whole):
            m.d.sync += newest.eq(~newest)
        frame = self.came.payload
        m.d.comb += [
            self.came.valid.eq(filled.bit_select(oldest, 1)), frame.second.eq(oldest),
            frame.dwords.eq(Array(dwords)[oldest]), frame.path.eq(Array(paths)[oldest]),
        ]
        with m.If(self.came.valid & self.came.ready):
            m.d.sync += [filled.bit_select(oldest, 1).eq(0), oldest.eq(~oldest)]
        return m
