"""Detection of designs that hang or are broken.

One test per simulation, because each test leaves open activities behind.
"""

import cocotb
from cocotb.triggers import Timer

from dxpu_sim.pcie.ports import DesignHangs, StreamBroken
from dxpu_sim.pcie.tlps import CompletionTimeout

from .passthrough_bench import System


@cocotb.test()
async def hang_is_named(dut):
    """A request without answer ends in an error that names the request."""
    system = System(dut)
    driver = await system.start()
    system.rc.timeout_ns = 20_000
    system.mailboxes[1].stall(1, True)
    try:
        await driver.dev.config_read_dword(0x2c)
    except CompletionTimeout as error:
        assert "cfg read 1 01:00.0 register 0x02c by 00:00.0" in str(error), error
    else:
        raise AssertionError("no timeout")
    assert len(system.checker.outstanding()) == 2


@cocotb.test(expect_error=CompletionTimeout)
async def hang_of_a_register_read_ends_the_test(dut):
    """A hanging read of a BAR, which the library performs in a task of its own, also ends the
    test."""
    system = System(dut)
    driver = await system.start()
    system.rc.timeout_ns = 20_000
    system.mailboxes[1].stall(1, True)
    await driver.read_register("SCRATCH")


@cocotb.test(expect_error=DesignHangs)
async def hang_of_the_design_ends_the_test(dut):
    """A design that takes no more TLPs is noticed even if no task waits for an answer."""
    system = System(dut)
    system.mailboxes[0].patience_ns = 20_000
    driver = await system.start()
    system.mailboxes[1].stall(0, True)
    await driver.write_vram(0, bytes(8192))
    await Timer(10, "ms")


@cocotb.test(expect_error=StreamBroken)
async def broken_stream_ends_the_test(dut):
    """A violation of a stream rule is noticed in the same cycle."""
    await System(dut).start()
