"""Contracts of dxpu.stream."""

import pytest
from amaranth import *
from amaranth.hdl import Assert, Assume
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dxpu.stream import Register
from tests.support.formal import ProofFailed, prove


class RegisterContract(wiring.Component):
    """The register stage delivers every word once, in order, and holds an offered word."""

    valid: In(1)
    data: In(4)
    ready: In(1)

    def __init__(self, mutate=False):
        super().__init__()
        self._mutate = mutate

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = Register(4)
        m.d.comb += [
            dut.i.valid.eq(self.valid), dut.i.payload.eq(self.data), dut.o.ready.eq(self.ready),
        ]
        # The source counts, so the sink must count too.
        sent, seen = Signal(4), Signal(4)
        with m.If(dut.i.valid & dut.i.ready):
            m.d.sync += sent.eq(sent + (2 if self._mutate else 1))
        m.d.comb += Assume(self.data == sent)
        with m.If(dut.o.valid & dut.o.ready):
            m.d.sync += seen.eq(seen + 1)
        with m.If(dut.o.valid):
            m.d.comb += Assert(dut.o.payload == seen)
        stalled = Signal()
        m.d.sync += stalled.eq(dut.o.valid & ~dut.o.ready)
        with m.If(stalled):
            m.d.comb += Assert(dut.o.valid)
        return m


def test_register():
    prove(RegisterContract(), depth=12)


def test_register_contract_is_not_vacuous():
    with pytest.raises(ProofFailed):
        prove(RegisterContract(mutate=True), depth=12)
