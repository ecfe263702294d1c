"""dxpu.switch: random traffic in both directions against the golden switch."""

import random

import pytest
from dxpu_model.switch import UP
from dxpu_model.tlp import KINDS
from tests.support.switch_bench import SwitchBench, config_tlp, random_traffic
from tests.support.testbench import seed

ALL = tuple(KINDS)
NO_CONFIG_WRITES = tuple(k for k in ALL if not k.startswith("CfgWr"))


def random_configuration(rng, ports):
    """Configuration writes that make a plausible tree with some mistakes in it."""
    first = rng.choice([1, 1, 7])
    inside = first + 1

    def up(register, data, enables=15):
        return config_tlp(first << 8, register, data, enables=enables, tag=rng.getrandbits(8))

    writes, bus = [], inside + 1
    writes.append(up(6, 0xFF << 16 | inside << 8 | first))
    memory, wide, io = 0x8000_0000, 0x20_0000_0000, 0
    for port in range(ports):
        def down(register, data, enables=15, port=port):
            return config_tlp(inside << 8 | port << 3, register, data, type1=True,
                              enables=enables, tag=rng.getrandbits(8))

        last = bus + rng.choice([0, 0, 2])
        if rng.random() < 0.95:
            writes.append(down(6, last << 16 | bus << 8 | inside))
        bus = last + 1
        size = rng.choice([1, 2, 16]) << 20
        low, high = memory >> 16, memory + size - 0x10_0000 >> 16
        if rng.random() < 0.1:
            low, high = high + 0x10, low
        writes.append(down(8, high << 16 | low))
        memory += size
        size = rng.choice([1, 3, 64]) << 28
        end = wide + size - 0x10_0000
        writes.append(down(9, (end & 0xFFF0_0000) | wide >> 16 & 0xFFF0))
        writes += [down(10, wide >> 32), down(11, end >> 32)]
        wide += size
        writes.append(down(7, (io >> 8 & 0xF0) << 8 | io >> 8 & 0xF0, 3))
        writes.append(down(12, (io >> 16) << 16 | io >> 16))
        io += 0x1000
        writes.append(down(1, rng.choice([7, 7, 7, 7, rng.getrandbits(3)])))
        writes.append(down(0xF, rng.choice([0, 2, 4, 6]) << 16))
        if rng.random() < 0.5:
            writes.append(down(0x59, rng.getrandbits(7) << 16))   # ACS
        writes.append(down(0x22, rng.choice([0, 0, 0x20, rng.getrandbits(16)])))
        writes.append(down(0x11, rng.choice([0, 0, 0, 0, 3])))    # power state
        writes.append(down(0x1C, rng.choice([0, 0, 0, 0, 0x10])))  # link disable
        if rng.random() < 0.05:
            writes.append(down(0xF, 1 << 22))
    writes.append(up(6, (bus - 1 + rng.choice([0, 0, -1, 5])) << 16 | inside << 8 | first))
    writes.append(up(8, memory + 0xF0_0000 & 0xFFF0_0000 | 0x8000))
    writes += [up(9, 0xFFF1 << 16 | 1), up(10, 0x20), up(11, (wide >> 32) + rng.choice([0, 1, 0]))]
    writes += [up(7, 0xF000, 3), up(12, 0)]
    writes.append(up(1, rng.choice([7, 7, 7, rng.getrandbits(3)])))
    writes.append(up(0xF, rng.choice([2, 2, 6]) << 16))
    writes += [up(0x22, rng.choice([0, 0, rng.getrandbits(16)]))]
    if rng.random() < 0.05:
        writes.append(up(0x11, 3))
    return writes


@pytest.mark.parametrize(("width", "ports", "rounds", "density"), [
    (64, 8, 1, 0.6), (64, 1, 1, 0.8), (512, 4, 1, 0.8),
    *(pytest.param(*p, marks=pytest.mark.long) for p in (
        (64, 8, 1, 1.0), (32, 3, 1, 0.8), (128, 2, 1, 0.8),
        (64, 8, 12, 1.0), (64, 8, 12, 0.6), (64, 32, 2, 0.8), (32, 3, 6, 0.6), (128, 4, 6, 0.8),
        (256, 4, 6, 1.0), (512, 8, 6, 0.8)))])
def test_random_traffic(width, ports, rounds, density):
    rng = random.Random(seed() * 1000 + width + ports)
    bench = SwitchBench(width, ports, rng, density=density)
    ways = set()

    async def main(ctx):
        for _ in range(rounds):
            bench.present(ctx, rng.getrandbits(ports) | rng.getrandbits(ports) or 1)
            await bench.run(ctx, random_configuration(rng, ports))
            down = list(random_traffic(rng, bench, 40, kinds=NO_CONFIG_WRITES))
            up = [(rng.randrange(ports), raw)
                  for raw in random_traffic(rng, bench, 60, kinds=ALL)]
            for side, _ in await bench.run(ctx, down, up):
                ways.add("up" if side == UP else "down")

    bench.also_checked = ("lookup0", "lookup1")
    bench.simulate(main, deadline=400_000)
    print(dict(bench.totals))
    assert ways == {"up", "down"}


def test_config_write_between_other_tlps():
    """What follows a configuration write at once is routed by the new configuration."""
    rng = random.Random(seed())
    bench = SwitchBench(64, 4, rng)

    async def main(ctx):
        bench.present(ctx, 15)
        for _ in range(3):
            stream = []
            for write in random_configuration(rng, 4):
                stream += [write, *random_traffic(rng, bench, 1, kinds=NO_CONFIG_WRITES)]
            await bench.run(ctx, stream)

    bench.simulate(main, deadline=400_000)


