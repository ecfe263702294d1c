"""dxpu.fabric.send.header.header_builder against the golden wire model: every type of frame."""

import random

import pytest

from dxpu.fabric.send.header.header_builder import HeaderBuilder
from dxpu.fabric.wire.frame_types import SEQUENCED, FrameType
from dxpu.stream import WIDTHS
from dxpu_model import wire
from dxpu_model.crc import crc16_ccitt_false
from tests.support.testbench import check_stream, collect_words, seed, simulate
from tests.support.widths import every_width

CELLS = 64
READ = bytes.fromhex("200000203b005aff0000000123456780")
ROUTE = {"dst_node": 12, "src_node": 12, "dst_slot": 8, "src_slot": 8, "path": 4, "stream": 4,
         "tag": 16, "seq": 24, "ack": 24, "ar": 1}
OTHERS = {"session": 6, "epoch": 2, "paths": 16}
HELLO = {"role": 8, "slots": 8, "arq": 8, "security": 8, "largest": 16, "window": 16,
         "smallest": 16, "give_up": 16, "capabilities": 16, "boot": 16, "table": 32}


def values(rng, fields):
    return {name: rng.getrandbits(bits) for name, bits in fields.items()}


def credit(rng, cls):
    return {"cls": cls} | values(rng, {"generation": 8, "header_limit": 16, "data_limit": 16,
                                       "echo": 16})


class Case:
    """A random frame of a type: order and route as values, and the bytes before its TLPs."""

    def __init__(self, rng, kind, hello, *, selective=False, ok=True):
        self.hello = hello
        order = values(rng, {"dwords": 13, "offset": 11, "final": 1, "code": 8, "generation": 16,
                             "argument": 32, "nonce": 32, "offered": 16, "echoed": 16, "reason": 2,
                             "words": 1, "resend": 1, "cell": 6, "reserved": 5})
        consumes = kind in SEQUENCED
        has_tlps = kind in (FrameType.TLP, FrameType.HDR, FrameType.DATA)
        # A HELLO has a key, or none.
        self.keyed = b""
        if kind == FrameType.HELLO_DONE or kind in (
                FrameType.HELLO, FrameType.HELLO_ACK) and rng.getrandbits(1):
            self.keyed = rng.randbytes(60)
        order["keyed"] = bool(self.keyed)
        order |= {"type": kind, "store": consumes and not order["resend"],
                  "count": has_tlps and (rng.randint(1, 31) if kind == FrameType.TLP else 1)}
        route = values(rng, ROUTE | OTHERS) | {
            "ok": ok, "crx": consumes and rng.getrandbits(1), "word": rng.getrandbits(64),
            "credit": credit(rng, rng.randrange(3)), "credits": [credit(rng, n) for n in range(3)]}
        if kind == FrameType.DATA:  # no more than is in a TLP, and its CRC
            order["dwords"] = rng.randint(2, 1025)
        self.order, self.route = order, route
        self.bytes = self._preamble(selective) if ok else b""

    def _preamble(self, selective):
        order, route = self.order, self.route
        entries = tuple(wire.Credit(**c) for c in route["credits"])
        words = (route["word"],) if selective and order["words"] else ()
        about = [self.hello[name] for name in HELLO]
        hello = wire.Hello(order["nonce"], order["offered"], order["echoed"], *about,
                           answer=order["type"] == FrameType.HELLO_ACK)
        if self.keyed:
            fields = iter(self.keyed)
            hello = wire.Hello(
                *(int.from_bytes(bytes(next(fields) for _ in range(size)), "big")
                  for _, size in wire.Hello.FIELDS),
                answer=order["type"] == FrameType.HELLO_ACK,
                done=order["type"] == FrameType.HELLO_DONE, keyed=self.keyed[28:])
        size = 64 if self.keyed else 32
        data = bytes(4 * (order["dwords"] - 1))
        body, behind = {
            FrameType.TLP: lambda: (wire.Tlps((READ,) * order["count"]), 0),
            FrameType.HDR: lambda: (wire.Hdr(READ), 0),
            FrameType.DATA: lambda: (wire.Data(4 * order["offset"], data, 0), 4),
            FrameType.EVENT: lambda: (wire.Event(
                order["code"], order["generation"], order["argument"]), 12),
            FrameType.ACK: lambda: (wire.Ack(entries), 28),
            FrameType.SACK: lambda: (wire.Sack(entries, words), 32 + 8 * len(words)),
            FrameType.HELLO: lambda: (hello, size),
            FrameType.HELLO_ACK: lambda: (hello, size),
            FrameType.HELLO_DONE: lambda: (hello, size),
            FrameType.FENCE: lambda: (wire.Fence(order["reason"]), 12),
        }[order["type"]]()
        extension = wire.Credit(**route["credit"]) if route["crx"] else None
        frame = wire.Frame(body, **{name: route[name] for name in ROUTE if name != "ar"},
                           ar=bool(route["ar"]), credit=extension)
        return wire.build(frame)[:32 + 8 * bool(extension) + behind]


def run(width, cases, *, rng, density=1.0, selective=False, answer=1.0):
    """The beats of each case, and the cycles from each route to the first beat."""
    dut = HeaderBuilder(width, cells=CELLS, split=True, selective=selective, keyed=True)
    beats, latencies, now, routed = [], [], 0, []

    async def orders(ctx):
        for case in cases:
            ctx.set(dut.body_put, 1)
            for at in range(0, len(case.keyed), 2):
                ctx.set(dut.body_at, at // 2)
                ctx.set(dut.body_word, int.from_bytes(case.keyed[at:at + 2], "little"))
                await ctx.tick()
            ctx.set(dut.body_put, 0)
            ctx.set(dut.order.payload, case.order)
            ctx.set(dut.order.valid, 1)
            await ctx.tick().until(dut.order.ready)
            ctx.set(dut.order.valid, 0)
            ctx.set(dut.order.payload, values(rng, dict.fromkeys(case.order, 1)))

    async def routes(ctx):
        for case in cases:
            while ctx.get(dut.order.payload.nonce) != case.order["nonce"]:
                await ctx.tick()
            while rng.random() > answer:
                await ctx.tick()
            ctx.set(dut.local_hello, case.hello)
            ctx.set(dut.route.payload, case.route)
            ctx.set(dut.route.valid, 1)
            await ctx.tick().until(dut.route.ready)
            ctx.set(dut.route.valid, 0)

    async def watch(ctx):
        nonlocal now
        fresh = True
        async for *_, taken, valid, ready, beat in ctx.tick().sample(
                dut.route.valid & dut.route.ready, dut.o.valid, dut.o.ready, dut.o.payload):
            now += 1
            if taken:
                routed.append(now)
            if valid and fresh:
                latencies.append(now - routed[len(latencies)])
                fresh = False
            if valid and ready:
                fresh = beat.last

    async def collect(ctx):
        await collect_words(dut.o, 1 << 30, beats, rng=rng, density=density)(ctx)

    async def finish(ctx):
        while sum(beat.last for beat in beats) < len(cases):
            await ctx.tick()

    simulate(dut, orders, routes, finish, background=[
        watch, collect, check_stream(dut.o), check_stream(dut.order)])
    frames = [[]]
    for beat in beats:
        frames[-1].append(beat)
        if beat.last:
            frames.append([])
    assert frames.pop() == []
    return frames, latencies


def check(case, beats, width):
    """The beats are those of the case, and say what the rest of the frame needs."""
    order, route = case.order, case.route
    assert [beat.first for beat in beats] == [1] + [0] * (len(beats) - 1)
    for beat in beats:
        info = beat.info
        assert info.drop == (not route["ok"])
        assert (info.count, info.total, info.final) == tuple(
            order[k] for k in ("count", "dwords", "final"))
        assert all(info[k] == order[k] for k in ("store", "reserved", "resend", "cell"))
        assert all(info[k] == route[k] for k in ("path", "session", "epoch"))
        assert info.extension == route["crx"]
        assert info.binding == (order["type"] != FrameType.HDR and (
            route["seq"] & 0xFFFF | route["tag"] << 16))
        assert all(info.note[k] == order[k] for k in (
            "type", "code", "generation", "argument", "count", "dwords", "offset", "final"))
        assert all(info.note[k] == route[k] for k in ("dst_slot", "src_slot", "paths", "seq"))
    if not route["ok"]:
        assert len(beats) == 1
        return
    data = b"".join(beat.data.to_bytes(width // 8, "little") for beat in beats)
    size = 4 * sum(beat.dwords for beat in beats)
    assert data[:size].hex() == case.bytes.hex()
    assert not any(data[size:])


KINDS = [kind for kind in FrameType if kind != FrameType.MGMT]


@pytest.mark.parametrize("width, case", every_width(
    (1, False), (0.6, True), (1, True), (0.3, False), (0.8, True)))
def test_every_type_of_frame(width, case):
    density, selective = case
    rng = random.Random(seed())
    hello = values(rng, HELLO)
    cases = [Case(rng, kind, hello, selective=selective, ok=rng.random() < 0.9)
             for kind in KINDS * 4]
    rng.shuffle(cases)
    frames, _ = run(width, cases, rng=rng, density=density, selective=selective, answer=0.7)
    for one, beats in zip(cases, frames, strict=True):
        check(one, beats, width)


@pytest.mark.parametrize("width", WIDTHS)
def test_latency(width):
    """Two cycles, and one for each dword of a body; at 512 bits one more if there is one."""
    rng = random.Random(seed())
    dwords = {FrameType.TLP: 0, FrameType.EVENT: 2, FrameType.ACK: 6, FrameType.SACK: 7,
              FrameType.HELLO: 7}
    for kind, more in dwords.items():
        case = Case(rng, kind, values(rng, HELLO))
        more += 8 * bool(case.keyed)
        frames, latencies = run(width, [case], rng=rng)
        check(case, frames[0], width)
        assert latencies == [2 + more + (width == 512 and more > 0)]


@pytest.mark.parametrize("extended", [0, 1])
def test_header_crc_covers_the_extension(extended):
    rng = random.Random(seed())
    case = Case(rng, FrameType.TLP, values(rng, HELLO))
    case.route["crx"] = extended
    (beats,), _ = run(64, [case], rng=rng)
    assert len(beats) == 4 + extended
    data = b"".join(beat.data.to_bytes(8, "little") for beat in beats)
    assert int.from_bytes(data[30:32], "big") == crc16_ccitt_false(data[14:30] + data[32:])
