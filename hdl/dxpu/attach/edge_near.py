"""Half of a :class:`~.edge.PcieEdge` on the proxy's side."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.stream import PacketSignature, connect
from dxpu.widths import Narrow, Widen

from .ingress import CreditLimits
from .port import PciePort

__all__ = ["CLASSES", "Grant", "Near"]

#: Classes of TLPs, in the order of their numbers.
CLASSES = ("p", "np", "cpl")


class Grant(data.Struct):
    """Credit limits of a class."""

    #: Index of the class in :data:`CLASSES`.
    number: 2
    limits: CreditLimits


class Near(wiring.Component):
    """Passes TLPs while the link is up, and drains both directions when it goes down.

    A link life ends when the DLL lowers ``dll_up`` or PERST# is asserted. ``busy`` then stays 1
    until ``dll_up`` is 0 and, for ``settle`` cycles in a row, nothing comes from the DLL and no TLP
    that has begun to pass is left. The limits of the three classes are sent in turn all the time.

    A posted request passes at once. A non-posted request or a completion begins to pass in the
    cycle after it was offered at the earliest, when the DLL has taken all posted requests that
    passed before it was offered, some 10 cycles later, because its queue may be faster than theirs.

    Parameters
    ----------
    width, link_width, settle
        Those of :class:`~.edge.PcieEdge`.

    Members
    -------
    port, stat_dropped
        Those of the edge.
    dll_up : In(1)
        The link is up, as the DLL says.
    posted_taken : In(1)
        Pulse: the DLL has taken a posted request.
    perst : In(1)
        PERST# is asserted.
    busy : Out(1)
        A link life goes on or is being drained, so no other can begin. A register.
    force_down : Out(1)
        The DLL must take the link down. A register.
    rx : In packet stream
        TLPs from the DLL.
    tx_p, tx_np, tx_cpl : Out packet streams
        TLPs to the DLL.
    grant : Out stream of :class:`Grant`
        Credit limits to the DLL.
    """

    #: Bits of the number of posted requests in flight; more than the queue has beats.
    IN_FLIGHT_BITS = 6

    def __init__(self, width, link_width, settle):
        super().__init__({
            "port": In(PciePort(width)),
            "dll_up": In(1),
            "posted_taken": In(1),
            "perst": In(1),
            "busy": Out(1, init=1),
            "force_down": Out(1),
            "rx": In(PacketSignature(link_width)),
            **{f"tx_{name}": Out(PacketSignature(link_width)) for name in CLASSES},
            "grant": Out(stream.Signature(Grant)),
            "stat_dropped": Out(3),
        })
        self._width, self._link_width = width, link_width
        self._settle = settle

    def elaborate(self, platform):
        m = Module()
        up, idle, down = Signal(), Signal(), Signal()
        m.d.comb += self.port.link_up.eq(up)
        pending = [self._receive(m, idle)]

        # Posted requests in flight to the DLL; of these, those older than the head of a class.
        in_flight, passed = Signal(self.IN_FLIGHT_BITS), Signal()
        posted_taken = Signal()
        m.d.comb += posted_taken.eq(self.posted_taken & (in_flight != 0))
        m.d.sync += in_flight.eq(in_flight + passed - posted_taken)
        for n, name in enumerate(CLASSES):
            offered = Signal(name=f"{name}_offered")
            allowed = Signal(name=f"{name}_allowed", init=1)
            passes, ended = self._send(m, name, up, offered, allowed)
            pending.append(passes)
            m.d.comb += self.stat_dropped[n].eq(ended & ~passes)
            if name == "p":
                m.d.comb += [passed.eq(ended & passes), allowed.eq(1)]
                continue
            older_left, older = Signal(self.IN_FLIGHT_BITS), Signal(self.IN_FLIGHT_BITS)
            m.d.comb += [older.eq(Mux(offered, in_flight + passed, older_left)),
                         allowed.eq(~offered & (older_left == 0))]
            m.d.sync += older_left.eq(older - (posted_taken & (older != 0)))
        self._send_limits(m)

        count = Signal(range(self._settle))
        m.d.sync += self.force_down.eq(down & self.dll_up)
        with m.FSM(init="Down"):
            with m.State("Down"):
                m.d.comb += down.eq(1)
                m.d.sync += count.eq(count + 1)
                with m.If(self.dll_up | self.perst | Cat(pending).any()):
                    m.d.sync += count.eq(0)
                with m.Elif(count == self._settle - 1):
                    m.d.sync += [count.eq(0), self.busy.eq(0)]
                    m.next = "Idle"
            with m.State("Idle"):
                m.d.comb += idle.eq(1)
                with m.If(self.dll_up):
                    m.d.sync += self.busy.eq(1)
                    with m.If(self.perst):
                        m.next = "Down"
                    with m.Else():
                        m.next = "Up"
            with m.State("Up"):
                m.d.comb += up.eq(1)
                with m.If(~self.dll_up | self.perst):
                    m.next = "Down"
        return m

    def _receive(self, m, idle):
        """Pass TLPs from the DLL. Those that come while idle wait: they belong to the next life.

        Returns whether a TLP is on its way.
        """
        passed = PacketSignature(self._link_width).create()
        in_tlp, pending = Signal(), Signal()
        m.d.comb += [
            passed.payload.eq(self.rx.payload),
            passed.valid.eq(self.rx.valid & ~idle),
            self.rx.ready.eq(passed.ready & ~idle),
        ]
        with m.If(passed.valid & passed.ready):
            m.d.sync += in_tlp.eq(~passed.payload.last)
        out = wiring.flipped(self.port).rx
        m.d.comb += pending.eq(in_tlp | passed.valid | out.valid)
        if self._link_width == self._width:
            connect(m, passed, out)
        else:
            m.submodules.widen = widen = Widen(self._width)
            connect(m, passed, widen.i)
            connect(m, widen.o, out)
        return pending

    def _send(self, m, name, up, offered, allowed):
        """Pass TLPs of a class that are offered while the link is up, each once it is ``allowed``,
        and drop the others whole. ``offered`` is 1 in the first cycle of each.

        Returns whether a TLP passes, and whether the last beat of a TLP is taken.
        """
        source, out = getattr(self.port, f"tx_{name}"), getattr(self, f"tx_{name}")
        if self._link_width == self._width:
            sink = wiring.flipped(out)
        else:
            m.submodules[f"narrow_{name}"] = narrow = Narrow(self._width)
            connect(m, narrow.o, out)
            sink = narrow.i
        # Decided when the TLP is offered, not when its first beat is taken.
        in_tlp, decided, keep, ended = (Signal(name=f"{name}_{what}") for what in (
            "in_tlp", "decided", "keep", "ended"))
        m.d.comb += [
            offered.eq(source.valid & ~in_tlp),
            keep.eq(Mux(in_tlp, decided, up & source.valid)),
            sink.payload.eq(source.payload),
            sink.valid.eq(source.valid & keep & allowed),
            source.ready.eq(Mux(keep, sink.ready & allowed, 1)),
            ended.eq(source.valid & source.ready & source.payload.last),
        ]
        with m.If(source.valid):
            m.d.sync += [in_tlp.eq(~ended), decided.eq(keep)]
        return keep, ended

    def _send_limits(self, m):
        number = Signal(range(len(CLASSES)))
        # Limits may rise while they are offered; the queue takes the newest.
        limits = Array(Value.cast(getattr(self.port, f"rx_{name}")) for name in CLASSES)
        m.d.comb += [
            self.grant.payload.number.eq(number),
            self.grant.payload.limits.eq(limits[number]),
            self.grant.valid.eq(1),
        ]
        with m.If(self.grant.ready):
            m.d.sync += number.eq(Mux(number == len(CLASSES) - 1, 0, number + 1))
