"""Arbiter of several masters at one register port."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.priority import round_robin

from .port import RegisterPort, RegisterRequest

__all__ = ["RegisterArbiter"]


class RegisterArbiter(wiring.Component):
    """Merges several register ports into one, one request at a time, in turn (round robin).

    A request waits for at most one access of each other port. A response goes to the port of its
    request only. Between two requests of one port those of others may come: a master that writes
    several registers as a set must be the only one that writes them.

    Adds one cycle to a request and none to its response.

    Parameters
    ----------
    count : int
        Masters, at least 1.

    Members
    -------
    i : array of In :class:`RegisterPort`
        Ports of the masters.
    o : Out :class:`RegisterPort`
        Port to the registers.
    """

    def __init__(self, count):
        if not isinstance(count, int) or count < 1:
            raise ValueError(f"count must be a positive integer, not {count!r}")
        self._count = count
        super().__init__({"i": In(RegisterPort()).array(count), "o": Out(RegisterPort())})

    def elaborate(self, platform):
        m = Module()
        request = Signal(RegisterRequest, reset_less=True)
        turn, pick = (Signal(range(self._count), name=name) for name in ("turn", "pick"))
        wishes = Cat(port.request.valid for port in self.i)
        m.d.comb += [
            pick.eq(round_robin(wishes, turn)),
            self.o.request.p.eq(request),
            *(port.response.p.eq(self.o.response.p) for port in self.i),
        ]
        with m.FSM():
            with m.State("Idle"):
                m.d.sync += turn.eq(Mux(wishes.any(), pick, turn))
                with m.Switch(pick):
                    for n, port in enumerate(self.i):
                        with m.Case(n):
                            m.d.comb += port.request.ready.eq(1)
                            m.d.sync += request.eq(port.request.p)
                with m.If(wishes.any()):
                    m.next = "Request"
            with m.State("Request"):
                m.d.comb += self.o.request.valid.eq(1)
                with m.If(self.o.request.ready):
                    m.next = "Answer"
            with m.State("Answer"), m.Switch(turn):
                for n, port in enumerate(self.i):
                    with m.Case(n):
                        m.d.comb += [port.response.valid.eq(self.o.response.valid),
                                     self.o.response.ready.eq(port.response.ready)]
                        with m.If(self.o.response.valid & port.response.ready):
                            m.next = "Idle"
        return m
