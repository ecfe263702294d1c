"""dxpu.fabric.arq.selective alone: its frames cross paths that lose them, to plain receivers."""

import random
from collections import deque

import pytest

from dxpu.fabric.arq.early import WINDOW
from dxpu.fabric.arq.selective import SelectiveRetransmitter
from tests.support.testbench import check_stream, count_pulses, seed, simulate


class Flow:
    """A session: what its sender keeps, and what its receiver has."""

    def __init__(self):
        self.epoch, self.due = 0, deque()   # due: cells to be freed, in that order
        self.begin()

    def begin(self):
        self.kept = {}                      # number by cell, oldest first; not acknowledged
        self.number = self.newest = self.expected = self.request = 0
        self.early = set()
        self.lost = {}                      # by number: whether its last transmission was
        self.probed = 0                     # frames before this one were there at a probe

    def open(self):
        self.due.extend(self.kept)
        self.epoch += 1
        self.begin()

    def arrive(self, number):
        if number > self.expected:
            self.early.add(number)
        elif number == self.expected:
            self.expected += 1
            while self.expected in self.early:
                self.early.remove(self.expected)
                self.expected += 1

    def word(self):
        return sum(1 << number - self.expected - 1 for number in self.early)


class Bench:
    """Sends new frames with a chance of ``load`` per turn, and what is to be sent again first.
    ``fate`` says of a frame on a path after how many cycles it arrives, None: never; ``back`` says
    it of the answer. Answers are NAKs, and sessions begin anew, by chance."""

    def __init__(self, rng, *, fate, back, sessions=3, paths=2, cells=64, wait=20, load=0.5,
                 naks=0.0, opens=0.0):
        self.dut = SelectiveRetransmitter(sessions=sessions, paths=paths, cells=cells)
        self.rng, self.fate, self.back = rng, fate, back
        self.wait, self.load, self.naks, self.opens = wait, load, naks, opens
        self.flows, self.free = [Flow() for _ in range(sessions)], deque(range(cells))
        self.paths, self.cells = paths, cells
        self.now = self.turn = self.sent = self.false = 0
        self.frames, self.answers, self.told = [], [], deque()
        self.opening = False
        self.repeats, self.pulses = [], {}      # (cycle, session, path, probe)

    async def clock(self, ctx):
        while True:
            await ctx.tick()
            self.now += 1
            for entry in sorted(e for e in self.frames if e[0] <= self.now):
                self.frames.remove(entry)
                self.arrive(*entry[1:])
            for entry in sorted(e for e in self.answers if e[0] <= self.now):
                self.answers.remove(entry)
                self.told.append(entry[1:])

    def arrive(self, session, epoch, number):
        flow = self.flows[session]
        if epoch != flow.epoch:
            return
        flow.arrive(number)
        delay, nak = self.back(), self.rng.random() < self.naks
        if delay is not None:
            self.answers.append((self.now + delay, session, epoch, flow.expected,
                                 0 if nak else flow.word(), nak))

    async def tell(self, ctx):
        """Answers, as the link passes them on."""
        dut = self.dut
        while True:
            await ctx.tick()
            if self.opening or not self.told:
                continue
            session, epoch, ack, word, nak = self.told.popleft()
            flow = self.flows[session]
            ctx.set(dut.receiving, session)
            unacked, count = ctx.get(dut.unacked), ack - flow.newest
            if epoch != flow.epoch or not 0 <= count <= unacked or not (count or word or nak):
                continue
            flow.request ^= nak
            ctx.set(dut.acked.payload, dict(session=session, count=count, request=flow.request,
                                            back=nak and count < unacked, named=word != 0))
            ctx.set(dut.word, word)
            ctx.set(dut.acked.valid, 1)
            await ctx.tick().until(dut.acked.ready)
            ctx.set(dut.acked.valid, 0)
            flow.newest = ack
            for cell in list(flow.kept)[:count]:
                del flow.kept[cell]
                flow.due.append(cell)

    async def forget(self, ctx):
        dut = self.dut
        async for *_, free, cell in ctx.tick().sample(
                dut.free.valid & dut.free.ready, dut.free.payload):
            ctx.set(dut.free.ready, self.rng.random() < 0.7)
            if free:
                flow = next((f for f in self.flows if f.due and f.due[0] == cell), None)
                assert flow, "not the oldest"
                flow.due.popleft()
                self.free.append(cell)

    async def transmit(self, ctx):
        dut, rng = self.dut, self.rng
        ctx.set(dut.wait, self.wait)
        while True:
            await ctx.tick().repeat(rng.choice([1, 2, 5]))
            if ctx.get(dut.repeat_valid):
                await self.repeat(ctx)
            elif self.free and rng.random() < self.load:
                session = rng.randrange(len(self.flows))
                flow = self.flows[session]
                if flow.number - flow.newest < WINDOW - 1:
                    await self.store(ctx, session)

    def path(self, ctx, session, probe):
        """The next path in turn that is not to be avoided, or the session's."""
        ctx.set(self.dut.sending, session)
        about = ctx.get(self.dut.about)
        first = about.path if probe else self.turn
        ways = [(first + n) % self.paths for n in range(self.paths)]
        path = next((n for n in ways if not about.avoid >> n & 1), ways[0])
        if not probe:
            self.turn = path + 1
        return path

    def send(self, session, number, path):
        flow, delay = self.flows[session], self.fate(self.now, path)
        flow.lost[number] = delay is None
        if delay is not None:
            self.frames.append((self.now + delay, session, flow.epoch, number))

    async def repeat(self, ctx):
        dut, p = self.dut, ctx.get(self.dut.repeat)
        flow, number = self.flows[p.session], None
        assert p.cell in flow.kept or p.epoch != flow.epoch % 4, "was acknowledged"
        ctx.set(dut.repeat_take, 1)
        await ctx.tick()
        ctx.set(dut.repeat_take, 0)
        await ctx.tick().repeat(self.rng.randint(1, 6))
        path = self.path(ctx, p.session, p.probe)
        ctx.set(dut.resent, dict(session=p.session, epoch=p.epoch, cell=p.cell, path=path))
        ctx.set(dut.resent_strobe, 1)
        number = flow.kept.get(p.cell)
        if p.epoch == flow.epoch % 4 and number is not None:
            if p.probe:
                flow.probed = flow.number
            self.repeats.append((self.now, p.session, path, p.probe))
            self.false += number >= flow.probed and not flow.lost[number]
            self.send(p.session, number, path)
        await ctx.tick()
        ctx.set(dut.resent_strobe, 0)
        await ctx.tick().repeat(3)

    async def store(self, ctx, session):
        dut, flow = self.dut, self.flows[session]
        cell, epoch, number = self.free.popleft(), flow.epoch, flow.number
        flow.number += 1
        self.sent += 1
        path = self.path(ctx, session, False)
        await ctx.tick().repeat(self.rng.randint(1, 4))
        ctx.set(dut.stored, dict(session=session, epoch=epoch % 4, cell=cell, path=path))
        ctx.set(dut.stored_strobe, 1)
        if epoch == flow.epoch:
            flow.kept[cell] = number
            self.send(session, number, path)
        else:
            flow.due.append(cell)
        await ctx.tick()
        ctx.set(dut.stored_strobe, 0)
        await ctx.tick().repeat(4)

    async def open(self, ctx):
        """Sessions begin anew, while no answer is being told."""
        dut, rng = self.dut, self.rng
        while True:
            await ctx.tick()
            self.opening = rng.random() < self.opens
            if self.opening:
                await ctx.tick()
                while ctx.get(dut.acked.valid):
                    await ctx.tick()
                session = rng.randrange(len(self.flows))
                ctx.set(dut.open.payload, session)
                ctx.set(dut.open.valid, 1)
                await ctx.tick().until(dut.open.ready)
                ctx.set(dut.open.valid, 0)
                self.flows[session].open()

    def run(self, frames, *, deadline=100_000):
        """Until so many have left, and all of them are acknowledged and freed."""
        async def ends(ctx):
            while self.sent < frames:
                await ctx.tick().repeat(20)
            self.load = self.opens = 0
            while len(self.free) < self.cells:
                await ctx.tick().repeat(20)
            assert not ctx.get(self.dut.repeat_valid)

        simulate(self.dut, ends, background=[
            self.clock, self.tell, self.forget, self.transmit, self.open,
            check_stream(self.dut.free), count_pulses(self.dut, self.pulses)], deadline=deadline)
        for flow in self.flows:
            assert flow.newest == flow.expected == flow.number and not flow.early
        assert not self.pulses["failed"] and not self.pulses["unsent"]


@pytest.mark.parametrize("sessions, paths", [
    (3, 2), *(pytest.param(*p, marks=pytest.mark.long) for p in ((1, 1), (8, 4)))])
def test_each_loss_costs_one_repetition_whatever_the_skew(sessions, paths):
    """Each path keeps the order, and takes as long as it likes."""
    rng = random.Random(seed())
    losses = 0

    def fate(now, path):
        nonlocal losses
        if rng.random() < 0.1:
            losses += 1
            return None
        return 10 + 120 * path

    bench = Bench(rng, sessions=sessions, paths=paths, wait=60, fate=fate,
                  back=lambda: None if rng.random() < 0.1 else 20)
    bench.run(400)
    assert losses > 20 and bench.false == 0
    assert sum(not probe for *_, probe in bench.repeats) > losses / 2


@pytest.mark.parametrize("sessions, paths", [
    (3, 2), *(pytest.param(*p, marks=pytest.mark.long) for p in ((1, 2), (8, 1)))])
def test_random_orders(sessions, paths):
    """Frames and answers are lost and late, there are NAKs and early ends of waits, and sessions
    begin anew: nothing is forgotten, and all of it ends."""
    rng = random.Random(seed())
    bench = Bench(
        rng, sessions=sessions, paths=paths, wait=4, naks=0.1, opens=0.0007,
        fate=lambda now, path: None if rng.random() < 0.12 else rng.randint(5, 150),
        back=lambda: None if rng.random() < 0.1 else rng.randint(5, 150))
    bench.run(500)
    assert len(bench.repeats) > 50


def test_a_dead_path_is_avoided_from_the_second_wait_on_and_tried_again():
    rng = random.Random(seed())
    used, wait = [], 4

    def fate(now, path):
        used.append((now, path))
        return None if path == 0 else 10

    bench = Bench(rng, sessions=1, wait=wait, load=0.1, fate=fate, back=lambda: 10)
    bench.run(800)
    probes = [(now, path) for now, _, path, probe in bench.repeats if probe]
    assert [path for _, path in probes[:2]] == [0, 1]
    dead = [now for now, path in used if path == 0 and now > probes[1][0]]
    assert dead and dead[0] // (64 * 64 * wait) >= 1, "not before all paths are tried again"


def test_sacks_of_one_session_do_not_hold_up_the_others():
    """They come so fast that its frames are walked over all the time."""
    dut = SelectiveRetransmitter(sessions=3, paths=1, cells=16)
    again = set()

    async def store(ctx, session, cell):
        ctx.set(dut.stored, dict(session=session, cell=cell))
        ctx.set(dut.stored_strobe, 1)
        await ctx.tick()
        ctx.set(dut.stored_strobe, 0)
        await ctx.tick().repeat(4)

    async def told(ctx, session, **answer):
        ctx.set(dut.acked.payload, dict(session=session) | answer)
        ctx.set(dut.acked.valid, 1)
        await ctx.tick().until(dut.acked.ready)
        ctx.set(dut.acked.valid, 0)

    async def repeats(ctx):
        while True:
            await ctx.tick().repeat(4)
            if ctx.get(dut.repeat_valid):
                p = ctx.get(dut.repeat)
                again.add(p.session)
                ctx.set(dut.repeat_take, 1)
                await ctx.tick()
                ctx.set(dut.repeat_take, 0)
                ctx.set(dut.resent, dict(session=p.session, epoch=p.epoch, cell=p.cell))
                ctx.set(dut.resent_strobe, 1)
                await ctx.tick()
                ctx.set(dut.resent_strobe, 0)

    async def process(ctx):
        ctx.set(dut.word, 0b11111)
        for cell in range(6):
            await store(ctx, 1, cell)
        for session in (0, 2):
            await store(ctx, session, 8 + session)
        for n in range(60):
            await told(ctx, 1, named=1)
            await ctx.tick().repeat(8)
            if n in (20, 40):
                await told(ctx, n // 10 - 2, back=1)
            assert (0 in again) == (n > 35) or 20 <= n <= 35
        assert again == {0, 1, 2}

    simulate(dut, process, background=[repeats])


@pytest.mark.parametrize("frames, word, unsent", [
    (5, 0b1111, 0), (5, 0b10000, 1), (5, 1 << 63, 1), (5, 0b11111, 1), (1, 1, 1), (0, 1, 1),
    (0, 0, 0), (5, 0, 0)])
def test_sacks_that_name_what_was_never_sent_are_counted(frames, word, unsent):
    """Frame ACK + 1 + i is bit i of the word: of five that were sent the last is bit 3."""
    bench = Bench(random.Random(seed()), fate=lambda now, path: None, back=lambda: None,
                  sessions=1, paths=1, load=0, wait=0)
    dut = bench.dut

    async def process(ctx):
        await ctx.tick().repeat(100)
        for _ in range(frames):
            await bench.store(ctx, 0)
        ctx.set(dut.acked.payload, dict(session=0, count=0, back=0, named=1))
        ctx.set(dut.word, word)
        ctx.set(dut.acked.valid, 1)
        await ctx.tick().until(dut.acked.ready)
        ctx.set(dut.acked.valid, 0)
        await ctx.tick().repeat(100)
        assert bench.pulses["unsent"] == unsent

    simulate(dut, process, background=[count_pulses(dut, bench.pulses)])
