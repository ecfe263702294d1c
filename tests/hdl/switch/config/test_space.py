"""dxpu.switch: the configuration spaces against the golden ones."""

import random

import pytest

from dxpu.switch.config.fields import (
    FUNCTION_DWORDS, HIGH, HIGH_DWORDS, FunctionMap, Register, kept_at,
)
from dxpu.switch.config.identity import Identity
from dxpu.switch.config.port_map import DOWNSTREAM, UPSTREAM, function_map, render
from dxpu.switch.config_space import ConfigSpace
from dxpu_sim.switch.golden import golden_function
from tests.support.testbench import check_stream, seed, simulate


class Bench:
    """A ConfigSpace and the golden functions next to it."""

    def __init__(self, ports, identity=None):
        self.dut = ConfigSpace(ports=ports, identity=identity)
        self.ports = ports
        self.golden = [golden_function(None if n == 0 else n - 1, identity)
                       for n in range(ports + 1)]
        self.updates = {}
        self.present(0)

    def present(self, mask, ctx=None):
        if ctx:
            ctx.set(self.dut.present, mask)
        reset_all = self.golden[0].get("Bridge Control", "Secondary Bus Reset")
        for n, g in enumerate(self.golden[1:]):
            here = mask >> n & 1
            active = bool(here and not g.get("Link Control", "Link Disable") and not reset_all
                          and not g.get("Bridge Control", "Secondary Bus Reset"))
            g.set_slot(bool(here), active)
        self.mask = mask

    async def access(self, ctx, function, register, write=0, enables=0, data=0):
        request = self.dut.request
        ctx.set(request.payload, {"function": function, "register": register, "write": write,
                                  "enables": enables, "data": data})
        ctx.set(request.valid, 1)
        await ctx.tick().until(request.ready)
        ctx.set(request.valid, 0)
        ctx.set(self.dut.response.ready, 1)
        value, = await ctx.tick().sample(self.dut.response.payload).until(self.dut.response.valid)
        ctx.set(self.dut.response.ready, 0)
        return value

    async def read(self, ctx, function, register):
        got = await self.access(ctx, function, register)
        expected = self.golden[function].read(register)
        assert got == expected, f"function {function} dword {register:#x}: {got:08x}, " \
                                f"not {expected:08x}"
        return got

    async def write(self, ctx, function, register, enables, data):
        bus_reset = self.golden[0].get("Bridge Control", "Secondary Bus Reset")
        await self.access(ctx, function, register, 1, enables, data)
        self.golden[function].write(register, enables, data)
        if function and register == 0x70 // 4 and enables & 1 and data & 0x30 == 0x20:
            self.golden[function].retrain()
        bus_reset |= self.golden[0].get("Bridge Control", "Secondary Bus Reset")
        if bus_reset and function == 0 and register == 0xF:
            for g in self.golden[1:]:
                g.reset(hot=True)
        self.present(self.mask)

    async def follow(self, ctx):
        async for *_, update in ctx.tick().sample(self.dut.config):
            if update.strobe:
                assert update.function <= self.ports
                self.updates[update.function, update.register] = update.value


@pytest.mark.parametrize("ports", [1, 2, 8, 32])
def test_every_register_after_reset(ports):
    bench = Bench(ports, Identity(vendor=0xABCD, serial=0x1122334455667788))

    async def process(ctx):
        functions = sorted({0, 1, ports // 2 + 1, ports})
        for function in functions:
            registers = range(FUNCTION_DWORDS) if function < 2 else range(0x60)
            for register in [*registers, *range(HIGH - 1, HIGH + HIGH_DWORDS + 1), 200, 0x3FF]:
                await bench.read(ctx, function, register)
        # All dwords of all functions were announced with their reset values.
        assert len(bench.updates) == FUNCTION_DWORDS * (ports + 1)
        live = {"Link Status", "Slot Status", "Device Capabilities", "Serial Number (Lower)"}
        for function, golden in enumerate(bench.golden):
            for register in range(1024):
                if (place := kept_at(register)) is not None and register not in {
                        golden.map.dword(n) for n in live if n in golden.map.by_name}:
                    assert bench.updates[function, place] == golden.read(register)

    simulate(bench.dut, process, background=[bench.follow, check_stream(bench.dut.response)])


@pytest.mark.parametrize("ports", [1, 3])
def test_random_accesses(ports):
    rng = random.Random(seed())
    bench = Bench(ports)
    used = {kind: sorted({r.offset // 4 for r in function_map(kind).registers})
            for kind in (UPSTREAM, DOWNSTREAM)}

    async def process(ctx):
        for _ in range(3000):
            function = rng.randrange(ports + 1)
            if rng.random() < 0.02:
                bench.present(rng.getrandbits(ports), ctx)
                await bench.read(ctx, 0, 0)  # after a reset that is under way
            register = rng.choice(used[DOWNSTREAM if function else UPSTREAM])
            if rng.random() < 0.05:
                register = rng.randrange(1024)
            if function == 0 and register == 0xF and rng.random() < 0.8:
                continue  # resets the others: seldom, so that they come far
            if rng.random() < 0.5:
                enables = rng.choice([15, 15, 0, 1, 2, 4, 8, 3, 12, rng.randrange(16)])
                await bench.write(ctx, function, register, enables, rng.choice(
                    [rng.getrandbits(32), rng.getrandbits(32), 0, 0xFFFF_FFFF]))
            else:
                await bench.read(ctx, function, register)

    simulate(bench.dut, process, background=[bench.follow, check_stream(bench.dut.response)])


def test_status_bits_of_errors():
    """They are read from ``errors``; ones that software writes, and resets, are told there."""
    rng = random.Random(seed())
    bench = Bench(2)
    kept, resets = {}, set()
    names = ("Status", "Secondary Status", "Device Status", "Uncorrectable Error Status",
             "Correctable Error Status")

    async def keep(ctx):
        """Status bits as whoever keeps them would."""
        errors = bench.dut.errors
        async for *_, update, ones, reset in ctx.tick().sample(
                bench.dut.config, errors.ones, errors.reset):
            here = update.function, update.register
            if update.strobe and reset:
                resets.add(here)
                kept.pop(here, None)
            elif update.strobe and here in kept:
                kept[here] &= ~ones
            ctx.set(errors.value, kept.get((ctx.get(errors.function), ctx.get(errors.register)), 0))

    async def process(ctx):
        await bench.read(ctx, 0, 0)
        for function in range(3):
            fmap = bench.golden[function].map
            for name in names:
                for f in fmap.by_name[name].fields:
                    if f.access != "RW1C":
                        continue
                    here = function, fmap.dword(name)
                    kept[here] = kept.get(here, 0) | 1 << fmap.bit(name, f.name)
                    bench.golden[function].set_status(name, f.name)
                    await bench.read(ctx, *here)
                    if rng.random() < 0.7:
                        await bench.write(ctx, *here, 15, 1 << fmap.bit(name, f.name))
                        await bench.read(ctx, *here)
        # All were told of the first fill; AER is sticky, so not of a reset of the ports below.
        assert {(n, r) for n in range(3) for r in (1, 7, 0x1A, 0x41, 0x44)} <= resets
        resets.clear()
        await bench.write(ctx, 0, 0xF, 15, 1 << 22)
        await bench.read(ctx, 0, 0)
        assert {(n, r) for n in (1, 2) for r in (1, 7, 0x1A)} <= resets
        assert not {r for _, r in resets} & set(range(0x41, 0x52)) and not {
            n for n, _ in resets} & {0}

    simulate(bench.dut, process, background=[bench.follow, keep])


def test_logs_are_written_between():
    """While requests go on, and not before the first fill is over; sticky."""
    bench = Bench(1)

    async def log(ctx):
        for n in range(40):
            ctx.set(bench.dut.log.p, dict(function=n % 2, register=0x47 + n % 4, value=0x100 + n))
            ctx.set(bench.dut.log.valid, 1)
            await ctx.tick().until(bench.dut.log.ready)
            ctx.set(bench.dut.log.valid, 0)
        ctx.set(bench.dut.log.valid, 0)

    async def process(ctx):
        for n in range(30):
            await bench.write(ctx, 1, 6, 15, n)
            await bench.read(ctx, 1, 6)
        await bench.write(ctx, 0, 0xF, 15, 1 << 22)
        for function in range(2):
            for n in range(4):
                last = max(k for k in range(40) if (k % 2, k % 4) == (function, n)) if (
                    n % 2 == function) else None
                expected = 0x100 + last if last is not None else 0
                assert await bench.access(ctx, function, 0x47 + n) == expected

    simulate(bench.dut, process, log, background=[bench.follow])


def test_serial_number():
    """The lower half follows the input in every function, the upper half is that of the build."""
    dut = ConfigSpace(ports=3, identity=Identity(serial=0x0A1B_2CFF_1234_5678))
    bench = Bench(1)
    bench.dut = dut

    async def process(ctx):
        for lower in (None, 0x8765_4321, 0):
            if lower is not None:
                ctx.set(dut.serial, lower)
            for function in range(4):
                assert await bench.access(ctx, function, 0x154 // 4) == (
                    0x1234_5678 if lower is None else lower)
                await bench.access(ctx, function, 0x154 // 4, 1, 15, 0xFFFF_FFFF)  # read-only
                assert await bench.access(ctx, function, 0x158 // 4) == 0x0A1B_2CFF

    simulate(dut, process)


def test_state_follows_writes():
    """The registers that routing looks at agree with the spaces at the time of the response."""
    rng = random.Random(seed())
    bench = Bench(3)
    fields = {
        "io": ("Command", "I/O Space Enable"), "memory": ("Command", "Memory Space Enable"),
        "master": ("Command", "Bus Master Enable"),
        "power": ("Power Management Control/Status", "Power State"),
        "forward_errors": ("Bridge Control", "SERR# Enable"),
        "isa": ("Bridge Control", "ISA Enable"),
        "secondary": ("Secondary Bus Number",) * 2,
        "subordinate": ("Subordinate Bus Number",) * 2,
        "ari": ("Device Control 2", "ARI Forwarding Enable"),
        "disable": ("Link Control", "Link Disable"),
        "block_atomics": ("Device Control 2", "AtomicOp Egress Blocking"),
        "block_prefixes": ("Device Control 2", "End-End TLP Prefix Blocking"),
        "validate": ("ACS Control", "ACS Source Validation Enable"),
        "redirect": ("ACS Control", "ACS P2P Request Redirect Enable"),
        "redirect_cpl": ("ACS Control", "ACS P2P Completion Redirect Enable"),
        "upstream": ("ACS Control", "ACS Upstream Forwarding Enable"),
        "direct": ("ACS Control", "ACS Direct Translated P2P Enable"),
        "translation": ("ACS Control", "ACS Translation Blocking Enable"),
        "msi": ("MSI Message Control", "MSI Enable"),
        "serr": ("Command", "SERR# Enable"),
        "parity": ("Command", "Parity Error Response"),
        "parity_below": ("Bridge Control", "Parity Error Response Enable"),
        "correctable": ("Device Control", "Correctable Error Reporting Enable"),
        "nonfatal": ("Device Control", "Non-Fatal Error Reporting Enable"),
        "fatal": ("Device Control", "Fatal Error Reporting Enable"),
        "unsupported": ("Device Control", "Unsupported Request Reporting Enable"),
        "ltr": ("Device Control 2", "LTR Mechanism Enable"),
    }

    async def process(ctx):
        await bench.read(ctx, 0, 0)
        for _ in range(800):
            function = rng.randrange(4)
            fmap = bench.golden[function].map
            name = rng.choice([r for r, _ in fields.values() if r in fmap.by_name])
            if rng.random() < 0.3:
                name = rng.choice(["Memory Base", "Prefetchable Memory Base",
                                   "Prefetchable Base Upper 32 Bits", "I/O Base",
                                   "Prefetchable Limit Upper 32 Bits", "I/O Base Upper 16 Bits"])
            data = rng.getrandbits(32)
            if name == "Bridge Control":
                data &= ~(1 << 22)
            await bench.write(ctx, function, fmap.dword(name), 15, data)
            g, state = bench.golden[function], ctx.get(bench.dut.states[function])
            for member, (register, field) in fields.items():
                if register in fmap.by_name and field in {
                        f.name for f in fmap.by_name[register].fields}:
                    assert getattr(state, member) == g.get(register, field), member

    simulate(bench.dut, process)


def test_secondary_bus_reset_of_the_upstream_port():
    bench = Bench(2)

    async def process(ctx):
        for function in (0, 1, 2):
            await bench.write(ctx, function, 6, 15, 0x00FF0302)
            await bench.write(ctx, function, 1, 3, 7)
        bench.present(3, ctx)
        for set_ in (1, 0):
            await bench.write(ctx, 0, 0xF, 15, set_ << 22)
            for function in (0, 1, 2):
                for register in (1, 6, 0xF, 0x1C, 0x1E):
                    await bench.read(ctx, function, register)
            assert ctx.get(bench.dut.link_active) == (0 if set_ else 3)
            assert ctx.get(bench.dut.states[1].secondary) == 0
            assert ctx.get(bench.dut.states[0].secondary) == 3

    simulate(bench.dut, process, background=[bench.follow])


def test_arguments():
    for ports in (0, 33, "8"):
        with pytest.raises(ValueError, match="ports must be an integer from 1 to 32, not"):
            ConfigSpace(ports=ports)
    with pytest.raises(ValueError, match="kind must be 'upstream' or 'downstream', not 'up'"):
        function_map("up")


@pytest.mark.parametrize("kind", [UPSTREAM, DOWNSTREAM])
def test_description_is_sound(kind):
    """No two fields share a bit, capabilities are chained and fit, reset values fit."""
    fmap = function_map(kind)
    seen = [0] * FUNCTION_DWORDS
    for r in fmap.registers:
        assert r.offset % (r.bits // 8) == 0
        dword = kept_at(r.offset // 4)
        for f in r.fields:
            place = f.mask << 8 * (r.offset % 4)
            assert f.lsb + f.width <= r.bits, f"{r.name}: {f.name}"
            assert not seen[dword] & place, f"{r.name}: {f.name}"
            assert f.access in ("RO", "RW", "RW1C", "W1", "LIVE")
            assert isinstance(f.reset, str) or f.reset >> f.width == 0
            seen[dword] |= place
    image = fmap.reset_image()

    def byte(n):
        return image[n // 4] >> 8 * (n % 4) & 0xFF

    found, pointer = [], byte(0x34)
    while pointer:
        found.append(byte(pointer))
        pointer = byte(pointer + 1)
    assert found == [0x01, 0x05, 0x0D, 0x10]
    found, pointer = [], 0x100
    while pointer:
        header = image[kept_at(pointer // 4)]
        found.append(header & 0xFFFF)
        pointer = header >> 20
    assert found == [0x0001, 0x0003] + ([0x000D] if kind == DOWNSTREAM else []) + [0x0019]


def test_a_register_that_nothing_keeps_is_refused():
    for offset in (0xC0, 0xFC, 0x240, 0xFFC):
        with pytest.raises(ValueError, match=f"Lost at {offset:03X}h has no place in the memory"):
            FunctionMap(UPSTREAM, (Register(offset, 32, "Lost", ()),)).reset_image()


@pytest.mark.parametrize("field, value, text", [
    ("link_speed", 4, "link_speed must be 1 to 3, not 4"),
    ("link_width", 32, "link_width must be 1, 2, 4, 8 or 16, not 32")])
def test_links_that_the_registers_cannot_tell_of_are_refused(field, value, text):
    with pytest.raises(ValueError, match=text):
        Identity(**{field: value})


def test_pages_name_every_field():
    for kind in (UPSTREAM, DOWNSTREAM):
        page = render(kind)
        for r in function_map(kind).registers:
            assert f"## {r.offset:03X}h {r.name} ({r.bits} bits)" in page
            assert all(f" {f.name} | {f.access} | " in page for f in r.fields)
