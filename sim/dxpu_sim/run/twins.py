"""Two of a component get the same inputs, and their outputs never differ.

``$DXPU_CYCLES``: cycles to run. The design makes the inputs itself; it has the outputs ``differ``,
which stays high, and ``changes``, how often the outputs changed.
"""

import os

import cocotb
from cocotb.triggers import Timer

CYCLES = int(os.environ.get("DXPU_CYCLES", "20000"))


@cocotb.test()
async def never_differ(dut):
    """They do not differ in any cycle, and do something."""
    await Timer(8 * CYCLES, "ns")
    assert int(dut.changes.value) > CYCLES // 10
    assert not int(dut.differ.value)
