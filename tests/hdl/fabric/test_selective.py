"""Selective repeat: two engines over a wire that loses, doubles, delays and changes frames."""

import itertools
import random

import pytest
from amaranth import Module

from dxpu.fabric.engine import FabricEngine
from dxpu.fabric.wire.format import EventCode
from dxpu.fabric.wire.frame_types import FrameType
from tests.hdl.fabric.test_engine import BOX, HOST, ROWS, rows_of, write
from tests.support.engine_bench import look_at, set_tags
from tests.support.testbench import (
    Packet, check_stream, collect_packets, collect_words, count_pulses, drive_packets, drive_words,
    seed, simulate,
)

SELECTIVE = dict(arq="selective")


class Wire:
    """Carries the frames of one engine to another; ``fate`` says of each what becomes of it: a list
    of (delay in cycles, bytes), empty if it is lost."""

    def __init__(self, source, target, fate=lambda data, now: [(0, data)]):
        self.source, self.target, self.fate = source, target, fate
        self.sent, self._due = [], []
        self._count = itertools.count()

    async def take(self, ctx):
        width, data, now = self.source.payload.data.shape().width // 8, b"", 0
        ctx.set(self.source.ready, 1)
        async for *_, valid, beat in ctx.tick().sample(self.source.valid, self.source.payload):
            now += 1
            if valid:
                data += int(beat.data).to_bytes(width, "little")[:4 * beat.dwords]
                if beat.last:
                    self.sent.append(data)
                    self._due += [(now + delay, next(self._count), frame)
                                  for delay, frame in self.fate(data, now)]
                    data = b""

    async def give(self, ctx):
        now = 0
        while True:
            ready = sorted(entry for entry in self._due if entry[0] <= now)
            if ready:
                self._due.remove(ready[0])
                frame = ready[0][2]
                await drive_packets(self.target, [Packet(frame)])(ctx)
                now += -(-len(frame) // (self.target.payload.data.shape().width // 8))
            else:
                await ctx.tick()
                now += 1


class Bad:
    """A fate by chance."""

    def __init__(self, rng, *, loss=0.0, twice=0.0, late=0.0, change=0.0, delay=20, lateness=400):
        self.rng, self.chances = rng, (loss, twice, late, change)
        self.delay, self.lateness = delay, lateness

    def __call__(self, data, now):
        loss, twice, late, change = (self.rng.random() < c for c in self.chances)
        if change:
            place = self.rng.randrange(12, len(data))
            data = data[:place] + bytes([data[place] ^ self.rng.randrange(1, 256)]) + data[
                place + 1:]
        frames = [] if loss else [(self.delay + late * self.rng.randrange(self.lateness), data)]
        if twice:
            frames.append((self.delay + self.rng.randrange(self.lateness), data))
        return frames


class Pair:
    """Two engines in one module, and the wires between them; ``fates`` down and up for each
    path."""

    def __init__(self, width, *fates, arq=("selective", "selective"), **options):
        options = dict(peers=2, streams=1) | options
        self.host, self.box = (FabricEngine(width, rows=ROWS, paths=len(fates), arq=kind, **options)
                               for kind in arq)
        self.module = Module()
        self.module.submodules.host = self.host
        self.module.submodules.box = self.box
        self.down = [Wire(self.host.frame_o[n], self.box.frame_i[n], down)
                     for n, (down, _) in enumerate(fates)]
        self.up = [Wire(self.box.frame_o[n], self.host.frame_i[n], up)
                   for n, (_, up) in enumerate(fates)]
        self.counts = {}, {}
        wires = [*self.down, *self.up]
        self.background = [
            *(wire.take for wire in wires), *(wire.give for wire in wires),
            *(check_stream(wire.source) for wire in wires),
            check_stream(self.box.tlp_o), check_stream(self.host.tlp_o),
            count_pulses(self.host, self.counts[0]), count_pulses(self.box, self.counts[1])]
        self._paths, self._ready = len(fates), False

    async def set_up(self, ctx, wait=16):
        for engine, node, peer, tx, rx in ((self.host, HOST, BOX, 0x1234, 0x4321),
                                           (self.box, BOX, HOST, 0x4321, 0x1234)):
            ctx.set(engine.node, node)
            ctx.set(engine.ack_delay, 50)
            ctx.set(engine.packing_limit, 512)
            ctx.set(engine.retry_wait, wait)
            ctx.set(engine.open, (1 << ROWS) - 1)
            ctx.set(engine.peers[0], dict(valid=1, node=peer))
            for n in range(ROWS):
                ctx.set(engine.rows[n], dict(
                    node=peer, slot=n + 1 if node == HOST else 0,
                    local_slot=0 if node == HOST else n + 1, stream=0,
                    paths=(1 << self._paths) - 1, used=1))
            await set_tags(ctx, engine, tx, rx)
        self._ready = True

    def then(self, process):
        """``process``, from when all is set up on."""
        async def later(ctx):
            while not self._ready:
                await ctx.tick()
            await process(ctx)
        return later


BOTH = ("selective", "selective")


@pytest.mark.parametrize("width, arq", [(64, BOTH), *(
    pytest.param(width, arq, marks=pytest.mark.long) for width, arq in (
        (32, BOTH), (128, BOTH), (256, BOTH), (512, BOTH), (64, ("go-back-n", "selective")),
        (64, ("selective", "go-back-n"))))])
def test_nothing_is_lost_or_doubled_on_a_bad_wire(width, arq):
    """Losses, copies, late and changed frames, both ways; also with one end that goes back N."""
    rng = random.Random(seed())
    fates = [Bad(rng, loss=0.08, twice=0.03, late=0.05, change=0.02) for _ in range(2)]
    pair = Pair(width, tuple(fates), arq=arq)
    down = [write(rng, rng.randrange(ROWS)) for _ in range(64)]
    up = [write(rng, rng.randrange(ROWS)) for _ in range(64)]
    events = [dict(row=n % ROWS, code=EventCode.RESET, generation=n, argument=n * n)
              for n in range(10)]
    at_box, at_host, seen = [], [], []

    async def feed(ctx):
        await pair.set_up(ctx)
        await drive_packets(pair.host.tlp_i, down, rng=rng, density=0.9)(ctx)

    async def ends(ctx):
        while len(at_box) < len(down) or len(at_host) < len(up) or len(seen) < len(events):
            await ctx.tick().repeat(50)
        await ctx.tick().repeat(1500)  # what comes twice would come now

    simulate(pair.module, feed,
             pair.then(drive_packets(pair.box.tlp_i, up, rng=rng, density=0.7)),
             pair.then(drive_words(pair.host.control, events, rng=rng, density=0.01)), ends,
             background=[*pair.background, collect_words(pair.box.event, 10**6, seen),
                         collect_packets(pair.box.tlp_o, 10**6, at_box, rng=rng, density=0.9),
                         collect_packets(pair.host.tlp_o, 10**6, at_host)])
    assert rows_of(at_box) == rows_of(down)
    assert rows_of(at_host) == rows_of(up)
    assert [(e.row, e.generation, e.argument) for e in seen] == [
        (e["row"], e["generation"], e["argument"]) for e in events]
    for counts in pair.counts:
        assert counts["tx_repeated"] and counts["retry_failed"] == 0, counts
        assert counts.get("early_stored", 1) > 0, counts


def cross(pair, parts, *, wait, between=None):
    """All TLPs of ``parts`` cross to the box, unchanged and in order; ``between`` these something
    happens."""
    got, count = [], 0

    async def feed(ctx):
        nonlocal count
        await pair.set_up(ctx, wait)
        await ctx.tick().repeat(300)  # until nothing has to be wiped any more
        for n, part in enumerate(parts):
            if n:
                await between(ctx)
            await drive_packets(pair.host.tlp_i, part)(ctx)
            count += len(part)
            while len(got) < count or (await look_at(ctx, pair.host)).unacked:
                await ctx.tick()

    simulate(pair.module, feed, background=[
        *pair.background, collect_packets(pair.box.tlp_o, 10**6, got)])
    assert rows_of(got) == rows_of([tlp for part in parts for tlp in part])


def line(delay, rate=8):
    """The fate of frames on a line that takes ``rate`` cycles for each beat of eight bytes, and
    ``delay`` cycles."""
    free = 0

    def fate(data, now):
        nonlocal free
        free = max(free, now) + rate * len(data) // 8
        return [(free - now + delay, data)]
    return fate


def test_both_paths_carry_one_stream_and_skew_repeats_nothing():
    """One path takes 20 us longer than the other."""
    rng = random.Random(seed())
    pair = Pair(64, (line(100), line(100)), (line(100 + 2500), line(100 + 2500)))
    cross(pair, [[write(rng, 0) for _ in range(24)]], wait=488)
    sent = [sum(data[14] & 15 == FrameType.TLP for data in wire.sent) for wire in pair.down]
    assert abs(sent[0] - sent[1]) <= 1 and min(sent) > 3, sent
    host, box = pair.counts
    assert host["tx_repeated"] == 0 and host["retry_timeout"] == 0, host
    assert box["early_stored"] > 0 and box["link_duplicate"] == 0, box


@pytest.mark.long
def test_a_path_that_dies_is_avoided_and_tried_again():
    rng = random.Random(seed())
    dead, sent = [True], []
    wait = 8  # longer than the way of a frame through the queue and back

    def mortal(data, now):
        return [] if dead else [(20, data)]

    pair = Pair(64, (mortal, line(20, 1)), (line(20, 1), line(20, 1)))
    parts = [[write(rng, 0) for _ in range(12)] for _ in range(3)]

    async def between(ctx):
        sent.append([len(wire.sent) for wire in pair.down])
        if len(sent) == 2:
            dead.clear()
            # Paths are tried again after 64 first waits; nothing waits now, so these may be short.
            ctx.set(pair.host.retry_wait, 1)
            await ctx.tick().repeat(64 * 64 + 2 * 64)
            ctx.set(pair.host.retry_wait, wait)

    cross(pair, parts, wait=wait, between=between)
    host, _ = pair.counts
    assert host["retry_failed"] == 0 and host["retry_timeout"] >= 2, host
    first, second = sent
    assert second[0] == first[0] and second[1] > first[1], "the dead path was not avoided"
    assert len(pair.down[0].sent) > second[0], "it was not tried again"
