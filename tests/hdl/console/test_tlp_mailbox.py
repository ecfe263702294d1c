"""dxpu.console.tlp_mailbox: TLPs made and read by registers."""

import random

import pytest

from dxpu.console import TlpMailbox
from dxpu.tlp.types import TlpClass
from dxpu_model.tlp import classify, random_tlp
from tests.support.testbench import (
    Packet, access, check_stream, collect_packets, drive_packets, seed, simulate,
)


class Software:
    """What a program does with the registers."""

    def __init__(self, ctx, dut, width):
        self.ctx, self.dut, self.lanes = ctx, dut, width // 32

    async def write(self, path, **fields):
        placed = self.dut.block.find(path)
        assert await access(self.ctx, self.dut.bus, placed.address,
                            placed.register.pack(**fields)) == (0, 0)

    async def read(self, path):
        placed = self.dut.block.find(path)
        value, error = await access(self.ctx, self.dut.bus, placed.address)
        assert not error
        return placed.register.unpack(value)

    async def send(self, tlp):
        words = [tlp[n:n + 4] for n in range(0, len(tlp), 4)]
        for start in range(0, len(words), self.lanes):
            beat = words[start:start + self.lanes]
            for n, word in enumerate(beat):
                await self.write(f"out[{n}].word", value=int.from_bytes(word, "little"))
            await self.write("send", dwords=len(beat), last=start + self.lanes >= len(words))

    async def receive(self):
        """The next TLP; ``None`` if there is none."""
        tlp = b""
        while True:
            state = await self.read("received")
            if not state["dwords"]:
                assert not tlp
                return None
            for n in range(state["dwords"]):
                tlp += (await self.read(f"in[{n}].word"))["value"].to_bytes(4, "little")
            await self.write("next", strobe=1)
            if state["last"]:
                return tlp


def tlps(rng, count, largest=16):
    """Well-formed TLPs without prefixes, as bytes."""
    result = []
    while len(result) < count:
        tlp = random_tlp(rng, max_payload=largest)
        if not tlp.prefixes:
            result.append(tlp.pack())
    return result


@pytest.mark.parametrize("width", [32, 64, 256])
def test_tlps_are_sent_as_credits_allow(width):
    """Each when the proxy has granted its class enough, not before; all of them, in order."""
    rng = random.Random(seed())
    dut, sent = TlpMailbox(width), tlps(rng, 25)
    got, granted = [], {cls: [0, 0] for cls in TlpClass}
    infos = [classify(tlp) for tlp in sent]

    async def software(ctx):
        program = Software(ctx, dut, width)
        await program.write("link", up=1)
        for tlp in sent:
            await program.send(tlp)
        while (await program.read("sent"))["count"] != len(sent):
            pass

    async def proxy(ctx):
        """Grants a header, or a unit of data, now and then, just what is needed in the end."""
        while len(got) < len(sent):
            used = {cls: [0, 0] for cls in TlpClass}
            for info in infos[:len(got)]:
                used[info.cls][0] += 1
                used[info.cls][1] += -(-info.payload_dwords // 4)
            for cls, (headers, data) in used.items():
                assert headers <= granted[cls][0] and data <= granted[cls][1], "without credits"
            cls, what = rng.choice(list(TlpClass)), rng.randrange(2)
            granted[cls][what] += rng.choice([1, 4]) if what else 1
            ctx.set(getattr(getattr(dut.port, f"rx_{cls.name.lower()}"), ("header", "data")[what]),
                    granted[cls][what] & 0xFFFF)
            await ctx.tick().repeat(rng.randint(1, 60))

    simulate(dut, software, proxy, collect_packets(dut.port.rx, len(sent), got, rng=rng,
                                                   density=0.7),
             background=[check_stream(dut.port.rx)])
    assert [p.data for p in got] == sent


@pytest.mark.parametrize("width", [64, 256])
def test_tlps_are_received_in_the_order_of_each_class(width):
    rng = random.Random(seed())
    dut, got = TlpMailbox(width, depth=32), []
    streams = {cls: [t for t in tlps(rng, 30) if classify(t).cls == cls] for cls in TlpClass}

    async def software(ctx):
        program = Software(ctx, dut, width)
        await program.write("link", up=1)
        while len(got) < sum(map(len, streams.values())):
            if (tlp := await program.receive()) is not None:
                got.append(tlp)

    def proxy(cls, sent):
        async def process(ctx):
            await ctx.tick().until(dut.port.link_up)
            await drive_packets(getattr(dut.port, f"tx_{cls.name.lower()}"),
                                [Packet(t) for t in sent], rng=rng, density=0.8)(ctx)
        return process

    simulate(dut, software, *(proxy(*item) for item in streams.items()))
    for cls, sent in streams.items():
        assert [t for t in got if classify(t).cls == cls] == sent


def test_a_link_that_is_down_passes_nothing_and_ends_no_tlp_in_the_middle():
    """It goes up and down while TLPs pass both ways: what arrives is whole, and some is dropped."""
    rng = random.Random(seed())
    dut, got, received = TlpMailbox(64), [], []
    mine, theirs = tlps(rng, 60), tlps(rng, 400)
    dropped = {}

    async def software(ctx):
        program = Software(ctx, dut, 64)
        for n, tlp in enumerate(mine):
            await program.write("link", up=n % 5 != 0)
            early = rng.randrange(2)
            if early:
                await program.send(tlp)
            while (await program.read("link"))["active"] != (n % 5 != 0):
                pass
            if not early:
                await program.send(tlp)
            for _ in range(rng.randrange(3)):
                received.append(await program.receive())
        await program.write("link", up=1)
        while sum(dropped.values()) != len(mine):
            dropped.update(await program.read("sent"))

    async def grant(ctx):
        for cls in ("p", "np", "cpl"):
            ctx.set(getattr(dut.port, f"rx_{cls}"), {"header": 1000, "data": 30000})

    async def quiet(ctx):
        """Nothing is sent while the link is down."""
        async for _, _, up, valid in ctx.tick().sample(dut.port.link_up, dut.port.rx.valid):
            assert up or not valid

    simulate(dut, software, grant, drive_packets(
        dut.port.tx_p, [Packet(t) for t in theirs], rng=rng, density=0.5),
        background=[quiet, check_stream(dut.port.rx),
                    collect_packets(dut.port.rx, 10**6, got, rng=rng, density=0.2)])
    sent = [p.data for p in got]
    assert sent == [t for t in mine if t in sent] and len(sent) == dropped["count"]
    assert dropped["dropped"] >= 12 and dropped["count"] > 10
    kept = [t for t in received if t is not None]
    assert kept == [t for t in theirs if t in kept] and 5 < len(kept) < len(theirs)


def test_a_tlp_that_does_not_fit_is_dropped():
    rng = random.Random(seed())
    dut, got = TlpMailbox(64, depth=8), []
    small = tlps(rng, 2, largest=4)

    async def software(ctx):
        program = Software(ctx, dut, 64)
        await program.write("link", up=1)
        await program.send(small[0])
        await program.send(rng.randbytes(72))
        await program.send(small[1])
        await ctx.tick().repeat(20)
        assert await program.read("sent") == {"count": 2, "dropped": 1}

    async def grant(ctx):
        for cls in ("p", "np", "cpl"):
            ctx.set(getattr(dut.port, f"rx_{cls}"), {"header": 9, "data": 900})

    simulate(dut, software, grant, collect_packets(dut.port.rx, 2, got))
    assert [p.data for p in got] == small
