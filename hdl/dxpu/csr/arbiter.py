"""Several who ask for registers, at one port."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.priority import round_robin

from .port import RegisterPort, RegisterRequest

__all__ = ["RegisterArbiter"]


class RegisterArbiter(wiring.Component):
    """Lets several ask at one register port, one request at a time, in turn.

    A request waits for at most one of each other port, from its own to the answer's being taken. An
    answer goes to who has asked, and to nobody else. Between two requests of one port those of
    others may come: whoever writes several registers that belong together has to see to it that
    nobody else writes them.

    Adds one cycle to a request, and none to its answer.

    Parameters
    ----------
    count : int
        Ports that ask, at least 1.

    Members
    -------
    i : array of In :class:`RegisterPort`
    o : Out :class:`RegisterPort`
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
