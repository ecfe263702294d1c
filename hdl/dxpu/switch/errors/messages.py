"""Error messages of the ports themselves.

Ref: PCIe Base 5.0, 6.2.3.2.3, 6.2.10.2
"""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.switch.messages.messages import MessageRequest
from dxpu.switch.types import PortState
from dxpu.tlp.types import MessageCode, Routing

from .registers import ErrorMessage

__all__ = ["ErrorMessages"]

#: In the order in which those of a port go, which is that of their flags.
_CODES = (MessageCode.ERR_FATAL, MessageCode.ERR_NONFATAL, MessageCode.ERR_COR)


class ErrorMessages(wiring.Component):
    """Sends error messages, one of each kind and port at a time, port by port, looking at one port
    in a cycle.

    A message of a kind that waits already is not sent again, but counted. Of containment ERR_COR
    tells, if it is enabled; then, in either case, the port is ``announced``.

    Parameters
    ----------
    ports : int
        Downstream ports.

    Members
    -------
    i : :class:`~.registers.ErrorMessage`
    announce, announced : ``ports``
        Strobes: the port is contained; that has been told.
    states : array of :class:`PortState`
    upstream_id : 13
        Bus and device number of the upstream port.
    o : stream of :class:`~dxpu.switch.messages.messages.MessageRequest`
    stat_unsent : 1
        Pulse: a message was not sent, as the same one of the port was waiting.
    """

    def __init__(self, ports):
        self._ports = ports
        super().__init__({
            "i": In(ErrorMessage),
            "announce": In(ports),
            "announced": Out(ports),
            "states": In(PortState).array(ports + 1),
            "upstream_id": In(13),
            "o": Out(stream.Signature(MessageRequest)),
            "stat_unsent": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        count, i, up = self._ports + 1, self.i, self.states[0]
        m.submodules.flags = flags = Memory(shape=len(_CODES), depth=count, init=[])
        write, read = flags.write_port(), flags.read_port(domain="comb")
        function, port, state = Signal(range(count)), Signal(5), Signal(PortState)
        onward, contained, serves = Signal(), Signal(count), Signal()
        code, announces, comes = Signal(MessageCode), Signal(), Signal(len(_CODES))
        at = Cat(function == n for n in range(count))
        with m.Switch(function):
            for n in range(count):
                with m.Case(n):
                    m.d.comb += state.eq(self.states[n])
        with m.If(onward):
            m.d.sync += function.eq(Mux(function == count - 1, 0, function + 1))
        m.d.sync += contained.eq(contained & ~(at & serves.replicate(count)) | self.announce << 1)

        # A message that comes goes before a look at a port.
        m.d.comb += [
            comes.eq(Cat(i.code == each for each in _CODES) & i.strobe.replicate(len(_CODES))),
            read.addr.eq(Mux(i.strobe, i.function, function)),
            write.addr.eq(read.addr),
            write.data.eq(read.data | comes),
            write.en.eq(i.strobe),
            self.stat_unsent.eq((read.data & comes).any()),
            port.eq(function - 1),
            self.o.p.code.eq(code),
            self.o.p.routing.eq(Routing.TO_ROOT),
            self.o.p.requester_id.eq(Mux(function == 0, Cat(C(0, 3), self.upstream_id),
                                         Cat(C(0, 3), port, up.secondary))),
        ]
        with m.FSM():
            with m.State("Clear"):
                # After reset.
                m.d.comb += [read.addr.eq(function), write.data.eq(0), write.en.eq(1),
                             self.stat_unsent.eq(0), onward.eq(1)]
                with m.If(function == count - 1):
                    m.next = "Look"
            with m.State("Look"):
                with m.If((contained & at).any()):
                    m.next = "Announce"
                with m.Elif(~i.strobe):
                    m.d.comb += [write.data.eq(read.data & (read.data - 1)), write.en.eq(1)]
                    with m.Switch(read.data):
                        for n, each in enumerate(_CODES):
                            with m.Case(("1" + "0" * n).rjust(len(_CODES), "-")):
                                m.d.sync += code.eq(each)
                                m.next = "Send"
                        with m.Default():
                            m.d.comb += onward.eq(1)
            with m.State("Announce"):
                m.d.comb += serves.eq(1)
                with m.If(state.dpc_correctable & state.correctable & up.forward_errors):
                    m.d.sync += [announces.eq(1), code.eq(MessageCode.ERR_COR)]
                    m.next = "Send"
                with m.Else():
                    m.d.comb += self.announced.eq(at[1:])
                    m.next = "Look"
            with m.State("Send"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.d.comb += [self.announced.eq(at[1:] & announces.replicate(self._ports)),
                                 onward.eq(~announces)]
                    m.d.sync += announces.eq(0)
                    m.next = "Look"
        return m
