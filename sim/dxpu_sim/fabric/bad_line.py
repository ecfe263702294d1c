"""An Ethernet line that loses, doubles, delays, reorders and changes frames; simulation only.

Frames are those of the fabric engine, without FCS. A frame that a MAC would refuse counts as lost.
A changed frame corresponds to a switch with a memory error before it computes the FCS anew.
"""

from amaranth import *
from amaranth.lib import data, fifo, memory, wiring
from amaranth.lib.wiring import In, Out

from dxpu.ethernet.gmii import MINIMUM
from dxpu.stream import PacketSignature, connect

from .chance import Chance

__all__ = ["BadLine", "Faults", "LineTotals", "Tap"]

#: Byte times of a frame besides its bytes: preamble and start delimiter, FCS, gap (802.3, 3.1.1 and
#: 4.4.2).
OVERHEAD = 8 + 4 + 12
#: Cycles without a frame after which a burst is over.
PAUSE = 1024
#: First byte that may change: no receiver checks the MAC addresses.
FIRST_CHANGED = 12
#: Beats that may be written while a frame leaves, including the beats of that frame.
SPARE = 1024
#: End of the header's CRC: changes hit the bytes from EtherType to here, or the bytes behind.
HEADER_END = 32
#: Byte whose low four bits are the frame type.
TYPE_BYTE = 14


class Faults(data.Struct):
    """Faults of a line. Probabilities are in 1/65536 for each frame.

    Members
    -------
    types : 16
        Bit n: frames of type n are subject to all faults except ``script``.
    loss : 16
        Probability of a loss.
    burst, relief : 16
        Probabilities that a burst of losses begins, and ends, with this frame. All frames of a
        burst are lost. It ends, too, when no frame came for :data:`PAUSE` cycles: what loses frames
        in a row is over before a sender that waits for an answer has sent one again four times.
    change : 16
        Probability that a byte behind the MAC addresses changes.
    place : 2
        Place of that byte: anywhere (0), in the header (1), behind the header (2).
    twice : 16
        Probability that the frame arrives twice, the second time later.
    late : 16
        Probability that the frame arrives late, behind others.
    lateness : 32
        Mask of the random delay of a late frame, in cycles.
    script_type, script_first, script_count : 4, 16, 16
        Of the frames of this type, counted from 0, ``script_count`` frames from ``script_first`` on
        are lost.
    """

    types: 16
    loss: 16
    burst: 16
    relief: 16
    change: 16
    place: 2
    twice: 16
    late: 16
    lateness: 32
    script_type: 4
    script_first: 16
    script_count: 16


class LineTotals(data.Struct):
    """Numbers of frames: received, lost, doubled, late, changed, delivered.

    Losses are by chance, by script, on a dead line, and of late frames whose bytes the line has
    overwritten. When the line is empty: ``frames`` + ``twice`` = ``lost`` + ``delivered``.
    """

    frames: 32
    lost: 32
    twice: 32
    late: 32
    changed: 32
    delivered: 32


class Flight(data.StructLayout):
    """A frame on the line: place of its beats, time of arrival, change of its content."""

    def __init__(self, lanes):
        super().__init__({
            "start": 24, "beats": 12, "arrival": 32, "change": 1, "beat": 12,
            "pattern": 32 * lanes,
        })


class Tap(data.StructLayout):
    """A frame that has entered a line of that many lanes, and what happens to it: ``late`` and
    ``twice`` only if there is a place for the frame."""

    def __init__(self, lanes):
        super().__init__({"flight": Flight(lanes), "size": 14, "lost": 1, "late": 1, "twice": 1})


class Entry(wiring.Component):
    """Takes frames at the rate of the line, so that each occupies the line for its length.

    Members
    -------
    i : packet stream
    now : 32
        Present cycle.
    row, write : 24, 1
        Strobe: write this cycle's beat; ``row`` counts beats since reset.
    end : 1
        Strobe with the last beat of a frame; the following members are then valid.
    start, beats : 24, 12
        First row and number of beats.
    kind, size : 4, 14
        Frame type; bytes.
    left : 32
        Cycle in which the last byte has left.
    busy : 1
        A frame is coming in.
    """

    def __init__(self, width):
        self._width = width
        super().__init__({
            "i": In(PacketSignature(width)), "now": In(32), "row": Out(24), "write": Out(1),
            "end": Out(1), "start": Out(24), "beats": Out(12), "kind": Out(4), "size": Out(14),
            "left": Out(32), "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        beat, byte = divmod(TYPE_BYTE, self._width // 8)
        shift = (self._width // 8).bit_length() - 1
        payload = self.i.payload
        free, start, size, kind = Signal(32), Signal(24), Signal(14), Signal(4)
        before, coming = Signal(24), Signal()
        m.d.comb += [
            self.i.ready.eq(~(self.now - free)[31]),
            self.write.eq(self.i.valid & self.i.ready),
            self.end.eq(self.write & payload.last),
            self.start.eq(Mux(payload.first, self.row, start)),
            before.eq(self.row - self.start),
            self.beats.eq(before + 1),
            self.size.eq(Mux(payload.first, 0, size) + (payload.dwords << 2)),
            self.kind.eq(Mux(before == beat, payload.data.bit_select(8 * byte, 4), kind)),
            self.left.eq(self.now - (before << shift) + Mux(self.size < MINIMUM, MINIMUM, self.size)
                         + OVERHEAD),
            self.busy.eq(coming | self.write),
        ]
        with m.If(self.write):
            m.d.sync += [self.row.eq(self.row + 1), start.eq(self.start), size.eq(self.size),
                         kind.eq(self.kind), coming.eq(~payload.last)]
            # A byte per cycle, the rate at which a MAC empties its queue.
            m.d.sync += free.eq(Mux(payload.last, self.left, self.now + self._width // 8))
        return m


class Fate(wiring.Component):
    """Decides the fate of a frame of type ``kind`` and ``size`` bytes at its ``end``.

    Members
    -------
    end, kind, size, faults, salt : in
    lost, late, twice, change : 1
        Fate of the frame.
    byte, pattern : 14, 8
        With ``change``: number of the changed byte, and the XOR pattern.
    """

    def __init__(self, *, seed):
        self._seed = seed
        super().__init__({
            "salt": In(32), "end": In(1), "kind": In(4), "size": In(14), "faults": In(Faults),
            "lost": Out(1), "late": Out(1), "twice": Out(1), "change": Out(1),
            "byte": Out(14), "pattern": Out(8),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.chance0 = one = Chance(seed=3 * self._seed)
        m.submodules.chance1 = other = Chance(seed=3 * self._seed + 1)
        m.d.comb += [one.salt.eq(self.salt), other.salt.eq(self.salt)]
        dice = [c.value[16 * n:16 * n + 16] for c in (one, other) for n in range(4)]
        faults = self.faults

        hit, burst, bad, scripted = Signal(), Signal(), Signal(), Signal()
        seen = Signal(16)
        m.d.comb += [
            hit.eq(faults.types.bit_select(self.kind, 1)),
            bad.eq(burst | (dice[0] < faults.burst)),
            scripted.eq((self.kind == faults.script_type)
                        & ((seen - faults.script_first)[:16] < faults.script_count)),
            self.lost.eq(scripted | hit & (bad | (dice[1] < faults.loss))),
            self.change.eq(hit & (dice[2] < faults.change)),
            self.late.eq(hit & (dice[3] < faults.late)),
            self.twice.eq(hit & (dice[4] < faults.twice)),
        ]
        with m.If(self.end & (self.kind == faults.script_type)):
            m.d.sync += seen.eq(seen + 1)
        silent = Signal(range(PAUSE))
        m.d.sync += silent.eq(Mux(self.end, 0, silent + 1))
        with m.If(silent == PAUSE - 1):
            m.d.sync += burst.eq(0)
        with m.If(self.end & hit):
            m.d.sync += burst.eq(bad & ~(dice[5] < faults.relief))

        first, span = Signal(14), Signal(14)
        m.d.comb += [
            first.eq(Mux(faults.place == 2, HEADER_END, FIRST_CHANGED)),
            span.eq(Mux(faults.place == 1, HEADER_END, self.size) - first),
            self.byte.eq(first + ((span * dice[6]) >> 16)),
            self.pattern.eq(Mux(dice[7][:8] == 0, 0x80, dice[7][:8])),
        ]
        return m


class BadLine(wiring.Component):
    """One direction of a line of 1 Gbit/s, at a clock of 125 MHz.

    ``i`` takes a byte per cycle. Frames leave in the order in which they came, when their last byte
    has passed and ``delay`` cycles more, at a beat per cycle. Late frames leave at their own time.

    Parameters
    ----------
    width : int
        Data bits per beat.
    seed : int
        Seed of the random faults.
    beats : int
        Memory in beats, a power of two. A late frame is lost if its beats are overwritten.
    places : int
        Largest number of late frames at a time; further frames are in time.

    Members
    -------
    i, o : packet streams
    delay : 16
        Cycles.
    dead : 1
        All frames are lost.
    faults : :class:`Faults`
    salt : 32
        Restarts the random numbers (:class:`~.chance.Chance`).
    totals : :class:`LineTotals`
    idle : 1
        The line is empty.
    tap, tap_toggle : :class:`Tap`, 1
        The newest frame; ``tap_toggle`` is inverted for each frame, in the cycle after its last
        beat. The beats are in the memory ``rows`` of this module. For captures alone
        (:mod:`.capture`): nothing in a design reads them.
    """

    def __init__(self, width, *, seed, beats=8192, places=8):
        self._width, self._seed = width, seed
        self._beats, self._places = beats, places
        super().__init__({
            "i": In(PacketSignature(width)), "o": Out(PacketSignature(width)),
            "delay": In(16), "dead": In(1), "faults": In(Faults), "salt": In(32),
            "totals": Out(LineTotals), "idle": Out(1), "tap": Out(Tap(width // 32)),
            "tap_toggle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self._width // 32
        layout = Flight(lanes)
        row = data.StructLayout({"data": self._width, "dwords": range(lanes + 1)})
        m.submodules.rows = rows = memory.Memory(shape=row, depth=self._beats, init=[])
        m.submodules.on_time = on_time = fifo.SyncFIFO(width=layout.size, depth=128)
        m.submodules.entry = entry = Entry(self._width)
        m.submodules.fate = fate = Fate(seed=self._seed)
        m.submodules.lateness = lateness = Chance(seed=3 * self._seed + 2)
        connect(m, wiring.flipped(self.i), entry.i)
        write, now = rows.write_port(), Signal(32)
        flight, lost = Signal(layout), Signal()
        m.d.sync += now.eq(now + 1)
        m.d.comb += [
            entry.now.eq(now),
            write.en.eq(entry.write),
            write.addr.eq(entry.row),
            write.data.data.eq(self.i.payload.data),
            write.data.dwords.eq(self.i.payload.dwords),
            *(getattr(fate, name).eq(getattr(entry, name)) for name in ("end", "kind", "size")),
            fate.faults.eq(self.faults),
            fate.salt.eq(self.salt),
            lateness.salt.eq(self.salt),
            lost.eq(fate.lost | self.dead | self.i.payload.discard),
            flight.start.eq(entry.start),
            flight.beats.eq(entry.beats),
            flight.arrival.eq(entry.left + self.delay),
            flight.change.eq(fate.change),
            flight.beat.eq(fate.byte // (4 * lanes)),
            flight.pattern.eq(fate.pattern << ((fate.byte % (4 * lanes)) << 3)),
        ]

        with m.If(entry.end):
            m.d.sync += [
                self.tap_toggle.eq(~self.tap_toggle), self.tap.flight.eq(flight),
                self.tap.size.eq(entry.size), self.tap.lost.eq(lost),
            ]

        # Late frames and late copies have an entry each.
        late = [Signal(layout, name=f"late{n}", reset_less=True) for n in range(self._places)]
        taken, due, gone, place = (Signal(self._places, name=name)
                                   for name in ("taken", "due", "gone", "place"))
        aside = entry.end & ~lost & ~taken.all() & (fate.late | fate.twice)
        m.d.comb += [
            place.eq(Mux(aside, ~taken & (taken + 1), 0)),
            on_time.w_en.eq(entry.end & ~lost & ~(fate.late & place.any())),
            on_time.w_data.eq(flight),
        ]
        m.d.sync += taken.eq((taken | place) & ~gone)
        with m.If(entry.end):
            m.d.sync += [self.tap.late.eq(place.any() & fate.late),
                         self.tap.twice.eq(place.any() & ~fate.late)]
        for n, frame in enumerate(late):
            with m.If(place[n]):
                m.d.sync += [
                    frame.eq(flight),
                    frame.arrival.eq(flight.arrival + (lateness.value[:32] & self.faults.lateness)),
                ]
            m.d.comb += due[n].eq(taken[n] & ~(now - frame.arrival)[31])

        sending, forgotten = self._deliver(m, rows, now, entry.row, on_time, late, due, gone)
        happened = {
            "frames": entry.end,
            "lost": entry.end & lost | forgotten,
            "twice": place.any() & ~fate.late,
            "late": place.any() & fate.late,
            "changed": entry.end & ~lost & fate.change,
            "delivered": self.o.valid & self.o.ready & self.o.payload.last,
        }
        m.d.sync += [self.totals[name].eq(self.totals[name] + what)
                     for name, what in happened.items()]
        m.d.comb += self.idle.eq(~entry.busy & ~on_time.r_rdy & ~taken.any() & ~sending)
        return m

    def _deliver(self, m, rows, now, written, on_time, late, due, gone):
        """Send frames that have arrived; return "a frame is being sent", "a frame was
        overwritten"."""
        read, o = rows.read_port(domain="comb"), self.o
        layout = Flight(self._width // 32)
        frame, first = Signal(layout, reset_less=True), data.View(layout, on_time.r_data)
        sending, forgotten, beat = Signal(), Signal(), Signal(12)
        overwritten = Signal(24)
        with m.If(~sending):
            with m.If(due.any()):
                m.d.comb += gone.eq(due & -due)
                for n, one in enumerate(late):
                    with m.If(gone[n]):
                        m.d.comb += [
                            overwritten.eq(written - one.start),
                            forgotten.eq(overwritten >= self._beats - SPARE),
                        ]
                        m.d.sync += frame.eq(one)
                m.d.sync += sending.eq(~forgotten)
            with m.Elif(on_time.r_rdy & ~(now - first.arrival)[31]):
                m.d.comb += on_time.r_en.eq(1)
                m.d.sync += [frame.eq(first), sending.eq(1)]
        changed = frame.change & (frame.beat == beat)
        m.d.comb += [
            read.addr.eq(frame.start + beat),
            o.valid.eq(sending),
            o.payload.data.eq(read.data.data ^ Mux(changed, frame.pattern, 0)),
            o.payload.dwords.eq(read.data.dwords),
            o.payload.first.eq(beat == 0),
            o.payload.last.eq(beat == frame.beats - 1),
        ]
        with m.If(o.valid & o.ready):
            m.d.sync += beat.eq(beat + 1)
            with m.If(o.payload.last):
                m.d.sync += [beat.eq(0), sending.eq(0)]
        return sending, forgotten
