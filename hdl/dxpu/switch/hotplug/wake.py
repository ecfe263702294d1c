"""Wake-up by hot-plug events: PME Status of the downstream ports, and PM_PME messages."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.priority import first_one
from dxpu.switch.messages.messages import MessageRequest
from dxpu.tlp.types import MessageCode, Routing

__all__ = ["WakeUp"]


class WakeUp(wiring.Component):
    """Sets PME Status of a port when an event wakes it up, and tells the root by PM_PME.

    A port is woken by a hot-plug event that is enabled, in D3hot, with PME Enable set; Hot-Plug
    Interrupt Enable does not matter. Its message is sent when PME Status and PME Enable have both
    become true, and again while they are: two to three intervals after the last one was due. A
    message that is due is forgotten when one of them falls. Lower ports first.

    Ref: PCIe Base 6.0, 5.3.3.3 (retransmission after 100 ms, +50 %, -5 %), 6.7.3.4, 7.5.2.2

    Parameters
    ----------
    ports : int
        Downstream ports.
    interval : int
        Cycles; by default 50 ms at 125 MHz.

    Members
    -------
    wakes : ``ports``
        Pulse: an enabled event has happened in D3hot.
    enable : ``ports``
        PME Enable.
    clear : ``ports``
        Pulse: software clears PME Status. An event of the same cycle wins.
    hold : 1
        The functions are being reset.
    bus : 8
        Number of the bus that the ports are on.
    status : ``ports``
        PME Status.
    o : stream of :class:`~dxpu.switch.messages.messages.MessageRequest`
    """

    def __init__(self, ports, *, interval=6_250_000):
        self._ports, self._interval = ports, interval
        super().__init__({
            "wakes": In(ports),
            "enable": In(ports),
            "clear": In(ports),
            "hold": In(1),
            "bus": In(8),
            "status": Out(ports),
            "o": Out(stream.Signature(MessageRequest)),
        })

    def elaborate(self, platform):
        m = Module()
        asks, asked, due, taken = (Signal(self._ports, name=name)
                                   for name in ("asks", "asked", "due", "taken"))
        again = Signal(self._ports)
        time, tick = Signal(range(self._interval)), Signal()
        m.d.comb += [asks.eq(self.status & self.enable), tick.eq(time == self._interval - 1)]
        m.d.sync += [
            time.eq(Mux(tick, 0, time + 1)),
            asked.eq(asks),
            self.status.eq(Mux(self.hold, 0, self.status & ~self.clear | self.wakes & self.enable)),
            due.eq((due & ~taken | ~asked | again) & asks),
        ]
        for n in range(self._ports):
            ticks = Signal(2, name=f"ticks{n}")  # since the last message was due
            m.d.comb += again[n].eq(tick & (ticks == 2))
            with m.If(~asks[n] | again[n]):
                m.d.sync += ticks.eq(0)
            with m.Elif(tick):
                m.d.sync += ticks.eq(ticks + 1)
        port, bus = Signal(range(self._ports)), Signal(8)
        with m.If(~self.o.valid | self.o.ready):
            m.d.comb += taken.eq(due & -due)
            m.d.sync += [self.o.valid.eq(due.any()), port.eq(first_one(due)), bus.eq(self.bus)]
        m.d.comb += [
            self.o.p.code.eq(MessageCode.PM_PME),
            self.o.p.routing.eq(Routing.TO_ROOT),
            self.o.p.requester_id.eq(Cat(C(0, 3), (port + C(0, 5))[:5], bus)),
        ]
        return m
