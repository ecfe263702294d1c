"""dxpu.fabric.receive.depacketizer with the split form, against the golden reassembly."""

import random

import pytest
from dxpu.fabric.receive.depacketizer import Depacketizer
from dxpu_model import wire_random
from dxpu_model.crc import crc32c
from dxpu_model.reassembly import Reassembly
from dxpu_model.wire import Data, Event, Frame, Tlps, build, split
from dxpu_model.wire_vectors import MISTAKES, edit
from tests.support.depacketizer_bench import compare, expected, run
from tests.support.testbench import Packet, drive_packets, seed, simulate
from tests.support.widths import some_widths


def write(rng, dwords, *, prefixes=0, four=1, digest=0):
    """A memory write, or a read if it has no data."""
    return (b"".join(bytes([0x91, 0, 0, n & 255]) for n in range(prefixes))
            + bytes([four << 5 | bool(dwords) << 6, 0, digest << 7 | dwords >> 8 & 3, dwords & 255])
            + rng.randbytes(8 + 4 * four + 4 * dwords + 4 * digest))


class Peer:
    """A source of frames: TLPs in both forms, events and acknowledgements."""

    def __init__(self, rng, number):
        self._rng = rng
        self.row = number
        self._seq = rng.getrandbits(24)
        self.fields = {"src_node": 0x100 + number // 2, "stream": number % 2, "dst_node": 1,
                       "src_slot": number, "tag": rng.getrandbits(16)}

    def frame(self, body):
        self._seq = (self._seq + 1) % 2**24
        return Frame(body, seq=self._seq, **self.fields,
                     credit=self._rng.choice([None, wire_random.credit(self._rng)]))

    def split(self, tlp, largest=64):
        return [self.frame(body) for body in split(tlp, largest)]

    def anything(self, largest=40):
        """Frames that go together."""
        rng = self._rng
        if rng.random() < 0.6:
            tlp = wire_random.random_tlp(rng, largest=largest)
            frames = self.split(tlp, 4 * rng.choice([1, 2, 7, 16, largest]))
            if len(frames) > 8:
                frames = self.split(tlp, 32)
            if rng.random() < 0.2:
                frames.insert(1, self.frame(Event(rng.getrandbits(8))))
            return frames
        body = wire_random.frame(rng, "handled", most=3, largest=largest).body
        return [self.frame(body)]


def interleaved(rng, peers, count, **options):
    """``count`` frames of all peers: (row, frame)."""
    waiting = {peer: [] for peer in peers}
    out = []
    while len(out) < count or any(waiting.values()):
        peer = rng.choice(peers)
        if not waiting[peer]:
            if len(out) >= count:
                continue
            waiting[peer] = peer.anything(**options)
        out.append((peer.row, waiting[peer].pop(0)))
    return out


def verdicts_for(judged):
    """Verdicts of the link for packets with their (accept, row)."""
    answers = [answer for _, answer in judged]
    return lambda n: answers[n]


def check(dut, judged, *, count=4, largest=4132, **options):
    """Run packets with their verdicts, compare with the golden model, give its expectation."""
    packets, verdicts = [packet for packet, _ in judged], verdicts_for(judged)
    want = expected(packets, verdicts, Reassembly(count=count, largest=largest))
    compare(run(dut, packets, verdicts=verdicts, want=want, deadline=20_000 + 300 * len(judged),
                **options), want)
    return want


@pytest.mark.parametrize("densities", [(0.7, 0.7), pytest.param((1, 1), marks=pytest.mark.long)])
@pytest.mark.parametrize("width", some_widths(64))
def test_tlps_of_several_peers_come_out_whole(width, densities):
    rng = random.Random(seed())
    frames = interleaved(rng, [Peer(rng, n) for n in range(4)], 40)
    judged = [(Packet(build(frame)), (1, row)) for row, frame in frames]
    want = check(Depacketizer(width, split=True, depth=256), judged,
                 rng=rng, i=densities[0], o=densities[1])
    assert +want.stats == {"frames": len(frames)}
    assert len(want.tlps) > 10


def disturbed(rng, frames):
    """``frames`` as (packet, verdict) with losses, repetitions, swaps, damage and refusals."""
    out = []
    for row, frame in frames:
        data, accept = build(frame), rng.random() > 0.03
        if rng.random() < 0.03:
            row = rng.randrange(4)
        fate = rng.random()
        if fate < 0.05:
            continue
        if fate < 0.15:
            data = wire_random.mutate(rng, data)
        out.append((Packet(data, discard=rng.random() < 0.02), (accept, row)))
        if fate > 0.95:
            out.append(rng.choice(out[-3:]))
        if fate < 0.2 and len(out) > 1:
            out[-1], out[-2] = out[-2], out[-1]
    return out


@pytest.mark.parametrize("count", [120, pytest.param(1500, marks=pytest.mark.long)])
@pytest.mark.parametrize("width", some_widths(128))
def test_damage_loss_and_reordering(width, count):
    """Exactly what the golden model makes of it; at the end all peers are served again."""
    rng = random.Random(seed() + width)
    peers = [Peer(rng, n) for n in range(4)]
    judged = disturbed(rng, interleaved(rng, peers, count))
    good = [write(rng, 20) for _ in peers]
    judged += [(Packet(build(frame)), (1, peer.row))
               for peer, tlp in zip(peers, good, strict=True) for frame in peer.split(tlp)]
    want = check(Depacketizer(width, split=True, depth=256), judged, rng=rng, i=0.9,
                 slow=rng.choice([0, 9]))
    assert [tlp for tlp, _ in want.tlps[-4:]] == good
    assert want.stats["length"] and want.stats["abandoned"] and len(want.stats) >= 6


def broken_sequences(rng):
    """Name to (frames with verdicts, TLPs, drops by name) of broken sequences of one peer."""
    peer, other = Peer(rng, 0), Peer(rng, 2)
    tlp = write(rng, 24)

    def parts(tlp=tlp, peer=peer):
        return peer.split(tlp, 32)

    def seen(*frames, accept=True, row=0):
        return [(Packet(build(frame)), (accept, row)) for frame in frames]

    hdr, a, b, c = parts()
    plain, short = Frame(hdr.body, **peer.fields), Frame(Data(0, bytes(8), 0), **peer.fields)
    wrong = Data(a.body.offset, a.body.data[:-1] + bytes([a.body.data[-1] ^ 1]), a.body.crc)
    long = Data(c.body.offset, c.body.data + bytes(4), crc32c(tlp + bytes(4)))
    back = Data(0, a.body.data, a.body.crc)
    begin = Frame(a.body, **peer.fields)
    endless = Data(0, bytes(8192 + 32), crc32c(tlp[:16] + bytes(8192 + 32)))
    renamed = {**peer.fields, "tag": peer.fields["tag"] ^ 1}
    second = write(rng, 8)
    whole = Frame(Tlps((second,)), **peer.fields)
    return {
        "DATA without HDR": (seen(a), [], {"length": 1}),
        "all but HDR": (seen(a, b, c), [], {"length": 3}),
        "first DATA missing": (seen(hdr, b, c), [], {"length": 2}),
        "a DATA missing": (seen(hdr, a, c), [], {"length": 1}),
        "last DATA missing": (seen(hdr, a, b), [], {}),
        "last DATA missing, HDR": (seen(hdr, a, b, *parts()), [tlp], {"abandoned": 1}),
        "last DATA missing, whole TLP": (seen(hdr, a, b, whole, c), [second],
                                         {"abandoned": 1, "length": 1}),
        "read as HDR in between": (seen(hdr, a, *parts(tlp[:16])[:1], b), [],
                                   {"abandoned": 1, "length": 1}),
        "repeated DATA": (seen(hdr, a, a, b, c), [tlp], {"length": 1}),
        "swapped DATA": (seen(hdr, b, a, c), [], {"length": 2}),
        "swapped, then repeated": (seen(hdr, b, a, c, b, c), [tlp], {"length": 2}),
        "refused DATA": (seen(hdr, a) + seen(b, accept=False) + seen(c), [],
                         {"refused": 1, "length": 1}),
        "refused HDR": (seen(hdr, accept=False) + seen(a, b, c), [], {"refused": 1, "length": 3}),
        "refused repetitions": (seen(hdr, a) + seen(hdr, a, accept=False) + seen(b, c), [tlp],
                                {"refused": 2}),
        "wrong data": (seen(hdr, peer.frame(wrong), b, c), [], {"record": 1, "length": 2}),
        "wrong data, then right": (seen(hdr, peer.frame(wrong), a, b, c), [tlp], {"record": 1}),
        "DATA of another TLP": (seen(*parts(write(rng, 24))[:1], a), [], {"record": 1}),
        "DATA longer than the TLP": (seen(hdr, a, b, peer.frame(long)), [], {"length": 1}),
        "offset zero again": (seen(hdr, a, peer.frame(back), b, c), [tlp], {"length": 1}),
        "another row": (seen(hdr, a) + seen(b, row=1) + seen(c), [], {"length": 2}),
        "another session": (seen(hdr, a, Frame(b.body, **renamed)), [], {"length": 1}),
        "another peer's DATA": (seen(hdr, a, *parts(peer=other)[2:3]), [], {"length": 1}),
        "another stream's DATA": (seen(hdr, a, Frame(b.body, **{**peer.fields, "stream": 1})), [],
                                  {"length": 1}),
        "wrong HDR": ([(Packet(edit(plain, change)), (1, 0)) for change in ((36, 1), (59, 1))],
                      [], {"body": 1, "padding": 1}),
        "refused and in no place": (seen(a, accept=False), [], {"refused": 1}),
        "refused and wrong": (seen(hdr) + seen(peer.frame(wrong), accept=False) + seen(a, b, c),
                              [tlp], {"refused": 1}),
        "odd, no and too much length": (
            [(Packet(edit(short, (34, x >> 8), (35, x & 255))), (1, 0)) for x in (1, 8, 0x1000)],
            [], {"length": 3}),
        "odd offset": (seen(hdr) + [(Packet(edit(begin, (33, 2))), (1, 0))] + seen(a, b, c), [tlp],
                       {"length": 1}),
        "more data than any TLP has": (seen(hdr, peer.frame(endless), a, b, c), [tlp],
                                       {"length": 1}),
    }


@pytest.mark.parametrize("width", some_widths(64))
def test_broken_sequences(width):
    """Each is dropped as the table says, and the next TLP of the peer is served."""
    rng = random.Random(seed())
    everything, tlps = [], []
    for name, (judged, whole, drops) in broken_sequences(rng).items():
        alone = expected([packet for packet, _ in judged], verdicts_for(judged),
                         Reassembly(count=4))
        assert [tlp for tlp, _ in alone.tlps] == whole, name
        assert {k: n for k, n in alone.stats.items() if n and k != "frames"} == drops, name
        good = write(rng, 9)
        tlps += [*whole, good]
        everything += judged + [(Packet(build(frame)), (1, 0))
                                for frame in Peer(rng, 0).split(good, 16)]
    want = check(Depacketizer(width, split=True, depth=64), everything)
    assert [tlp for tlp, _ in want.tlps] == tlps


@pytest.mark.parametrize("count", [1, 3, pytest.param(2, marks=pytest.mark.long)])
def test_more_peers_than_places(count):
    """The TLP that waits longest gives its place away; with few peers none is ever lost."""
    rng = random.Random(seed())
    frames = interleaved(rng, [Peer(rng, n) for n in range(count + 2)], 60)
    judged = [(Packet(build(frame)), (1, row)) for row, frame in frames]
    dut = Depacketizer(64, split=True, depth=256, assemblies=count)
    want = check(dut, judged, count=count)
    assert want.stats["abandoned"] and want.stats["length"] and len(want.tlps) > 10


def test_verdict_after_other_records():
    """Records of the next frame pass while a HDR or DATA frame waits for its verdict."""
    rng = random.Random(seed())
    one, other = Peer(rng, 0), Peer(rng, 2)
    frames = [frame for part in one.split(write(rng, 30), 32) for frame in (
        part, other.frame(Tlps((write(rng, 3), write(rng, 2), write(rng, 50)))))]
    judged = [(Packet(build(frame)), (1, 0)) for frame in frames]
    want = check(Depacketizer(64, split=True, depth=256), judged, rng=rng, slow=60)
    assert +want.stats == {"frames": len(frames)}


@pytest.mark.parametrize("width", some_widths(256))
def test_smallest_and_largest(width):
    """A largest TLP in frames as large as they get; a TLP in DATA of a dword each."""
    rng = random.Random(seed())
    peer = Peer(rng, 0)
    largest = write(rng, 1024, prefixes=4, digest=1)
    digest = write(rng, 0, digest=1, four=0)
    frames = [*peer.split(largest, 4100), *peer.split(write(rng, 0)), *peer.split(digest),
              *peer.split(write(rng, 40, prefixes=3, four=0), 4), *peer.split(write(rng, 1))]
    judged = [(Packet(build(frame)), (1, 0)) for frame in frames]
    want = check(Depacketizer(width, split=True, depth=2048), judged)
    assert len(want.tlps) == 5 and want.tlps[0][0] == largest
    assert +want.stats == {"frames": len(frames)}


@pytest.mark.parametrize("width", some_widths(64, of=(32, 64, 512)))
def test_too_large(width):
    """A TLP larger than the store, or without end, goes with its HDR; the next one fits exactly."""
    rng = random.Random(seed())
    peer, depth, lanes = Peer(rng, 0), 4096 if width == 512 else 64, width // 32
    most = min(depth - 2, -(-1033 // lanes)) * lanes
    first, last = ((write(rng, 1024, prefixes=13), write(rng, 1024, prefixes=5, digest=1))
                   if width == 512 else (write(rng, most - 3), write(rng, most - 4)))
    tlps = [first, write(rng, 1, prefixes=most - 4), write(rng, 1, prefixes=2048), last]
    frames = [frame for tlp in tlps[:3] for frame in peer.split(tlp, 256)[:3]]
    frames += peer.split(tlps[3], 4 * lanes)
    judged = [(Packet(build(frame)), (1, 0)) for frame in frames]
    want = check(Depacketizer(width, split=True, depth=depth), judged,
                 largest=4 * most)
    assert want.stats["overflow"] == 3 and [tlp for tlp, _ in want.tlps] == tlps[3:]


@pytest.mark.parametrize("width", some_widths(32))
def test_data_frame_larger_than_the_store(width):
    """It is dropped, and the open TLP goes on."""
    rng = random.Random(seed())
    peer, lanes = Peer(rng, 0), width // 32
    tlp = write(rng, 6 * lanes - 4)
    hdr, *parts = peer.split(tlp, 4 * lanes)
    large = peer.frame(Data(0, rng.randbytes(4 * 16 * lanes), 0))
    packets = [Packet(build(frame)) for frame in (hdr, large, *parts)]
    # The golden model knows no store: there the link refuses the frame.
    want = expected(packets, lambda n: (n != 1, 0), Reassembly(count=4))
    del want.stats["refused"]
    want.stats["overflow"] = 1
    dut = Depacketizer(width, split=True, depth=8)
    compare(run(dut, packets, want=want, verdicts=lambda n: (1, 0), deadline=20_000), want)
    assert want.tlps == [(tlp, 0)]


@pytest.mark.parametrize("width", some_widths(64, of=(64, 512)))
def test_every_bit_matters(width):
    """One flipped bit at a time drops a frame, and its repetition completes the TLP (sampled)."""
    rng = random.Random(seed())
    peer = Peer(rng, 0)
    tlp = write(rng, 3)
    frames = peer.split(tlp)
    judged = []
    for n, frame in enumerate(frames):
        data = build(frame)
        for bit in range(12 * 8 + n, len(data) * 8, 9):
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            judged.append((Packet(bytes(flipped)), (1, 0)))
        judged.append((Packet(data), (1, 0)))
    want = check(Depacketizer(width, split=True, depth=64), judged)
    assert want.tlps == [(tlp, 0)] and want.stats["frames"] == 2


@pytest.mark.parametrize("width", some_widths(64))
def test_mistakes_of_other_types(width):
    """Inline records, ACK and EVENT are checked as without the split form, while a TLP is open."""
    rng = random.Random(seed())
    peer = Peer(rng, 0)
    tlp = write(rng, 12)
    hdr, *parts = peer.split(tlp, 16)
    mistakes = [Packet(data) for data, _ in MISTAKES.values() if data]
    packets = [Packet(build(hdr)), *mistakes, *(Packet(build(part)) for part in parts)]
    want = check(Depacketizer(width, split=True, depth=64), [(p, (1, 0)) for p in packets])
    assert want.tlps[-1] == (tlp, 0) and want.stats["abandoned"] == 0


def test_no_tlp_overtakes_an_event():
    """An event waits for TLPs that became whole before it, and younger ones wait for it."""
    rng = random.Random(seed())
    peer = Peer(rng, 0)
    frames, wanted = [], ""
    for n in range(24):
        kind = rng.choice("EST")
        if kind == "E":
            frames.append(peer.frame(Event(n, n)))
        elif kind == "S":
            hdr, *data = peer.split(write(rng, rng.randint(9, 30)), 32)
            if rng.random() < 0.5:
                data.insert(1, peer.frame(Event(n, n)))
                wanted += "E"
            frames += [hdr, *data]
        else:
            frames.append(peer.frame(Tlps((write(rng, n),))))
        wanted += "E" if kind == "E" else "T"
    dut = Depacketizer(64, split=True, depth=512)
    order = []

    async def watch(ctx):
        async for *_, event, tlp in ctx.tick().sample(
                dut.event.valid & dut.event.ready,
                dut.o.valid & dut.o.ready & dut.o.payload.last):
            assert not (event and tlp)
            if event or tlp:
                order.append("E" if event else "T")
            if len(order) == len(wanted):
                break

    async def link(ctx):
        ctx.set(dut.verdict.payload.accept, 1)
        for port in (dut.verdict.valid, dut.header.ready, dut.committed.ready):
            ctx.set(port, 1)
        while True:
            ctx.set(dut.event.ready, rng.random() < 0.05)
            ctx.set(dut.o.ready, rng.random() < 0.2)
            await ctx.tick()

    simulate(dut, drive_packets(dut.i, [Packet(build(f)) for f in frames]), watch,
             background=[link])
    assert "".join(order) == wanted
