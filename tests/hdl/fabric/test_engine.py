"""dxpu.fabric.engine: two engines back to back carry TLPs of all rows, unchanged and in order."""

import random
from dataclasses import replace

import pytest
from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dxpu.fabric.engine import FabricEngine
from dxpu.fabric.session.session import Mode, Phase
from dxpu.fabric.wire.format import Capability, EventCode, FenceReason
from dxpu.fabric.wire.frame_types import FrameType
from dxpu.stream import PacketLayout, connect
from dxpu_model.wire import Fence, parse
from tests.support.engine_bench import look_at, open_anew, set_mode, set_tags
from tests.support.testbench import (
    Packet, check_stream, collect_packets, collect_words, count_pulses, drive_packets, drive_words,
    seed, shared, simulate,
)

HOST, BOX = 0x001, 0x105
ROWS = 3


class Pair(wiring.Component):
    """A host's and a box's engine, path 0 connected both ways. ``corrupt`` inverts a bit of data
    that goes to the box; a frame that ends while ``lose_down`` or ``lose_up`` is set is lost. With
    ``inject`` or ``inject_up`` what goes to the box, or to the host, is ``injected`` instead. The
    bench sets ``prepared`` when both are set up; no logic reads it. Nothing goes to the box while
    ``hold`` is set."""

    def __init__(self, width, **options):
        self.host = FabricEngine(width, rows=ROWS, paths=1, **options)
        self.box = FabricEngine(width, rows=ROWS, paths=1, **options)
        super().__init__({"corrupt": In(1), "lose_down": In(1), "lose_up": In(1),
                          "inject": In(1), "inject_up": In(1), "injected": In(PacketLayout(width)),
                          "reset_box": In(1), "prepared": In(1), "hold": In(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.host = self.host
        m.submodules.box = ResetInserter(self.reset_box)(self.box)
        connect(m, self.host.frame_o[0], self.box.frame_i[0])
        connect(m, self.box.frame_o[0], self.host.frame_i[0])
        for strobe, to, of in ((self.inject, self.box, self.host),
                               (self.inject_up, self.host, self.box)):
            with m.If(strobe):
                m.d.comb += [to.frame_i[0].payload.eq(self.injected),
                             to.frame_i[0].valid.eq(1), of.frame_o[0].ready.eq(0)]
        with m.If(self.hold):
            m.d.comb += [self.box.frame_i[0].valid.eq(0), self.host.frame_o[0].ready.eq(0)]
        with m.If(self.corrupt):
            m.d.comb += self.box.frame_i[0].payload.data[5].eq(
                ~self.host.frame_o[0].payload.data[5])
        m.d.comb += [
            self.box.frame_i[0].payload.discard.eq(self.lose_down & ~self.inject),
            self.host.frame_i[0].payload.discard.eq(self.lose_up & ~self.inject_up),
        ]
        return m

    async def set_up(self, ctx, open_rows=(1 << ROWS) - 1):
        for engine, node, peer, tx, rx in ((self.host, HOST, BOX, 0x1234, 0x4321),
                                           (self.box, BOX, HOST, 0x4321, 0x1234)):
            ctx.set(engine.node, node)
            ctx.set(engine.ack_delay, 50)
            ctx.set(engine.packing_limit, 512)
            ctx.set(engine.retry_wait, 16)
            ctx.set(engine.open, open_rows)
            ctx.set(engine.peers[0], dict(valid=1, node=peer))
            for n in range(ROWS):
                ctx.set(engine.rows[n], dict(
                    node=peer, slot=n + 1 if node == HOST else 0,
                    local_slot=0 if node == HOST else n + 1, stream=0, paths=1, used=1))
            await set_tags(ctx, engine, tx, rx)
        ctx.set(self.prepared, 1)

    def then(self, process):
        """``process``, from when all is set up on."""
        async def later(ctx):
            while not ctx.get(self.prepared):
                await ctx.tick()
            await process(ctx)
        return later


def pair(width=64, **options):
    """A :class:`Pair`, which tests share."""
    return shared(Pair, width, **(
        dict(peers=2, streams=1, split=False, arq="go-back-n") | options))


def write(rng, row):
    """A memory write request of random size, as a packet of a row."""
    dwords = rng.choice([1, 2, 3, 31, 32, 64, rng.randint(1, 128)])
    header = bytes([0x40, 0, dwords >> 8, dwords & 0xFF]) + rng.randbytes(3) + bytes([0xFF])
    return Packet(header + rng.randbytes(4) + rng.randbytes(4 * dwords), dict(row=row))


def rows_of(packets):
    return [[p.data for p in packets
             if (p.meta["row"] if isinstance(p.meta, dict) else p.meta.row) == n]
            for n in range(ROWS)]


@pytest.mark.parametrize("width, split", [
    (64, False), *(pytest.param(width, split, marks=pytest.mark.long)
                   for width, split in ((32, False), (256, False), (512, False), (32, True),
                                        (64, True), (256, True), (512, True)))])
def test_tlps_cross_both_ways(width, split):
    rng = random.Random(seed())
    dut = pair(width, split=split)
    down = [write(rng, rng.randrange(ROWS)) for _ in range(40)]
    up = [write(rng, rng.randrange(ROWS)) for _ in range(40)]
    at_box, at_host, events, host, box = [], [], [], {}, {}

    async def feed(ctx):
        await dut.set_up(ctx)
        await drive_packets(dut.host.tlp_i, down, rng=rng, density=0.9)(ctx)

    event = dict(row=2, code=EventCode.RESET, generation=77, argument=5)
    simulate(dut, feed, dut.then(drive_packets(dut.box.tlp_i, up, rng=rng, density=0.7)),
             dut.then(drive_words(dut.host.control, [event])),
             collect_words(dut.box.event, 1, events),
             collect_packets(dut.box.tlp_o, len(down), at_box, rng=rng, density=0.9),
             collect_packets(dut.host.tlp_o, len(up), at_host),
             background=[check_stream(dut.box.tlp_o), check_stream(dut.host.tlp_o),
                         check_stream(dut.host.frame_o[0]), count_pulses(dut.host, host),
                         count_pulses(dut.box, box)])
    assert rows_of(at_box) == rows_of(down)
    assert rows_of(at_host) == rows_of(up)
    assert [(e.row, e.code, e.generation, e.argument) for e in events] == [
        (2, EventCode.RESET, 77, 5)]
    for counts in (host, box):
        assert {k for k, v in counts.items() if v} <= {"tx_frames", "tx_tlps", "rx_frames",
                                                       "rx_tlps"}
    assert host["tx_tlps"] == len(down)


def test_full_frames_carry_the_acknowledgements():
    """While full frames go one way and small ones come, there is hardly an ACK frame: what came is
    acknowledged by the full frames."""
    rng, dut = random.Random(seed()), pair()
    full = [Packet(bytes([0x40, 0, 0, 32]) + rng.randbytes(136), dict(row=0)) for _ in range(80)]
    small = Packet(bytes([0x40, 0, 0, 1]) + rng.randbytes(12), dict(row=0))
    frames, at_box, small_ones = [], [], 0

    async def feed(ctx):
        await dut.set_up(ctx)
        for engine in (dut.host, dut.box):
            ctx.set(engine.packing_limit, 1500)
            ctx.set(engine.ack_delay, 20)
        await drive_packets(dut.host.tlp_i, full, rng=rng)(ctx)

    async def answer(ctx):
        nonlocal small_ones
        while True:
            await drive_packets(dut.box.tlp_i, [small], rng=rng)(ctx)
            small_ones += 1
            await ctx.tick().repeat(30)

    async def hold(ctx):
        while True:     # a line of half the speed of the core
            ctx.set(dut.hold, not ctx.get(dut.hold))
            await ctx.tick()

    simulate(dut, feed, collect_packets(dut.box.tlp_o, len(full), at_box),
             background=[hold, dut.then(answer), sent_frames(dut.host.frame_o[0], frames),
                         collect_packets(dut.host.tlp_o, 10_000, [])])
    acks = sum(frame.type == FrameType.ACK for frame in frames)
    tlps = sum(frame.type == FrameType.TLP for frame in frames)
    assert rows_of(at_box)[0] == [packet.data for packet in full]
    assert tlps <= 16 and small_ones > 4 * tlps, (tlps, small_ones)
    assert acks < tlps / 2, (acks, tlps)


@pytest.mark.parametrize("width, split, loss", [
    (64, False, 0.1), *(pytest.param(*p, marks=pytest.mark.long) for p in (
        (64, False, 0.02), *((width, split, loss) for loss in (0.02, 0.1)
        for width, split in ((32, False), (64, True), (256, True), (512, False), (512, True)))))])
def test_nothing_is_lost_or_doubled_on_a_bad_wire(width, split, loss):
    """Frames are lost both ways, and changed; acknowledgements and NAKs, too."""
    dut = pair(width, split=split)
    host, box = on_a_bad_wire(dut, loss, dut.set_up, count=24 if width == 64 else 16)
    if loss > 0.05:
        assert min(host["tx_repeated"], host["link_nak"], box["link_gap"]) > 0, (host, box)


@pytest.mark.parametrize("lost", [2, 5])
def test_a_lost_frame_costs_what_was_under_way(lost):
    """What is sent again goes in a row: were a new frame between, it would come ahead of its turn,
    and all would be asked for once more."""
    rng = random.Random(seed())
    dut, down = pair(), [write(rng, rng.randrange(ROWS)) for _ in range(40)]
    got, host, box = [], {}, {}

    async def feed(ctx):
        await dut.set_up(ctx)
        await drive_packets(dut.host.tlp_i, down, rng=rng)(ctx)

    async def lose(ctx):
        frame, frames = dut.host.frame_o[0], 0
        async for _, _, valid, ready, last in ctx.tick().sample(
                frame.valid, frame.ready, frame.payload.last):
            frames += valid & ready & last
            ctx.set(dut.lose_down, frames == lost)

    simulate(dut, feed, collect_packets(dut.box.tlp_o, len(down), got),
             background=[lose, count_pulses(dut.host, host), count_pulses(dut.box, box)])
    assert rows_of(got) == rows_of(down)
    # A frame behind the gap brings a copy of the NAK; the sender obeys the first only. It sends
    # the lost frame, those behind it that came, and at most one that was on its way to leave.
    assert 1 <= host["link_nak"] <= box["link_gap"], (host, box)
    assert box["link_gap"] < host["tx_repeated"] <= box["link_gap"] + 2, (host, box)


def on_a_bad_wire(dut, loss, prepare, watch=(), count=80):
    """Send TLPs and events after ``prepare(ctx)``; returns the counts of both engines."""
    rng = random.Random(seed())
    down = [write(rng, rng.randrange(ROWS)) for _ in range(count)]
    up = [write(rng, rng.randrange(ROWS)) for _ in range(count)]
    events = [dict(row=n % ROWS, code=EventCode.RESET, generation=n, argument=n * n)
              for n in range(10)]
    at_box, at_host, seen, host, box = [], [], [], {}, {}

    async def feed(ctx):
        await prepare(ctx)
        await drive_packets(dut.host.tlp_i, down, rng=rng, density=0.9)(ctx)

    async def harm(ctx):
        while True:
            ctx.set(dut.lose_down, rng.random() < loss)
            ctx.set(dut.lose_up, rng.random() < loss)
            ctx.set(dut.corrupt, rng.random() < loss / 50)
            await ctx.tick()

    simulate(dut, feed, dut.then(drive_packets(dut.box.tlp_i, up, rng=rng, density=0.7)),
             dut.then(drive_words(dut.host.control, events, rng=rng, density=0.01)),
             collect_words(dut.box.event, len(events), seen),
             collect_packets(dut.box.tlp_o, len(down), at_box, rng=rng, density=0.9),
             collect_packets(dut.host.tlp_o, len(up), at_host),
             background=[harm, check_stream(dut.box.tlp_o), check_stream(dut.host.tlp_o),
                         check_stream(dut.host.frame_o[0]), count_pulses(dut.host, host),
                         count_pulses(dut.box, box), *watch])
    assert rows_of(at_box) == rows_of(down)
    assert rows_of(at_host) == rows_of(up)
    assert [(e.row, e.generation, e.argument) for e in seen] == [
        (e["row"], e["generation"], e["argument"]) for e in events]
    assert host["tx_tlps"] == box["rx_tlps"] == len(down)
    return host, box


@pytest.mark.parametrize("arq, before", [
    ("go-back-n", 7), *(pytest.param(arq, n, marks=pytest.mark.long) for arq, n in (
        ("go-back-n", 1), ("go-back-n", 2), ("selective", 7), ("selective", 1), ("selective", 2)))])
def test_numbers_wrap(arq, before):
    """The session is some frames short of 2**24, and the stamps of transmissions of 2**16. All goes
    as it does with numbers that do not wrap: a wrong comparison may also cost no more than time."""
    assert numbered_from(arq, 2**24 - before, 2**16 - before) == numbered_from(arq, 2**20, 2**8)


def numbered_from(arq, start, stamp):
    """Counts of both engines on a bad wire, with numbers of frames and stamps from there on."""
    dut = pair(64, arq=arq, peers=1, streams=1)
    numbers = [number for link in (dut.host._link, dut.box._link)
               for number in (link._seq.word, link._next.word, link._numbers.fetched_number)]
    seen = [set() for _ in numbers]

    async def prepare(ctx):
        await dut.set_up(ctx)
        for engine in (dut.host, dut.box):
            link = engine._link
            for words in (link._seq, link._next, *([link._due] if link._due else []),
                          link._numbers):
                ctx.set(words._words.data[0], start)
            ctx.set(link._numbers._words.data[1], start)  # the newest ACK
            if arq == "selective":
                ctx.set(engine._retransmitter._stamp, stamp)

    async def watch(ctx):
        async for _, _, *values in ctx.tick().sample(*numbers):
            for one, value in zip(seen, values, strict=True):
                one.add(value)

    counts = on_a_bad_wire(dut, 0.1, prepare, [watch], count=14)
    assert counts[0]["tx_repeated"] > 0
    for one in seen:
        # Memories begin with 0, which is 7 frames behind the start of one that wraps.
        assert start in one and max(
            far for n in one if (far := (n - start) % 2**24) < 100) > 7
    return counts


def test_a_dead_wire_ends_a_session_and_an_open_begins_it_anew():
    rng = random.Random(seed())
    dut = pair()
    before, after = ([write(rng, rng.randrange(ROWS)) for _ in range(9)] for _ in range(2))
    got, host = [], {}

    async def process(ctx):
        await dut.set_up(ctx)
        ctx.set(dut.host.retry_wait, 2)
        ctx.set(dut.lose_down, 1)
        await drive_packets(dut.host.tlp_i, before)(ctx)
        await ctx.tick().until(dut.host.session_down == 0b111)
        assert (await look_at(ctx, dut.host)).failed
        # What is to be sent now is dropped.
        await drive_packets(dut.host.tlp_i, before)(ctx)
        await ctx.tick().repeat(300)
        ctx.set(dut.lose_down, 0)
        for engine in (dut.host, dut.box):
            await open_anew(ctx, engine)
        await drive_packets(dut.host.tlp_i, after)(ctx)
        await ctx.tick().repeat(2000)
        view = await look_at(ctx, dut.host)
        assert not view.failed and not view.unacked

    simulate(dut, process, background=[collect_packets(dut.box.tlp_o, 10**6, got),
                                       count_pulses(dut.host, host)])
    assert rows_of(got) == rows_of(after)
    assert host["retry_failed"] == 1 and host["tx_unroutable"] == len(before)


def sent_frames(stream, into):
    """Process that appends each frame that leaves by ``stream``, as the golden model reads it."""
    async def process(ctx):
        beats = b""
        async for _, _, valid, ready, beat in ctx.tick().sample(
                stream.valid, stream.ready, stream.payload):
            if valid and ready:
                beats += int(beat.data).to_bytes(stream.payload.data.shape().width // 8,
                                                 "little")[:4 * beat.dwords]
                if beat.last:
                    into.append(parse(beats))
                    beats = b""
    return process


def test_a_session_opens_by_itself_and_again_after_a_reset_of_the_box():
    """Frames are lost all the time; every one is a right one, and HELLO says what it has to."""
    rng = random.Random(seed())
    dut = pair(64, pause=2)
    parts = [[write(rng, rng.randrange(ROWS)) for _ in range(12)] for _ in range(2)]
    got, frames, host = [], [], {}
    about = dict(role=2, slots=ROWS, window=64, largest=4180, smallest=250, give_up=7500,
                 capabilities=0, table=5)

    async def process(ctx):
        await dut.set_up(ctx)
        for engine, mode in ((dut.host, Mode.OPENS), (dut.box, Mode.ANSWERS)):
            ctx.set(engine.boot, 1)
            ctx.set(engine.hello_wait, 3)
            ctx.set(engine.quiet, 3)
            await set_mode(ctx, engine, mode)
        ctx.set(dut.box.local_hello, dict(about, boot=1))
        await ctx.tick()
        for n, part in enumerate(parts):
            assert ctx.get(dut.host.session_down) == 0b111
            while (view := await look_at(ctx, dut.host)).phase != Phase.OPEN.value:
                await ctx.tick()
            assert view.boot == n + 1
            await ctx.tick().repeat(2 * ROWS)
            assert ctx.get(dut.host.session_down) == ctx.get(dut.box.session_down) == 0
            await drive_packets(dut.host.tlp_i, part)(ctx)
            while (await look_at(ctx, dut.host)).unacked:
                await ctx.tick()
            await ctx.tick().repeat(600)
            assert ctx.get(dut.host.events_routed)  # frames that were sent again are none
            if n == 0:  # what is in the box's registers comes again, but for the boot counter
                ctx.set(dut.reset_box, 1)
                ctx.set(dut.box.boot, 2)
                ctx.set(dut.box.local_hello, dict(about, boot=2))
                await ctx.tick()
                ctx.set(dut.reset_box, 0)
                await set_mode(ctx, dut.box, Mode.ANSWERS)
                await ctx.tick().until(dut.host.session_down == 0b111)

    async def harm(ctx):
        while True:
            ctx.set(dut.lose_down, rng.random() < 0.2)
            ctx.set(dut.lose_up, rng.random() < 0.2)
            await ctx.tick()

    simulate(dut, process, background=[
        harm, collect_packets(dut.box.tlp_o, 10**6, got), sent_frames(dut.box.frame_o[0], frames),
        sent_frames(dut.host.frame_o[0], frames), count_pulses(dut.host, host)])
    assert rows_of(got) == rows_of(parts[0] + parts[1])
    assert (host["session_opened"], host["session_lost"], host["session_rebooted"]) == (2, 1, 1)
    assert host["tx_repeated"]
    answers = [f for f in frames if f.type == FrameType.HELLO_ACK]
    hellos = [f for f in frames if f.type == FrameType.HELLO]
    assert len({f.body.nonce for f in hellos}) >= 2 and {f.tag for f in hellos} == {0}
    assert {f.tag for f in answers} <= {f.body.tag_offered for f in hellos}
    for frame in answers:
        body = frame.body
        assert (body.role, body.slots, body.window, body.largest_frame) == (2, ROWS, 64, 4180)
        assert (body.smallest_timer, body.give_up_timer, body.table_generation) == (250, 7500, 5)
        assert body.tag_echoed == frame.tag and body.boot_counter in (1, 2)


def test_an_end_that_gives_up_its_session_ends_the_other_too():
    """By one FENCE, byte by byte as the golden model makes it, and without any wait."""
    dut, frames, totals = pair(64, pause=2), [], {}

    async def process(ctx):
        await dut.set_up(ctx)
        for engine, mode in ((dut.host, Mode.OPENS), (dut.box, Mode.ANSWERS)):
            ctx.set(engine.boot, 1)
            ctx.set(engine.quiet, 3)
            await set_mode(ctx, engine, mode)
        while (await look_at(ctx, dut.host)).phase != Phase.OPEN.value:
            await ctx.tick().repeat(10)
        tag = (await look_at(ctx, dut.host)).tx_tag
        await ctx.tick().until(dut.box.session_down == 0)
        for engine in (dut.host, dut.box):
            ctx.set(engine.quiet, 10_000)
        frames.clear()
        await open_anew(ctx, dut.host)
        for _ in range(150):
            await ctx.tick()
            if ctx.get(dut.box.session_down) == 0b111:
                break
        assert ctx.get(dut.box.session_down) == 0b111
        await ctx.tick().repeat(100)
        fence, = (f for f in frames if f.type == FrameType.FENCE)
        assert fence == replace(fence, body=Fence(FenceReason.MANAGED), tag=tag)
        assert frames[-1] is fence and (await look_at(ctx, dut.box)).phase == Phase.QUIET.value

    simulate(dut, process, background=[
        sent_frames(dut.host.frame_o[0], frames), sent_frames(dut.box.frame_o[0], frames),
        count_pulses(dut.box, totals)], deadline=6000)
    assert totals["session_lost"] == 1 and totals["rx_unhandled"] == 0


@pytest.mark.parametrize("says, limit", [
    (dict(largest=4180), 4167), *(pytest.param(says, 512, marks=pytest.mark.long)
                                  for says in (dict(largest=4175), dict(capabilities=0)))])
def test_a_peer_must_take_what_is_sent(says, limit):
    """The largest TLP in a frame of its own (32 bytes of header, 8 of credits, 4132 of TLP, 4 of
    CRC), frames of the packing limit with their 14 bytes before it, and the split form."""
    split = "capabilities" in says
    dut, totals = pair(64, pause=2, split=split), {}
    about = dict(role=2, slots=ROWS, window=64, largest=4176, capabilities=Capability.SPLIT * split,
                 boot=1)

    async def process(ctx):
        await dut.set_up(ctx)
        ctx.set(dut.box.local_hello, about | says)
        ctx.set(dut.host.packing_limit, limit)
        for engine, mode in ((dut.host, Mode.OPENS), (dut.box, Mode.ANSWERS)):
            ctx.set(engine.boot, 1)
            ctx.set(engine.hello_wait, 3)
            ctx.set(engine.quiet, 3)
            await set_mode(ctx, engine, mode)
        while not totals.get("session_unfit"):
            await ctx.tick()
        assert (await look_at(ctx, dut.host)).phase == Phase.HELLO.value
        ctx.set(dut.box.local_hello, about)
        ctx.set(dut.host.packing_limit, 4162)
        while (await look_at(ctx, dut.host)).phase != Phase.OPEN.value:
            await ctx.tick().repeat(20)

    simulate(dut, process, background=[count_pulses(dut.host, totals)], deadline=6000)
    assert totals["session_opened"] == 1


def test_closed_rows_pass_nothing():
    rng = random.Random(seed())
    dut = pair()
    down = [write(rng, n % ROWS) for n in range(30)]
    got, host, box = [], {}, {}

    async def feed(ctx):
        await dut.set_up(ctx, open_rows=0b101)
        ctx.set(dut.box.open, 0b110)
        await drive_packets(dut.host.tlp_i, down)(ctx)
        await ctx.tick().repeat(1000)

    simulate(dut, feed, background=[collect_packets(dut.box.tlp_o, 10**6, got),
                                    count_pulses(dut.host, host), count_pulses(dut.box, box)])
    assert rows_of(got) == [[], [], rows_of(down)[2]]
    assert host["tx_unbound"] == 10 and box["rx_unbound"] == 10
