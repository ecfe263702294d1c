"""dxpu.switch.tracking.slot_tracking and dxpu.switch.tracking.checked_queue: requests through
slots that come and go."""

import random
from collections import Counter, deque
from dataclasses import replace

import pytest
from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from dxpu.arbiter import PacketArbiter
from dxpu.proxy.slot_parser import SlotParser
from dxpu.rows import TlpMeta
from dxpu.stream import PacketSignature, connect
from dxpu.switch.tracking.checked_queue import JudgedQueue
from dxpu.switch.tracking.slot_tracking import SlotTracking
from dxpu.switch.tracking.types import request_kind, tracked_request
from dxpu.switch.types import SlotInfo, SlotRow
from dxpu.tlp.completion import completion_for
from dxpu.tlp.types import NO_LIMIT, CompletionStatus, TlpClass
from dxpu_model.tlp import Tlp, complete, random_tlp
from dxpu_model.tracker import split
from dxpu_sim.switch.streams import Joiner
from tests.support.mutate import mutant
from tests.support.switch_bench import info_of
from tests.support.testbench import (
    Packet, check_stream, collect_packets, collect_words, count_pulses, drive_packets, seed,
    simulate,
)

P, NP, CPL = TlpClass.P, TlpClass.NP, TlpClass.CPL
UR = CompletionStatus.UR
KINDS = {P: ("MWr32", "MWr64"),
         NP: ("MRd32", "MRd64", "IORd", "CfgRd0", "CfgWr0", "FetchAdd32", "CAS64")}


# JudgedQueue.

@pytest.mark.parametrize("densities", [(1, 1, 1, 1), (0.7, 0.7, 0.7, 0.7), (1, 0.05, 1, 1),
                                       (1, 1, 0.2, 1), (1, 1, 1, 0.05)])
def test_packets_wait_for_their_judgement(densities):
    """Those that are asked about wait and may be dropped; the others do not; all keep their
    order; no question about a packet that ends badly or is too large."""
    judged(densities)
    judged(densities, complete=True)


@pytest.mark.parametrize(("change", "densities"), [
    (("aligned & passes)", "passes)"), (1, 1, 1, 0.05)),
    (("& ~answers.o.payload & aligned", "& ~answers.o.payload"), (1, 1, 0.2, 1)),
], ids=str)
def test_beats_that_leave_with_another_judgement_are_found(change, densities):
    with pytest.raises((AssertionError, TimeoutError)):
        judged(densities, mutant(JudgedQueue, change))


def test_information_goes_so_far_ahead_of_the_beats_and_no_farther():
    dut, infos, got = JudgedQueue(32, depth=64, info=8, question=16, packets=32), [], []

    async def process(ctx):
        await drive_packets(dut.i, [Packet(bytes(4))] * 24)(ctx)
        await ctx.tick().repeat(30)
        assert len(infos) == JudgedQueue.AHEAD
        await collect_packets(dut.beats, 24, got)(ctx)
        await ctx.tick().repeat(5)
        assert len(infos) == 24

    simulate(dut, process, background=[collect_words(dut.info, 10**6, infos)])


def test_a_question_about_a_complete_packet_is_asked_with_its_first_beat():
    dut = JudgedQueue(32, depth=16, info=8, question=16, complete=True)

    async def process(ctx):
        ctx.set(dut.asks, 1)
        ctx.set(dut.info.ready, 1)
        ctx.set(dut.question.ready, 1)
        ctx.set(dut.i.valid, 1)
        ctx.set(dut.i.payload, dict(dwords=1, first=1))
        await ctx.tick()
        assert ctx.get(dut.question.valid)
        # The answer may come before the end of the packet, and waits for it.
        ctx.set(dut.answer.payload, 1)
        ctx.set(dut.answer.valid, 1)
        ctx.set(dut.i.valid, 0)
        await ctx.tick()
        ctx.set(dut.answer.valid, 0)
        await ctx.tick().repeat(5)
        assert not ctx.get(dut.info.valid)
        ctx.set(dut.i.valid, 1)
        ctx.set(dut.i.payload, dict(dwords=1, last=1))
        await ctx.tick()
        ctx.set(dut.i.valid, 0)
        assert ctx.get(dut.info.valid) and ctx.get(dut.beats.valid)
        assert not ctx.get(dut.question.valid)

    simulate(dut, process)


def test_information_is_early_and_a_refused_packet_stays_while_it_is_kept():
    dut = JudgedQueue(32, depth=16, info=8, question=16)

    async def process(ctx):
        ctx.set(dut.asks, 1)
        ctx.set(dut.i_info, 77)
        await drive_packets(dut.i, [Packet(bytes(8))])(ctx)
        ctx.set(dut.i_info, 78)
        assert ctx.get(dut.early) and ctx.get(dut.info.payload) == 77
        assert not ctx.get(dut.info.valid)
        ctx.set(dut.keep, 1)
        ctx.set(dut.answer.valid, 1)
        await ctx.tick().until(dut.answer.ready)
        ctx.set(dut.answer.valid, 0)
        for _ in range(5):
            assert not ctx.get(dut.early) and ctx.get(dut.info.payload) == 77
            await ctx.tick()
        ctx.set(dut.keep, 0)
        await ctx.tick().repeat(3)
        assert ctx.get(dut.empty) and not ctx.get(dut.early)

    simulate(dut, process)


def judged(densities, design=JudgedQueue, complete=False):
    """Packets through a queue, judged at random: they leave as their judgements say."""
    rng = random.Random(seed())
    dut = design(32, depth=32, info=8, question=16, packets=4, questions=4, complete=complete)
    into, answering, out, ahead = densities
    sent = [Packet(rng.randbytes(4 * rng.choice([1, 1, 2, 3, 9, 40 - 10 * complete])),
                   rng.randrange(256), rng.random() < 0.2 and not complete) for _ in range(200)]
    asks = [rng.random() < 0.5 for _ in sent]
    fits = [not p.discard and len(p.data) <= 128 for p in sent]
    verdicts = [rng.random() < 0.6 for _ in sent]
    expected = [p for p, a, f, v in zip(sent, asks, fits, verdicts, strict=True)
                if f and (v or not a)]
    questions = [n for n, (a, f) in enumerate(zip(asks, fits, strict=True)) if a and f]
    got, infos, asked = [], [], []

    async def feed(ctx):
        for n, packet in enumerate(sent):
            ctx.set(dut.asks, asks[n])
            ctx.set(dut.about, n)
            ctx.set(dut.i_info, packet.meta)
            await drive_packets(dut.i, [packet], rng=rng, density=into)(ctx)

    async def judge(ctx):
        while True:
            await collect_words(dut.question, len(asked) + 1, asked, rng=rng,
                                density=answering)(ctx)
            ctx.set(dut.answer.payload, verdicts[asked[-1]])
            ctx.set(dut.answer.valid, 1)
            await ctx.tick().until(dut.answer.ready)
            ctx.set(dut.answer.valid, 0)

    simulate(dut, feed, collect_packets(dut.beats, len(expected), got, rng=rng, density=out),
             collect_words(dut.info, len(expected), infos, rng=rng, density=ahead),
             background=[judge, *(check_stream(s) for s in (dut.info, dut.beats, dut.question))],
             deadline=20_000)
    assert [p.data for p in got] == [p.data for p in expected]
    assert infos == [p.meta for p in expected] and asked == questions[:len(asked)]
    assert len(questions) - len(asked) <= 3  # behind the last packet that came out


def test_room_is_for_less_than_half_of_packets_or_questions():
    dut = JudgedQueue(32, depth=16, info=8, question=16, packets=16, questions=8)

    async def process(ctx):
        ctx.set(dut.asks, 1)
        for n in range(4):
            await ctx.tick()
            assert ctx.get(dut.room), n
            await drive_packets(dut.i, [Packet(bytes(4), 0)])(ctx)
        await ctx.tick()
        assert not ctx.get(dut.room)
        ctx.set(dut.answer.payload, 1)
        ctx.set(dut.answer.valid, 1)
        ctx.set(dut.question.ready, 1)
        ctx.set(dut.info.ready, 1)
        ctx.set(dut.beats.ready, 1)
        await ctx.tick().repeat(20)
        assert ctx.get(dut.room)
        ctx.set(dut.asks, 0)
        ctx.set(dut.answer.valid, 0)
        ctx.set(dut.info.ready, 0)
        ctx.set(dut.beats.ready, 0)
        await drive_packets(dut.i, [Packet(bytes(36), 0)])(ctx)
        await ctx.tick().repeat(4)
        assert not ctx.get(dut.room)

    simulate(dut, process)


# SlotTracking.

class Down(wiring.Component):
    """SlotTracking with a parser for what comes up, and for what goes down what the switch says."""

    def __init__(self, width, ports, *, design=SlotTracking, **options):
        self.dut = design(width, ports=ports, depth=64, requests=64, **options)
        self._width, self._ports = width, ports
        super().__init__({
            "down_i": In(PacketSignature(width, SlotInfo)),
            "down_o": Out(PacketSignature(width, TlpMeta)),
            "up_i": In(PacketSignature(width, SlotRow)),
            "up_o": Out(PacketSignature(width, SlotInfo)),
            "late": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        m.submodules.parser = parser = SlotParser(self._width, rows=self._ports)
        m.submodules.join = join = Joiner(self._width, SlotInfo)
        m.submodules.merge = merge = PacketArbiter(self._width, count=2, meta=SlotRow)
        down, meta = self.down_i, dut.down_i.p.meta
        info = down.p.meta.info
        completion = Signal(completion_for(info, UR, 0).shape())
        # A decision that was made stays.
        inside, life = Signal(), Signal.like(meta.life)
        with m.If(down.valid):
            m.d.sync += [inside.eq(~(down.ready & down.p.last)), life.eq(meta.life)]
        m.d.comb += [
            completion.eq(completion_for(info, UR, 0)),
            *(dut.down_i.p[k].eq(down.p[k]) for k in ("data", "dwords", "first", "last")),
            meta.port.eq(down.p.meta.port),
            meta.life.eq(Mux(inside, life, Array(dut.lives)[down.p.meta.port])),
            meta.cls.eq(info.cls),
            meta.request.eq(tracked_request(completion, *request_kind(info),
                                            slot=down.p.meta.port)),
            dut.down_i.valid.eq(down.valid), down.ready.eq(dut.down_i.ready),
            dut.bus.eq(0x5A), self.late.eq(dut.late),
        ]
        connect(m, wiring.flipped(self.up_i), merge.i[0])
        connect(m, dut.made, merge.i[1])
        connect(m, merge.o, parser.i)
        connect(m, parser.o, dut.up_i)
        connect(m, dut.down_o, wiring.flipped(self.down_o))
        connect(m, dut.up_info, join.info)
        connect(m, dut.up_beats, join.beats)
        connect(m, join.o, wiring.flipped(self.up_o))
        m.d.comb += [dut.up_header.eq(parser.tlp_header),
                     *(limit.eq(NO_LIMIT) for limit in parser.max_payloads)]
        return m


class Slots:
    """Slots that answer what reaches them, and whose links go and come back."""

    def __init__(self, rng, bench, *, trouble, silent=0.0):
        self.rng, self.bench, self.dut = rng, bench, bench.dut
        self.ports = bench._ports
        self.trouble, self.silent = trouble, silent
        self.lives = [0] * self.ports
        self.active = (1 << self.ports) - 1
        self.down_for = [0] * self.ports
        self.replies = deque()
        self.got, self.posted = [], []
        self.ended = 0

    async def links(self, ctx):
        """Like the switch: a life ends in the cycle after its link."""
        dut = self.dut
        ctx.set(dut.link_active, self.active)
        ctx.set(dut.deadline, 500_000)
        while True:
            *_, drained = await ctx.tick().sample(dut.drained)
            ended = []
            for n in range(self.ports):
                if self.active >> n & 1:
                    if self.rng.random() < self.trouble:
                        self.active &= ~(1 << n)
                        ended.append(n)
                        self.down_for[n] = self.rng.choice([12, 40, 400])
                        self.ended += 1
                elif self.down_for[n]:
                    self.down_for[n] -= 1
                elif drained >> n & 1:
                    self.active |= 1 << n
            ctx.set(dut.link_active, self.active)
            if ended:
                await ctx.tick()
                for n in ended:
                    self.lives[n] += 1
                    ctx.set(dut.lives[n], self.lives[n] % 256)

    async def take(self, ctx):
        """What leaves for a slot reaches it if the life is still that of the TLP."""
        taken = []
        while True:
            await collect_packets(self.bench.down_o, len(taken) + 1, taken, rng=self.rng,
                                  density=0.8)(ctx)
            packet = taken[-1]
            row = packet.meta.row
            if packet.meta.life != self.lives[row] % 256 or not self.active >> row & 1:
                continue
            tlp = Tlp.unpack(packet.data)
            if tlp.kind in KINDS[NP]:
                if self.rng.random() < self.silent:
                    continue
                self.replies.append((row, deque(self.parts(tlp))))
            else:
                self.posted.append((row, packet.data))

    def parts(self, tlp):
        rng = self.rng
        if tlp.kind.startswith("MRd"):
            return split(replace(tlp, ep=0), 0x100, [rng.randint(1, 3)] * rng.randrange(4))
        size = 0 if "Wr" in tlp.kind else complete(tlp, UR, 0).byte_count
        return [complete(replace(tlp, ep=0), CompletionStatus.SC, 0x100, bytes(size))]

    async def answer(self, ctx):
        """Completions of several requests at a time, some late, some twice, and posted writes."""
        old, writes = deque(maxlen=8), 0
        while True:
            dice = self.rng.random()
            if dice < 0.1 and old:
                row, tlp = self.rng.choice(old)
            elif dice < 0.3:
                row, writes = self.rng.randrange(self.ports), writes + 1
                tlp = Tlp(2, 0, length=1, first_be=15, address=0x1000, requester_id=row,
                          payload=writes.to_bytes(4, "little"))
            elif dice < 0.8 and self.replies:
                row, parts = self.rng.choice(list(self.replies)[:3])
                tlp = parts.popleft()
                if not parts:
                    old.append((row, tlp))  # twice: an open request takes what has its name
                    self.replies.remove((row, parts))
            else:
                await ctx.tick().repeat(self.rng.choice([1, 1, 5, 40]))
                continue
            # It comes in with the life that the gate at the fabric sees.
            packet = Packet(tlp.pack(), {"row": row, "life": self.lives[row] % 256, "made": 0})
            await drive_packets(self.bench.up_i, [packet], rng=self.rng, density=0.9)(ctx)


class Host:
    """Sends requests, and checks what it gets for each."""

    def __init__(self, rng, bench, slots, count):
        self.rng, self.bench, self.slots, self.count = rng, bench, slots, count
        self.open, self.ends = {}, Counter()
        self.writes = [0] * slots.ports
        self.posted_sent = []
        self.blocked_posted = 0

    async def send(self, ctx):
        for n in range(self.count):
            cls = self.rng.choice([P, NP, NP, NP])
            slot = self.rng.randrange(self.slots.ports)
            # The switch sends nothing to a slot without link.
            while not self.slots.active >> slot & 1:
                await ctx.tick()
            tlp = random_tlp(self.rng, kinds=(self.rng.choice(KINDS[cls]),))
            tlp.ep = 0
            if len(tlp.payload) > 64:
                tlp = Tlp(tlp.fmt, tlp.type, length=16, first_be=15, last_be=15,
                          address=tlp.address & ~0xfff, requester_id=0x10, payload=bytes(64))
            if tlp.kind.startswith("MRd"):
                # Whatever comes back must fit the queue.
                tlp.length, tlp.first_be, tlp.last_be = self.rng.randint(2, 64), 8, 1
                tlp.address &= ~0xfff
            if cls == NP:
                tlp.requester_id = slot
                tlp.tag = n  # never again: a completion that comes twice must not fit another
                whole = complete(tlp, CompletionStatus.UR, 0)
                self.open[slot, tlp.tag] = [tlp, whole.byte_count, whole.lower_address]
            else:
                tlp.tag = n % 256
                self.posted_sent.append((slot, tlp.pack()))
            raw = tlp.pack()
            packet = Packet(raw, {"port": slot, "info": info_of(raw)})
            await drive_packets(self.bench.down_i, [packet], rng=self.rng, density=0.9)(ctx)
        while self.open:
            await ctx.tick()
        await ctx.tick().repeat(300)

    async def take(self, ctx):
        got = []
        while True:
            await collect_packets(self.bench.up_o, len(got) + 1, got, rng=self.rng,
                                  density=0.8)(ctx)
            packet = got[-1]
            tlp, slot = Tlp.unpack(packet.data), packet.meta.port
            assert packet.meta.due
            if tlp.kind == "MWr32":
                number = int.from_bytes(tlp.payload, "little")
                assert number > self.writes[slot], "posted writes doubled or out of order"
                self.writes[slot] = number
                continue
            self.complete(slot, tlp)

    def complete(self, slot, tlp):
        assert tlp.requester_id == slot
        assert (slot, tlp.tag) in self.open, "a completion that nobody waits for"
        request, left, lower = self.open[slot, tlp.tag]
        assert (tlp.byte_count, tlp.lower_address) == (left, lower)
        self.ends[tlp.status] += 1
        if tlp.status == UR.value:
            assert tlp.completer_id == 0x5A00 | slot << 3
        elif request.kind.startswith("MRd"):
            came = len(tlp.payload) - lower % 4
            if came < left:
                self.open[slot, tlp.tag][1:] = left - came, (lower + came) % 128
                self.ends[tlp.status] -= 1
                return
        del self.open[slot, tlp.tag]


@pytest.mark.parametrize("width, entries, trouble", [
    (64, 16, 0.002), *(pytest.param(*p, marks=pytest.mark.long) for p in (
        (64, 16, 0.0), (512, 16, 0.005), (32, 64, 0.0005)))])
def test_every_request_has_one_end_whatever_the_links_do(width, entries, trouble):
    """A tracker that is full most of the time; links that go at any moment."""
    rng = random.Random(seed())
    bench = Down(width, 3, entries=entries, granule=128)
    slots = Slots(rng, bench, trouble=trouble)
    host, stats = Host(rng, bench, slots, 400), {}
    simulate(bench, host.send, background=[
        slots.links, slots.take, slots.answer, host.take, count_pulses(bench.dut, stats),
        *(check_stream(s, n) for s, n in ((bench.up_o, "up_o"), (bench.down_o, "down_o")))])
    assert host.ends[0] > 50 and stats["answered"] == host.ends[UR.value]
    assert (host.ends[UR.value] > 5) == bool(trouble)
    assert all(host.writes)
    if not trouble:
        assert slots.posted == host.posted_sent
    assert stats["unexpected"] > 5 and not stats["expired"] and not stats["stale"]


def test_posted_requests_and_completions_pass_requests_that_wait():
    """The tracker is full for ever; all that need no place in it go on."""
    rng = random.Random(seed())
    bench = Down(64, 2, entries=4, granule=64)
    slots = Slots(rng, bench, trouble=0, silent=1)
    got = []
    reads = [Tlp(0, 0, length=1, first_be=15, address=0x1000, tag=t) for t in range(12)]
    write = Tlp(2, 0, length=1, first_be=15, address=0x1000, payload=bytes(4))
    completion = complete(reads[0], CompletionStatus.SC, 1, bytes(4))
    packets = [Packet(t.pack(), {"port": 0, "info": info_of(t.pack())})
               for t in [*reads, write, write, completion]]

    simulate(bench, drive_packets(bench.down_i, packets), collect_packets(bench.down_o, 7, got),
             background=[slots.links])
    kinds = [Tlp.unpack(p.data).kind for p in got]
    assert sorted(kinds) == ["CplD", "MRd32", "MRd32", "MRd32", "MRd32", "MWr32", "MWr32"]


def test_late_until_what_was_committed_has_left():
    bench = Down(64, 2, granule=512)
    rng = random.Random(seed())
    slots = Slots(rng, bench, trouble=0)
    write = Tlp(2, 0, length=1, first_be=15, address=0x1000, payload=bytes(4)).pack()
    got = []

    async def process(ctx):
        await ctx.tick().repeat(3)
        await drive_packets(bench.up_i, [Packet(write, {"row": 0})] * 3)(ctx)
        await ctx.tick().repeat(20)
        assert not ctx.get(bench.late)
        slots.active, slots.down_for[0] = 0b10, 10**6
        await ctx.tick().repeat(2)
        # Of another slot, and of this one in its next life.
        await drive_packets(bench.up_i, [Packet(write, {"row": 1}), Packet(write, {"row": 0})])(ctx)
        for _ in range(20):
            await ctx.tick()
            assert ctx.get(bench.late)
        await collect_packets(bench.up_o, 3, got)(ctx)
        await ctx.tick().repeat(2)
        assert not ctx.get(bench.late)
        await collect_packets(bench.up_o, 4, got)(ctx)
        await ctx.tick().repeat(20)
        assert [p.meta.port for p in got] == [0, 0, 0, 1] and not ctx.get(bench.up_o.valid)

    stats = {}
    simulate(bench, process, background=[slots.links, count_pulses(bench.dut, stats)])
    assert stats["closed"] == 1




def test_nothing_of_a_contained_slot_is_committed():
    """Though its link is still shown; other slots go on."""
    bench = Down(64, 2, granule=512)
    slots = Slots(random.Random(seed()), bench, trouble=0)
    write = Tlp(2, 0, length=1, first_be=15, address=0x1000, payload=bytes(4)).pack()
    got = []

    async def process(ctx):
        await ctx.tick().repeat(3)
        ctx.set(bench.dut.contained, 0b01)
        await drive_packets(bench.up_i, [Packet(write, {"row": n % 2}) for n in range(6)])(ctx)
        await ctx.tick().repeat(20)
        ctx.set(bench.dut.contained, 0)
        await drive_packets(bench.up_i, [Packet(write, {"row": 0})])(ctx)
        await collect_packets(bench.up_o, 4, got)(ctx)
        await ctx.tick().repeat(20)
        assert [p.meta.port for p in got] == [1, 1, 1, 0] and not ctx.get(bench.up_o.valid)

    stats = {}
    simulate(bench, process, background=[slots.links, count_pulses(bench.dut, stats)])
    assert stats["closed"] == 3


def test_a_request_that_waits_while_its_slot_begins_another_life_is_answered():
    """Its TLP says which life it is of, and it keeps no place in the tracker."""
    rng = random.Random(seed())
    bench = Down(64, 2, entries=4, granule=64)
    slots = Slots(rng, bench, trouble=0, silent=1)
    reads = [(1, Tlp(0, 0, length=1, first_be=15, address=0x1000, requester_id=1, tag=t))
             for t in range(4)]
    waiting = Tlp(0, 0, length=2, first_be=15, last_be=1, address=0x1000, requester_id=0, tag=7)
    down, up = [], []

    async def link(ctx, slot, alive):
        slots.active = slots.active & ~(1 << slot) | alive << slot
        slots.down_for[slot] = 0 if alive else 10**6
        await ctx.tick().repeat(4)
        if not alive:
            slots.lives[slot] += 1
            ctx.set(bench.dut.lives[slot], slots.lives[slot])
            await ctx.tick().repeat(4)

    async def process(ctx):
        for slot, tlp in [*reads, (0, waiting)]:
            raw = tlp.pack()
            await drive_packets(bench.down_i, [
                Packet(raw, {"port": slot, "info": info_of(raw)})])(ctx)
        await ctx.tick().repeat(100)
        await link(ctx, 0, False)
        await link(ctx, 0, True)
        await ctx.tick().repeat(100)
        await link(ctx, 1, False)  # which makes room
        await collect_packets(bench.up_o, 5, up)(ctx)
        await ctx.tick().repeat(200)
        assert ctx.get(bench.dut.drained) == 3

    simulate(bench, process, background=[slots.links, collect_packets(bench.down_o, 6, down)])
    answers = sorted(((p.meta.port, Tlp.unpack(p.data)) for p in up), key=lambda a: a[0])
    assert [port for port, _ in answers] == [0, 1, 1, 1, 1]
    tlp = answers[0][1]
    assert (tlp.status, tlp.tag, tlp.byte_count) == (UR.value, 7, 5)
    assert [(p.meta.row, p.meta.life) for p in down] == [(1, 0)] * 4 + [(0, 0)]


def late_beats(design=SlotTracking):
    """A slot's link ends, again and again, after more and more cycles of posted writes that wait.
    For each time: whether it was ``late`` at each beat that left from then on, and at last."""
    bench, times = Down(64, 2, entries=16, granule=128, design=design), []
    write = Tlp(2, 0, length=5, first_be=15, last_be=15, address=0x1000, payload=bytes(20)).pack()

    async def end(ctx, when):
        ctx.set(bench.up_o.ready, 0)
        ctx.set(bench.dut.link_active, 3)
        await ctx.tick().repeat(when)
        ctx.set(bench.dut.link_active, 2)
        said = []
        for cycle in range(60):
            # What waits behind one that leaves slowly, and then quickly.
            ctx.set(bench.up_o.ready, (cycle + when) % 3 == 2 or cycle > 40)
            *_, left, late = await ctx.tick().sample(bench.up_o.valid & bench.up_o.ready,
                                                     bench.late)
            if left:
                said.append(late)
        times.append((said, late))

    async def process(ctx):
        for when in range(1, 24):
            ctx.set(bench.dut.lives[0], when)
            lives.append(when)
            await end(ctx, when)

    lives = []

    async def feed(ctx):
        """Five writes of each life; what comes after its end is dropped."""
        while True:
            if lives:
                await drive_packets(bench.up_i, [
                    Packet(write, {"row": 0, "life": lives.pop(), "made": 0})] * 5)(ctx)
            else:
                await ctx.tick()

    simulate(bench, process, background=[feed])
    return times


def test_what_was_committed_before_a_link_ended_is_late_to_its_last_beat():
    """Whichever beat enters the queue in the cycle in which the link ends."""
    times = late_beats()
    assert all(all(said) and not late for said, late in times)
    # Packets leave whole: of four beats, as the last two are one of data.
    assert {len(said) for said, _ in times} == {0, 4, 8, 12, 16, 20}


@pytest.mark.parametrize("change", [
    ("before.eq(queue.level + 1)", "before.eq(queue.level)"),
    ("queue.empty", "queue.level == 0"),
    ("self.late.eq(ended | before.any())", "self.late.eq(before.any())"),
], ids=str)
def test_a_beat_that_is_forgotten_is_found(change):
    assert not all(all(said) for said, _ in late_beats(mutant(SlotTracking, change)))
