"""Contracts of dxpu.stream."""

import pytest
from amaranth import *
from amaranth.hdl import Assert, Assume
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dxpu.stream import ForwardRegister, Register
from tests.support.formal import ProofFailed, prove


class RegisterContract(wiring.Component):
    """The register stage delivers every word once, in order, and holds an offered word."""

    valid: In(1)
    data: In(4)
    ready: In(1)

    def __init__(self, design=Register, mutate=False):
        super().__init__()
        self._design, self._mutate = design, mutate

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self._design(4)
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


@pytest.mark.parametrize("design", [Register, ForwardRegister])
def test_register(design):
    prove(RegisterContract(design), depth=12)


@pytest.mark.parametrize("design", [Register, ForwardRegister])
def test_register_contract_is_not_vacuous(design):
    with pytest.raises(ProofFailed):
        prove(RegisterContract(design, mutate=True), depth=12)
