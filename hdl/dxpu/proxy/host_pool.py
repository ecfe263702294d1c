"""What came from the boxes and waits for the switch of the host.

Ref: docs/explanation/flow-control.md
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.counted import Counted, counted_by
from dxpu.fabric.credit.class_queues import ClassQueues
from dxpu.fabric.credit.classifier import Classifier
from dxpu.fabric.credit.policer import CreditPolicer
from dxpu.fabric.credit.sizing import LARGEST
from dxpu.rows import ClassMeta, TlpMeta
from dxpu.stream import PacketSignature, connect
from dxpu.tlp.types import TlpClass

__all__ = ["HostPool"]


class HostPool(wiring.Component):
    """Takes all that boxes send, as they have credits for it, and hands on what the switch takes.

    A TLP passes at once while there is room for it and it passes nothing older; others wait in the
    queue of their row and class. So nothing here holds back the fabric. What was sent without
    credits is dropped and counted, and its row named, as is what finds its queue full; there is
    room for all that was granted. One with more data than a TLP may have is dropped and counted.

    Credits of a row are granted from when its link is active and nothing of it is left in here,
    until the link is not active any more.

    Latency a cycle more than that of :class:`~..fabric.class_queues.ClassQueues`.

    Parameters
    ----------
    width : int
        Data bits per beat.
    rows : int
    space : :class:`~..fabric.class_queues.ClassSpace`
    initial : three pairs of int
        Headers and data units that each row grants at first, by class.

    Members
    -------
    i : packet stream with :class:`~..fabric.types.TlpMeta`
    o : packet stream with :class:`~..fabric.types.ClassMeta`
    room : 1
        A TLP that begins now can leave without waiting.
    np_room : 1
        With ``room``: a non-posted one, too.
    active : ``rows``
        The link of row n is active.
    receiving : ``rows``
        Credits of row n are granted.
    released, released_strobe : :class:`~..fabric.types.ClassMeta`, 1
        A TLP has left, or was dropped though it had credits.
    overflow : ``rows``
        Strobes: a TLP of row n came without credits.
    stat_waited : 1
        Pulse: a TLP had to wait.
    stat_overflow, stat_large : 1
        Pulses: a TLP was dropped: without credits; with too much data.
    """

    def __init__(self, width, *, rows, space, initial):
        self._rows = rows
        self._classifier = Classifier(width)
        self._policer = CreditPolicer(width, rows=rows, initial=initial, largest=LARGEST)
        self._queues = ClassQueues(width, rows=rows, space=space, overflow="drop")
        super().__init__({
            "i": In(PacketSignature(width, TlpMeta)),
            "o": Out(PacketSignature(width, ClassMeta)),
            "room": In(1),
            "np_room": In(1),
            "active": In(rows),
            "receiving": Out(rows),
            "released": Out(ClassMeta),
            "released_strobe": Out(1),
            "overflow": Out(rows),
            "stat_waited": Out(Counted("TLPs from boxes that had to wait for the switch.")),
            **counted_by(self._policer),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.classifier = classifier = self._classifier
        m.submodules.policer = policer = self._policer
        m.submodules.queues = queues = self._queues
        connect(m, wiring.flipped(self.i), classifier.i)
        connect(m, classifier.o, policer.i)
        connect(m, policer.o, queues.i)
        connect(m, queues.o, wiring.flipped(self.o))
        came, head, o = queues.i.payload.meta, queues.head, queues.o
        # Those that were refused are asked again when there is more room than before, not all the
        # time: a row that is asked about keeps its turn.
        now, before = Signal(2), Signal(2)
        m.d.sync += before.eq(now)
        m.d.comb += [
            now.eq(Cat(self.room, self.room & self.np_room)),
            queues.i_ok.eq(self.room & (self.np_room | (came.cls != TlpClass.NP))),
            queues.head_ok.eq(self.room & (self.np_room | (head.cls != TlpClass.NP))),
            queues.wake.eq(Mux((now & ~before).any(), ~0, 0)),
            policer.open.eq(self.receiving),
            policer.left.eq(o.payload.meta),
            policer.left_strobe.eq(o.valid & o.ready & o.payload.last),
            self.released.eq(policer.released),
            self.released_strobe.eq(policer.released_strobe),
            self.overflow.eq(policer.overflow | Mux(
                queues.stat_overflow, (1 << came.row)[:self._rows] & self.receiving, 0)),
            self.stat_waited.eq(queues.stat_parked),
            self.stat_overflow.eq(policer.stat_overflow | queues.stat_overflow),
            self.stat_large.eq(policer.stat_large),
        ]

        enters = self.i.valid & self.i.ready & self.i.payload.first
        for n in range(self._rows):
            inside, begins = Signal(8, name=f"inside{n}"), Signal(name=f"begins{n}")
            m.d.comb += begins.eq(enters & (self.i.payload.meta.row == n))
            m.d.sync += inside.eq(self._still_inside(
                inside, begins, policer.left_strobe & (policer.left.row == n),
                queues.stat_overflow & (came.row == n)
                | policer.dropped & (policer.dropped_row == n)))
            with m.If(~self.active[n]):
                m.d.sync += self.receiving[n].eq(0)
            with m.Elif((inside == 0) & ~begins):
                m.d.sync += self.receiving[n].eq(1)
        return m

    def _still_inside(self, inside, enters, leaves, dropped):
        """Nothing of a row is inside when as many have left as began to come."""
        return inside + enters - leaves - dropped
