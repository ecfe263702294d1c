"""dxpu.switch: placeholders in empty slots, against the golden ones and the specification."""

import random

import pytest
from amaranth.hdl import Fragment
from dxpu.switch import Identity
from dxpu.switch.config.fields import FUNCTION_DWORDS
from dxpu.switch.config.identity import PlaceholderOptions, SlotOptions
from dxpu.switch.config.placeholder_map import HELD, HELD_DWORDS, hide, placeholder_map
from dxpu.switch.config.port_map import DOWNSTREAM, function_map
from dxpu.switch.config_space import ConfigSpace
from dxpu.switch.hotplug.placeholder import Placeholders
from dxpu_model.switch_function import GoldenFunction
from dxpu_model.tlp import Tlp
from tests.hdl.switch.hotplug.test_hotplug import irq
from tests.hdl.switch.test_routing import ALL, NO_CONFIG_WRITES, random_configuration
from tests.support.hotplug_bench import LINK, PCIEHP, SLOT, Host
from tests.support.switch_bench import SwitchBench, config_tlp, info_of, random_traffic
from tests.support.testbench import Packet, drive_packets, seed

PRESENT, PRESENCE, LINK_CHANGED, LINK_ACTIVE = 1 << 6, 1 << 3, 1 << 8, 1 << 13
DEVICE = 0x50 // 4  # Device Control, Device Status
MIB, GIB = 1 << 20, 1 << 30


def identity(*, rest=8, patience=1 << 20, memory=32 * MIB, prefetchable=64 * GIB, **fields):
    return Identity(placeholder=PlaceholderOptions(memory, prefetchable, rest, patience), **fields)


def test_description_is_sound():
    """Fields do not overlap, capabilities are chained and fit; the class is of no driver."""
    fmap = placeholder_map(identity(vendor=0xABCD, placeholder_device=0x4321))
    seen = [0] * FUNCTION_DWORDS
    for r in fmap.registers:
        assert r.offset % (r.bits // 8) == 0 and r.offset + r.bits // 8 <= 4 * HELD_DWORDS
        for f in r.fields:
            place = f.mask << 8 * (r.offset % 4)
            assert f.lsb + f.width <= r.bits and f.access in ("RO", "RW", "RW1C", "LIVE")
            assert not seen[r.offset // 4] & place and f.reset >> f.width == 0, (r.name, f.name)
            seen[r.offset // 4] |= place
    image = fmap.reset_image()
    assert image[0] == 0x4321_ABCD and image[2] == 0xFF00_0001 and image[3] >> 16 & 0xFF == 0
    found, pointer = [], image[13] & 0xFF
    while pointer:
        found.append(image[pointer // 4] & 0xFF)
        pointer = image[pointer // 4] >> 8 & 0xFF
    assert found == [0x01, 0x10]
    assert image[0x48 // 4] >> 16 & 0xFF == 2  # version 2, endpoint
    port = function_map(DOWNSTREAM)
    both = hide(port.reset_image(), image)
    assert both[:HELD] == port.reset_image()[:HELD] and both[HELD:] == image[:HELD_DWORDS]
    with pytest.raises(ValueError, match="the registers of port and placeholder must fit side"):
        hide([1] * FUNCTION_DWORDS, image)


@pytest.mark.parametrize("name, value, text", [
    ("memory", 3 * MIB, "memory must be a power of two from 1 MiB to 2 GiB in bytes, not 3145728"),
    ("memory", MIB // 2, "memory must be a power of two from 1 MiB to 2 GiB in bytes, not 524288"),
    ("memory", 0, "memory must be a power of two from 1 MiB to 2 GiB in bytes, not 0"),
    ("memory", 4 * GIB, "memory must be a power of two from 1 MiB to 2 GiB .*, not 4294967296"),
    ("prefetchable", "1G", "prefetchable must be a power of two from 1 MiB to 128 TiB .*'1G'"),
    ("prefetchable", 1 << 48, "prefetchable must be a power of two from 1 MiB to 128 TiB"),
    ("rest", 0, "rest must be an integer of at least 1, not 0"),
    ("patience", 1.5, "patience must be an integer of at least 2, not 1.5")])
def test_arguments(name, value, text):
    with pytest.raises(ValueError, match=text):
        PlaceholderOptions(**{name: value})
    assert Placeholders(ports=1)


def test_by_default_nothing_of_it_is_built():
    def parts(identity):
        fragment = Fragment.get(ConfigSpace(ports=2, identity=identity), None)
        return {name for _, name, _ in fragment.subfragments}

    assert parts(identity()) - parts(None) == {"placeholders", "status"}
    assert parts(None) == parts(Identity()) >= {"hotplug", "memory", "rules"}


@pytest.mark.parametrize("memory, prefetchable", [
    (MIB, MIB), (32 * MIB, 64 * GIB), (1 << 31, 1 << 47), (16 * MIB, 4 * GIB), (MIB, 2 * GIB)])
def test_bars_have_their_sizes(memory, prefetchable):
    """Sizes by the procedure of 7.5.1.2.1: write all ones, read what stuck."""
    golden = GoldenFunction(0, placeholder_map(
        identity(memory=memory, prefetchable=prefetchable)))
    for dword in range(4, 10):
        golden.write(dword, 15, 0xFFFF_FFFF)
    bars = [golden.read(dword) for dword in range(4, 10)]
    assert bars[0] == -memory & 0xFFFF_FFFF
    assert bars[2] | bars[3] << 32 == -prefetchable & (1 << 64) - 1 | 0xC
    assert bars[1] == bars[4] == bars[5] == 0


def held_access(rng, buses):
    """A configuration request to what may be below a port, mostly to function 0."""
    target = rng.choice(buses) << 8
    if rng.random() < 0.15:
        target |= rng.getrandbits(8)
    register = rng.choice([rng.randrange(HELD_DWORDS), rng.randrange(4, 10), rng.randrange(1024),
                           rng.randrange(HELD, HELD + HELD_DWORDS), DEVICE])
    data = rng.choice([None, rng.getrandbits(32), 0xFFFF_FFFF, 0])
    fields = {"ep": 1} if data is not None and rng.random() < 0.1 else {}
    return config_tlp(target, register, data, type1=True, requester=rng.getrandbits(16),
                      enables=rng.choice([15, 15, rng.getrandbits(4)]), tag=rng.getrandbits(8),
                      **fields)


def buses_of(bench):
    """Bus numbers right below the ports, and the bus inside."""
    return [bench.golden.up.buses()[0], *(f.buses()[0] for f in bench.golden.down)]


def to_ports(rng, bench):
    """What changes links of the ports, and accesses to what they keep for placeholders."""
    inside, port = bench.golden.up.buses()[0], rng.randrange(bench.ports)
    register, data, enables = rng.choice([
        (LINK, rng.choice([0, 0, 0x10]), 3), (0xF, rng.choice([0, 0, 1 << 22]), 12),
        (HELD + rng.randrange(HELD_DWORDS), rng.getrandbits(32), 15)])
    return config_tlp(inside << 8 | port << 3, register, rng.choice([data, data, None]),
                      type1=True, enables=enables)


def slot_write(rng, bench):
    """What software does to the events and the power indicator of a slot."""
    inside, places = bench.golden.up.buses()[0], bench.golden.places.place
    left = [n for n, place in enumerate(places) if place == "nobody"]
    port = rng.choice(left) if left and rng.random() < 0.7 else rng.randrange(bench.ports)
    data, enables = rng.choice([(0x0109_0000, 12), (0x0109_0000, 12), (0x0008_0000, 4),
                                (0x300, 2), (0x100, 2)])
    return config_tlp(inside << 8 | port << 3, SLOT, data, type1=True, enables=enables)


@pytest.mark.parametrize("width, ports, rounds, dpc", [
    (64, 4, 1, False), *(pytest.param(*p, marks=pytest.mark.long) for p in (
        (64, 4, 2, False), (64, 8, 10, False), (32, 2, 10, True), (512, 3, 8, False),
        (64, 32, 2, False), (64, 4, 6, True)))])
def test_random_accesses_and_traffic(width, ports, rounds, dpc):
    """Registers, BARs, routing, resets, and leaving, at any moment: as the golden switch says."""
    rng = random.Random(seed() * 100 + width + ports)
    bench = SwitchBench(width, ports, rng, identity=identity(
        slot=SlotOptions(surprise=not dpc, dpc=dpc)))
    seen = set()

    async def main(ctx):
        for number in range(rounds):
            if number:
                # A conventional reset: they come back where nobody wants the slot.
                bench.present(ctx, 0)
                bench.bound(ctx, rng.getrandbits(ports) & rng.getrandbits(ports))
                ctx.set(bench.dut.upstream_down, 1)
                await ctx.tick().repeat(3)
                ctx.set(bench.dut.upstream_down, 0)
                golden = bench.golden
                golden.captured = 0
                for f in (golden.up, *golden.down):
                    f.reset(hot=True)
                golden.places.reset()
                await ctx.tick().repeat(300 * (ports + 1))
                golden.set_live()
            present, bound = 0, sum(b << n for n, b in enumerate(bench.golden.places.bound))
            setup = random_configuration(rng, ports)
            await bench.run(ctx, setup)
            for _ in range(12):
                traffic = [held_access(rng, buses_of(bench)) for _ in range(9)]
                traffic += [to_ports(rng, bench) for _ in range(3)]
                traffic += random_traffic(rng, bench, 5, kinds=ALL)
                rng.shuffle(traffic)
                await bench.run(ctx, traffic)
                # A moment passes from what software says until the GPU is there.
                await bench.run(ctx, [slot_write(rng, bench)], settle=40)
                await bench.run(
                    ctx, list(random_traffic(rng, bench, 5, kinds=NO_CONFIG_WRITES)),
                    [(rng.randrange(ports), raw)
                     for raw in random_traffic(rng, bench, 5, kinds=ALL)])
                seen.update(zip(bench.golden.places.place, bench.golden.present, strict=True))
                if rng.random() < 0.4:
                    present ^= 1 << rng.randrange(ports)
                    bench.present(ctx, present)
                if rng.random() < 0.2:
                    bound ^= 1 << rng.randrange(ports)
                    bench.bound(ctx, bound)
                bench.tell()
                await ctx.tick().repeat(60)

    bench.simulate(main, deadline=600_000 * rounds)
    assert {place for place, _ in seen} == {"placeholder", "nobody", "gpu"}


class Bench(Host):
    """A host whose switch has placeholders; its traffic is for port 0."""

    def __init__(self, rng, *, ports=2, rest=8, patience=1 << 20, width=64):
        super().__init__(width, ports, rng, identity=identity(rest=rest, patience=patience))

    def held(self, register, data=None, *, port=0, tag=0, function=0):
        """A configuration request to what is in a slot."""
        return config_tlp((port + 3) << 8 | function, register, data, type1=True, tag=tag)

    async def look(self, ctx, port=0):
        """Presence, link, and the events of a slot."""
        status = await self.read(ctx, port, SLOT) >> 16
        link = await self.read(ctx, port, LINK) >> 16
        assert bool(link & LINK_ACTIVE) == bool(link & 0x3FF)
        return (bool(status & PRESENT), bool(link & LINK_ACTIVE), bool(status & PRESENCE),
                bool(status & LINK_CHANGED))

    async def clear(self, ctx, port=0):
        """Clear the events of a slot."""
        await self.write(ctx, port, SLOT, (PRESENCE | LINK_CHANGED) << 16, 12)

    async def indicate(self, ctx, indicator, port=0):
        """Set the power indicator: 1 on, 3 off."""
        await self.write(ctx, port, SLOT, indicator << 8, 2)


def test_leaves_in_one_step_and_the_gpu_comes_after():
    """The slot is empty until software has cleared both events and turned the indicator off, and
    for a rest after that."""
    bench = Bench(random.Random(seed()), rest=300)
    dut = bench.dut

    async def main(ctx):
        await bench.start(ctx)
        assert await bench.look(ctx) == (True, True, True, True)  # as any card at boot
        answer = await bench.request(ctx, bench.held(2))
        assert answer.status == 0 and answer.payload == bytes([1, 0, 0, 0xFF])
        await bench.clear(ctx)
        await bench.indicate(ctx, 1)
        ctx.set(dut.bound, 1)
        await ctx.tick().repeat(3)
        assert ctx.get(dut.placeholder) == 0b10
        assert await bench.look(ctx) == (False, False, True, True)
        assert (await bench.request(ctx, bench.held(2))).status == 1
        bench.slots(ctx, 1, 1)
        for step in ("presence", "link", "indicator"):
            await ctx.tick().repeat(700)
            assert ctx.get(dut.link_active) == 0, step
            if step == "presence":
                await bench.write(ctx, 0, SLOT, PRESENCE << 16, 12)
            elif step == "link":
                await bench.write(ctx, 0, SLOT, LINK_CHANGED << 16, 12)
                assert await bench.look(ctx) == (False, False, False, False)
        await bench.indicate(ctx, 3)
        assert await bench.look(ctx) == (False, False, False, False)
        await ctx.tick().repeat(600)
        assert ctx.get(dut.link_active) == 1
        assert await bench.look(ctx) == (True, True, True, True)
        # It does not come back but with a conventional reset, where nobody wants the slot.
        ctx.set(dut.bound, 0)
        bench.slots(ctx, 0, 0)
        await bench.clear(ctx)
        await ctx.tick().repeat(200)
        assert await bench.look(ctx) == (False, False, False, False)
        for value in (0x40_0000, 0):  # Secondary Bus Reset of the upstream port is none
            await bench.write(ctx, None, 0xF, value)
        await bench.start(ctx)
        assert await bench.look(ctx) == (False, False, False, False)
        for bound in (1, 0, 2):
            ctx.set(dut.upstream_down, 1)
            await ctx.tick().repeat(5)
            ctx.set(dut.bound, bound)  # the time of the reset counts
            await ctx.tick().repeat(5)
            ctx.set(dut.upstream_down, 0)
            await ctx.tick().repeat(600)
            await bench.start(ctx)
            assert ctx.get(dut.placeholder) == 3 & ~bound
            there = bound & 1 == 0
            assert (await bench.look(ctx))[:2] == (there, there)

    bench.simulate(main, deadline=200_000)


def test_device_status_notes_what_is_refused():
    """Correctable 1, non-fatal 2, unsupported request 8; ones clear; a reset of the link too."""
    bench = Bench(random.Random(seed()))

    def memory(data):
        return Tlp(2 if data else 0, 0, length=1, requester_id=8, first_be=15, address=0x8000_0000,
                   payload=bytes(data)).pack()

    async def main(ctx):
        async def status():
            answer = await bench.request(ctx, bench.held(DEVICE))
            return answer.payload[2]

        await bench.start(ctx)
        for function in (None, 0):
            await bench.write(ctx, function, 8, 0x8000_8000)
        assert await status() == 0
        for cause, bits in ((memory(0), 0b1001), (memory(4), 0b1010),
                            (bench.held(0, function=1), 9), (bench.held(0, 0, function=7), 9)):
            await bench.send(ctx, cause)
            await ctx.tick().repeat(30)
            assert await status() == bits
            assert (await bench.request(ctx, bench.held(DEVICE, 1 << 16))).status == 0
            assert await status() == bits & ~1
            assert (await bench.request(ctx, bench.held(DEVICE, 0xF << 16))).status == 0
            assert await status() == 0
        await bench.send(ctx, memory(4))
        for value in (0x40_0000, 0):  # Secondary Bus Reset of the port
            await bench.write(ctx, 0, 0xF, value, 12)
        assert await status() == 0

    bench.simulate(main, deadline=50_000)


def test_nobody_listens():
    """Without a driver the slot is empty for the time of patience, and then the GPU's."""
    bench = Bench(random.Random(seed()), rest=500, patience=8)
    dut = bench.dut

    async def main(ctx):
        await bench.start(ctx)
        bench.slots(ctx, 1, 1)
        cycles = 0
        while not ctx.get(dut.link_active):
            await ctx.tick()
            cycles += 1
        assert 4000 <= cycles <= 4510
        assert await bench.look(ctx) == (True, True, True, True)

    bench.simulate(main, deadline=50_000)


@pytest.mark.parametrize("msi", [True, False])
def test_a_driver_sees_one_card_go_and_another_come(msi):
    """pciehp's view: interrupt, empty slot, then presence and link again with an interrupt."""
    bench = Bench(random.Random(seed()), rest=1000)
    drivers = [PCIEHP(bench, n) for n in range(2)]

    async def main(ctx):
        await bench.start(ctx)
        for d in drivers:
            if msi:
                await bench.set_msi(ctx, d.port, 0x1_FEE0_0000 + 16 * d.port, 0x40 + d.port)
            await d.probe(ctx)
            await d.turn(ctx, True)
            assert d.log.pop() == "on"
        for slot in (1, 0):
            bench.bind(ctx, slot)
            await irq(ctx, bench, drivers)
            assert drivers[slot].log == ["off"]
            assert not ctx.get(bench.dut.link_active) >> slot & 1
            before = len(bench.interrupts)
            await irq(ctx, bench, drivers, cycles=2500)
            assert len(bench.interrupts) > before
            assert drivers[slot].log == ["off", "on"]
        assert [d.log for d in drivers] == [["off", "on"]] * 2

    bench.simulate(main, deadline=100_000)


@pytest.mark.parametrize("moments", [4, pytest.param(100, marks=pytest.mark.long)])
def test_leaves_with_requests_under_way(moments):
    """Each request has exactly one completion; after the first without the endpoint none has."""
    rng = random.Random(seed())
    bench = Bench(rng)

    async def main(ctx):
        for _ in range(moments):
            await bench.start(ctx)
            for register, data in ((8, 0x8000_8000), (9, 0x0000_FFF1)):
                await bench.write(ctx, None, register, data)
                await bench.write(ctx, 0, register, data)
            for register, data in ((4, 0x8000_0000), (1, 2)):
                assert (await bench.request(ctx, bench.held(register, data))).status == 0
            requests = [
                rng.choice([
                    bench.held(rng.choice([0, 2, 4]), tag=tag),
                    bench.held(4, rng.getrandbits(32), tag=tag),
                    Tlp(0, 0, length=1, requester_id=8, tag=tag, first_be=15,
                        address=0x8000_0000 + 4 * tag).pack()]) for tag in range(40)]
            seen = len(bench.completions)
            moment = rng.randrange(500)

            async def leave(ctx, moment=moment):
                await ctx.tick().repeat(moment)
                ctx.set(bench.dut.bound, 1)

            bench.leave = leave
            await drive_packets(bench.dut.upstream_i, [
                Packet(raw, info_of(raw)) for raw in requests])(ctx)
            await ctx.tick().repeat(200)
            answers = bench.completions[seen:]
            assert [a.tag for a in answers] == list(range(40))
            configs = [a for a, raw in zip(answers, requests, strict=True) if raw[0] & 0x1F == 5]
            good = [a.status == 0 for a in configs]
            assert good == sorted(good, reverse=True)
            for answer, raw in zip(answers, requests, strict=True):
                config = raw[0] & 0x1F == 5
                assert answer.status == 1 or config
                # The port answers for an empty slot.
                assert answer.completer_id in ((0x300,) if answer.status == 0 else (0x300, 0x200))
            moments_seen.add(sum(good) not in (0, len(good)))
            ctx.set(bench.dut.bound, 0)
            ctx.set(bench.dut.upstream_down, 1)
            await ctx.tick().repeat(5)
            ctx.set(bench.dut.upstream_down, 0)
            await ctx.tick().repeat(600)

    async def leaver(ctx):
        while True:
            while getattr(bench, "leave", None) is None:
                await ctx.tick()
            leave, bench.leave = bench.leave, None
            await leave(ctx)

    moments_seen = set()
    bench.simulate(main, background=[leaver], deadline=20_000 * moments)
    assert True in moments_seen
