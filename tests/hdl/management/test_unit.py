"""The unit of management beside the golden model of a node: each frame is answered as that does."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from amaranth import Module
from amaranth.lib.wiring import connect

from dxpu.crypto import Aes128, CipherShare, Cmac
from dxpu.management.format import Kind
from dxpu.management.operations import Directory
from dxpu.management.unit import ManagementUnit
from dxpu_model import management as model
from dxpu_model.management import (
    Event, Identity, ManagedNode, ManagerEnd, Message, Operation, first_announcement,
)
from dxpu_model.crc import crc32c
from dxpu_model.wire import reseal
from tests.support.crypto_bench import words
from tests.support.management_bench import FENCE_EPOCH, REGISTERS, Registers, serve
from tests.support.testbench import (
    Packet, beats, check_stream, collect_packets, count_pulses, drive_words, seed, simulate,
)

KEY = bytes(range(16))
NODE, MANAGER = bytes.fromhex("025100000001"), bytes.fromhex("02aabbccddee")
IDENTITY = Identity(NODE, serial=0x12345678, role=2, slots=4, capabilities=0x11, boot=7, links=1,
                    present=5, build=0xDEADBEEF, table=0x44556677)
COUNTERS = ("damaged", "knock", "early", "stale", "tag", "calculated", "busy", "long")


class Bench:
    """A unit with its cipher, and the golden model with the same random words."""

    def __init__(self, width=64, paths=2, node=0xFFF, *, rng=None, challenge_ticks=2,
                 announces=False, mac=NODE):
        self.announces, self.mac = announces, mac
        self.rng = rng or random.Random(seed())
        self.dut = ManagementUnit(width, paths, lambda: Directory(REGISTERS, FENCE_EPOCH),
                                  challenge_ticks=challenge_ticks, event_ticks=4)
        self.registers, self.paths = Registers(), paths
        draws = [self.rng.getrandbits(32) for _ in range(400)]
        self.draws = draws
        left = iter(draws)
        self.model = ManagedNode(KEY, NODE, Registers(), FENCE_EPOCH, lambda: next(left),
                                 number=node)
        self.model.identity = IDENTITY
        self.node, self.counts = node, {}
        self.got = [[] for _ in range(paths)]

    def module(self):
        m = Module()
        m.submodules.dut, m.submodules.aes = self.dut, Aes128(ram=True)
        m.submodules.cmac, m.submodules.share = cmac, share = Cmac(), CipherShare(count=2)
        aes = m.submodules.aes
        connect(m, share.i, aes.i)
        connect(m, aes.o, share.o)
        connect(m, cmac.cipher, share.users[0])
        connect(m, self.dut.cipher, share.users[1])
        connect(m, self.dut.cmac, cmac.use)
        return m

    def around(self):
        """Processes for all that is neither registers nor a line."""
        dut = self.dut

        async def setup(ctx):
            ctx.set(dut.enable, 1)
            ctx.set(dut.addressed, self.announces)
            ctx.set(dut.mac, int.from_bytes(self.mac, "big"))
            ctx.set(dut.node, self.node)
            for n, word in enumerate(words(replace(IDENTITY, number=self.node).pack())):
                ctx.set(dut.identity[n], word)

        async def key(ctx):
            async for column in ctx.changed(dut.column):
                ctx.set(dut.key_column, words(KEY)[column[0]])

        async def ticks(ctx):
            while True:
                ctx.set(dut.tick, 1)
                await ctx.tick()
                ctx.set(dut.tick, 0)
                await ctx.tick().repeat(63)

        return [setup, key, ticks,
                drive_words(dut.random, self.draws, rng=self.rng, density=0.5),
                count_pulses(dut, self.counts, *COUNTERS)]

    def run(self, process, *more):
        dut, rng = self.dut, self.rng
        back = [*self.around(), serve(dut.bus, self.registers, rng), *more]
        for path, got in zip(dut.path_o, self.got, strict=True):
            back += [check_stream(path), collect_packets(path, 10**6, got, rng=rng, density=0.7)]
        simulate(self.module(), process, background=back, deadline=3_000_000)

    async def give(self, ctx, frame, path=0):
        """A frame comes on a path."""
        tap = self.dut.taps[path]
        for beat in beats(tap.beat.shape(), Packet(frame)):
            while self.rng.random() < 0.3:
                await ctx.tick()
            ctx.set(tap.beat, beat)
            ctx.set(tap.valid, 1)
            await ctx.tick()
            ctx.set(tap.valid, 0)

    async def ask(self, ctx, frame):
        """A frame comes, and the unit does what the model does; returns the answer."""
        path = self.rng.randrange(self.paths)
        if model.is_management(frame):
            labelled = frame[:21] + bytes([path << 4 | frame[21] & 15]) + frame[22:]
            frame = reseal(labelled) if model.intact(frame) else labelled
        self.now = getattr(self, "now", 0) + 1000
        before = sum(map(len, self.got))
        await self.give(ctx, frame, path)
        expected = self.model.take(frame, self.now)
        await ctx.tick().repeat(700)
        for _ in range(20_000):
            if not expected or sum(map(len, self.got)) > before:
                break
            await ctx.tick()
        for _ in range(8):  # its tag may be wrong, which takes long to find
            if sum(self.model.counters.values()) != sum(
                    n for name, n in self.counts.items() if name != "calculated"):
                await ctx.tick().repeat(700)
        assert sum(map(len, self.got)) == before + bool(expected), frame.hex()
        counts = {name: n for name, n in self.counts.items() if n}
        calculated = counts.pop("calculated", 0)
        assert (counts, calculated) == (self.model.counters, self.model.calculations), frame.hex()
        if expected:
            got = self.got[path][-1].data
            assert got == expected, f"{got.hex()} for {expected.hex()}"
        return expected


async def opened(ctx, bench, number=1, **kwargs):
    """A manager with an association."""
    end = ManagerEnd(KEY, number, bench.rng.randbytes, node_mac=NODE, own_mac=MANAGER, **kwargs)
    end.take(await bench.ask(ctx, end.ask()))
    assert end.open
    return end


@pytest.mark.parametrize("width", [32, 64, 128, 256, 512])
def test_a_conversation(width):
    """Asked, written, read, once more, events, by two managers; at each width."""
    bench = Bench(width)

    async def process(ctx):
        await ctx.tick().repeat(2000)
        one = await opened(ctx, bench)
        request = one.request(3, [Operation.write(0x104, 7, 8), Operation(0x200, 3)])
        answer = one.take(await bench.ask(ctx, request))
        assert answer.words == (0x200 << 16, 0x204 << 16, 0x208 << 16)
        assert bench.registers.log == [(FENCE_EPOCH, 3), (0x104, 7), (0x108, 8)]
        await bench.ask(ctx, request)
        answer = one.take(await bench.ask(ctx, one.request(3, [Operation(0x104, 80)])))
        assert len(answer.words) == 80
        two = await opened(ctx, bench, 4)
        long = [Operation.write(0x100, *range(80))]
        assert two.take(await bench.ask(ctx, two.request(2, long))).status.name == "STALE"
        assert two.take(await bench.ask(ctx, two.request(4, long))).status.name == "DONE"
        assert one.take(await bench.ask(ctx, one.request(3, long))).status.name == "STALE"
        assert bench.registers.values == bench.model.registers.values

    bench.run(process)


def test_every_way_through_the_program():
    """Frames of two managers, right, altered, repeated, forged, damaged, too soon, too late, in
    any order: each does what it does to the model."""
    rng = random.Random(seed())
    bench = Bench(rng=rng, node=0x105)
    found = set()

    async def process(ctx):
        await ctx.tick().repeat(2000)
        ends = [ManagerEnd(KEY, n, rng.randbytes, node=node, node_mac=NODE, own_mac=MANAGER)
                for n, node in ((1, 0xFFF), (3, 0x105))]
        seen, epoch = [], 1
        for _ in range(120):
            end = rng.choice(ends)
            doing = rng.random()
            if not end.open or doing < 0.08:
                frame = end.ask()
            elif doing < 0.55 and not end._waits:
                operations = [
                    Operation.write(rng.choice((0x100, 0x2F8, 0x300)),
                                    *(rng.getrandbits(32) for _ in range(rng.randrange(1, 4))))
                    if rng.random() < 0.5 else Operation(4 * rng.randrange(0x40, 0x100),
                                                         rng.randrange(1, 9))
                    for _ in range(rng.randrange(1, 4))]
                epoch += rng.random() < 0.2
                frame = end.request(rng.choice((epoch, epoch, epoch - 1, 0)), operations)
            else:
                frame = rng.choice(seen)
                if rng.random() < 0.7:
                    frame = altered(rng, frame)
            if len(frame) > 60 and (not seen or frame not in seen and rng.random() < 0.3):
                # Altered first.
                data = bytearray(frame)
                data[rng.randrange(56, len(frame) - 4)] ^= 1 << rng.randrange(8)
                data[-4:] = crc32c(bytes(data[32:-4])).to_bytes(4, "little")
                await bench.ask(ctx, bytes(data))
            seen = [*seen[-20:], frame]
            answer = await bench.ask(ctx, frame)
            if answer:
                for one in ends:
                    one.take(answer)
                found.add(Kind(Message.parse(answer).kind).name)
        assert bench.registers.log == bench.model.registers.log
        assert len(bench.registers.log) > 15

    bench.run(process)
    assert found == {"CHALLENGE", "ANSWER"}
    assert set(bench.model.counters) == {"damaged", "knock", "stale", "tag"}


def altered(rng, frame):
    """A frame with something changed, and perhaps with CRCs that fit."""
    data = bytearray(frame)
    doing = rng.random()
    if doing < 0.2:
        data = bytearray(data[:-4 * rng.randrange(1, 4)]) or data
        if len(data) < 60:
            data = bytearray(frame)
    elif doing < 0.3:
        data += rng.randbytes(4)
    else:
        for _ in range(rng.choice((1, 1, 3))):
            data[rng.choice((0, 5, 15, 16, 17, 18, 19, 20, 22, 24, 29, 32, 33, 34, 35, 36, 39, 40,
                             47, 48, 55, 56, 60, len(frame) - 20, len(frame) - 5,
                             len(frame) - 1))] ^= 1 << rng.randrange(8)
    if rng.random() < 0.7:
        data[-4:] = crc32c(bytes(data[32:-4])).to_bytes(4, "little")
        return reseal(bytes(data))
    return bytes(data)


def test_events_until_acknowledged():
    """To who wrote last, again and again, with twice the wait; the next one when it is
    acknowledged under its association."""
    bench = Bench()
    events = [Event(1, 2, 3), Event(4, 5, 0xFFFFFFFF), Event(7)]

    async def process(ctx):
        await ctx.tick().repeat(2000)
        one, two = [await opened(ctx, bench, n) for n in (1, 2)]
        one.take(await bench.ask(ctx, one.request(1, [Operation(0x100)])))
        two.take(await bench.ask(ctx, two.request(1, [Operation.write(0x100, 1)])))
        for event in events:
            bench.model.happens(event)
        for number, event in enumerate(events):
            ctx.set(bench.dut.event.payload, {"code": event.code, "where": event.where, "zero": 0,
                                              "argument": swap(event.argument)})
            ctx.set(bench.dut.event.valid, 1)
            times, now = [], 0
            while len(times) < 4:
                before = sum(map(len, bench.got))
                while sum(map(len, bench.got)) == before:
                    await ctx.tick()
                    now += 1
                times.append(now)
                frame = next(got[-1] for got in bench.got if got and Message.parse(
                    got[-1].data).kind == Kind.EVENT).data
                bench.model._due = 0
                assert frame == bench.model.tell(0)
            waits = [b - a for a, b in zip(times, times[1:], strict=False)]
            assert all(abs(w - 64 * 4 * 2 ** n) < 600 for n, w in enumerate(waits)), waits
            said, fresh, acknowledges = two.take(frame)
            assert said == event and fresh
            wrong = replace(Message.parse(acknowledges), counter=number + 2).frame()
            assert await quiet(ctx, bench, wrong) == {"stale": 2 * number + 1}
            # Acknowledged: the next one takes its place.
            await quiet(ctx, bench, acknowledges)
            assert await quiet(ctx, bench, acknowledges) == {"stale": 2 * number + 2}
        assert bench.taken == len(events)

    async def taken(ctx):
        bench.taken = 0
        async for *_, ready, valid in ctx.tick().sample(bench.dut.event.ready,
                                                        bench.dut.event.valid):
            if ready and valid:
                bench.taken += 1
                ctx.set(bench.dut.event.valid, 0)

    bench.run(process, taken)


@pytest.mark.parametrize("keyed", [True, False])
def test_a_node_without_a_number_announces_itself(keyed):
    """On each path in turn, with twice the wait each time, with a key or without one; until it gets
    a number, and again when it has lost that; a frame that comes is answered meanwhile."""
    bench = Bench(paths=2, announces=True)

    async def process(ctx):
        ctx.set(bench.dut.enable, keyed)
        times, now = [], 0
        while len(times) < 5:
            before = sum(map(len, bench.got))
            while sum(map(len, bench.got)) == before:
                await ctx.tick()
                now += 1
            times.append(now)
        for path, (got, count) in enumerate(zip(bench.got, (3, 2), strict=True)):
            assert [p.data for p in got] == [bench.model.announcement(path)] * count
        waits = [b - a for a, b in zip(times, times[1:], strict=False)]
        assert all(abs(w - 64 * 4 * 2 ** n) < 600 for n, w in enumerate(waits)), waits
        # The last byte of its address is 1: so many ticks.
        assert 63 * 64 < times[0] < 63 * 64 + 2200
        if keyed:
            await bench.give(ctx, manager_end(bench).ask())
            while bench.got[0][-1].data[32] != Kind.CHALLENGE:
                await ctx.tick()
        ctx.set(bench.dut.node, 0x105)
        await ctx.tick().repeat(1000)
        counts = list(map(len, bench.got))
        await ctx.tick().repeat(64 * 4 * 128)
        assert list(map(len, bench.got)) == counts
        ctx.set(bench.dut.node, 0xFFF)
        await ctx.tick().repeat(64 * 64 + 1500)
        assert sum(map(len, bench.got)) > sum(counts)


@pytest.mark.parametrize("mac, turn", [("025100000001", 1), ("025100030812", 1),
                                       ("025100020181", 3), ("0251ffff00ff", 0)])
def test_the_first_announcement_is_the_turn_of_the_address(mac, turn):
    """Each of the last three bytes counts, one of them with its bits reversed."""
    mac = bytes.fromhex(mac)
    bench = Bench(paths=1, announces=True, mac=mac)
    assert first_announcement(mac) == turn

    async def process(ctx):
        while not bench.got[0]:
            await ctx.tick()
        assert turn * 64 * 64 < bench.got[0][0].first_cycle < turn * 64 * 64 + 2200

    bench.run(process)

    bench.run(process)


def manager_end(bench):
    """A manager."""
    return ManagerEnd(KEY, 1, bench.rng.randbytes, node_mac=NODE, own_mac=MANAGER)


async def quiet(ctx, bench, frame):
    """A frame that is not answered; the model takes it, too. Returns what was dropped."""
    await bench.give(ctx, frame)
    bench.model.take(frame, 1e6)
    await ctx.tick().repeat(2500)
    counts = {name: n for name, n in bench.counts.items() if n and name != "calculated"}
    assert counts == bench.model.counters
    return counts


def swap(word):
    """Bytes of a word the other way round."""
    return int.from_bytes(word.to_bytes(4, "big"), "little")


def test_a_question_soon_after_another_one():
    bench = Bench(challenge_ticks=20)

    async def process(ctx):
        await ctx.tick().repeat(2000)
        asks = [ManagerEnd(KEY, n, bench.rng.randbytes, node_mac=NODE, own_mac=MANAGER).ask()
                for n in (1, 1, 2)]
        for ask, count in zip(asks, (1, 1, 2), strict=True):
            await bench.give(ctx, ask)
            await ctx.tick().repeat(60)
            while not bench.got[0] or len(bench.got[0]) < count:
                await ctx.tick()
        assert bench.counts["early"] == 1
        await ctx.tick().repeat(20 * 64)
        await bench.give(ctx, asks[0])
        await ctx.tick().repeat(1000)
        assert len(bench.got[0]) == 3

    bench.run(process)


def test_frames_at_the_line_rate_find_two_banks():
    """Those that come while two are there are counted; what comes on two paths at a time, too; a
    discarded one, one of another type and one too long are not taken."""
    bench = Bench()

    async def process(ctx):
        await ctx.tick().repeat(2000)
        rng = bench.rng
        ask = Message(Kind.ASK, 1, manager_nonce=bytes(8), follows=bytes(16), dst_node=0xFFF,
                      dst_mac=NODE).frame()
        tlp = ask[:14] + b"\x12" + ask[15:]
        taps = bench.dut.taps
        layout = taps[0].beat.shape()

        async def at_once(*frames):
            rows = [list(beats(layout, frame)) for frame in frames]
            for n in range(max(map(len, rows))):
                for tap, row in zip(taps, rows, strict=False):
                    ctx.set(tap.valid, n < len(row))
                    if n < len(row):
                        ctx.set(tap.beat, row[n])
                await ctx.tick()
            for tap in taps:
                ctx.set(tap.valid, 0)

        await at_once(Packet(tlp), Packet(ask))
        await ctx.tick().repeat(500)
        assert bench.counts["knock"] == 1
        await at_once(Packet(ask), Packet(ask))
        await ctx.tick().repeat(500)
        assert (bench.counts["knock"], bench.counts["busy"]) == (2, 1)
        await at_once(Packet(ask, discard=True))
        await at_once(Packet(ask + rng.randbytes(4 * 104)))
        await ctx.tick().repeat(500)
        assert (bench.counts["knock"], bench.counts["long"]) == (2, 1)
        for _ in range(4):
            await at_once(Packet(ask))
        await ctx.tick().repeat(900)
        assert bench.counts["knock"] + bench.counts["busy"] == 7
        assert bench.counts["knock"] == 4
        assert bench.counts["damaged"] == 0

    bench.run(process)


def test_cycles():
    """Those of the page: from the last beat to the end of the answer, or until the bank is free."""
    bench, found = Bench(paths=1), {}
    bench.rng.random = lambda: 0.5  # nobody waits

    async def measure(ctx, name, frame, end=None):
        before, cycles = len(bench.got[0]), 0
        await bench.give(ctx, frame)
        came = bench.dut._agent.came
        while not (len(bench.got[0]) > before if end else cycles > 5 and not ctx.get(came.valid)):
            await ctx.tick()
            cycles += 1
        if end:
            end.take(bench.got[0][-1].data)
        found[name] = cycles
        await ctx.tick().repeat(400)

    async def process(ctx):
        await ctx.tick().repeat(3000)
        end = ManagerEnd(KEY, 1, bench.rng.randbytes, node_mac=NODE, own_mac=MANAGER)
        ask = end.ask()
        message = Message.parse(ask)
        await measure(ctx, "for another node", replace(message, dst_mac=bytes(6)).frame())
        await measure(ctx, "ASK without the knock", replace(message, follows=bytes(16)).frame())
        await measure(ctx, "REQUEST whose nonces do not fit",
                      replace(message, kind=Kind.REQUEST, counter=1).frame())
        await measure(ctx, "ASK, answered", ask, end)
        await measure(ctx, "first", end.request(1, [Operation(0x100)]), end)
        for what, operation in (("read a register", Operation(0x100)),
                                ("write a register", Operation.write(0x100, 1)),
                                ("read 80 registers", Operation(0x100, 80))):
            await measure(ctx, f"REQUEST to {what}, answered", end.request(1, [operation]), end)

    bench.run(process)
    del found["first"]
    page = (Path(__file__).parents[3] / "docs/reference/management.md").read_text()
    for name, cycles in found.items():
        assert f"| {name} | {cycles:,} |" in page, (name, cycles)
