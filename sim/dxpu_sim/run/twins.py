"""Two instances of a component with the same inputs; their outputs must never differ.

``$DXPU_CYCLES``: cycles to run. The design generates the inputs. It has the outputs ``differ``,
which stays high after a difference, and ``changes``, the number of changes of the outputs.
"""

import os

import cocotb
from cocotb.triggers import Timer

CYCLES = int(os.environ.get("DXPU_CYCLES", "20000"))


@cocotb.test()
async def never_differ(dut):
    """The outputs do not differ in any cycle, and change often enough."""
    await Timer(8 * CYCLES, "ns")
    assert int(dut.changes.value) > CYCLES // 10
    assert not int(dut.differ.value)
