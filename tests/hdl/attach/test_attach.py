"""dxpu.attach: classes split in order, credits granted."""

import random

import pytest
from amaranth import *

from dxpu.attach.egress import Egress
from dxpu.attach.ingress import OVERHEAD, CreditLedger
from dxpu.proxy.box import BoxProxy
from dxpu.proxy.host import HostProxy
from dxpu.tlp.types import Malformed, TlpClass
from dxpu_model import tlp as golden
from tests.support.testbench import (
    Packet, check_stream, collect_packets, drive_packets, seed, simulate,
)

PORTS = {TlpClass.P: "p", TlpClass.NP: "np", TlpClass.CPL: "cpl"}


def mixed(rng, count, discard=0.0):
    return [Packet(rng.randbytes(4 * rng.randint(3, 20)), rng.choice(list(TlpClass)),
                   rng.random() < discard) for _ in range(count)]


def log_ends(stream, cls, order):
    """Background process: append ``cls`` to ``order`` as each packet is offered and is taken."""
    async def process(ctx):
        offered = False
        async for *_, valid, ready, beat in ctx.tick().sample(
                stream.valid, stream.ready, stream.payload):
            if valid and beat.first and not offered:
                order.append(("offered", cls))
            offered = valid and not ready
            if valid and ready and beat.last:
                order.append(("taken", cls))
    return process


@pytest.mark.parametrize("width", [32, 64, 512])
@pytest.mark.parametrize("density", [1, 0.4])
def test_egress_keeps_class_order_and_lets_nothing_pass_a_posted_request(width, density):
    rng = random.Random(seed())
    dut = Egress(width, depth=64)
    sent = mixed(rng, 150, discard=0.1)
    got, order = {c: [] for c in TlpClass}, []
    good = [p for p in sent if not p.discard]
    want = {c: [p.data for p in good if p.meta == c] for c in TlpClass}
    simulate(
        dut, drive_packets(dut.i, sent, rng=rng),
        *(collect_packets(getattr(dut, n), len(want[c]), got[c], rng=rng, density=density)
          for c, n in PORTS.items()),
        background=[b for c, n in PORTS.items() for b in (
            check_stream(getattr(dut, n), n), log_ends(getattr(dut, n), c, order))])
    assert {c: [p.data for p in got[c]] for c in TlpClass} == want
    # Posted requests older than the k-th packet of a class must have been taken at its offer.
    older = {c: [] for c in TlpClass}
    posted = 0
    for p in good:
        older[p.meta].append(posted)
        posted += p.meta == TlpClass.P
    taken = 0
    for what, cls in order:
        if what == "taken":
            taken += cls is TlpClass.P
        elif cls is not TlpClass.P:
            assert taken >= older[cls].pop(0)


def test_posted_requests_and_completions_pass_a_blocked_non_posted_one():
    dut = Egress(64, depth=64)
    sent = [Packet(bytes(12), c) for c in (TlpClass.NP, TlpClass.P, TlpClass.CPL, TlpClass.P)]
    p, cpl = [], []
    simulate(dut, drive_packets(dut.i, sent), collect_packets(dut.p, 2, p),
             collect_packets(dut.cpl, 1, cpl))
    assert (len(p), len(cpl)) == (2, 1)


@pytest.mark.parametrize("blocked", [TlpClass.NP, TlpClass.CPL])
def test_a_blocked_tlp_goes_on_however_many_posted_requests_have_passed_it(blocked):
    """Also one that was behind the blocked one meanwhile."""
    dut = Egress(64, depth=64)
    posted = [Packet(bytes(12), TlpClass.P) for _ in range(200)]
    waiting = [Packet(bytes([n] * 8), blocked) for n in range(3)]
    got, p = [], []

    async def late(ctx):
        while len(p) < 200:
            await ctx.tick()
        await ctx.tick().repeat(10)
        assert not got
        await collect_packets(getattr(dut, PORTS[blocked]), len(waiting), got)(ctx)

    simulate(dut, drive_packets(dut.i, waiting + posted), late,
             collect_packets(dut.p, 200, p), deadline=3000)
    assert [x.data for x in got] == [x.data for x in waiting]


def test_ledger_grants_what_leaves():
    dut = CreditLedger(space=4096)

    async def process(ctx):
        async def limits():
            found = {n: getattr(dut, f"rx_{n}") for n in ("p", "np", "cpl")}
            return {n: (ctx.get(x.header), ctx.get(x.data)) for n, x in found.items()}
        first = await limits()
        assert all(h >= 1 and d >= 2 for h, d in first.values())
        bytes_granted = sum(h * OVERHEAD for h, _ in first.values()) + sum(
            first[c][1] * 16 for c in ("p", "cpl"))
        assert bytes_granted <= 4096
        for cls, dwords, units in ((TlpClass.P, 5, 2), (TlpClass.CPL, 128, 32), (TlpClass.NP, 0, 0),
                                   (TlpClass.P, 1024, 256)):
            before = (await limits())[PORTS[cls]]
            ctx.set(dut.info.cls, cls)
            ctx.set(dut.info.payload_dwords, dwords)
            ctx.set(dut.released_strobe, 1)
            await ctx.tick()
            ctx.set(dut.released_strobe, 0)
            assert (await limits())[PORTS[cls]] == (before[0] + 1, before[1] + units)

    simulate(dut, process)


def test_a_host_proxy_gives_back_the_credits_of_malformed_tlps():
    """Whoever obeys the limits is never blocked by what was dropped."""
    tlp = golden.Tlp(2, 0, length=4, first_be=15, last_be=0, payload=bytes(16)).pack()
    assert golden.malformed(tlp) is Malformed.BYTE_ENABLE
    proxy = HostProxy(64, ports=1, paths=1, peers=1, streams=1)
    count, port = 40, proxy.upstream

    async def process(ctx):
        limits = port.rx_p
        first = ctx.get(limits.header), ctx.get(limits.data)
        assert first[0] < count
        ctx.set(port.link_up, 1)
        for sent in range(count):
            await ctx.tick().until((limits.header != sent) & (limits.data != sent))
            await drive_packets(port.rx, [Packet(tlp)])(ctx)
        await ctx.tick().repeat(20)
        assert (ctx.get(limits.header), ctx.get(limits.data)) == (first[0] + count,
                                                                  first[1] + count)

    simulate(DomainRenamer({"gmii0_rx": "sync", "gmii0_tx": "sync"})(proxy), process,
             deadline=4000)


@pytest.mark.parametrize("says, units", [
    (4, 1), *(pytest.param(*x, marks=pytest.mark.long) for x in ((128, 32), (0, 256)))])
def test_a_box_proxy_gives_back_the_credits_of_tlps_larger_than_their_buffer(says, units):
    """Writes of more than 2 KiB that say less in their header, or the truth (Length 0 is 1024
    dwords); what one says is what its sender paid (PCIe Base 5.0, 2.6.1)."""
    header = bytes.fromhex("4000 0000 0100 00ff 00001000")
    tlp = header[:2] + says.to_bytes(2, "big") + header[4:] + bytes(4096 if says == 0 else 2100)
    proxy = BoxProxy(64, slots=1, paths=1, peers=1, streams=1)
    count, port = 2, proxy.slot[0]

    async def process(ctx):
        first = ctx.get(port.rx_p.header), ctx.get(port.rx_p.data)
        ctx.set(port.link_up, 1)
        await drive_packets(port.rx, [Packet(tlp)] * count)(ctx)
        # One that its source gives up costs nothing, and gives nothing back.
        await drive_packets(port.rx, [Packet(tlp, discard=True)])(ctx)
        await ctx.tick().repeat(300)
        assert (ctx.get(port.rx_p.header), ctx.get(port.rx_p.data)) == (
            first[0] + count, first[1] + count * units)

    simulate(DomainRenamer({"gmii0_rx": "sync", "gmii0_tx": "sync"})(proxy), process,
             deadline=4000)


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="space must be at least 512 bytes, not 100"):
        CreditLedger(space=100)
