"""Register port, and the multiplexer that passes its requests to blocks by address."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.priority import one_hot_mux
from dxpu.stream import connect

__all__ = ["RegisterMux", "RegisterPort", "RegisterRequest", "RegisterResponse",
           "connect_ports"]


class RegisterRequest(data.Struct):
    """Read or write of one 32-bit register."""

    #: Byte address; a multiple of 4.
    address: 16
    #: 1 for a write.
    write: 1
    #: Value to write; no meaning in reads.
    data: 32


class RegisterResponse(data.Struct):
    """Response to a request; every request gets exactly one, in order."""

    #: Value read; 0 for writes and errors.
    data: 32
    #: There is no such register, or it cannot be written; nothing was changed.
    error: 1


class RegisterPort(wiring.Signature):
    """Register port, seen from the master. One request is outstanding at a time.

    Members
    -------
    request : Out stream of :class:`RegisterRequest`
        Reads and writes.
    response : In stream of :class:`RegisterResponse`
        Response to each.
    """

    def __init__(self):
        super().__init__({
            "request": Out(stream.Signature(RegisterRequest)),
            "response": In(stream.Signature(RegisterResponse)),
        })

    def __eq__(self, other):
        return type(self) is type(other)


class RegisterMux(wiring.Component):
    """Passes each request to the port whose address range it is in, and the response back.

    An address in no range is answered with ``error``. The port gets the address relative to the
    base of its range. Adds one cycle to a request and one to its response; one request at a time.

    Parameters
    ----------
    windows : dict from name to (base, size)
        Sizes are powers of two, bases multiples of them, ranges distinct; such as
        :attr:`dxpu.csr.AddressMap.windows`.

    Members
    -------
    bus : In :class:`RegisterPort`
        Port of the master.
    <name> : Out :class:`RegisterPort`
        Port of each range.
    """

    def __init__(self, windows):
        spans = []
        for name, (base, size) in windows.items():
            if size < 4 or size & (size - 1) or base % size or base + size > 0x10000:
                raise ValueError(f"Range {name} must be an aligned power of two within 64 KiB, "
                                 f"not {(base, size)!r}")
            if any(base < end and start < base + size for start, end in spans):
                raise ValueError(f"Range {name} overlaps another")
            spans.append((base, base + size))
            if name == "bus":
                raise ValueError("Range name must not be 'bus'")
        self._windows = dict(windows)
        super().__init__({"bus": In(RegisterPort()),
                          **{name: Out(RegisterPort()) for name in windows}})

    def elaborate(self, platform):
        m = Module()
        ports = [getattr(self, name) for name in self._windows]
        request = Signal(RegisterRequest, reset_less=True)
        answer = Signal(RegisterResponse, reset_less=True)
        chosen = Signal(len(ports))

        for port, (_, size) in zip(ports, self._windows.values(), strict=True):
            m.d.comb += [
                port.request.p.eq(request),
                port.request.p.address.eq(request.address & (size - 1)),
            ]
        m.d.comb += self.bus.response.p.eq(answer)

        taken = one_hot_mux(chosen, [port.request.ready for port in ports])
        answered = one_hot_mux(chosen, [port.response.valid for port in ports])
        with m.FSM():
            with m.State("Idle"):
                m.d.comb += self.bus.request.ready.eq(1)
                m.d.sync += request.eq(self.bus.request.p)
                address = self.bus.request.p.address
                for n, (base, size) in enumerate(self._windows.values()):
                    bits = size.bit_length() - 1
                    m.d.sync += chosen[n].eq(address[bits:] == base >> bits)
                with m.If(self.bus.request.valid):
                    m.next = "Request"
            with m.State("Request"):
                m.d.comb += [port.request.valid.eq(c)
                             for port, c in zip(ports, chosen, strict=True)]
                m.d.sync += [answer.data.eq(0), answer.error.eq(1)]
                with m.If(~chosen.any()):
                    m.next = "Answer"
                with m.Elif(taken):
                    m.next = "Wait"
            with m.State("Wait"):
                m.d.comb += [port.response.ready.eq(c)
                             for port, c in zip(ports, chosen, strict=True)]
                m.d.sync += answer.eq(one_hot_mux(chosen, [port.response.p for port in ports]))
                with m.If(answered):
                    m.next = "Answer"
            with m.State("Answer"):
                m.d.comb += self.bus.response.valid.eq(1)
                with m.If(self.bus.response.ready):
                    m.next = "Idle"
        return m


def connect_ports(m, source, sink):
    """Connect the register port of a master to that of registers."""
    connect(m, source.request, sink.request)
    connect(m, sink.response, source.response)
