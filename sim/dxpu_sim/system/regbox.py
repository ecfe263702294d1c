"""Mailbox between Python and a register port; simulation only."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.csr import RegisterPort

__all__ = ["RegisterBox", "RegisterBoxSignature"]


class RegisterBoxSignature(wiring.Signature):
    """Wires between Python and a :class:`RegisterBox`, seen from Python.

    Members
    -------
    request : 1
        Toggle: carry out the access described by ``address``, ``write`` and ``data``.
    answer : 1
        Follows ``request`` after the access; ``read_data`` and ``error`` are then valid.
    """

    def __init__(self):
        super().__init__({
            "request": Out(1), "address": Out(16), "write": Out(1), "data": Out(32),
            "answer": In(1), "read_data": In(32), "error": In(1),
        })


class RegisterBox(wiring.Component):
    """Carries out one register access per toggle of ``py.request``.

    Members
    -------
    py : :class:`RegisterBoxSignature`
        To be connected to ports of the simulation's top.
    bus : :class:`~dxpu.csr.RegisterPort`
    """

    py: In(RegisterBoxSignature())
    bus: Out(RegisterPort())

    def elaborate(self, platform):
        m = Module()
        py, request, response = self.py, self.bus.request, self.bus.response
        waiting = Signal()
        m.d.comb += [
            request.payload.address.eq(py.address),
            request.payload.write.eq(py.write),
            request.payload.data.eq(py.data),
            request.valid.eq((py.request != py.answer) & ~waiting),
            response.ready.eq(waiting),
        ]
        with m.If(request.valid & request.ready):
            m.d.sync += waiting.eq(1)
        with m.If(response.valid & response.ready):
            m.d.sync += [
                waiting.eq(0),
                py.answer.eq(py.request),
                py.read_data.eq(response.payload.data),
                py.error.eq(response.payload.error),
            ]
        return m
