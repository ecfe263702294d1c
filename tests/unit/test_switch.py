"""dxpu.switch: enumeration, and completions bit by bit."""

import random

import pytest
from switch_bench import SwitchBench, config_tlp

from dxpu.switch.config_map import Identity
from dxpu.switch.switch import VirtualSwitch
from dxpu_sim.golden.switch import UP
from dxpu_sim.golden.tlp import Tlp
from dxpu_sim.testbench import seed


async def access(bench, ctx, bus, device, register, data=None, *, type1, function=0, enables=15):
    """One configuration access; its completion as a :class:`Tlp`."""
    raw = config_tlp(bus << 8 | device << 3 | function, register, data, type1=type1,
                     enables=enables, tag=bench.rng.getrandbits(8))
    (side, answer), = await bench.run(ctx, [raw], settle=1)
    assert side == UP
    return Tlp.unpack(answer)


async def enumerate_tree(bench, ctx, first_bus=1, io=False):
    """What firmware does: find the bridges, number the buses, open windows, enable."""
    async def read(bus, device, register):
        answer = await access(bench, ctx, bus, device, register, type1=bus != first_bus)
        return int.from_bytes(answer.payload, "little") if answer.status == 0 else 0xFFFF_FFFF

    async def write(bus, device, register, data, enables=15):
        answer = await access(bench, ctx, bus, device, register, data, type1=bus != first_bus,
                              enables=enables)
        assert answer.status == 0

    found = []
    assert await read(first_bus, 0, 0) == 0xD0F0_1234
    assert await read(first_bus, 0, 3) >> 16 & 0x7F == 1
    inside = first_bus + 1
    await write(first_bus, 0, 6, 0xFF << 16 | inside << 8 | first_bus)
    bus = inside + 1
    for device in range(32):
        identity = await read(inside, device, 0)
        if identity == 0xFFFF_FFFF:
            continue
        found.append(device)
        assert identity == 0xD0F1_1234
        await write(inside, device, 6, bus << 16 | bus << 8 | inside)
        assert await read(bus, 0, 0) == 0xFFFF_FFFF  # nothing below
        await write(inside, device, 8, (0x8000 + 16 * device) << 16 | 0x8000 + 16 * device)
        base = 0x20_0000_0000 + (device << 32)
        await write(inside, device, 9, (0xFFF1 << 16) | 1)
        await write(inside, device, 10, base >> 32)
        await write(inside, device, 11, base >> 32)
        if io:
            await write(inside, device, 7, device << 12 | device << 4, 3)
        await write(inside, device, 1, 7)
        bus += 1
    await write(first_bus, 0, 6, (bus - 1) << 16 | inside << 8 | first_bus)
    await write(first_bus, 0, 8, (0x8000 + 16 * 31) << 16 | 0x8000)
    await write(first_bus, 0, 9, 0xFFF1 << 16 | 1)
    await write(first_bus, 0, 10, 0x20)
    await write(first_bus, 0, 11, 0x20 + 31)
    if io:
        await write(first_bus, 0, 7, 0xF000, 3)
    await write(first_bus, 0, 1, 7)
    return found


@pytest.mark.parametrize(("width", "ports"), [(64, 8), (64, 1), (512, 3), (32, 2)])
def test_enumeration_of_the_empty_switch(width, ports):
    bench = SwitchBench(width, ports, random.Random(seed()))

    async def main(ctx):
        assert await enumerate_tree(bench, ctx) == list(range(ports))

    bench.simulate(main)
    assert bench.golden.captured == 0x0100
    assert bench.totals["config"] and bench.totals["unsupported0"] >= 32 - ports + ports


def test_arguments():
    with pytest.raises(ValueError, match="width must be one of"):
        VirtualSwitch(65)
    with pytest.raises(ValueError, match="ports must be an integer from 1 to 32, not 0"):
        VirtualSwitch(64, ports=0)
    assert Identity().vendor
