"""Register port across clock domains."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.cdc import AsyncQueue
from dxpu.stream import connect

from .port import RegisterPort, RegisterRequest, RegisterResponse

__all__ = ["RegisterCrossing"]


class RegisterCrossing(wiring.Component):
    """Passes requests from ``sync`` to a register port in another clock domain, one at a time.

    Both domains must be reset together. A request is not answered while the clock of the other
    domain stands still. Each way adds one cycle of its own domain and three to four of the other.

    Parameters
    ----------
    domain : str
        Clock domain of ``far``.

    Members
    -------
    bus : In :class:`~dxpu.csr.RegisterPort`
        Port of the master, in ``sync``.
    far : Out :class:`~dxpu.csr.RegisterPort`
        Port to the registers, in ``domain``.
    """

    bus: In(RegisterPort())
    far: Out(RegisterPort())

    def __init__(self, *, domain):
        super().__init__()
        self._domain = domain

    def elaborate(self, platform):
        m = Module()
        m.submodules.there = there = AsyncQueue(
            RegisterRequest, depth=4, i_domain="sync", o_domain=self._domain)
        m.submodules.back = back = AsyncQueue(
            RegisterResponse, depth=4, i_domain=self._domain, o_domain="sync")
        connect(m, there.o, self.far.request)
        connect(m, wiring.flipped(self.far).response, back.i)
        connect(m, back.o, wiring.flipped(self.bus).response)

        request, response, busy = self.bus.request, self.bus.response, Signal()
        m.d.comb += [
            there.i.payload.eq(request.payload),
            there.i.valid.eq(request.valid & ~busy),
            request.ready.eq(there.i.ready & ~busy),
        ]
        with m.If(request.valid & request.ready):
            m.d.sync += busy.eq(1)
        with m.Elif(response.valid & response.ready):
            m.d.sync += busy.eq(0)
        return m
