"""dxpu.switch: access control as a host's IOMMU grouping reads it, and that it does isolate."""

import random

import pytest
from switch_bench import SwitchBench, random_traffic
from test_switch import access, enumerate_tree

from dxpu_sim.golden.switch import UP
from dxpu_sim.golden.tlp import KINDS, classify
from dxpu_sim.testbench import seed

#: ACS Source Validation, P2P Request Redirect, P2P Completion Redirect, Upstream Forwarding.
NEEDED = 1 << 0 | 1 << 2 | 1 << 3 | 1 << 4
EXPRESS, UPSTREAM_PORT, DOWNSTREAM_PORT = 0x10, 5, 6


class Grouping:
    """What Linux does to decide whether the devices behind a port can be a group of their own.

    At boot it turns on what the port has of the four controls above. A device is isolated if on its
    way to the root each downstream port has the four on; an upstream port of a single function has
    nothing to isolate, one with several functions would need the controls itself.
    """

    def __init__(self, bench, ctx):
        self.bench, self.ctx = bench, ctx

    async def read(self, bus, device, offset):
        answer = await access(self.bench, self.ctx, bus, device, offset // 4, type1=bus != 1)
        return int.from_bytes(answer.payload, "little") >> 8 * (offset % 4)

    async def capability(self, bus, device, ident):
        at = await self.read(bus, device, 0x34) & 0xFF
        while at:
            header = await self.read(bus, device, at)
            if header & 0xFF == ident:
                return at
            at = header >> 8 & 0xFF
        return None

    async def extended(self, bus, device, ident):
        at = 0x100
        while at:
            header = await self.read(bus, device, at)
            if header & 0xFFFF == ident:
                return at
            at = header >> 20
        return None

    async def enable(self, bus, device):
        at = await self.extended(bus, device, 0x000D)
        if at is None:
            return
        has, control = await self.read(bus, device, at + 4) & 0xFFFF, await self.read(
            bus, device, at + 6)
        await access(self.bench, self.ctx, bus, device, at // 4 + 1,
                     (control | has & NEEDED) << 16, type1=bus != 1, enables=12)

    async def isolates(self, bus, device):
        express = await self.capability(bus, device, EXPRESS)
        kind = await self.read(bus, device, express + 2) >> 4 & 15
        several = await self.read(bus, device, 0x0E) >> 7 & 1
        if kind == UPSTREAM_PORT and not several:
            return True
        at = await self.extended(bus, device, 0x000D)
        return at is not None and await self.read(bus, device, at + 6) & NEEDED == NEEDED


@pytest.mark.parametrize("ports", [1, 3])
def test_each_slot_is_a_group_of_its_own(ports):
    bench = SwitchBench(64, ports, random.Random(seed()))

    async def main(ctx):
        await enumerate_tree(bench, ctx)
        groups = Grouping(bench, ctx)
        assert await groups.isolates(1, 0)
        for device in range(ports):
            assert not await groups.isolates(2, device)
            await groups.enable(2, device)
            assert await groups.isolates(2, device)
            assert await groups.read(1, 0, 0x0C) >> 23 & 1 == 0

    bench.simulate(main)


def test_no_request_goes_from_slot_to_slot():
    """With the four controls on, requests from a slot go up or come back as completions."""
    rng = random.Random(seed())
    bench = SwitchBench(64, 3, rng)
    kinds = tuple(k for k in KINDS if not k.startswith("Cpl"))
    seen = set()

    async def main(ctx):
        await enumerate_tree(bench, ctx)
        bench.present(ctx, 7)
        # The same traffic, first without access control.
        traffic = [(rng.randrange(3), raw)
                   for raw in random_traffic(rng, bench, 50, kinds=kinds)]
        for isolated in (False, True):
            if isolated:
                groups = Grouping(bench, ctx)
                for device in range(3):
                    await groups.enable(2, device)
            requests = {raw for _, raw in traffic}
            for side, raw in await bench.run(ctx, [], traffic):
                if side != UP and raw in requests:
                    assert not isolated and classify(raw).cls.name != "CPL"
                    seen.add("peer")
                elif side == UP:
                    seen.add((isolated, "up"))

    bench.simulate(main, deadline=400_000)
    assert seen == {"peer", (False, "up"), (True, "up")}
    assert bench.totals["peer"]
