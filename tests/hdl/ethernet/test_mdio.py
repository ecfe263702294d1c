# amaranth: UnusedElaboratable=no
"""dxpu.ethernet.mdio: frames and times against an independent slave at the level of bits."""

import random

import pytest
from amaranth import *
from amaranth.lib import wiring

from dxpu.ethernet import Mdio, MdioSharing
from tests.support.mdio_phy import MdioSlave, PhyModel
from tests.support.testbench import seed, simulate


async def ask(ctx, port, phy, register, value=None):
    """A command and its result: data and error."""
    ctx.set(port.command.payload, {"data": value or 0, "register": register, "phy": phy,
                                   "write": value is not None})
    ctx.set(port.command.valid, 1)
    await ctx.tick().until(port.command.ready)
    ctx.set(port.command.valid, 0)
    ctx.set(port.result.ready, 1)
    result, = await ctx.tick().sample(port.result.payload).until(port.result.valid)
    ctx.set(port.result.ready, 0)
    return int(result.data), int(result.error)


class Memory:
    """A PHY all of whose registers are memory."""

    gone = False

    def __init__(self, rng):
        self.registers = [rng.randrange(1 << 16) for _ in range(32)]

    def read(self, register):
        return self.registers[register]

    def write(self, register, value):
        self.registers[register] = value


def check(dut, *, clock_hz, count, delay_ns=300):
    """Random reads and writes; some of PHYs that do not exist."""
    rng = random.Random(seed())
    phys = {0: Memory(rng), 9: Memory(rng), 31: Memory(rng)}
    expected = {n: list(phy.registers) for n, phy in phys.items()}
    slave = MdioSlave(dut, phys, clock_hz=clock_hz, delay_ns=delay_ns)
    cycles = []

    async def test(ctx):
        for _ in range(count):
            phy = rng.choice([0, 9, 31, 31, 4])
            register, value = rng.randrange(32), rng.randrange(1 << 16)
            if rng.random() < 0.5:
                assert (await ask(ctx, dut.port, phy, register, value))[1] == 0
                if phy in expected:
                    expected[phy][register] = value
            else:
                data, error = await ask(ctx, dut.port, phy, register)
                assert error == (phy not in expected)
                assert data == (expected[phy][register] if phy in expected else 0xFFFF)
            if rng.random() < 0.3:
                await ctx.tick().repeat(rng.randrange(100))
        await ctx.tick().repeat(20)
        assert not ctx.get(dut.mdc) and not ctx.get(dut.mdio_oe)
        cycles.append(count)

    simulate(dut, test, background=[slave.run], period=1 / clock_hz)
    assert cycles and slave.frames == count
    assert {n: phy.registers for n, phy in phys.items()} == expected
    return slave


@pytest.mark.parametrize("clock_hz, count", [(125e6, 6), (15e6, 40), (33e6, 10), (2e6, 40)])
@pytest.mark.parametrize("delay_ns", [0, 300])
def test_frames(clock_hz, count, delay_ns):
    dut = Mdio(clock_hz=clock_hz)
    slave = check(dut, clock_hz=clock_hz, count=count, delay_ns=delay_ns)
    # No slower than it must be.
    assert slave.shortest_ns <= max(400 + 2e9 / clock_hz, 6e9 / clock_hz)


class Eager(Mdio):
    """Mutant: MDC too fast."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.half -= 1


class Around(wiring.Component):
    """The master with its pins changed by :meth:`pins`."""

    def __init__(self, **kwargs):
        self._inner = Mdio(**kwargs)
        super().__init__(dict(self._inner.signature.members))

    def elaborate(self, platform):
        m = Module()
        m.submodules.inner = inner = self._inner
        wiring.connect(m, wiring.flipped(self.port), inner.port)
        m.d.comb += [self.mdc.eq(inner.mdc), self.mdio_o.eq(inner.mdio_o),
                     self.mdio_oe.eq(inner.mdio_oe), inner.mdio_i.eq(self.mdio_i)]
        self.pins(m, inner)
        return m


class Inverted(Around):
    """Mutant: MDIO changes with the rising edge of MDC, and is sampled at the falling one."""

    def pins(self, m, inner):
        m.d.comb += self.mdc.eq(~inner.mdc)


class Driving(Around):
    """Mutant: lets go of MDIO a bit too late."""

    def pins(self, m, inner):
        held = Signal(60)
        m.d.sync += held.eq(Cat(inner.mdio_oe, held))
        m.d.comb += self.mdio_oe.eq(inner.mdio_oe | held.any())


@pytest.mark.parametrize("mutant, what", [
    (Eager, "period"), (Inverted, None), (Driving, "turnaround|two drive")])
def test_mutants_are_found(mutant, what):
    with pytest.raises(AssertionError, match=what):
        check(mutant(clock_hz=33e6), clock_hz=33e6, count=4)


def test_a_phy_that_is_not_there():
    dut = Mdio(clock_hz=15e6)
    gone = PhyModel(gone=True)

    async def test(ctx):
        assert await ask(ctx, dut.port, 3, 2) == (0xFFFF, 1)
        gone.gone = False
        assert await ask(ctx, dut.port, 3, 2) == (0x1234, 0)
        assert await ask(ctx, dut.port, 3, 3) == (0x5678, 0)

    simulate(dut, test, background=[MdioSlave(dut, {3: gone}, clock_hz=15e6).run],
             period=1 / 15e6)


def test_sharing():
    """Three that ask at once: each gets its own results, and none waits for long."""
    sources, count = 3, 40
    dut = MdioSharing(sources)
    rng = random.Random(seed())
    served = []

    async def mdio(ctx):
        port = dut.o
        while True:
            ctx.set(port.command.ready, 1)
            command, = await ctx.tick().sample(port.command.payload).until(port.command.valid)
            ctx.set(port.command.ready, 0)
            served.append(int(command.phy))
            await ctx.tick().repeat(1 + rng.randrange(4))
            ctx.set(port.result.payload, {"data": command.data ^ 0xFFFF, "error": command.write})
            ctx.set(port.result.valid, 1)
            await ctx.tick().until(port.result.ready)
            ctx.set(port.result.valid, 0)

    def source(n):
        async def process(ctx):
            for k in range(count):
                value = n << 8 | k
                assert await ask(ctx, dut.i[n], n, 0, value) == (value ^ 0xFFFF, 1)
        return process

    simulate(dut, *(source(n) for n in range(sources)), background=[mdio])
    assert all(set(served[n:n + sources]) == set(range(sources))
               for n in range(0, sources * (count - 2), sources))


def test_arguments():
    with pytest.raises(ValueError, match="clock_hz must be positive, not 0"):
        Mdio(clock_hz=0)
    with pytest.raises(ValueError, match="mdc_hz must be at most 2500000, not 5000000"):
        Mdio(clock_hz=125e6, mdc_hz=5_000_000)
    with pytest.raises(ValueError, match="sources must be a positive integer, not 0"):
        MdioSharing(0)
    assert Mdio(clock_hz=125e6).half == 25 and Mdio(clock_hz=125e6, mdc_hz=1e6).half == 63
