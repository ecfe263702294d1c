"""dxpu.priority: the lowest set bit, with and without a carry chain."""

import pytest
from amaranth import *

from dxpu.priority import SHORT, first_one, lowest_bit
from tests.support.testbench import simulate


@pytest.mark.parametrize("bits", [1, 2, 5, SHORT, SHORT + 1, 10])
def test_lowest_bit(bits):
    m, value = Module(), Signal(bits)
    m.domains.sync = ClockDomain()
    one, index = Signal(bits), Signal(range(max(2, bits)))
    m.d.comb += [one.eq(lowest_bit(value)), index.eq(first_one(value))]

    async def process(ctx):
        for number in range(1 << bits):
            ctx.set(value, number)
            await ctx.delay(1e-9)
            assert ctx.get(one) == number & -number
            assert ctx.get(index) == max(0, (number & -number).bit_length() - 1)
    simulate(m, process)
