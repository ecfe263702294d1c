"""dxpu.switch: access control as a host's IOMMU grouping reads it, and that it does isolate."""

import random

import pytest
from dxpu.switch import Identity
from dxpu.switch.config.identity import SlotOptions
from dxpu_model.switch import UP
from dxpu_model.tlp import KINDS, classify
from tests.hdl.switch.test_switch import access, enumerate_tree
from tests.support.switch_bench import SwitchBench, random_traffic
from tests.support.testbench import seed

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


#: What comes from slot 0, on bus 3, with another bus number in its requester ID; and where it
#: leaves without Source Validation: up, at another slot, or in the switch itself.
FOREIGN = {
    "vendor-defined message to the root complex": ("30000000 0000007e 00001234 00000000", UP),
    "vendor-defined message to the root complex, type 1":
        ("30000000 0000007f 00001234 00000000", UP),
    "vendor-defined message by ID": ("32000000 0000007f 04001234 00000000", 1),
    "PM_PME": ("30000000 00000018 00000000 00000000", UP),
    "ERR_COR": ("30000000 00000030 00000000 00000000", UP),
    "Assert_INTA": ("34000000 00000020 00000000 00000000", None),
    "Deassert_INTA": ("34000000 00000024 00000000 00000000", None),
    "memory write": ("40000001 0900000f 00100000 deadbeef", UP),
    "64-bit memory write from slot to slot": ("60000001 0900000f 00000021 00000000 deadbeef", 1),
    "memory read": ("00000001 0900110f 00100000", UP),
    "memory read from slot to slot": ("20000001 0000120f 00000021 00000000", 1),
    "FetchAdd": ("4c000001 09001300 00100000 00000001", UP),
}
SOURCE_VALIDATION = 0x0200, 0x59, 1 << 16  # of the port of slot 0: ACS Control


async def foreign_steps(bench, ctx):
    """Each TLP of ``FOREIGN`` by itself; yields its name, bytes, route and what left."""
    await enumerate_tree(bench, ctx)
    bench.present(ctx, 3)
    # SERR# Enable, for error messages.
    for bus, device in ((1, 0), (2, 0)):
        await access(bench, ctx, bus, device, 0x3C // 4, 2 << 16, type1=bus != 1, enables=12)
    for name, (text, to) in FOREIGN.items():
        raw = bytes.fromhex(text)
        yield name, raw, to, await bench.run(ctx, [], [(0, raw)])


def test_requests_go_their_way_whoever_asks():
    """With Source Validation off, as after reset (6.12.1.1); routing is by address or by the route
    field of a message (2.2.4, 2.2.8)."""
    bench = SwitchBench(64, 2, random.Random(seed()))
    wires = []

    async def main(ctx):
        async for name, raw, to, out in foreign_steps(bench, ctx):
            assert out == ([] if to is None else [(to, raw)]), name
            wires.append(bench.wires[0])
        # An MSI that was on its way when the port got another bus number.
        await access(bench, ctx, 2, 0, 6, 0x07_07_02, type1=True)
        raw = bytes.fromhex("40000001 0300000f fee00000 00000041")
        assert await bench.run(ctx, [], [(0, raw)]) == [(UP, raw)]

    bench.simulate(main)
    assert wires[4:7] == [False, True, False]  # by Assert_INTA and Deassert_INTA
    assert not bench.totals["blocked"] and not bench.totals["unclaimed1"]


@pytest.mark.parametrize("strict", [False, True])
def test_source_validation_blocks_foreign_requesters(strict):
    """On: an ACS violation, Completer Abort. By the build alone: Unsupported Request."""
    bench = SwitchBench(64, 2, random.Random(seed()),
                        identity=Identity(slot=SlotOptions(strict_source=strict)))
    answered = {}

    async def main(ctx):
        if not strict:
            await enumerate_tree(bench, ctx)
            target, dword, value = SOURCE_VALIDATION
            await access(bench, ctx, target >> 8, 0, dword, value, type1=True, enables=12)
        async for name, raw, _, out in foreign_steps(bench, ctx):
            for side, answer in out:
                assert side == 0 and answer[0] == 0x0A, "a completion for the slot itself"
                assert answer[8:11] == raw[4:7], "requester ID and tag"
                answered[name] = answer[6] >> 5
        # Its own requester ID, of any function and device, and completions are not concerned.
        for text in ("40000001 03ff000f 00100000 deadbeef", "0a000000 03002004 00000000"):
            raw = bytes.fromhex(text)
            assert await bench.run(ctx, [], [(0, raw)]) == [(UP, raw)]

    bench.simulate(main)
    assert answered == dict.fromkeys(
        ("memory read", "memory read from slot to slot", "FetchAdd"), 1 if strict else 4)
    assert bench.totals["blocked"] == len(FOREIGN)


def test_the_completion_of_a_read_with_a_foreign_requester_id():
    """It goes where its requester ID leads: to another slot, or nowhere; the switch keeps nothing
    of the read, so nothing waits for it (2.2.4.2, 2.3.2)."""
    bench = SwitchBench(64, 2, random.Random(seed()))

    async def main(ctx):
        await enumerate_tree(bench, ctx)
        bench.present(ctx, 3)
        for bus, to in ((4, 1), (9, None)):
            read = bytes.fromhex(f"00000001 0{bus}00110f 00100000")
            assert await bench.run(ctx, [], [(0, read)]) == [(UP, read)]
            completion = bytes.fromhex(f"4a000001 00000004 0{bus}001100 00112233")
            out = await bench.run(ctx, [completion])
            assert out == ([] if to is None else [(to, completion)])

    bench.simulate(main)
    assert bench.totals["unexpected0"] == 1 and not bench.totals["blocked"]
