"""dxpu.fabric.arq.retransmit and replay against plain accounts of what was sent and
acknowledged."""

import itertools
import random
from collections import deque

import pytest

from dxpu.fabric.arq.replay import ReplayMemory, cells_for
from dxpu.fabric.arq.retransmit import TRANSMISSIONS, Retransmitter
from dxpu.fabric.arq.selective import SelectiveRetransmitter
from dxpu.fabric.contexts import UNIT, Sweep
from dxpu.fabric.send.packetizer import Packetizer
from dxpu.fabric.wire.frame_types import FrameType
from dxpu.fabric.wire.types import EPOCH_BITS
from tests.support.testbench import check_stream, collect_packets, count_pulses, seed, simulate

PACE = 4    # cycles from one store to the next, at least
LATE = 6    # cycles until a frame that was stored is known
SLACK = 16  # cycles that a session waits for others, at most, till something happens to it


class Session:
    """What a peer and a user know of a session."""

    def __init__(self):
        self.kept = deque()      # cells of frames that are not acknowledged, oldest first
        self.released = deque()  # acknowledged or given up, not freed
        self.again = deque()     # to be sent again: cell, and whether it must be
        self.probing = self.probed = self.failed = False
        self.obeyed = None       # request of the last NAK that counts
        self.epoch = self.path = self.tries = self.tried = 0
        self.stores = deque([-100], 2)   # the last ones
        self.since = -100                # the last transmission or progress
        self.busy = -100                 # when a frame was sent again or freed

    @property
    def owes(self):
        return any(must for _, must in self.again)

    @property
    def stored(self):
        return self.stores[-1]

    def late(self, now):
        """How many may not be known yet."""
        return sum(now - then <= LATE for then in self.stores)

    def rewind(self, now):
        """All are to be sent again, if any is known."""
        known = len(self.kept) > self.late(now)
        self.again = deque((cell, known) for cell in self.kept)

    def end(self):
        self.released += self.kept
        self.kept.clear()
        self.again.clear()
        self.probing = self.probed = False
        self.obeyed = None
        self.tries = self.tried = 0
        self.epoch = (self.epoch + 1) % (1 << EPOCH_BITS)


class Peers:
    """A plain account of all sessions, with which each cycle of the hardware is compared."""

    def __init__(self, dut, *, sessions, paths, cells, rng=None):
        self._dut, self._paths, self._rng = dut, paths, rng or random.Random(0)
        self.of = [Session() for _ in range(sessions)]
        self.owner = [None] * cells
        self.now, self._last = 0, -PACE
        self.wait = self._before = 0           # in this cycle, and the one before
        self.repeats = []                      # (session, cell, probe)
        self.waits = []                        # (session, units, cycles)
        self.freed, self.stores, self.voided, self.copies = [], 0, 0, 0
        self.more = 0                          # new frames had to wait in the last cycle
        self.asked = None                      # of which session and epoch is what waits at acked

    async def cycle(self, ctx, *, take=False):
        """A cycle; ``take``: a repetition that is offered is taken."""
        dut, rng = self._dut, self._rng
        ctx.set(dut.repeat_take, take and ctx.get(dut.repeat_valid))
        for port in (dut.sending, dut.receiving, dut.asked):
            if rng.random() < 0.5:
                ctx.set(port, rng.randrange(len(self.of)))
        if self.asked is None and ctx.get(dut.acked.valid):
            session = ctx.get(dut.acked.payload.session)
            self.asked = session, self.of[session].epoch
        _, _, *looks, wait, free, cell, taken, repeat, acked, ack, opened, session, store, stored, \
            timeout, failed, called, more = await ctx.tick().sample(
                dut.sending, dut.about, dut.receiving, dut.unacked, dut.given_up, dut.asked,
                dut.failed, dut.wait,
                dut.free.valid & dut.free.ready, dut.free.payload,
                dut.repeat_valid & dut.repeat_take, dut.repeat,
                dut.acked.valid & dut.acked.ready, dut.acked.payload,
                dut.open.valid & dut.open.ready, dut.open.payload,
                dut.stored_strobe, dut.stored, dut.stat_timeout, dut.stat_failed, dut._session,
                dut.repeat_more)
        ctx.set(dut.repeat_take, 0)
        self._before, self.wait = self.wait, wait
        self._look(*looks)
        if self.repeats:  # no new frame may come between those of a session
            s = self.of[self.repeats[-1][0]]
            assert more or s.probing or not s.owes
        self.more = more
        if free:
            self._free(cell)
        if taken:
            self._repeat(repeat)
        if acked:
            self._acknowledge(ack)
        if opened:
            self.of[session].end()
            self.of[session].failed = False
        if timeout or failed:
            self._timeout(called, failed)
        if store:
            self._store(stored)
        self.now += 1

    def _look(self, sending, about, receiving, unacked, given_up, asked, failed):
        s = self.of[sending]
        assert (about.epoch, about.failed, about.path) == (s.epoch, s.failed, s.path)
        assert failed == self.of[asked].failed
        s = self.of[receiving]
        assert given_up == s.failed
        assert len(s.kept) - s.late(self.now) <= unacked <= len(s.kept)

    def _free(self, cell):
        s = self.of[self.owner[cell]]
        assert s.released and s.released[0] == cell, "not the oldest that is acknowledged"
        self.freed.append(s.released.popleft())
        self.owner[cell], s.busy = None, self.now

    def _repeat(self, repeat):
        s, cell = self.of[repeat.session], repeat.cell
        assert cell in s.kept, "was acknowledged"
        assert (repeat.epoch, repeat.probe) == (s.epoch, s.probing)
        if s.probing:
            assert cell == s.kept[0] and not s.probed, "one probe, of the oldest"
            s.probed = True
        else:
            while s.again and s.again[0][0] != cell and not s.again[0][1]:
                s.again.popleft()
            assert s.again and s.again.popleft()[0] == cell, "out of order"
        s.since = s.busy = self.now
        self.repeats.append((repeat.session, cell, repeat.probe))

    def _acknowledge(self, ack):
        s, asked = self.of[ack.session], self.asked
        self.asked = None
        if asked != (ack.session, s.epoch):
            self.voided += 1  # the session ended meanwhile
            return
        if ack.count:
            s.released.extend(s.kept.popleft() for _ in range(ack.count))
            s.again = deque(x for x in s.again if x[0] in s.kept)
            s.since, s.tries, s.tried = self.now, 0, 0
        back = ack.back and ack.request != s.obeyed
        self.copies += ack.back and not back
        if back:
            s.obeyed = ack.request
        if back or ack.count and s.probing:
            s.probing = s.probed = False
            s.rewind(self.now)

    def _timeout(self, session, failed):
        s = self.of[session]
        wait = self.wait or self._before  # that no wait ends any more is seen a cycle later
        assert s.kept and wait and (s.probed if s.probing else not s.owes)
        self.waits.append((session, wait << s.tries, self.now - s.since))
        s.tries += 1
        if s.tries == TRANSMISSIONS:
            s.tries, s.tried, s.path = 0, s.tried + 1, (s.path + 1) % self._paths
        assert failed == (s.tried == max(2, self._paths))
        if failed:
            s.failed = True
            s.end()
        else:
            s.probing, s.probed, s.obeyed = True, False, None
            s.again.clear()

    def _store(self, stored):
        s, cell = self.of[stored.session], stored.cell
        assert self.owner[cell] is None and self.now - self._last >= PACE
        self.owner[cell], self._last = stored.session, self.now
        self.stores += 1
        if stored.epoch != s.epoch:
            s.released.append(cell)
            return
        if not s.kept:
            s.since = self.now
        # What is stored while the last of those before it leaves may or may not be sent again.
        recent = s.released or self.now - s.busy < SLACK
        if not s.probing and (s.again or recent):
            s.again.append((cell, s.owes))
        s.kept.append(cell)
        s.stores.append(self.now)

    async def begin(self, ctx):
        """The cycles after a reset in which nothing is known yet."""
        for _ in range(len(self.of)):
            await self.cycle(ctx)

    async def store(self, ctx, session, cell, *, epoch=None):
        dut = self._dut
        while self.now - self._last < PACE:
            await self.cycle(ctx)
        ctx.set(dut.stored, dict(session=session, cell=cell,
                                 epoch=self.of[session].epoch if epoch is None else epoch))
        ctx.set(dut.stored_strobe, 1)
        await self.cycle(ctx)
        ctx.set(dut.stored_strobe, 0)

    async def acknowledge(self, ctx, session, count, *, nak=False, request=None):
        """Without ``request`` a NAK is a new one."""
        dut = self._dut
        if request is None:
            request = 0 if self.of[session].obeyed else 1
        while self.now - self.of[session].stored <= LATE:
            await self.cycle(ctx)
        await self._put(ctx, dut.acked, dict(session=session, count=count, back=nak,
                                             request=request))

    async def open(self, ctx, session):
        await self._put(ctx, self._dut.open, session)

    async def _put(self, ctx, stream, payload):
        ctx.set(stream.payload, payload)
        ctx.set(stream.valid, 1)
        taken = False
        while not taken:
            taken = ctx.get(stream.ready)
            await self.cycle(ctx)
        ctx.set(stream.valid, 0)


def build(*, sessions=3, paths=2, cells=16, rng=None):
    dut = Retransmitter(sessions=sessions, paths=paths, cells=cells)
    return dut, Peers(dut, sessions=sessions, paths=paths, cells=cells, rng=rng)


def test_a_nak_repeats_everything_that_is_left_in_order():
    dut, peers = build()

    async def process(ctx):
        ctx.set(dut.free.ready, 1)
        await peers.begin(ctx)
        for cell, session in ((3, 0), (7, 1), (1, 0), (15, 0), (0, 1), (9, 0)):
            await peers.store(ctx, session, cell)
        await peers.acknowledge(ctx, 0, 1, nak=True)
        for _ in range(80):
            await peers.cycle(ctx, take=True)
        assert peers.repeats == [(0, 1, 0), (0, 15, 0), (0, 9, 0)]
        assert peers.freed == [3]
        for session, unacked in enumerate((3, 2, 0)):
            ctx.set(dut.receiving, session)
            assert ctx.get(dut.unacked) == unacked

    simulate(dut, process, background=[check_stream(dut.free, "free")])


def test_a_copy_of_a_nak_has_no_effect():
    """Until a wait ends, or there is another request, whatever it acknowledges; a copy of a NAK of
    another session is none."""
    dut, peers = build()

    async def process(ctx):
        async def nak(request, *frames, count=0, session=0):
            await peers.acknowledge(ctx, session, count, nak=True, request=request)
            peers.repeats.clear()
            for _ in range(60):
                await peers.cycle(ctx, take=True)
            assert peers.repeats == [(session, cell, 0) for cell in frames]

        ctx.set(dut.free.ready, 1)
        await peers.begin(ctx)
        for session in range(2):
            for n in range(3):
                await peers.store(ctx, session, 3 * session + n)
        for request in (1, 0, 1):
            await nak(request, 0, 1, 2)
            await nak(request)
        await nak(1, 3, 4, 5, session=1)
        await nak(1)
        await nak(1, count=1)
        await peers.acknowledge(ctx, 0, 1)
        await nak(1)
        await nak(0, 2)
        peers.repeats.clear()
        ctx.set(dut.wait, 2)
        while not peers.of[0].probed:
            await peers.cycle(ctx, take=True)
        assert (0, 2, 1) in peers.repeats
        ctx.set(dut.wait, 0)
        await nak(0, 2)

    simulate(dut, process, background=[check_stream(dut.free, "free")])
    assert peers.copies == 6


@pytest.mark.parametrize("variant", [Retransmitter, SelectiveRetransmitter])
@pytest.mark.parametrize("gap", [0, 1])
def test_frames_that_end_in_a_row_are_all_kept(variant, gap):
    """Three in consecutive cycles, or in every other one, at each phase of the other work."""
    dut, given, repeats = variant(sessions=2, paths=1, cells=16, in_a_row=4), [], []

    async def process(ctx):
        await ctx.tick().repeat(4)
        for cell in range(15):
            ctx.set(dut.stored, dict(session=cell % 2, cell=cell))
            ctx.set(dut.stored_strobe, 1)
            await ctx.tick()
            if gap or cell % 3 == 2:
                ctx.set(dut.stored_strobe, 0)
                await ctx.tick().repeat(gap if cell % 3 != 2 else 9 + cell // 3)
        for session in range(2):
            ctx.set(dut.receiving, session)
            given.append(ctx.get(dut.unacked))
            ctx.set(dut.acked.payload, dict(session=session, back=1))
            ctx.set(dut.acked.valid, 1)
            await ctx.tick().until(dut.acked.ready)
        ctx.set(dut.acked.valid, 0)
        while len(repeats) < 15:
            await ctx.tick().until(dut.repeat_valid)
            repeats.append((ctx.get(dut.repeat.session), ctx.get(dut.repeat.cell)))
            for strobe in (dut.repeat_take, getattr(dut, "resent_strobe", None)):
                if strobe is not None:
                    ctx.set(strobe, 1)
                    await ctx.tick()
                    ctx.set(strobe, 0)

    simulate(dut, process)
    assert given == [8, 7]
    for session in range(2):
        assert [c for s, c in repeats if s == session] == list(range(session, 15, 2))


def test_waits_double_then_the_path_changes_then_the_session_fails():
    dut, peers = build()
    times, totals = [], {}

    async def process(ctx):
        ctx.set(dut.free.ready, 1)
        ctx.set(dut.wait, 3)
        await peers.begin(ctx)
        for cell in (4, 5, 6):
            await peers.store(ctx, 1, cell)
        while not peers.of[1].failed:
            if ctx.get(dut.repeat_valid):
                times.append((peers.now, peers.of[1].path))
            await peers.cycle(ctx, take=True)
        for _ in range(40):
            await peers.cycle(ctx, take=True)
        assert peers.freed == [4, 5, 6] and [s.failed for s in peers.of] == [0, 1, 0]
        # What had its number before is forgotten as it comes; after the open all is as at first.
        await peers.store(ctx, 1, 8, epoch=0)
        for _ in range(20):
            await peers.cycle(ctx, take=True)
        assert peers.freed == [4, 5, 6, 8]
        await peers.open(ctx, 1)
        assert not peers.of[1].failed
        await peers.store(ctx, 1, 9)
        for _ in range(LATE):
            await peers.cycle(ctx)
        ctx.set(dut.receiving, 1)
        assert ctx.get(dut.unacked) == 1
        assert not ctx.get(dut.given_up)

    simulate(dut, process, background=[count_pulses(dut, totals)])
    assert {(s, c, p) for s, c, p in peers.repeats} == {(1, 4, 1)}, "only the oldest, as a probe"
    assert [path for _, path in times] == [0] * (TRANSMISSIONS - 1) + [1] * TRANSMISSIONS
    waits = [b - a for (a, _), (b, _) in itertools.pairwise(times)]
    for wait, units in zip(waits, (6, 12, 24, 3, 6, 12), strict=True):
        assert units * UNIT <= wait <= (units + 1) * UNIT + 12, (waits, units)
    assert totals["timeout"] == 7 and totals["failed"] == 1


def test_a_probe_that_is_acknowledged_brings_all_the_others():
    dut, peers = build()

    async def process(ctx):
        ctx.set(dut.free.ready, 1)
        ctx.set(dut.wait, 2)
        await peers.begin(ctx)
        for cell in (4, 5, 6):
            await peers.store(ctx, 2, cell)
        while not peers.repeats:
            await peers.cycle(ctx, take=True)
        for _ in range(40):
            await peers.cycle(ctx)
        assert peers.repeats == [(2, 4, 1)] and not ctx.get(dut.repeat_valid)
        await peers.acknowledge(ctx, 2, 1)
        for _ in range(50):
            await peers.cycle(ctx, take=True)
        assert peers.repeats[1:] == [(2, 5, 0), (2, 6, 0)]

    simulate(dut, process)


@pytest.mark.parametrize("after", range(-4, 6))
def test_what_leaves_while_another_is_acknowledged_is_sent_once(after):
    """The oldest of three is acknowledged so many cycles after the second one was taken."""
    dut, peers = build()

    async def process(ctx):
        ctx.set(dut.free.ready, 1)
        await peers.begin(ctx)
        for cell in (1, 2, 3):
            await peers.store(ctx, 0, cell)
        await peers.acknowledge(ctx, 0, 0, nak=True)
        while not peers.repeats:
            await peers.cycle(ctx, take=True)
        while not ctx.get(dut.repeat_valid):
            await peers.cycle(ctx)
        ctx.set(dut.acked.payload, dict(session=0, count=1))
        for now in range(-4, 60):
            if now == after:
                ctx.set(dut.acked.valid, 1)
            acked = ctx.get(dut.acked.valid & dut.acked.ready)
            await peers.cycle(ctx, take=now >= 0)
            if acked:
                ctx.set(dut.acked.valid, 0)
        assert [cell for _, cell, _ in peers.repeats] == [1, 2, 3] and peers.freed == [1]

    simulate(dut, process)


def test_a_cell_is_used_again_before_anything_else_goes_on():
    """A frame is freed; its cell becomes part of another chain, while NAKs go first."""
    dut, peers = build()

    async def process(ctx):
        ctx.set(dut.free.ready, 1)
        await peers.begin(ctx)
        for session, cell in ((0, 1), (0, 2), (1, 3), (1, 4)):
            await peers.store(ctx, session, cell)
        await peers.acknowledge(ctx, 0, 1)
        while not peers.freed:
            await peers.cycle(ctx)
        ctx.set(dut.acked.payload, dict(session=1, back=1))
        ctx.set(dut.acked.valid, 1)
        await peers.store(ctx, 1, 1)
        await peers.store(ctx, 1, 5)
        for _ in range(4):
            await peers.acknowledge(ctx, 1, 0, nak=True)
        await peers.acknowledge(ctx, 0, 1)
        await peers.acknowledge(ctx, 1, 4)
        for _ in range(60):
            await peers.cycle(ctx)
        assert sorted(peers.freed) == [1, 1, 2, 3, 4, 5]

    simulate(dut, process)


@pytest.mark.parametrize("sessions", [
    1, *(pytest.param(n, marks=pytest.mark.long) for n in (3, 64))])
def test_a_wait_is_not_short_and_ends_a_turn_later_at_most(sessions):
    """From the first transmission, a repetition or progress on, in each session by itself."""
    rng = random.Random(seed())
    dut, peers = build(sessions=sessions, cells=64, rng=rng)
    step = Sweep(count=sessions).step

    async def process(ctx):
        ctx.set(dut.wait, 5)
        ctx.set(dut.free.ready, 1)
        await peers.begin(ctx)
        free = list(range(64))
        for _ in range(40):
            session = rng.randrange(sessions)
            if (s := peers.of[session]).failed:
                await peers.open(ctx, session)
            elif rng.random() < 0.15 and s.kept:
                await peers.acknowledge(ctx, session, rng.randint(1, len(s.kept)))
            elif free:
                await peers.store(ctx, session, free.pop())
            for _ in range(rng.randrange(600)):
                await peers.cycle(ctx, take=True)
            free += peers.freed
            peers.freed.clear()

    simulate(dut, process)
    assert len(peers.waits) > 8 and len({units for _, units, _ in peers.waits}) > 2
    for _, units, cycles in peers.waits:
        assert units * UNIT <= cycles <= (units + 2 * step) * UNIT + SLACK, (units, cycles)
    assert max(cycles - units * UNIT for _, units, cycles in peers.waits) > step * UNIT // 2


def test_no_wait_ends_if_it_is_zero():
    dut, peers = build()

    async def process(ctx):
        ctx.set(dut.wait, 0)
        await peers.begin(ctx)
        await peers.store(ctx, 1, 3)
        for _ in range(40 * UNIT):
            await peers.cycle(ctx, take=True)
        assert not peers.repeats and not peers.waits
        ctx.set(dut.wait, 1)
        for _ in range(3 * UNIT):
            await peers.cycle(ctx, take=True)
        assert peers.repeats[0] == (1, 3, 1)

    simulate(dut, process)


class Traffic:
    """Anything that may happen, at random: the rates are probabilities in a cycle."""

    def __init__(self, dut, peers, rng, *, store, acknowledge, nak, open, take, free):
        self._dut, self._peers, self._rng = dut, peers, rng
        self._rates = store, acknowledge, nak, open, take, free
        self._cells = [n for n, _ in enumerate(peers.owner)]
        self._number = None  # a frame that has its number, and how long until it is stored

    async def run(self, ctx, cycles):
        dut, peers, rng = self._dut, self._peers, self._rng
        store, acknowledge, nak, opens, take, free = self._rates
        for _ in range(cycles):
            self._cells += peers.freed
            peers.freed.clear()
            ctx.set(dut.free.ready, rng.random() < free)
            if self._number is None and self._cells and rng.random() < store:
                self._begin(rng.randrange(len(peers.of)))
            ctx.set(dut.stored_strobe, 0)
            if self._number and self._number[1] <= peers.now:
                ctx.set(dut.stored, self._number[0])
                ctx.set(dut.stored_strobe, 1)
            if not ctx.get(dut.acked.valid) and rng.random() < acknowledge:
                self._acknowledge(ctx, rng.randrange(len(peers.of)), nak)
            if not ctx.get(dut.open.valid) and rng.random() < opens:
                self._open(ctx, rng.randrange(len(peers.of)))
            acked, opened = (ctx.get(x.valid & x.ready) for x in (dut.acked, dut.open))
            await peers.cycle(ctx, take=self._number is None and rng.random() < take)
            if acked:
                ctx.set(dut.acked.valid, 0)
            if opened:
                ctx.set(dut.open.valid, 0)
            if ctx.get(dut.stored_strobe):
                self._number = None
        ctx.set(dut.stored_strobe, 0)

    def _begin(self, session):
        """A frame gets its number."""
        peers, rng = self._peers, self._rng
        s = peers.of[session]
        # Not before the peer knows that the session was opened.
        if not s.failed and (peers.asked in (None, (session, s.epoch))
                             or peers.asked[0] != session):
            cell = self._cells.pop(rng.randrange(len(self._cells)))
            self._number = (dict(session=session, epoch=s.epoch, cell=cell),
                            max(peers.now + rng.choice([0, 0, 1, 9]), peers._last + PACE))

    def _acknowledge(self, ctx, session, nak):
        dut, rng = self._dut, self._rng
        ctx.set(dut.receiving, session)
        unacked = ctx.get(dut.unacked)
        count = rng.choice([0, min(1, unacked), rng.randint(0, unacked), unacked])
        back = count < unacked and rng.random() < nak
        if count or back:
            # Copies of a NAK are fewer than NAKs that count.
            last = self._peers.of[session].obeyed or 0
            ctx.set(dut.acked.payload, dict(session=session, count=count, back=back,
                                            request=last ^ (rng.random() < 0.9)))
            ctx.set(dut.acked.valid, 1)

    def _open(self, ctx, session):
        # What is under way is not older than the last end: epochs are short.
        epoch = self._peers.of[session].epoch
        number, asked = self._number, self._peers.asked
        if (number is None or number[0]["session"] != session or number[0]["epoch"] == epoch) and (
                asked in (None, (session, epoch)) or asked[0] != session):
            ctx.set(self._dut.open.payload, session)
            ctx.set(self._dut.open.valid, 1)

    async def rest(self, ctx):
        """Let it come to an end; all must be sent again that is to be, and be freed."""
        dut, peers = self._dut, self._peers
        self._rates = 0, 0, 0, 0, 1, 1
        ctx.set(dut.wait, 0)
        await self.run(ctx, 12 * len(peers.owner) + 4 * len(peers.of) + 50)
        for s in peers.of:
            assert not s.owes, "not sent again"
            assert s.probed or not s.probing
        assert not peers.more, "new frames wait for nothing"
        for session, s in enumerate(peers.of):
            await peers.acknowledge(ctx, session, len(s.kept))
        await self.run(ctx, 12 * len(peers.owner) + 4 * len(peers.of) + 50)
        assert sorted(self._cells) == list(range(len(peers.owner)))


async def at_random(ctx, dut, peers, rng, cycles, rates):
    ctx.set(dut.wait, 1)
    await peers.begin(ctx)
    traffic = Traffic(dut, peers, rng, **rates)
    await traffic.run(ctx, cycles)
    await traffic.rest(ctx)


@pytest.mark.parametrize("cycles", [2000, pytest.param(20_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("sessions, cells, rates", [
    (3, 16, dict(store=0.15, acknowledge=0.04, nak=0.6, open=0, take=0.5, free=0.6)),
    (3, 16, dict(store=0.2, acknowledge=0.02, nak=0.3, open=0.002, take=0.9, free=0.9)),
    (1, 2, dict(store=0.3, acknowledge=0.02, nak=0.8, open=0.004, take=0.3, free=0.3)),
    (3, 4, dict(store=1, acknowledge=0.06, nak=0.9, open=0.01, take=1, free=1)),
    (2, 8, dict(store=0.2, acknowledge=0.04, nak=0.3, open=0, take=1, free=1)),
    (64, 64, dict(store=0.2, acknowledge=0.15, nak=0.5, open=0.002, take=0.6, free=0.7)),
    (64, 256, dict(store=0.25, acknowledge=0.05, nak=0.4, open=0, take=0.3, free=0.8)),
])
def test_random_orders(sessions, cells, cycles, rates):
    """Whatever happens when: what is to be repeated is, in order, and no other; all is freed."""
    rng = random.Random(seed())
    dut, peers = build(sessions=sessions, cells=cells, rng=rng)
    cycles *= {2: 3, 64: 2, 256: 3}.get(cells, 1)  # waits are rare, or repetitions of one session

    async def process(ctx):
        await at_random(ctx, dut, peers, rng, cycles, rates)

    simulate(dut, process, background=[check_stream(dut.free, "free")])
    assert len(peers.repeats) > cycles // 100 and len(peers.waits) > 2
    assert peers.copies or rates["nak"] < 0.5 or cycles < 10_000  # they are few
    assert len({session for session, *_ in peers.repeats}) > sessions // 2
    for _, units, waited in peers.waits:
        assert units * UNIT - SLACK <= waited


@pytest.mark.parametrize("opens", [0, 0.3])
def test_a_cell_may_be_used_again_at_once(opens):
    """While so much is acknowledged, or opened, that nothing else goes on for long."""
    rng = random.Random(seed())
    dut, peers = build(sessions=2, cells=6, rng=rng)
    rates = dict(store=1, acknowledge=1, nak=1, open=opens, take=1, free=1)

    async def process(ctx):
        await at_random(ctx, dut, peers, rng, 4000, rates)

    simulate(dut, process, background=[check_stream(dut.free, "free")])
    assert peers.stores > 200 and (peers.voided > 20) == (opens != 0)


@pytest.mark.parametrize("width", [32, 64, 512])
def test_frames_stay_until_they_are_freed(width):
    """Frames of random sizes, read again in any order while others are written and freed."""
    rng = random.Random(seed())
    cell = max(4, 128 * 8 // width)
    cells = 2 ** (2 * 1034 * 32 // width // cell).bit_length()
    dut = ReplayMemory(width, cells=cells, cell=cell)
    lanes, kept, got, spare = width // 32, {}, [], []

    async def write(ctx):
        tlps = [rng.randbytes(4 * rng.choice([3, 4, 5, rng.randint(3, 60)]))
                for _ in range(rng.choice([0, 1, 1, 2, rng.randint(3, 31)]))]
        need = cells_for(len(tlps), sum(len(t) for t in tlps) // 4, width=width, cell=cell)
        if need > ctx.get(dut.spare):
            return
        ctx.set(dut.reserve, need)
        await ctx.tick()
        ctx.set(dut.reserve, 0)
        beats = [(t[i:i + 4 * lanes], i + 4 * lanes >= len(t))
                 for t in tlps for i in range(0, len(t), 4 * lanes)]
        # A frame may begin with its first beat, or before it.
        apart = not beats or rng.getrandbits(1)
        first, argument = ctx.get(dut.next), rng.getrandbits(32)
        ctx.set(dut.begin, 1)
        ctx.set(dut.reserved, need)
        kind = FrameType.TLP if tlps else FrameType.EVENT
        ctx.set(dut.note, dict(type=kind, argument=argument, count=len(tlps)))
        if apart:
            ctx.set(dut.end, not beats)
            await ctx.tick()
            ctx.set(dut.begin, 0)
        for n, (part, last) in enumerate(beats):
            while rng.random() < 0.2 and not ctx.get(dut.begin):
                await ctx.tick()
            ctx.set(dut.write, 1)
            ctx.set(dut.data, int.from_bytes(part, "little"))
            ctx.set(dut.dwords, len(part) // 4)
            ctx.set(dut.last, last)
            ctx.set(dut.end, n == len(beats) - 1)
            await ctx.tick()
            ctx.set(dut.begin, 0)
            ctx.set(dut.write, 0)
        ctx.set(dut.end, 0)
        kept[first] = (tlps, argument)

    async def read(ctx):
        first = rng.choice(list(kept))
        tlps, argument = kept[first]
        ctx.set(dut.look.payload, first)
        ctx.set(dut.look.valid, 1)
        await ctx.tick().until(dut.look.ready)
        ctx.set(dut.look.valid, 0)
        ctx.set(dut.seen.ready, 1)
        seen, = await ctx.tick().sample(dut.seen.payload).until(dut.seen.valid)
        ctx.set(dut.seen.ready, 0)
        assert seen.count == len(tlps)
        if not tlps:
            assert seen.argument == argument
        if tlps:
            got.clear()
            ctx.set(dut.read, 1)
            ctx.set(dut.read_cell, first)
            ctx.set(dut.read_count, len(tlps))
            await ctx.tick()
            ctx.set(dut.read, 0)
            assert ctx.get(dut.reading)
            await collect_packets(dut.o, len(tlps), got, rng=rng, density=0.8)(ctx)
            assert [p.data for p in got] == tlps
            assert not ctx.get(dut.reading)

    async def free(ctx):
        first = rng.choice(list(kept))
        del kept[first]
        ctx.set(dut.free.payload, first)
        ctx.set(dut.free.valid, 1)
        await ctx.tick().until(dut.free.ready)
        ctx.set(dut.free.valid, 0)

    async def process(ctx):
        await ctx.tick().repeat(cells + 2)
        assert ctx.get(dut.spare) == cells
        for _ in range(250):
            step = rng.random()
            if step < 0.5 or not kept:
                await write(ctx)
            elif step < 0.75:
                await read(ctx)
            else:
                await free(ctx)
            spare.append(ctx.get(dut.spare))
        while kept:
            await free(ctx)
        await ctx.tick().repeat(3 * cells)
        assert ctx.get(dut.spare) == cells, "cells were lost"

    simulate(dut, process, background=[check_stream(dut.o, "o")])
    assert min(spare) < cells // 4


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="cells must be a power of two of at least 2, not 63"):
        ReplayMemory(64, cells=63, cell=32)
    with pytest.raises(ValueError, match="cell must be a power of two of at least 4, not 2"):
        ReplayMemory(64, cells=64, cell=2)
    with pytest.raises(ValueError, match=r"two of the largest TLPs \(1034 beats\), not 512"):
        Packetizer(64, depth=1024, cells=64, cell=8)
