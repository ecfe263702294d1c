"""dxpu_sim.fabric.inbox and dxpu_sim.fabric.lives: what stands behind the engines of the
campaign."""

from dxpu.fabric.wire.format import EventCode
from dxpu.tlp.types import TlpClass
from dxpu_sim.fabric.inbox import SURPLUS_UNITS, Inbox
from dxpu_sim.fabric.lives import GENERATION, Lives
from tests.support.testbench import Packet, check_stream, collect_packets, drive_packets, simulate

P, NP, CPL = TlpClass


def tlp(row, cls, dwords=4, number=0):
    kind = {P: 0x40, NP: 0x00, CPL: 0x4A}[cls]
    data = bytes([kind, 0, 0, dwords, number]).ljust(12, b"\0")
    return Packet(data + bytes([number] * (4 * dwords if cls is not NP else 0)),
                  dict(row=row, life=0))


def closed(*pairs):
    return sum(1 << 3 * row + cls.value for row, cls in pairs)


def inbox():
    return Inbox(64, rows=2, grants=((2, 40), (2, 4), (2, 40)))


def run(dut, *processes, background=()):
    simulate(dut, *processes, background=[check_stream(dut.o), *background])


def test_what_is_closed_stays_and_what_is_behind_a_posted_tlp():
    """All else passes, and so does what stayed, in order, when it is opened."""
    dut, got = inbox(), []
    stay = [tlp(0, P, number=1), tlp(0, NP, 1, number=2), tlp(0, P, number=3)]
    go = [tlp(1, P, number=4), tlp(1, NP, 1, number=5), tlp(0, CPL, number=6)]

    async def process(ctx):
        ctx.set(dut.closed, closed((0, P)))
        await ctx.tick().repeat(40)
        await drive_packets(dut.i, [go[2], *stay, *go[:2]])(ctx)
        await ctx.tick().repeat(100)
        assert [p.data[4] for p in got] == [6, 4, 5]
        assert ctx.get(dut.starved[0]) > 50 and ctx.get(dut.empty) == 0b10
        assert ctx.get(dut.starved[1]) == ctx.get(dut.starved[2]) == ctx.get(dut.excess) == 0
        ctx.set(dut.closed, 0)
        await ctx.tick().repeat(100)
        assert [p.data[4] for p in got][3:] == [1, 3, 2] or [
            p.data[4] for p in got][3:] == [1, 2, 3]
        assert ctx.get(dut.empty) == 0b11

    run(dut, process, background=[collect_packets(dut.o, 100, got)])


def test_each_class_of_each_row_waits_for_itself():
    for cls in (NP, CPL):
        dut, got = inbox(), []

        async def process(ctx, dut=dut, got=got, cls=cls):
            ctx.set(dut.closed, closed((0, cls)))
            await ctx.tick().repeat(40)
            others = [c for c in (P, NP, CPL) if c is not cls]
            await drive_packets(dut.i, [
                tlp(0, cls, 1, number=1), *(tlp(0, c, 1, number=2) for c in others),
                tlp(1, cls, 1, number=3)])(ctx)
            await ctx.tick().repeat(100)
            assert sorted(p.data[4] for p in got) == [2, 2, 3]

        run(dut, process, background=[collect_packets(dut.o, 100, got)])


def test_what_was_not_granted_is_counted():
    """A third header; and data beyond the units."""
    for tlps, excess in (([tlp(0, P, 4)] * 2, 0), ([tlp(0, P, 4)] * 3, 1),
                         ([tlp(0, P, 80)] * 2, 0), ([tlp(0, P, 80), tlp(0, P, 84)], 1)):
        dut = inbox()

        async def process(ctx, dut=dut, tlps=tlps, excess=excess):
            ctx.set(dut.closed, closed((0, P)))
            await ctx.tick().repeat(40)
            await drive_packets(dut.i, tlps)(ctx)
            await ctx.tick().repeat(20)
            assert ctx.get(dut.excess) == excess

        run(dut, process)


def test_surplus_is_released_once_in_each_life():
    dut, released = inbox(), []

    async def watch(ctx):
        async for *_, strobe, meta in ctx.tick().sample(dut.released_strobe, dut.released):
            if strobe:
                released.append((meta.row, meta.cls, meta.units))

    async def process(ctx):
        ctx.set(dut.surplus, 3)
        await ctx.tick().repeat(40)
        for lives in (0b01, 0, 0b11):
            ctx.set(dut.open, lives)
            await ctx.tick().repeat(40)
        row0, row1 = ((row, P, SURPLUS_UNITS) for row in range(2))
        assert released[:3] == [row0] * 3
        assert sorted(released[3:]) == [row0] * 3 + [row1] * 3

    run(dut, process, background=[watch])


def test_lives_begin_when_the_session_is_up_and_nothing_of_the_old_one_is_left():
    """A host's and a box's, with their events carried over; the session fails once."""
    from amaranth import Module
    m, bound, done = Module(), [], []
    m.submodules.host = host = Lives(rows=3, host=True)
    m.submodules.box = box = Lives(rows=3, host=False)
    for one, other in ((host, box), (box, host)):
        m.d.comb += [other.event.valid.eq(one.control.valid), one.control.ready.eq(1)]
        m.d.comb += [getattr(other.event.payload, k).eq(getattr(one.control.payload, k))
                     for k in ("row", "code", "generation", "argument")]

    async def process(ctx):
        for n in range(2):
            for one in (host, box):
                ctx.set(one.up, 1)
            ctx.set(host.empty, ~0)
            await ctx.tick().repeat(200)
            # The box waits until its queues are empty.
            assert ctx.get(box.open) == 0 and not ctx.get(host.ready)
            assert ctx.get(host.open) == 0b111
            assert [(e.row, e.code, e.generation, e.argument) for e in bound[3 * n:]] == [
                (row, EventCode.BIND, GENERATION, n + 1) for row in range(3)]
            ctx.set(box.empty, ~0)
            await ctx.tick().repeat(40)
            assert ctx.get(host.ready) and ctx.get(box.ready)
            assert sorted((e.row, e.code, e.argument) for e in done[3 * n:]) == [
                (row, EventCode.RESET_DONE, n + 1) for row in range(3)]
            for one in (host, box):
                ctx.set(one.up, 0)
                ctx.set(one.empty, 0)
            await ctx.tick().repeat(3)
            assert not any(ctx.get(x) for one in (host, box)
                           for x in (one.open, one.receiving, one.ready))

    async def watch(ctx):
        async for *_, bind, event, reply, answer in ctx.tick().sample(
                host.control.valid, host.control.payload, box.control.valid,
                box.control.payload):
            bound.extend([event] * bind)
            done.extend([answer] * reply)

    simulate(m, process, background=[watch])
