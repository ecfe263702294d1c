"""How long TLPs take through a proxy: from PCIe into a frame, and from a frame to PCIe.

Ref: docs/reference/observe.md, "Stages"
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.counted import Counted

from .sights import CLOCK_BITS, Sight

__all__ = ["FrameTap", "Passage", "ReceiveTimer", "SendTimer"]


class Passage(data.Struct):
    """A TLP of a row has passed a stage; ``time`` in cycles."""

    row: 6
    time: CLOCK_BITS


class FrameTap(data.Struct):
    """What happens to received frames, in order.

    Members
    -------
    ends : 1
        The last beat of a frame goes in.
    takes : 1
        The oldest frame takes effect. It has TLPs, and none of older frames is inside.
    judged : 1
        The oldest frame has taken effect, or was dropped.
    """

    ends: 1
    takes: 1
    judged: 1


def _members():
    return {
        "now": In(CLOCK_BITS),
        "exit": In(Sight),
        "o": Out(stream.Signature(Passage)),
        "stat_given_up": Out(Counted(
            "TLPs whose way through the proxy was watched in vain: dropped, for another slot, or "
            "too slow.")),
    }


class SendTimer(wiring.Component):
    """Follows one TLP after the other from PCIe into a frame.

    The next TLP with a name that comes in, when none is followed, is followed until one of the same
    name goes out. There is no other one of this name inside: a requester uses no tag twice at a
    time, and two completions of a request differ in byte count. A TLP that does not come out within
    32,768 cycles is given up, and counted.

    Parameters
    ----------
    middle : bool
        The row is known between entry and exit. Otherwise it is known at the entry.

    Members
    -------
    now : 16
        Clock in cycles.
    entry, entry_row, exit : :class:`~.sights.Sight`, 6, :class:`~.sights.Sight`
        TLPs that come from PCIe; row, without ``middle``; TLPs that are put into frames.
    middle, middle_row : :class:`~.sights.Sight`, 6
        TLPs with their row; only with ``middle``.
    o : stream of :class:`Passage`
    stat_given_up : 1
    """

    def __init__(self, *, middle):
        self._middle = middle
        super().__init__({
            "entry": In(Sight),
            **({"middle": In(Sight), "middle_row": In(6)} if middle else {"entry_row": In(6)}),
            **_members(),
        })

    def elaborate(self, platform):
        m = Module()
        name, start, passage = Signal(65), Signal(CLOCK_BITS), self.o.payload
        aged = Signal()
        m.d.comb += aged.eq((self.now - start)[CLOCK_BITS - 1])

        def is_it(sight):
            return sight.strobe & sight.named & (sight.name == name)

        with m.FSM():
            with m.State("Idle"):
                m.d.sync += [name.eq(self.entry.name), start.eq(self.entry.time)]
                if not self._middle:
                    m.d.sync += passage.row.eq(self.entry_row)
                with m.If(self.entry.strobe & self.entry.named):
                    m.next = "Middle" if self._middle else "Exit"
            if self._middle:
                with m.State("Middle"):
                    m.d.sync += passage.row.eq(self.middle_row)
                    with m.If(is_it(self.middle)):
                        m.next = "Exit"
                    with m.Elif(aged):
                        m.d.comb += self.stat_given_up.eq(1)
                        m.next = "Idle"
            with m.State("Exit"):
                m.d.sync += passage.time.eq(self.exit.time - start)
                with m.If(is_it(self.exit)):
                    m.next = "Out"
                with m.Elif(aged):
                    m.d.comb += self.stat_given_up.eq(1)
                    m.next = "Idle"
            with m.State("Out"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.next = "Idle"
        return m


class ReceiveTimer(wiring.Component):
    """Follows one TLP after the other from its frame to PCIe.

    When none is followed, the next frame is; and if it takes effect, its first TLP, if that has a
    name, until one of the same name goes out. Given up is as of :class:`SendTimer`, and a frame
    while TLPs of older ones are inside without being counted.

    Members
    -------
    now : 16
        Clock in cycles.
    arrival : :class:`FrameTap`
        A TLP of a frame is at ``entry`` two cycles after ``takes`` or later.
    entry, entry_row, exit : :class:`~.sights.Sight`, 6, :class:`~.sights.Sight`
        TLPs that come out of frames, with their row; TLPs that go to PCIe.
    o : stream of :class:`Passage`
    stat_given_up : 1
    """

    #: Bits of the number of frames that have ended and were not judged.
    FRAMES = 3

    def __init__(self):
        super().__init__({
            "arrival": In(FrameTap), "entry": In(Sight), "entry_row": In(6), **_members()})

    def elaborate(self, platform):
        m = Module()
        name, start, passage = Signal(65), Signal(CLOCK_BITS), self.o.payload
        frame = Signal(FrameTap)
        m.d.sync += frame.eq(self.arrival)
        under_way, ahead = Signal(self.FRAMES), Signal(self.FRAMES)
        aged = Signal()
        m.d.comb += aged.eq((self.now - start)[CLOCK_BITS - 1])
        m.d.sync += under_way.eq(under_way + frame.ends - frame.judged)
        with m.FSM():
            with m.State("Idle"):
                # Sights have the time of the cycle after their beat, too.
                m.d.sync += [start.eq(self.now), ahead.eq(under_way - frame.judged)]
                with m.If(frame.ends):
                    m.next = "Frame"
            with m.State("Frame"):
                m.d.sync += ahead.eq(ahead - frame.judged)
                with m.If((ahead == 0) & frame.takes):
                    m.next = "Head"
                with m.Elif((ahead == 0) & frame.judged):
                    m.next = "Idle"
            with m.State("Head"):
                m.d.sync += [name.eq(self.entry.name), passage.row.eq(self.entry_row)]
                with m.If(self.entry.strobe):
                    m.next = "Idle"
                    with m.If(self.entry.named):
                        m.next = "Exit"
                with m.Elif(aged):
                    m.next = "Idle"
            with m.State("Exit"):
                m.d.sync += passage.time.eq(self.exit.time - start)
                with m.If(self.exit.strobe & self.exit.named & (self.exit.name == name)):
                    m.next = "Out"
                with m.Elif(aged):
                    m.d.comb += self.stat_given_up.eq(1)
                    m.next = "Idle"
            with m.State("Out"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.next = "Idle"
        return m
