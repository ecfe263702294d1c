"""A design that is cheap to build, with benches that end abnormally."""

import os
import signal
import sys
from pathlib import Path

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from dxpu_sim.run.clock import SimClock

__all__ = ["Tiny"]


class Tiny(wiring.Component):
    """Counts cycles of 8 ns."""

    count: Out(32)

    def elaborate(self, platform):
        m = Module()
        m.submodules.clock = SimClock()
        m.d.sync += self.count.eq(self.count + 1)
        return m


if "cocotb" in sys.modules and "COCOTB_TEST_MODULES" in os.environ:
    import cocotb
    from cocotb.triggers import Timer

    @cocotb.test()
    async def bench(dut):
        """Ends or hangs as selected by ``$DXPU_HANG``."""
        await Timer(100, "us")
        Path("begun").write_text(str(os.getpid()))
        match os.environ["DXPU_HANG"]:
            case "stops":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "for ever":
                while True:
                    await Timer(1, "us")
            case "ends":
                assert int(dut.count.value) > 12_000
