"""dxpu.fabric.engine with keys: sessions open under a key, as the golden model says, and in no
other way."""

import random
from dataclasses import replace

import pytest
from dxpu.crypto.sbox import table
from dxpu.fabric.session.session import Mode, Phase
from dxpu.fabric.wire.format import Role
from dxpu.fabric.wire.frame_types import SESSIONLESS, FrameType
from dxpu_model.keyed import Ends, Opening, tags
from dxpu_model.opening import Begun, OpeningFrame
from dxpu_model.wire import Ack, Credit, Frame, build
from tests.hdl.fabric.test_engine import BOX, HOST, ROWS, pair, rows_of, sent_frames, write
from tests.support.engine_bench import look_at, set_mode
from tests.support.opening_bench import authenticates, draws, give_key
from tests.support.testbench import collect_packets, count_pulses, drive_packets, seed, simulate

KEY, OTHER = bytes(range(16)), bytes(range(16, 32))
ENDS = Ends(HOST, BOX, 0)
ABOUT = dict(window=64, largest=4180, smallest=250, give_up=7500, table=5)
#: First wait of an opening, and silence after the end of a session, in units of 64 cycles.
WAIT, QUIET = 12, 20
#: Keys of the permutations of tags: of the host, of the box.
TAGS = bytes.fromhex("0123abcd"), bytes.fromhex("fedc4321")
#: Between two looks.
LOOK = 20


def keyed_pair(**options):
    return pair(64, pause=16, keyed=True, **options)


async def set_up(ctx, dut, *, host=KEY, box=KEY, keyed=(1, 1), boots=(1, 1)):
    """Both ends with these keys, or without."""
    await dut.set_up(ctx)
    for engine, mode, role, node, key, secret, boot in (
            (dut.host, Mode.OPENS, Role.HOST, BOX, host, keyed[0], boots[0]),
            (dut.box, Mode.ANSWERS, Role.BOX, HOST, box, keyed[1], boots[1])):
        ctx.set(engine.boot, boot)
        ctx.set(engine.local_hello, dict(ABOUT, role=role, boot=boot))
        ctx.set(engine.hello_wait, WAIT)
        ctx.set(engine.quiet, QUIET)
        ctx.set(engine.keyed, secret)
        if key:
            await give_key(ctx, engine, key, peer=0, node=node)
        await set_mode(ctx, engine, mode)


def surrounds(dut, rng):
    """Ciphers and random sources of both."""
    return [process for engine, key in ((dut.host, TAGS[0]), (dut.box, TAGS[1]))
            for process in (authenticates(engine), draws(engine, rng, [
                int.from_bytes(key, "little")]))]


def opening(frame):
    """The frame as the golden model of openings has it."""
    return OpeningFrame.parse(frame.type, ENDS, frame.tag, frame.body.pack(0, 0), frame.path)


def begun(frames):
    """What the golden model makes of the first HELLO_DONE: the session."""
    done = next(f for f in frames if f.type == FrameType.HELLO_DONE)
    answers = [opening(f) for f in frames if f.type == FrameType.HELLO_ACK]
    answer = next(f for f in answers if f.answerer_nonce == opening(done).answerer_nonce)
    hello = next(opening(f) for f in frames if f.type == FrameType.HELLO
                 and opening(f).opener_nonce == answer.opener_nonce)
    whole = Opening(ENDS, hello.fields, answer.fields, hello.opener_nonce, answer.answerer_nonce)
    assert hello.proof == ENDS.knock(KEY)
    for frame in (answer, opening(done)):
        assert frame.proof == whole.proof(KEY, frame.kind)
    return Begun.under(KEY, whole)


async def until_open(ctx, engine):
    while (view := await look_at(ctx, engine)).phase != Phase.OPEN.value:
        await ctx.tick().repeat(LOOK)
    return view


@pytest.mark.parametrize("options", [dict(), pytest.param(
    dict(arq="selective"), marks=pytest.mark.long)], ids=["go-back-n", "selective"])
def test_a_session_opens_under_a_key_and_again(options):
    """Frames are lost all the time. Numbers and tags are those of the golden model."""
    rng = random.Random(seed())
    dut = keyed_pair(**options)
    parts = [[write(rng, rng.randrange(ROWS)) for _ in range(12)] for _ in range(2)]
    got, down, up, host = [], [], [], {}

    async def process(ctx):
        await set_up(ctx, dut)
        for n, part in enumerate(parts):
            await until_open(ctx, dut.host)
            await drive_packets(dut.host.tlp_i, part)(ctx)
            while (await look_at(ctx, dut.host)).unacked:
                await ctx.tick().repeat(LOOK)
            session = begun(down + up)
            # The box draws another one for each attempt that it has heard of.
            for tag, tag_key, most in ((session.to_opener, TAGS[0], 20),
                                       (session.to_answerer, TAGS[1], 20)):
                if n == 0:
                    assert tag in [tags(tag_key, bytes(table()), m) for m in range(most)]
            assert {f.tag for f in down if f.type == FrameType.TLP} == {session.to_answerer}
            numbers = {f.seq - session.opener_seq & 0xFFFFFF for f in down
                       if f.type == FrameType.TLP}
            assert numbers == set(range(len(numbers)))
            view = await look_at(ctx, dut.host)
            assert view.boot == n + 1
            assert view.state.acked == view.state.seq == session.opener_seq + len(numbers)
            # The first frame of the box is numbered by it, too.
            acks = [f for f in up if f.tag == session.to_opener and f.type not in SESSIONLESS]
            assert {f.seq for f in acks} == {session.answerer_seq} == {view.state.next}
            down.clear(), up.clear()
            if n == 0:
                ctx.set(dut.reset_box, 1)
                await ctx.tick()
                ctx.set(dut.reset_box, 0)
                # Keys are gone.
                assert not ctx.get(dut.box.with_key)
                ctx.set(dut.box.boot, 2)
                ctx.set(dut.box.local_hello, dict(ABOUT, role=Role.BOX, boot=2))
                await give_key(ctx, dut.box, KEY, peer=0, node=HOST)
                await set_mode(ctx, dut.box, Mode.ANSWERS)
                await ctx.tick().until(dut.host.session_down == 0b111)
                down.clear(), up.clear()

    async def harm(ctx):
        while True:
            ctx.set(dut.lose_down, rng.random() < 0.2)
            ctx.set(dut.lose_up, rng.random() < 0.2)
            await ctx.tick()

    simulate(dut, process, deadline=400_000, background=[
        *surrounds(dut, rng), harm, collect_packets(dut.box.tlp_o, 10**6, got),
        sent_frames(dut.host.frame_o[0], down), sent_frames(dut.box.frame_o[0], up),
        count_pulses(dut.host, host)])
    assert rows_of(got) == rows_of(parts[0] + parts[1])
    assert (host["session_opened"], host["session_lost"], host["session_rebooted"]) == (2, 1, 1)


#: Cycles in which a session could have been opened; in which an attempt has ended.
LONG, ATTEMPT = 3_000, 26_000


@pytest.mark.parametrize("case, counts", [
    (dict(box=OTHER), {"box": "opening_knock"}),
    (dict(keyed=(0, 1)), {"box": "session_unfit"}),
    (dict(keyed=(1, 0)), {"box": "session_unfit"}),
    (dict(host=None), {}), (dict(box=None), {"box": "opening_knock"})],
    ids=["other key", "host in clear", "box in clear", "no key of the host", "no key of the box"])
def test_nothing_opens_without_the_key(case, counts):
    rng, totals, frames = random.Random(seed()), {"host": {}, "box": {}}, []
    dut = keyed_pair()

    async def process(ctx):
        await set_up(ctx, dut, **case)
        await ctx.tick().repeat(LONG)
        for engine in (dut.host, dut.box):
            assert (await look_at(ctx, engine)).phase in (Phase.HELLO.value, Phase.LISTEN.value)

    simulate(dut, process, background=[
        *surrounds(dut, rng), sent_frames(dut.host.frame_o[0], frames),
        sent_frames(dut.box.frame_o[0], frames), count_pulses(dut.host, totals["host"]),
        count_pulses(dut.box, totals["box"])])
    assert {f.type for f in frames} <= {FrameType.HELLO}
    assert all(totals[end][name] for end, name in counts.items())
    assert bool(frames) == bool(case.get("host", KEY))


@pytest.mark.long
def test_an_attempt_ends_after_five_hellos():
    rng, frames = random.Random(seed()), []
    dut = keyed_pair()

    async def process(ctx):
        await set_up(ctx, dut)
        ctx.set(dut.lose_down, 1)
        await ctx.tick().repeat(ATTEMPT)

    simulate(dut, process, background=[
        *surrounds(dut, rng), sent_frames(dut.host.frame_o[0], frames)])
    first, second = (dict.fromkeys(f.body.nonce for f in frames))
    assert [f.body.nonce for f in frames[:5]] == [first] * 5
    assert {f.body.nonce for f in frames[5:]} == {second}
    assert frames[0].body.tag_offered != frames[5].body.tag_offered


async def inject(ctx, strobe, dut, engine, frame):
    """A frame that the peer has not sent comes to ``engine``."""
    data = build(frame)
    ctx.set(strobe, 1)
    for n in range(0, len(data), 8):
        ctx.set(dut.injected, dict(
            data=int.from_bytes(data[n:n + 8], "little"), dwords=len(data[n:n + 8]) // 4,
            first=n == 0, last=n + 8 >= len(data), discard=0))
        await ctx.tick().until(engine.frame_i[0].ready)
    ctx.set(strobe, 0)


@pytest.mark.parametrize("end", ["host", "box"])
def test_a_session_with_a_key_is_not_opened_in_clear(end):
    """By who sees all and knows how nonces in clear are made: of the tag and the boot counter."""
    rng, frames, totals = random.Random(seed()), [], {}
    dut = keyed_pair()

    async def process(ctx):
        await set_up(ctx, dut)
        ctx.set(dut.lose_down, 1)
        ctx.set(dut.lose_up, 1)
        while not frames:
            await ctx.tick()
        clear = replace(frames[0].body, security_mode=0, keyed=b"")
        tag = clear.tag_offered
        if end == "host":
            clear = replace(clear, answer=True, nonce=1 << 16 | tag, tag_offered=0x4444,
                            tag_echoed=tag, role=Role.BOX)
            await inject(ctx, dut.inject_up, dut, dut.host, Frame(
                clear, dst_node=HOST, src_node=BOX, tag=tag))
        else:
            await inject(ctx, dut.inject, dut, dut.box, Frame(
                clear, dst_node=BOX, src_node=HOST))
        await ctx.tick().repeat(600)
        engine = getattr(dut, end)
        view = await look_at(ctx, engine)
        assert (view.phase, view.tx_tag, view.rx_tag) == (
            Phase.HELLO.value if end == "host" else Phase.LISTEN.value, 0, 0)
        ctx.set(dut.lose_down, 0)
        ctx.set(dut.lose_up, 0)
        await until_open(ctx, dut.host)

    simulate(dut, process, background=[
        *surrounds(dut, rng), sent_frames(dut.host.frame_o[0], frames),
        count_pulses(getattr(dut, end), totals)])
    assert totals["session_unfit"] == 1


def test_a_frame_with_the_offered_tag_opens_nothing():
    """HELLO_DONEs get lost; the box has a candidate, and its tag is known."""
    rng, frames = random.Random(seed()), []
    dut = keyed_pair()

    async def process(ctx):
        await set_up(ctx, dut)
        while not any(f.type == FrameType.HELLO_ACK for f in frames):
            await ctx.tick()
        ctx.set(dut.lose_down, 1)
        await ctx.tick().repeat(64)
        # What the host would send in clear.
        offered = opening(next(f for f in frames if f.type == FrameType.HELLO_ACK)).offered
        assert offered
        await inject(ctx, dut.inject, dut, dut.box, Frame(
            Ack(tuple(Credit(n, 0, 0, 0, 0) for n in range(3))), dst_node=BOX, src_node=HOST,
            tag=offered))
        await ctx.tick().repeat(400)
        assert (await look_at(ctx, dut.box)).phase == Phase.LISTEN.value
        ctx.set(dut.lose_down, 0)
        await until_open(ctx, dut.box)

    simulate(dut, process, background=[
        *surrounds(dut, rng), sent_frames(dut.host.frame_o[0], frames),
        sent_frames(dut.box.frame_o[0], frames)])
