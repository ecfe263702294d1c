"""Queues of a host for TLPs from the fabric, in front of the switch.

Ref: docs/explanation/flow-control.md
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.counted import Counted, counted_by
from dxpu.fabric.credit.class_queues import ClassQueues
from dxpu.fabric.credit.classifier import Classifier
from dxpu.fabric.credit.credits import low
from dxpu.fabric.credit.policer import CreditPolicer
from dxpu.fabric.credit.sizing import LARGEST
from dxpu.rows import ClassMeta, TlpMeta
from dxpu.stream import PacketSignature, connect
from dxpu.tlp.types import TlpClass

__all__ = ["HostPool"]


class HostPool(wiring.Component):
    """Takes every TLP that a box has credits for, and passes on what the switch has room for.

    A TLP that may go now, and passes no older one, goes at once; another waits in the queue of its
    row and class. So nothing here holds back the fabric. A TLP without credits is dropped and
    counted, and its row reported, as is one that finds its queue full; there is room for all that
    was granted. A TLP with more data than allowed is dropped and counted.

    Credits of a row are granted from when its link is active and no TLP of it is in here, until the
    link is not active any more.

    Latency one cycle more than :class:`~dxpu.fabric.credit.class_queues.ClassQueues`.

    Parameters
    ----------
    width : int
        Data bits per beat.
    rows : int
        Rows of the host table.
    space : :class:`~dxpu.fabric.credit.class_queues.ClassSpace`
        Space of the queues.
    initial : three pairs of int
        Headers and data units that each row grants first, by class.

    Members
    -------
    i : packet stream with meta :class:`~dxpu.rows.TlpMeta`
        TLPs from the fabric.
    o : packet stream with meta :class:`~dxpu.rows.ClassMeta`
        TLPs to the switch.
    room, np_room : 1
        Room for a TLP that begins now; if it is non-posted, both must be 1.
    link_active : ``rows``
        Bit n: the link of slot n is active.
    receiving : ``rows``
        Bit n: credits of row n are granted.
    released, released_strobe : :class:`~dxpu.rows.ClassMeta`, 1
        Strobe: a TLP with credits has left, or was dropped.
    overflow : ``rows``
        Strobes: a TLP of row n came without credits.
    stat_waited : 1
        Pulse: a TLP had to wait.
    stat_overflow, stat_large : 1
        Pulses: a TLP was dropped because it had no credits; because it had too much data.
    """

    def __init__(self, width, *, rows, space, initial):
        self._rows = rows
        # All that is granted may have to wait.
        most = max(headers for headers, _ in initial)
        packets = max(ClassQueues.PACKETS, 1 << (most - 1).bit_length())
        # The number of a row's TLPs: three queues of them, and those before the queues.
        self._stored = (3 * packets + 15).bit_length()
        self._classifier = Classifier(width)
        self._policer = CreditPolicer(width, rows=rows, initial=initial, largest=LARGEST)
        # Larger ones pass the policer only for rows in which nothing is granted, nor released.
        self._queues = ClassQueues(width, rows=rows, space=space, overflow="drop",
                                   largest=LARGEST, packets=packets)
        #: How many TLPs wait (:class:`~dxpu.stage.Fill`).
        self.fill = self._queues.fill("TLPs from boxes that wait for the switch.")
        super().__init__({
            "i": In(PacketSignature(width, TlpMeta)),
            "o": Out(PacketSignature(width, ClassMeta)),
            "room": In(1),
            "np_room": In(1),
            "link_active": In(rows),
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
        incoming, o = queues.i.payload.meta, queues.o
        # A head that found no room tries again when there is more of it, not in every cycle: a row
        # that tries keeps its turn.
        now, before = Signal(2), Signal(2)

        def may(cls):
            return self.room & (self.np_room | (cls != TlpClass.NP))

        m.d.sync += [
            before.eq(now), queues.ok.eq(may(queues.checked.cls)),
            # A cycle later: whether a TLP is taken is late, and a sum follows.
            policer.departed.eq(o.payload.meta),
            policer.departed_strobe.eq(o.valid & o.ready & o.payload.last),
        ]
        m.d.comb += [
            now.eq(Cat(self.room, self.room & self.np_room)),
            queues.sure.eq(may(incoming.cls)),
            queues.wake.eq(Mux((now & ~before).any(), ~0, 0)),
            policer.ahead.eq(classifier.ahead),
            policer.open.eq(self.receiving),
            self.released.eq(policer.released),
            self.released_strobe.eq(policer.released_strobe),
            self.overflow.eq(policer.overflow | Mux(
                queues.stat_overflow, (1 << incoming.row)[:self._rows] & self.receiving, 0)),
            self.stat_waited.eq(queues.stat_parked),
            self.stat_overflow.eq(policer.stat_overflow | queues.stat_overflow),
            self.stat_large.eq(policer.stat_large),
        ]

        # A TLP that is dropped in the queues is not dropped before them.
        begins, leaves, dropped = (Signal(self._rows, name=name)
                                   for name in ("begins", "leaves", "dropped"))
        for rows, strobe, row in (
                (begins, self.i.valid & self.i.ready & self.i.payload.first,
                 self.i.payload.meta.row),
                (leaves, policer.departed_strobe, policer.departed.row),
                (dropped, queues.stat_overflow | policer.dropped,
                 Mux(queues.stat_overflow, incoming.row, policer.dropped_row))):
            m.d.comb += rows.eq(Mux(strobe, 1 << low(row, self._rows), 0))
        for n in range(self._rows):
            stored = Signal(self._stored, name=f"stored{n}")
            m.d.sync += stored.eq(self._next_stored(stored, begins[n], leaves[n], dropped[n]))
            with m.If(~self.link_active[n]):
                m.d.sync += self.receiving[n].eq(0)
            with m.Elif((stored == 0) & ~begins[n]):
                m.d.sync += self.receiving[n].eq(1)
        return m

    def _next_stored(self, stored, enters, leaves, dropped):
        """TLPs of a row that have begun to come and have not left."""
        # From 1 to -2.
        change = Cat(enters ^ leaves ^ dropped, Mux(enters, leaves & dropped, leaves | dropped))
        return stored + change.as_signed()
