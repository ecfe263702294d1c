"""Errors at the highest rate that they can come: neither routing nor configuration waits for them.

Ref: PCIe Base 5.0, 6.2, 7.5.1, 7.8.4
"""

import itertools
import random

import pytest
from dxpu.stream import payload_shape
from dxpu_model.tlp import Tlp
from tests.hdl.switch.errors.test_errors import (
    BRIDGE, CAPS, COMMAND, COR_MASK, DEVICE, FATAL, LOG, MASK, NONFATAL, OUTSIDE, STATUS, WINDOW,
    Bench, completion, message, poison,
)
from tests.hdl.switch.test_switch import memory_tlp
from tests.support.switch_bench import config_tlp, info_of
from tests.support.testbench import Packet, beats, seed

#: Port 0's own window: an Unsupported Request of that port if it comes from its slot.
OWN = WINDOW
#: What a root complex takes for certain.
MEMORY = 0x1000

#: TLPs of slots that are errors: all of slot 0, but those that name another.
SLOT_FLOODS = {
    "unsupported": [(0, memory_tlp(OWN, write=True, requester=0x300))],
    "answered": [(0, memory_tlp(OWN, requester=0x300, tag=5))],
    "poisoned": [(0, poison(memory_tlp(MEMORY, write=True, requester=0x300, wide=False)))],
    "unexpected": [(0, completion(0x0300, payload=bytes(4)))],
    "messages": [(0, message(NONFATAL, 0, 0x300)), (0, message(FATAL, 0, 0x300))],
    # No error, but it makes the switch send as much as that.
    "interrupts": [(0, message(0x20, 4, 0x300)), (0, message(0x24, 4, 0x300))],
    "peer": [(0, poison(memory_tlp(WINDOW + (1 << 32), write=True, requester=0x300)))],
    "every slot": [(n, memory_tlp(OWN + (n << 32), write=True, requester=0x300 + (n << 8)))
                   for n in range(2)],
}
#: TLPs of the host that are errors.
HOST_FLOODS = {
    "host unclaimed": [memory_tlp(OUTSIDE, write=True, wide=False)],
    "host poisoned": [poison(memory_tlp(WINDOW, write=True))],
    "host unexpected": [completion(0x0900)],
}
#: Pulses and streams that come from elsewhere.
OTHER_FLOODS = ("internal", "malformed")
EVERYTHING = (*SLOT_FLOODS, *HOST_FLOODS, *OTHER_FLOODS)


class FloodBench(Bench):
    """Keeps sources of errors at their highest rate while something is tried."""

    def __init__(self, width, ports, rng, names, **options):
        super().__init__(width, ports, rng, **options)
        self.names = names
        self.on = False
        self.cycle = 0
        self.answers = {}  # cycle of the last beat, and dword, by tag
        self.arrived = []  # cycles and data of what is no completion of a configuration read
        self.taken = []    # cycles in which TLPs of slots were taken
        self.came_down = []  # cycles of last beats to slots
        self.pause = 0     # cycles between malformed TLPs
        self.extra = []    # slots and TLPs, to be sent between those of the flood

    @property
    def background(self):
        mine = [self._time, self._slots, self._others]
        return [self.worker("up_i"), self._watch_up, self._watch_down, *mine]

    async def _time(self, ctx):
        async for _ in ctx.tick():
            self.cycle += 1

    async def _slots(self, ctx):
        """All TLPs of slots, one behind the other without a gap."""
        stream = self.dut.downstream_i
        layout = payload_shape(stream)
        some = [x for name in self.names for x in SLOT_FLOODS.get(name, ())]
        packets = [list(beats(layout, Packet(raw, {"port": slot, "info": info_of(raw)})))
                   for slot, raw in some]
        while True:
            while not (self.on and packets or self.extra):
                await ctx.tick()
            extra, now = self.extra, packets
            if extra:
                now = [list(beats(layout, Packet(raw, {"port": slot, "info": info_of(raw)})))
                       for slot, raw in extra]
            for packet in now:
                for beat in packet:
                    ctx.set(stream.payload, beat)
                    ctx.set(stream.valid, 1)
                    await ctx.tick().until(stream.ready)
                    ctx.set(stream.valid, 0)
                self.taken.append(self.cycle)
            if extra:
                self.extra = []

    async def _others(self, ctx):
        dut = self.dut
        ctx.set(dut.malformed.p, dict(function=2, header=[0x40 | n for n in range(4)]))
        while True:
            ctx.set(dut.internal_error, -self.on & (1 << self.ports) - 1
                    if "internal" in self.names else 0)
            if self.on and "malformed" in self.names:
                for _ in range(self.pause):
                    await ctx.tick()
                ctx.set(dut.malformed.valid, 1)
                await ctx.tick().until(dut.malformed.ready)
                ctx.set(dut.malformed.valid, 0)
            else:
                await ctx.tick()

    async def _watch_up(self, ctx):
        stream, chunk = self.dut.upstream_o, b""
        while True:
            ctx.set(stream.ready, 1)
            *_, valid, ready, beat = await ctx.tick().sample(
                stream.valid, stream.ready, stream.payload)
            if valid and ready:
                chunk = b"" if beat.first else chunk
                chunk += beat.data.to_bytes(64, "little")[:4 * beat.dwords]
                if beat.last:
                    tlp = Tlp.unpack(chunk)
                    if tlp.kind == "CplD" and tlp.requester_id == 8:
                        self.answers[tlp.tag] = (self.cycle,
                                                 int.from_bytes(tlp.payload, "little"))
                    else:
                        self.arrived.append((self.cycle, chunk))

    async def _watch_down(self, ctx):
        stream = self.dut.downstream_o
        ctx.set(stream.ready, 1)
        async for *_, came in ctx.tick().sample(stream.valid & stream.p.last):
            if came:
                self.came_down.append(self.cycle)

    async def host(self, ctx, raws):
        """Send TLPs of the host; returns the cycle in which the last beat was taken."""
        stream = self.dut.upstream_i
        layout = payload_shape(stream)
        for raw in raws:
            for beat in beats(layout, Packet(raw, info_of(raw))):
                ctx.set(stream.payload, beat)
                ctx.set(stream.valid, 1)
                await ctx.tick().until(stream.ready)
                ctx.set(stream.valid, 0)
        return self.cycle

    async def answer(self, ctx, tag, patience=2000):
        """Cycle and dword of the answer to a configuration read."""
        for _ in range(patience):
            if tag in self.answers:
                return self.answers.pop(tag)
            await ctx.tick()
        raise AssertionError(f"no answer to the configuration read within {patience} cycles")

    async def start(self, ctx):
        """Bus numbers and windows of all ports; every error is reported, and logged."""
        ctx.set(self.dut.present, (1 << self.ports) - 1)

        async def write(n, register, data, enables=15):
            target = 0x0200 | n - 1 << 3 if n else 0x0100
            await self.host(ctx, [config_tlp(target, register, data, type1=n > 0,
                                             enables=enables)])

        await write(0, 6, (2 + self.ports) << 16 | 2 << 8 | 1)
        for register, data in ((8, 0xFFF0), (9, 0xFFF1 << 16 | 1), (10, 0x20), (11, 0x20 + 31)):
            await write(0, register, data)
        for n in range(self.ports):
            await write(n + 1, 6, (3 + n) << 16 | (3 + n) << 8 | 2)
            for register, data in ((8, 0xFFF0), (9, 0xFFF1 << 16 | 1), (10, 0x20 + n),
                                   (11, 0x20 + n)):
                await write(n + 1, register, data)
        for n in range(self.ports + 1):
            for register, data, enables in (
                    (COMMAND, 0x147, 3), (DEVICE, 0xF, 3), (COR_MASK, 0, 15), (MASK, 0, 15),
                    (BRIDGE, 3 << 16, 12)):
                await write(n, register, data, enables)
        await ctx.tick().repeat(200)
        self.arrived.clear()

    async def read(self, ctx, n, register):
        """A register, by a configuration read when there is nothing else."""
        await self.host(ctx, [read(n, register, 0xFF)])
        return (await self.answer(ctx, 0xFF))[1]

    def run_alone(self, main, **options):
        """Run ``main``; counters are a matter of the test."""
        async def wrapped(ctx):
            await self.start(ctx)
            await main(ctx)
            self.counted = dict(self.totals)
            self.totals.clear()

        self.simulate(wrapped, **options)


def read(n, register, tag):
    """A configuration read of function ``n``."""
    return config_tlp(0x0200 | n - 1 << 3 if n else 0x0100, register, type1=n > 0, tag=tag)


#: Bits of Uncorrectable Error Status that a flood sets, by function.
BITS = {
    "unsupported": {1: 20}, "answered": {1: 20}, "poisoned": {1: 12}, "unexpected": {1: 16},
    "peer": {1: 12}, "every slot": {1: 20, 2: 20}, "host unclaimed": {0: 20},
    "host poisoned": {0: 12}, "host unexpected": {0: 16}, "internal": {1: 22, 2: 22},
    "malformed": {2: 18}}


def long(*arguments):
    return pytest.param(*arguments, marks=pytest.mark.long)


@pytest.mark.parametrize(("width", "names"), [
    (64, EVERYTHING), (64, ("interrupts",)), long(512, EVERYTHING),
    *(long(width, (name,)) for width in (64, 512) for name in EVERYTHING),
    *(long(64, some) for some in itertools.combinations(EVERYTHING, 2))],
    ids=lambda value: "everything" if value == EVERYTHING else "-".join(value).replace(" ", "_")
    if isinstance(value, tuple) else str(value))
def test_neither_routing_nor_configuration_waits(width, names):
    """Configuration reads under each flood, and under all: answered as if it were not there.

    Of the slots' TLPs one is taken in 3 cycles, as without errors, or one in as many cycles as it
    has beats; what goes up shares the way with messages and answers.
    """
    bench = FloodBench(width, 2, random.Random(seed()), names)
    mine = [raw for name in names for raw in HOST_FLOODS.get(name, ())]
    waits = []

    async def main(ctx):
        bench.on = True
        await ctx.tick().repeat(100)
        began, before = bench.cycle, len(bench.taken)
        for tag in range(8):
            taken = await bench.host(ctx, [*mine * 4, read(tag % 3, 0, tag)])
            waits.append((await bench.answer(ctx, tag))[0] - taken)
            await bench.host(ctx, mine * 20)
            await ctx.tick().repeat(40)
        rate = (len(bench.taken) - before) / (bench.cycle - began)
        bench.on = False
        await ctx.tick().repeat(150)
        print(waits, rate)
        assert max(waits) <= LONGEST
        for name in names:
            for n, bit in BITS.get(name, {}).items():
                status = await bench.read(ctx, n, STATUS)
                assert status >> bit & 1, name
        assert rate > 0.2 or not any(name in SLOT_FLOODS for name in names)

    bench.run_alone(main)


@pytest.mark.parametrize("reports", [long(0), 15])
def test_malformed_tlps_and_unsupported_requests(reports):
    """The host reads port 0 while slot 0 writes without Bus Master Enable and slot 1 sends, every
    85 cycles, more than its port takes; behind that is a completion for slot 1."""
    bench = FloodBench(64, 2, random.Random(seed()), ("unsupported", "malformed"))
    bench.pause = 84

    async def main(ctx):
        for n, target in ((0, 0x100), (1, 0x200), (2, 0x208)):
            await bench.host(ctx, [
                config_tlp(target, register, data, type1=n > 0, enables=3)
                for register, data in ((COMMAND, 3 if n == 1 else 7), (DEVICE, reports))])
        bench.on = True
        await ctx.tick().repeat(500)
        for tag in range(5):
            bench.came_down.clear()
            taken = await bench.host(ctx, [read(1, 0, tag), completion(0x400, payload=bytes(4))])
            answered, value = await bench.answer(ctx, tag)
            await ctx.tick().repeat(20)
            assert value == 0xD0F1_1234 and answered - taken <= LONGEST
            assert len(bench.came_down) == 1 and bench.came_down[0] - taken <= LONGEST
            await ctx.tick().repeat(100)
        bench.on = False
        await ctx.tick().repeat(150)
        assert await bench.read(ctx, 1, STATUS) == 1 << 20
        assert await bench.read(ctx, 2, STATUS) == 1 << 18

    bench.run_alone(main)
    # What could not be logged or told is counted.
    errors = bench.counted["unclaimed1"]
    assert bench.counted["unlogged"] > errors and ("unsent" in bench.counted) == (reports > 0)


@pytest.mark.parametrize(("width", "names", "side"), [
    (64, (), "slot"), *(long(width, EVERYTHING, side) for width in (64, 512)
                        for side in ("host", "slot")),
    long(64, (), "host"), *(long(512, (), side) for side in ("host", "slot"))],
    ids=lambda value: str(value) if not isinstance(value, tuple) else
    "everything" if value else "quiet")
def test_when_an_error_shows(width, names, side):
    """A read behind the TLP on the same side sees the status bit; on the other side one whose last
    beat comes SHOWS cycles after that of the TLP, whatever else goes on; the log, and the pointer
    to it, LOGGED cycles after it."""
    bench = FloodBench(width, 3, random.Random(seed()), names)
    # An error that no flood makes.
    bad = memory_tlp(MEMORY, requester=0x500, tag=9, wide=False) if side == "slot" else None
    function = 3 if side == "slot" else 0
    shown = {}

    async def main(ctx):
        await bench.host(ctx, [config_tlp(0x210, COMMAND, 3, type1=True, enables=3)])
        bench.on = True
        for tag, delay in enumerate(range(0, 40, 2)):
            await ctx.tick().repeat(60 + tag)
            if side == "slot":
                bench.extra = [(2, bad)]
                while bench.extra:
                    await ctx.tick()
                began = bench.cycle
                for _ in range(delay):
                    await ctx.tick()
                taken = await bench.host(ctx, [read(3, STATUS, tag)])
            else:
                taken = await bench.host(ctx, [message(0x15, 4), read(0, DEVICE, tag)])
                began = taken
            _, value = await bench.answer(ctx, tag)
            seen = value >> 20 & 1 if side == "slot" else value >> 19 & 1
            shown.setdefault(taken - began, set()).add(seen)
            if side == "slot":
                while bench.cycle < began + LOGGED:
                    await ctx.tick()
                await bench.host(ctx, [read(3, CAPS, 0x80), read(3, LOG + 2, 0x81)])
                assert (await bench.answer(ctx, 0x80))[1] & 31 == 20
                assert (await bench.answer(ctx, 0x81))[1] == MEMORY
            await bench.host(ctx, [config_tlp(0x210 if function else 0x100, register, -1 % 2**32,
                                              type1=function > 0, enables=enables)
                                   for register, enables in ((STATUS, 15), (DEVICE, 12))])
        bench.on = False
        await ctx.tick().repeat(150)

    bench.run_alone(main)
    print(shown)
    assert {seen for after, every in shown.items() for seen in every
            if side == "host" or after >= SHOWS} == {1}


def test_each_port_has_its_log():
    """All ports find their first error at once, one TLP behind the other: each log is right."""
    bench = FloodBench(64, 8, random.Random(seed()), ())
    raws = [memory_tlp(OWN + (n << 32) + 0x100 * n, write=True, requester=0x300 + (n << 8), tag=n)
            for n in range(8)]

    async def main(ctx):
        bench.extra = list(enumerate(raws))
        while bench.extra:
            await ctx.tick()
        await ctx.tick().repeat(100)
        for n, raw in enumerate(raws):
            assert await bench.read(ctx, n + 1, CAPS) & 31 == 20
            log = [await bench.read(ctx, n + 1, LOG + word) for word in range(4)]
            assert b"".join(word.to_bytes(4, "big") for word in log) == raw[:16]

    bench.run_alone(main)
    assert "unlogged" not in bench.counted and "unsent" not in bench.counted


#: Cycles from the last beat of a configuration read to the answer, at most.
LONGEST = 60
#: Cycles between the last beat of a TLP from a slot and that of a configuration read that sees it.
SHOWS = 4
#: Cycles after which the log is whole.
LOGGED = 150
