"""dxpu.fabric.send.packetizer against the golden wire model: bytes, packing, bubbles, counters."""

import random
from dataclasses import dataclass, field

import pytest

from dxpu.fabric.send.packetizer import Packetizer
from dxpu.fabric.wire.frame_types import SEQUENCED, FrameType
from dxpu.stream import WIDTHS
from dxpu_model import wire
from tests.support.testbench import (
    Packet, StreamViolation, check_stream, collect_packets, drive_packets, drive_words, seed,
    simulate,
)
from tests.support.widths import every_width, some_widths

READ = bytes.fromhex("200000203b005aff0000000123456780")
SMALL_READ = bytes.fromhex("200000013b005b0f0000000123456800")
READ_32 = bytes.fromhex("000000013b005c0f23456800")
UPDATE = wire.Credit(2, 0, 0x0140, 0x1340, 0x1234)


def tlp(rng, payload, *, prefixes=0, four=None, digest=None):
    """Bytes of a random TLP with ``payload`` dwords (0: none); only its lengths mean something."""
    four = rng.getrandbits(1) if four is None else four
    digest = rng.getrandbits(1) if digest is None else digest
    length = payload % 1024 if payload else rng.randrange(1024)
    head = bytes([(2 if payload else 0) << 5 | four << 5, rng.randrange(256),
                  digest << 7 | length >> 8, length & 255])
    rest = 4 * (2 + four + payload + digest)
    return (b"".join(b"\x90" + rng.randbytes(3) for _ in range(prefixes)) + head
            + rng.randbytes(rest))


def random_tlp(rng, largest=80):
    payload = rng.choice([0, 0, 1, 2, 3, rng.randint(1, 16), rng.randint(1, largest)])
    return tlp(rng, payload, prefixes=rng.choice([0, 0, 0, 1, 2, 4]))


def depth_for(width):
    return {32: 2048, 64: 1024, 128: 512, 256: 256, 512: 128}[width]


@dataclass
class Link:
    """Answers requests with routes; remembers both. Frames are numbered as a link would."""

    rng: random.Random
    delay: float = 1.0  # density of answers
    unroutable: frozenset = frozenset()
    fixed: dict = field(default_factory=dict)  # by row: values instead of random ones
    extension: float = 0.5
    wait_for: object = None  # called with the context before each answer
    asked: list = field(default_factory=list)
    first: dict = field(default_factory=dict)  # by number: the route of the first transmission
    seq: int = 0

    def answer(self, request):
        """The route for a request, with the row that it is for."""
        if request.again:
            old = self.first[request.seq]
            assert [request[k] for k in ("session", "dst_slot", "src_slot", "paths")] == [
                old[k] for k in ("session", "dst_slot", "src_slot", "paths")]
            assert not request.tlps
            new = self.route(old["session"], 0)
            row = old["session"]
            same = ("dst_slot", "src_slot", "tag", "seq", "session", "paths")
            route = new | {k: old[k] for k in same}
        else:
            assert request.direct != request.consumes
            row = request.session if request.direct else request.row
            route = self.route(row, request.consumes)
            if request.consumes and route["ok"]:
                self.first[route["seq"]] = route
        self.asked.append((row, request.consumes, route))
        return route

    def route(self, row, consumes):
        rng = self.rng
        values = {
            "dst_node": rng.randrange(4096), "src_node": rng.randrange(4096),
            "dst_slot": rng.randrange(256), "src_slot": rng.randrange(256),
            "path": rng.randrange(16), "stream": rng.randrange(16), "tag": rng.randrange(1 << 16),
            "seq": self.seq, "ack": rng.randrange(1 << 24), "ar": rng.getrandbits(1),
            "crx": consumes and rng.random() < self.extension, "ok": row not in self.unroutable,
            "session": row, "paths": rng.randrange(1, 1 << 16), "epoch": rng.randrange(4),
            "credit": self.credit(rng.randrange(3)), "credits": [self.credit(n) for n in range(3)],
        } | self.fixed.get(row, {})
        if values["ok"] and consumes:
            self.seq = (self.seq + 1) % (1 << 24)
        return values

    def credit(self, cls):
        rng = self.rng
        return {"cls": cls, "generation": rng.randrange(256), "header_limit": rng.randrange(65536),
                "data_limit": rng.randrange(65536), "echo": rng.randrange(65536)}

    def process(self, dut):
        async def process(ctx):
            while True:
                ctx.set(dut.request.ready, 1)
                while True:
                    *_, asked, request = await ctx.tick().sample(dut.request.valid,
                                                                 dut.request.payload)
                    if asked:
                        break
                ctx.set(dut.request.ready, 0)
                if self.wait_for:
                    await self.wait_for(ctx)
                while self.rng.random() > self.delay:
                    await ctx.tick()
                ctx.set(dut.route.payload, self.answer(request))
                ctx.set(dut.route.valid, 1)
                taken = False
                while not taken:
                    *_, taken = await ctx.tick().sample(dut.route.ready)
                ctx.set(dut.route.valid, 0)
        return process


class Keeper:
    """Takes the part of the retransmitter: repeats frames that were stored, or forgets them."""

    def __init__(self, dut, rng, again=0.0):
        self._dut, self._rng, self.again = dut, rng, again
        self.kept, self.busy = [], False

    async def watch(self, ctx):
        dut = self._dut
        async for *_, strobe, frame in ctx.tick().sample(dut.stored_strobe, dut.stored):
            if strobe:
                self.kept.append((frame.session, frame.cell))

    async def act(self, ctx):
        dut, rng = self._dut, self._rng
        while True:
            await ctx.tick()
            if not self.kept or rng.random() < 0.5:
                continue
            if rng.random() < self.again:
                self.busy = True
                session, cell = rng.choice(self.kept)
                ctx.set(dut.repeat, {"session": session, "cell": cell, "probe": 0})
                ctx.set(dut.repeat_valid, 1)
                await ctx.tick().until(dut.repeat_take)
                ctx.set(dut.repeat_valid, 0)
                # Nothing that is being read is forgotten.
                await ctx.tick().repeat(120)
                self.busy = False
            else:
                _, cell = self.kept.pop(rng.randrange(len(self.kept)))
                ctx.set(dut.free.payload, cell)
                ctx.set(dut.free.valid, 1)
                await ctx.tick().until(dut.free.ready)
                ctx.set(dut.free.valid, 0)


def frame(route, body):
    """The golden frame of a route."""
    names = ("dst_node", "src_node", "dst_slot", "src_slot", "path", "stream", "tag", "seq", "ack")
    return wire.Frame(body, **{name: route[name] for name in names}, ar=bool(route["ar"]),
                      credit=wire.Credit(**route["credit"]) if route["crx"] else None)


def check_split(got, totals, tlps, controls, link, largest, *, refused=0):
    """As :func:`check`, for the split form; ``largest`` data bytes in a frame."""
    bodies = [(row, body) for row, data in tlps for body in wire.split(data, largest)]
    assert len(link.asked) == len(got) == totals["stat_frames"] == len(bodies) + len(controls)
    assert totals["stat_tlps"] == len(tlps)
    assert totals["stat_unroutable"] == totals["stat_malformed"] - refused == 0
    joiner, joined = wire.Joiner(), []
    for (row, consumes, route), packet in zip(link.asked, got, strict=True):
        parsed = wire.parse(packet.data)
        assert packet.meta.path == route["path"]
        if parsed.type in (FrameType.HDR, FrameType.DATA):
            (expected_row, body), bodies = bodies[0], bodies[1:]
            assert expected_row == row and consumes
            if tlp := joiner.take(parsed.body):
                joined.append(tlp)
        else:
            body, controls = parsed.body, controls[1:]
        assert packet.data.hex() == wire.build(frame(route, body)).hex()
    assert joined == [data for _, data in tlps]
    assert not bodies and not controls


def check_bubbles(stream):
    """Background process: valid never falls between first and last."""
    async def process(ctx):
        inside = False
        async for *_, valid, ready, payload in ctx.tick().sample(
                stream.valid, stream.ready, stream.payload):
            if inside and not valid:
                raise StreamViolation("a bubble inside a frame")
            if valid and ready:
                inside = not payload.last
    return process


class ControlFrames:
    """Counts the control frames among ``got``, those that were sent again once."""

    def __init__(self, got):
        self._got, self._looked, self._replies, self._events = got, 0, 0, set()

    def count(self):
        """How many there are by now."""
        while self._looked < len(self._got):
            data = self._got[self._looked].data
            self._looked += 1
            kind = data[14] & 15
            if kind == FrameType.EVENT:
                self._events.add(wire.parse(data).seq)
            elif kind in (FrameType.ACK, FrameType.SACK):
                self._replies += 1
        return self._replies + len(self._events)


class Counters:
    """Totals of the ``stat_*`` pulses."""

    def __init__(self, dut):
        self._dut = dut
        self.names = [name for name in dut.signature.members if name.startswith("stat_")]
        self.totals = dict.fromkeys(self.names, 0)

    async def process(self, ctx):
        async for _, _, *values in ctx.tick().sample(*(getattr(self._dut, n) for n in self.names)):
            for name, value in zip(self.names, values, strict=True):
                self.totals[name] += value


def run(width, tlps, *, link, limit=512, controls=(), frames=None, density_in=1.0, density_out=1.0,
        rng=None, settle=30, dut=None, again=0.0, refused=()):
    """Send (row, bytes) and controls; returns the frames and the counters.

    ``frames``: number of frames to wait for; by default, until everything sent has come out.
    ``refused``: those of the TLPs that are not to be sent at all.
    """
    dut = dut or Packetizer(width, depth=depth_for(width))
    got, counters = [], Counters(dut)
    packets = [Packet(data, {"row": row}) for row, data in tlps]
    drop = link.unroutable
    good = [row for row, data in tlps if data not in refused]
    todo = sum(row not in drop for row in good)
    lost = len(good) - todo + sum(c["row"] in drop for c in controls)
    expect_controls = sum(c["row"] not in drop for c in controls)
    control_frames = ControlFrames(got)
    keeper = Keeper(dut, rng or random.Random(seed()), again)
    replies = [{"type": c["type"], "session": c["row"]} for c in controls
               if c["type"] != FrameType.EVENT]
    events = [{k: v for k, v in c.items() if k != "type"} for c in controls
              if c["type"] == FrameType.EVENT]

    async def finish(ctx):
        ctx.set(dut.packing_limit, limit)
        while not (counters.totals["stat_tlps"] == todo
                   and counters.totals["stat_unroutable"] == lost
                   and counters.totals["stat_malformed"] == len(tlps) - len(good)
                   and control_frames.count() >= expect_controls
                   and len(got) == counters.totals["stat_frames"]):
            await ctx.tick()
        keeper.again = 0.0
        while sum(a[2]["ok"] for a in link.asked) != len(got) or keeper.busy:
            await ctx.tick()
        await ctx.tick().repeat(settle)

    async def collect(ctx):
        await collect_packets(dut.o, 1 << 30, got, rng=rng, density=density_out)(ctx)

    simulate(dut, drive_packets(dut.i, packets, rng=rng, density=density_in),
             drive_words(dut.control, events, rng=rng, density=0.02),
             drive_words(dut.reply, replies, rng=rng, density=0.02), finish,
             background=[collect, keeper.watch, keeper.act,
                         link.process(dut), counters.process, check_bubbles(dut.o),
                         check_stream(dut.o, "o"), check_stream(dut.request, "request")],
             deadline=30_000)
    if frames is not None:
        assert len(got) == frames
    return got, counters.totals, packets


def check(got, totals, tlps, controls, link, limit, *, refused=0):
    """Every frame is the golden one of its route; all TLPs and controls came, in order."""
    sent = [(row, data) for row, data in tlps if row not in link.unroutable]
    routable = [c for c in controls if c["row"] not in link.unroutable]
    replies = [c for c in routable if c["type"] != FrameType.EVENT]
    events = [c for c in routable if c["type"] == FrameType.EVENT]
    bodies = {}  # by number
    asked = [a for a in link.asked if a[2]["ok"]]
    assert len(asked) == len(got) == totals["stat_frames"]
    assert totals["stat_tlps"] == len(sent)
    assert totals["stat_unroutable"] == len(tlps) - len(sent) + len(controls) - len(routable)
    assert totals["stat_malformed"] == refused
    for (row, consumes, route), packet in zip(asked, got, strict=True):
        parsed = wire.parse(packet.data)
        assert packet.meta.path == route["path"]
        assert consumes == (parsed.type in SEQUENCED)
        if route["seq"] in bodies and consumes:
            body = bodies[route["seq"]]
        elif parsed.type == FrameType.TLP:
            mine, sent = sent[:parsed.count], sent[parsed.count:]
            assert all(r == row for r, _ in mine)
            body = wire.Tlps(tuple(data for _, data in mine))
            assert parsed.count == 1 or len(packet.data) - 14 <= limit
        elif parsed.type == FrameType.EVENT:
            event, events = events[0], events[1:]
            assert event["row"] == row
            body = wire.Event(event["code"], event["generation"], event["argument"])
        else:
            reply, replies = replies[0], replies[1:]
            assert (reply["row"], reply["type"]) == (row, parsed.type)
            entries = tuple(wire.Credit(**c) for c in route["credits"])
            body = wire.Ack(entries) if parsed.type == FrameType.ACK else wire.Sack(entries, ())
        if consumes:
            bodies[route["seq"]] = body
        assert packet.data.hex() == wire.build(frame(route, body)).hex()
    assert not sent and not events and not replies


def random_control(rng, rows):
    return {"type": rng.choice([FrameType.ACK, FrameType.SACK, FrameType.EVENT]),
            "row": rng.choice(rows),
            "code": rng.randrange(1, 10), "generation": rng.randrange(65536),
            "argument": rng.randrange(1 << 32)}


VECTOR_ROUTE = {
    "dst_node": 1, "src_node": 0x105, "dst_slot": 0, "src_slot": 3, "path": 0, "stream": 0,
    "tag": 0xBEEF, "ack": 0x77, "ok": 1, "crx": 1, "ar": 0,
    "credit": {"cls": 2, "generation": 0, "header_limit": 0x140, "data_limit": 0x1340,
               "echo": 0x1234},
}
# Without the FCS.
VECTORS = {
    "V1": ([READ], [], VECTOR_ROUTE | {"seq": 0x123, "ar": 1},
           "02445800000102445800010588b512c1001105000300beef0001230000772f75020001401340123420000020"
           "3b005aff00000001234567800c1d19db"),
    "V3": ([READ, SMALL_READ], [], VECTOR_ROUTE | {"seq": 0x124},
           "02445800000102445800010588b51282001105000300beef00012400007749fb020001401340123420000020"
           "3b005aff00000001234567800b1d19db00000000200000013b005b0f0000000123456800cfdd8aab00000000"),
    "V4": ([READ_32], [], VECTOR_ROUTE | {"seq": 0x126, "crx": 0},
           "02445800000102445800010588b51201001105000300beef000126000077489c000000013b005c0f23456800"
           "74012754000000000000000000000000"),
    "V5": ([], [{"type": FrameType.ACK, "row": 3}],
           VECTOR_ROUTE | {"seq": 0x79, "ack": 0x125, "dst_node": 0x105, "src_node": 1,
                           "dst_slot": 3, "src_slot": 0, "path": 1, "tag": 0x1D0C, "crx": 0,
                           "credits": [
                               {"cls": n, "generation": 0, "header_limit": h, "data_limit": d,
                                "echo": 0}
                               for n, (h, d) in enumerate([(0x10, 0x80), (8, 8), (0x140, 0x1340)])
                           ]},
           "02445801010502445801000188b515001050010300101d0c0000790001250c5b000000100080000001000008"
           "0008000002000140134000009c166b0a"),
}


@pytest.mark.parametrize("width", WIDTHS)
def test_check_vectors(width):
    rows = {name: row for row, name in enumerate(VECTORS, 1)}
    tlps = [(9, READ_32)]  # while this one waits for its route the others are queued
    controls = []
    for name, (data, control, _, _) in VECTORS.items():
        tlps += [(rows[name], d) for d in data]
        controls += [c | {"row": rows[name]} for c in control]

    async def until_queued(ctx):
        await ctx.tick().repeat(80)

    link = Link(random.Random(seed()), wait_for=until_queued,
                fixed={rows[name]: route for name, (_, _, route, _) in VECTORS.items()})
    got, *_ = run(width, tlps, link=link, controls=controls)
    sent = {row: packet.data.hex() for (row, *_), packet in zip(link.asked, got, strict=True)}
    assert {name: sent[rows[name]] for name in VECTORS} == {n: v[3] for n, v in VECTORS.items()}
    assert len(got) == 1 + len(VECTORS)


@pytest.mark.parametrize("width, densities", every_width(
    (0.6, 0.6, 0.5), (1, 0.4, 1), (0.3, 1, 0.3), (0.9, 0.9, 1), (1, 1, 1)))
def test_random_traffic(width, densities):
    density_in, density_out, delay = densities
    rng = random.Random(seed())
    rows = [0, 5, 63]
    tlps, row = [], 0
    for _ in range(40):
        if rng.random() < 0.2:
            row = rng.choice(rows)
        tlps.append((row, random_tlp(rng)))
    controls = [random_control(rng, rows) for _ in range(8)]
    link = Link(rng, delay=delay)
    got, totals, _ = run(width, tlps, link=link, controls=controls, rng=rng,
                         density_in=density_in, density_out=density_out)
    check(got, totals, tlps, controls, link, 512)


@pytest.mark.parametrize("width", some_widths(64))
def test_frames_are_sent_again(width):
    """With the same number and records, all else as the link says then."""
    rng = random.Random(seed())
    tlps = [(rng.choice([0, 5, 63]), random_tlp(rng)) for _ in range(80)]
    controls = [random_control(rng, [0, 5, 63]) for _ in range(12)]
    link = Link(rng, delay=0.7)
    got, totals, _ = run(width, tlps, link=link, controls=controls, rng=rng, again=0.8)
    check(got, totals, tlps, controls, link, 512)
    assert totals["stat_repeated"] > 1


@pytest.mark.parametrize("width", some_widths(512))
def test_every_length(width):
    """All tails: every number of dwords from 3 up to more than two beats, alone and together."""
    rng = random.Random(seed())
    tlps = []
    for dwords in range(3, 3 + 2 * max(width // 32, 4)):
        four = dwords > 3
        tlps += [(0, tlp(rng, dwords - 3 - four, four=four, digest=0))] * 2
    for limit, extension in ((0, 1), (1500, 0.5)):
        link = Link(rng, extension=extension)
        got, totals, _ = run(width, tlps, link=link, limit=limit)
        check(got, totals, tlps, [], link, limit)
        assert (len(got) == len(tlps)) == (limit == 0)


@pytest.mark.parametrize("width", some_widths(512))
def test_largest_tlp(width):
    rng = random.Random(seed())
    largest = tlp(rng, 1024, prefixes=4, four=1, digest=1)
    assert len(largest) == 4 * 1033
    tlps = [(1, READ), (1, largest), (1, largest), (1, READ), (1, READ)]
    link = Link(rng)
    got, totals, _ = run(width, tlps, link=link)
    check(got, totals, tlps, [], link, 512)


def greedy(tlps, limit):
    """How many TLPs each frame has if all are queued, from the rule: in Ethernet payload bytes."""
    frames, size, last = [], 0, None
    for row, data in tlps:
        record = len(data) + 4
        record += -record % 8
        if frames and row == last and frames[-1] < 31 and size + record <= limit:
            frames[-1] += 1
            size += record
        else:
            frames.append(1)
            size = 18 + 8 + record  # header without the Ethernet header, credit extension
            last = row
    return frames


@pytest.mark.parametrize("width, limit", every_width(512, 1500, 74, 75, 0))
def test_packs_what_is_queued(width, limit):
    rng = random.Random(seed())
    tlps = [(2, READ_32)]  # its route is held back until all others are queued
    for _ in range(5):
        tlps += [(rng.randrange(2), READ)] * rng.randint(1, 8)
        tlps += [(rng.randrange(2), random_tlp(rng, 30))] * rng.randint(0, 3)
    tlps = tlps[:40]
    dut = Packetizer(width, depth=depth_for(width))
    waited = False

    async def until_queued(ctx):
        nonlocal waited
        if not waited:
            waited = True
            await ctx.tick().repeat(sum(len(d) for _, d in tlps) // (width // 8) + 3 * len(tlps))

    link = Link(rng, wait_for=until_queued)
    got, totals, _ = run(width, tlps, link=link, limit=limit, dut=dut)
    check(got, totals, tlps, [], link, limit)
    assert [p.data[15] & 31 for p in got] == [1, *greedy(tlps[1:], limit)]


@pytest.mark.parametrize("width, count", every_width(32, 31, 45, 3, 62))
def test_up_to_31_tlps(width, count):
    rng = random.Random(seed())
    tlps = [(2, READ_32)] + [(4, random_tlp(rng, 3)) for _ in range(count)]

    async def until_queued(ctx):
        await ctx.tick().repeat(sum(len(d) for _, d in tlps) // (width // 8) + 4 * len(tlps))

    link = Link(rng, wait_for=until_queued)
    got, totals, _ = run(width, tlps, link=link, limit=9000)
    check(got, totals, tlps, [], link, 9000)
    assert [p.data[15] & 31 for p in got][1:] == [31] * (count // 31) + [count % 31] * (
        count % 31 > 0)


@pytest.mark.parametrize("width", some_widths(32))
def test_unroutable(width):
    rng = random.Random(seed())
    rows = [0, 1, 2]
    tlps = [(rng.choice(rows), random_tlp(rng, 30)) for _ in range(40)]
    controls = [random_control(rng, rows) for _ in range(12)]
    link = Link(rng, unroutable=frozenset({1}), delay=0.5)
    got, totals, _ = run(width, tlps, link=link, controls=controls, rng=rng)
    check(got, totals, tlps, controls, link, 512)
    assert totals["stat_unroutable"] > 10


@pytest.mark.parametrize("width", [64, 512])
def test_discarded_tlps_leave_no_trace(width):
    rng = random.Random(seed())
    dut = Packetizer(width, depth=depth_for(width))
    packets = [Packet(random_tlp(rng), {"row": 0}, discard=rng.random() < 0.4) for _ in range(40)]
    kept = [p for p in packets if not p.discard]
    got, link, counters = [], Link(rng), Counters(dut)

    async def finish(ctx):
        while counters.totals["stat_tlps"] < len(kept):
            await ctx.tick()
        await ctx.tick().repeat(40)

    simulate(dut, drive_packets(dut.i, packets, rng=rng, density=0.8), finish,
             background=[collect_packets(dut.o, 1000, got), link.process(dut), counters.process])
    assert [t for p in got for t in wire.parse(p.data).body.tlps] == [p.data for p in kept]


#: Cycles from the last beat of a lone read to the first beat of its frame, if the link answers in
#: the cycle after the request.
LATENCY = {32: 7, 64: 7, 128: 8, 256: 8, 512: 9}


@pytest.mark.parametrize("width", WIDTHS)
def test_latency(width):
    dut = Packetizer(width, depth=depth_for(width))
    taken = offered = None

    async def watch(ctx):
        nonlocal taken, offered
        now = 0
        async for *_, i_fire, last, valid in ctx.tick().sample(
                dut.i.valid & dut.i.ready, dut.i.payload.last, dut.o.valid):
            now += 1
            if i_fire and last:
                taken = now
            if valid and offered is None:
                offered = now

    async def finish(ctx):
        while offered is None:
            await ctx.tick()

    async def send(ctx):
        await ctx.tick().repeat(70)  # the replay memory is ready
        await drive_packets(dut.i, [Packet(READ, {"row": 0})])(ctx)

    link = Link(random.Random(seed()), extension=0)
    simulate(dut, send, finish,
             background=[watch, link.process(dut)])
    assert offered - taken == LATENCY[width]


def test_control_goes_first():
    rng = random.Random(seed())
    tlps = [(0, tlp(rng, 60))] * 6
    controls = [{"type": FrameType.ACK, "row": 0}]
    link = Link(rng)
    got, totals, _ = run(64, tlps, link=link, controls=controls, limit=0)
    check(got, totals, tlps, controls, link, 0)


@pytest.mark.parametrize("width, densities", every_width(
    (0.6, 0.6, 0.5), (1, 0.4, 1), (0.3, 1, 0.3), (0.9, 0.9, 1), (1, 1, 1)))
def test_split_form(width, densities):
    rng = random.Random(seed())
    density_in, density_out, delay = densities
    limit = 150
    largest = max((limit - 34) // (width // 8), 1) * (width // 8)
    tlps = [(rng.randrange(64), random_tlp(rng, 60)) for _ in range(20)]
    controls = [random_control(rng, [1, 2]) for _ in range(4)]
    link = Link(rng, delay=delay)
    got, totals, _ = run(width, tlps, link=link, controls=controls, limit=limit, rng=rng,
                         density_in=density_in, density_out=density_out,
                         dut=Packetizer(width, split=True, depth=depth_for(width)))
    check_split(got, totals, tlps, controls, link, largest)


@pytest.mark.parametrize("width", some_widths(64))
def test_split_form_of_every_length(width):
    rng = random.Random(seed())
    tlps = [(0, tlp(rng, payload, prefixes=prefixes, four=four, digest=payload & 1))
            for four in (0, 1) for prefixes in range(3)
            for payload in (0, 1, *rng.choices(range(2, 36), k=3))]
    limit = 34 + 2 * width // 8  # two beats a frame
    link = Link(rng)
    got, totals, _ = run(width, tlps, link=link, limit=limit,
                         dut=Packetizer(width, split=True, depth=depth_for(width)))
    check_split(got, totals, tlps, [], link, 2 * width // 8)


#: A local and four end-to-end prefixes before a read (PCIe Base 5.0, 2.2.10).
FIVE_PREFIXES = bytes.fromhex("80000000 90000001 90000002 90000003 90000004"
                              "00000001 3b00000f 00001000")


def mixed_with_bad(rng, bad):
    """Good TLPs of two rows with all that are bad between them, each twice; the good ones."""
    good = [(rng.randrange(2), random_tlp(rng, 24)) for _ in range(12)]
    tlps = [(n % 2, READ) for n in range(2)] + good
    for data in bad * 2:
        tlps.insert(rng.randint(1, len(tlps) - 1), (rng.randrange(2), data))
    return tlps, [(row, data) for row, data in tlps if data not in bad]


def too_many_prefixes(rng):
    """With any number of prefixes from five on, with and without data."""
    return [FIVE_PREFIXES, *(tlp(rng, rng.choice([0, 3, 20]), prefixes=prefixes)
                             for prefixes in (5, 5, 6, 7, 8, 9, 13, 16, 17, 33)),
            b"\x90" + bytes(3) + FIVE_PREFIXES[:4 * 5]]


@pytest.mark.parametrize("width", some_widths(64, 512))
def test_split_form_drops_tlps_with_too_many_prefixes_alone(width):
    """And neither the TLP before nor the one behind, of its row or another, is disturbed."""
    rng = random.Random(seed())
    bad = too_many_prefixes(rng)
    tlps, good = mixed_with_bad(rng, bad)
    link = Link(rng)
    limit = 34 + 2 * width // 8
    got, totals, _ = run(width, tlps, link=link, limit=limit, rng=rng, density_in=0.9,
                         refused=bad, dut=Packetizer(width, split=True, depth=depth_for(width)))
    check_split(got, totals, good, [], link, 2 * width // 8, refused=2 * len(bad))


@pytest.mark.parametrize("width", some_widths(64, 512))
def test_split_form_drops_tlps_without_a_whole_header(width):
    rng = random.Random(seed())
    whole = tlp(rng, 0, prefixes=4, four=1, digest=0)
    bad = [*(whole[:n] for n in range(4, len(whole), 4)), READ[:4], READ[:8], READ[:12],
           READ_32[:8]]
    tlps, good = mixed_with_bad(rng, bad)
    link = Link(rng)
    got, totals, _ = run(width, tlps, link=link, limit=200, rng=rng, refused=bad,
                         dut=Packetizer(width, split=True, depth=depth_for(width)))
    check_split(got, totals, good, [], link, max(166 // (width // 8), 1) * (width // 8),
                refused=2 * len(bad))


@pytest.mark.parametrize("width", some_widths(64))
def test_tlps_with_too_many_prefixes_are_dropped_alone(width):
    rng = random.Random(seed())
    bad = too_many_prefixes(rng)
    tlps, good = mixed_with_bad(rng, bad)
    link = Link(rng)
    got, totals, _ = run(width, tlps, link=link, rng=rng, density_in=0.9, refused=bad)
    check(got, totals, good, [], link, 512, refused=2 * len(bad))


def test_split_form_drops_what_has_no_route():
    rng = random.Random(seed())
    tlps = [(n % 3, random_tlp(rng, 20)) for n in range(18)]
    link = Link(rng, unroutable=frozenset({1}))
    got, totals, _ = run(64, tlps, link=link, dut=Packetizer(64, split=True, depth=1024))
    assert totals["stat_unroutable"] == 6 and totals["stat_tlps"] == 12
    joiner = wire.Joiner()
    joined = [t for p in got if (t := joiner.take(wire.parse(p.data).body))]
    assert joined == [data for row, data in tlps if row != 1]


def test_split_is_checked():
    with pytest.raises(TypeError, match="split must be a bool, not 1"):
        Packetizer(64, split=1, depth=1024)


@pytest.mark.parametrize("depth", [0, 64, 1000, 512, "1024"])
def test_depth_is_checked(depth):
    with pytest.raises(ValueError, match="depth must be a power of two of at least 523, not"):
        Packetizer(64, depth=depth)


@pytest.mark.parametrize("width", [8, 1024])
def test_width_is_checked(width):
    with pytest.raises(ValueError, match="width must be one of 32, 64, 128, 256, 512, not"):
        Packetizer(width, depth=1024)
