"""The completion tracker between TLPs, compared with the golden tracker in every cycle."""

from collections import Counter, deque
from dataclasses import replace

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.stream import PacketSignature, connect
from dxpu.switch.tracking.tracker import CompletionTracker
from dxpu.switch.tracking.types import (
    DropCause, TrackedAnswer, TrackerVerdict, request_kind, tracked_completion, tracked_request,
)
from dxpu.tlp.completion import CompletionBuilder, completion_for
from dxpu.tlp.types import CompletionStatus, TlpInfo
from dxpu_model.tlp import Tlp, classify, complete, random_tlp
from dxpu_model.tracker import Tracker, split
from tests.support.testbench import check_stream, count_pulses

NON_POSTED = ("MRd32", "MRd64", "MRdLk32", "MRdLk64", "IORd", "IOWr", "CfgRd0", "CfgWr0", "CfgRd1",
              "CfgWr1", "FetchAdd32", "FetchAdd64", "Swap32", "Swap64", "CAS32", "CAS64")
BUS = 0x5A


class Asked(data.Struct):
    """A TLP as seen by the switch."""

    slot: 5
    generation: 16
    dead: 1
    info: TlpInfo


class Events(data.Struct):
    """Events of a cycle."""

    request: 1       #: taken
    completion: 1    #: taken
    verdict: 1       #: taken
    made: 1          #: an answer will be offered
    answer: 1        #: taken, as a TLP
    expired: 1
    slot: 5          #: slot that expired
    waiting: 1       #: a request is offered and not taken
    offered: 1       #: a completion is offered
    accept: 1        #: value of the verdict
    cause: 2
    fence: 32
    drained: 32


class Raw:
    """A stream whose payload is a number, which is much quicker to sample."""

    def __init__(self, interface):
        self.valid, self.ready = interface.valid, interface.ready
        self.payload = Value.cast(interface.payload)


class Bench(wiring.Component):
    """The tracker, fed with parsed TLPs; its answers become TLPs."""

    def __init__(self, *, design=CompletionTracker, **parameters):
        self.dut = design(**parameters)
        super().__init__({
            "request": In(stream.Signature(Asked)),
            "completion": In(stream.Signature(Asked)),
            "verdict": Out(stream.Signature(TrackerVerdict)),
            "answer": Out(PacketSignature(128)),
            "events": Out(Events),
            "words": Out(128),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        m.submodules.builder = builder = CompletionBuilder(128)
        r, c = self.request.p, self.completion.p
        m.d.comb += [
            dut.request.p.eq(tracked_request(
                completion_for(r.info, CompletionStatus.SC, 0), *request_kind(r.info),
                slot=r.slot)),
            dut.request.p.generation.eq(r.generation), dut.request.p.dead.eq(r.dead),
            dut.request.valid.eq(self.request.valid), self.request.ready.eq(dut.request.ready),
            dut.completion.p.eq(tracked_completion(
                c.info, slot=c.slot, generation=c.generation)),
            dut.completion.valid.eq(self.completion.valid),
            self.completion.ready.eq(dut.completion.ready),
            builder.i.payload.eq(dut.answer.p.completion),
            builder.i.valid.eq(dut.answer.valid), dut.answer.ready.eq(builder.i.ready),
            dut.bus.eq(BUS),
        ]
        e = self.events
        m.d.comb += [
            e.request.eq(dut.request.valid & dut.request.ready),
            e.completion.eq(dut.completion.valid & dut.completion.ready),
            e.verdict.eq(dut.verdict.valid & dut.verdict.ready),
            e.made.eq(dut.stat_answered),
            e.answer.eq(self.answer.valid & self.answer.ready),
            e.expired.eq(dut.expired.strobe), e.slot.eq(dut.expired.slot),
            e.waiting.eq(dut.request.valid & ~dut.request.ready),
            e.offered.eq(dut.completion.valid),
            e.accept.eq(dut.verdict.p.accept), e.cause.eq(dut.verdict.p.cause),
            e.fence.eq(dut.fence), e.drained.eq(dut.drained),
            self.words.eq(self.answer.p.data),
        ]
        connect(m, dut.verdict, wiring.flipped(self.verdict))
        connect(m, builder.o, wiring.flipped(self.answer))
        return m


def asked(slot, generation, tlp, dead=0):
    """A TLP for ``Bench``."""
    info = {name: value or 0 for name, value in vars(classify(tlp.pack())).items()}
    return {"slot": slot, "generation": generation, "dead": int(dead), "info": info}


class Watch:
    """Compares the tracker with the golden tracker, cycle by cycle.

    The tracker carries out one operation per cycle, so taken and answered TLPs have an order, in
    which the golden tracker repeats the operations. Answers are seen a cycle after they were made.
    """

    def __init__(self, bench, *, deadline=None):
        self.bench, self.dut = bench, bench.dut
        self.ports = len(self.dut.fence)
        self.golden = Tracker(status=self.dut._status, bus=BUS)
        self.deadline = deadline
        self.now = 0
        self.requests, self.completions = deque(), deque()  # offered: slot, generation, ..., tlp
        self.waiting = deque()                              # requests to be offered
        self.verdicts, self.answers = deque(), deque()      # expected
        self.stats = {}
        self.causes = Counter()
        self.accepted = self.ended = self.answered = self.expired = 0
        self.reported = set()
        self.held = 0              # cycles that a request has waited while none was open
        self.fenced = {}           # fenced slots, and earliest end of each fence
        self.waits = []            # cycles from each completion's offer to its verdict

    def background(self):
        dut = self.dut
        return [self.run, count_pulses(dut, self.stats),
                *(check_stream(Raw(s), n) for s, n in (
                    (dut.request, "request"), (dut.completion, "completion"),
                    (dut.verdict, "verdict"), (dut.answer, "answer")))]

    async def run(self, ctx):
        dut, bench = self.dut, self.bench
        fence_before, made_before, offered = 0, 0, None
        async for _, _, raw, words, answer in ctx.tick().sample(
                Value.cast(bench.events), bench.words, Value.cast(dut.answer.payload)):
            e = Events.from_bits(raw)
            if made_before:
                self.made(TrackedAnswer.from_bits(answer))
            open_slots = {key[0] for key in self.golden.open}
            assert e.drained == sum(1 << n for n in range(self.ports) if n not in open_slots)
            self.held = self.held + 1 if e.waiting and not open_slots else 0
            assert self.held < 80, "a request waits for nothing"
            assert e.request + e.completion + e.made <= 1
            if e.offered and offered is None:
                offered = self.now
            if e.request:
                self.take_request()
            if e.completion:
                self.waits.append(self.now - offered + 1)
                offered = None
                self.take_completion(fence_before)
            if e.verdict:
                assert (e.accept, e.cause) == self.verdicts.popleft()
            if e.answer:
                expected = self.answers.popleft()
                assert words.to_bytes(16, "little")[:12].hex() == expected.pack().hex()
            if e.expired:
                self.overdue(e.slot)
            self.track_fences(e.fence)
            self.check_deadline()
            fence_before, made_before = e.fence, e.made
            self.now += 1

    def take_request(self):
        slot, generation, dead, tlp = self.requests.popleft()
        assert self.golden.request(slot, generation, dead, tlp, self.now), "name in use"
        self.accepted += 1

    def take_completion(self, fence):
        slot, generation, tlp = self.completions.popleft()
        before = len(self.golden.open)
        cause = self.golden.completion(slot, generation, tlp, fenced=bool(fence >> slot & 1))
        self.ended += before - len(self.golden.open)
        self.reported &= {id(e) for e in self.golden.open.values()}
        self.verdicts.append((cause == DropCause.NONE, cause.value))
        self.causes[cause] += 1

    def made(self, answer):
        key = answer.slot, answer.completion.requester_id, answer.completion.tag
        assert key in self.golden.open, "answer to a request that is not open"
        entry = self.golden.open[key]
        assert entry.dead or entry.slot in self.fenced, "answer for a slot without fence"
        self.reported.discard(id(entry))
        self.answers.append(self.golden.answer(key))
        self.answered += 1

    def overdue(self, slot):
        keys = [k for k in self.golden.overdue(self.now, self.deadline)
                if k[0] == slot and id(self.golden.open[k]) not in self.reported]
        assert keys, f"slot {slot} has no request that is late"
        self.reported.add(id(self.golden.open[min(keys, key=lambda k: self.golden.open[k].since)]))
        self.expired += 1

    def track_fences(self, fence):
        # A request examined before the fence fell may still be answered a cycle later.
        for n in range(self.ports):
            if fence >> n & 1:
                self.fenced[n] = self.now
            elif self.now > self.fenced.get(n, self.now) + 2:
                del self.fenced[n]

    def check_deadline(self):
        if self.deadline is None:
            return
        granule = 1 << self.dut._tick
        limit = (-(-self.deadline // granule) + 1) * granule + 4 * self.dut._sets + 40
        for key, entry in self.golden.open.items():
            if not entry.dead and id(entry) not in self.reported and key[0] not in self.fenced:
                assert self.now - entry.since <= limit, f"{key} is late and not reported"

    def finish(self):
        """Check that nothing is left, and that every request had one end."""
        assert not self.golden.open and not self.verdicts and not self.answers
        assert self.accepted == self.ended + self.answered
        assert self.stats == {
            "answered": self.answered, "expired": self.expired,
            "irregular": self.golden.irregular,
            **{c.name.lower(): self.causes[c] for c in DropCause if c is not DropCause.NONE}}

    def offer_request(self, ctx, slot, generation, dead, tlp):
        """Offer a request until it is taken."""
        self.requests.append((slot, generation, dead, tlp))
        ctx.set(self.bench.request.payload, asked(slot, generation, tlp, dead))
        ctx.set(self.bench.request.valid, 1)

    def offer_completion(self, ctx, slot, generation, tlp):
        """Offer a completion until it is taken."""
        self.completions.append((slot, generation, tlp))
        ctx.set(self.bench.completion.payload, asked(slot, generation, tlp))
        ctx.set(self.bench.completion.valid, 1)

    def drive_requests(self, source, **gaps):
        """Process that offers the items of ``source``: slot, generation, dead, TLP, or None."""
        return self._drive(self.bench.request, self.offer_request, source, **gaps)

    def drive_completions(self, source, **gaps):
        """Process that offers the items of ``source``: slot, generation, TLP, or None."""
        return self._drive(self.bench.completion, self.offer_completion, source, **gaps)

    def later(self):
        """Endless iterator over requests put into ``waiting`` by a script."""
        while True:
            yield self.waiting.popleft() if self.waiting else None

    def _drive(self, interface, offer, source, *, rng=None, density=1.0):
        async def process(ctx):
            for one in source:
                while one is not None and rng is not None and rng.random() > density:
                    await ctx.tick()
                if one is None:
                    await ctx.tick()
                    continue
                offer(ctx, *one)
                await ctx.tick().until(interface.ready)
                ctx.set(interface.valid, 0)
        return process

    def take(self, interface, *, rng=None, density=1.0):
        """Background process that is ready from time to time."""
        async def process(ctx):
            while True:
                ctx.set(interface.ready, rng is None or rng.random() < density)
                await ctx.tick()
        return process


class Slots:
    """Completions for the open requests, in parts, mixed with hostile completions."""

    def __init__(self, rng, watch, generations, *, hostility=0.3, lose=0.05):
        self.rng, self.watch, self.generations = rng, watch, generations
        self.hostility, self.lose = hostility, lose
        self.parts = {}
        self.old = deque(maxlen=20)

    def next(self):
        """Next part of the completion of some open request, or ``None``."""
        entries = list(self.watch.golden.open.values())
        if not entries:
            return None
        entry = self.rng.choice(entries)
        if id(entry) not in self.parts or self.parts[id(entry)][0] is not entry:
            self.parts[id(entry)] = entry, self.cut(entry)
        parts = self.parts[id(entry)][1]
        if not parts:
            return None
        return entry.slot, entry.generation, parts.popleft()

    def cut(self, entry):
        rng = self.rng
        if rng.random() < self.lose:
            return deque()
        completer = rng.getrandbits(16)
        request = replace(entry.request, ep=0)
        sizes = [rng.randint(1, 8) for _ in range(rng.choice([0, 0, 1, 5]))]
        if entry.splits:
            parts = split(request, completer, sizes)
        else:
            whole = complete(request, CompletionStatus.SC, completer, bytes(4 * entry.dwords))
            parts = [whole]
            whole.byte_count = rng.choice([whole.byte_count, 7])  # not checked for such requests
        if rng.random() < 0.15:
            last = parts[rng.randrange(len(parts))]
            parts = parts[:parts.index(last) + 1]
            parts[-1] = replace(last, status=rng.choice([1, 2, 4, 3, 7]), payload=b"", length=0,
                                fmt=0)
        return deque(parts)

    def mutate(self, one):
        rng = self.rng
        slot, generation, tlp = one
        what = rng.randrange(10)
        if what == 0:
            slot = (slot + 1) % self.watch.ports
        elif what == 1:
            generation ^= 1 << rng.randrange(16)
        elif what == 2:
            tlp = replace(tlp, tag=tlp.tag ^ 1 << rng.randrange(10))
        elif what == 3:
            tlp = replace(tlp, requester_id=tlp.requester_id ^ 1 << rng.randrange(16))
        elif what == 4:
            more = min(1024, tlp.length + rng.choice([1, 1, 2, 16, 1024]))
            tlp = replace(tlp, length=more, payload=bytes(4 * more), fmt=2)
        elif what == 5:
            tlp = replace(tlp, byte_count=1 + (tlp.byte_count - 1 + rng.choice([1, -1, 64])) % 4096)
        elif what == 6:
            tlp = replace(tlp, lower_address=tlp.lower_address ^ 1 << rng.randrange(7))
        elif what == 7:
            tlp = replace(tlp, length=0, payload=b"", fmt=0)
        elif what == 8:
            tlp = replace(tlp, bcm=1, byte_count=max(1, len(tlp.payload)))
        else:
            tlp = replace(tlp, status=rng.choice([1, 2, 4]))
        return slot, generation, tlp

    def __iter__(self):
        """Iterate for ever."""
        while True:
            dice = self.rng.random()
            if dice < self.hostility / 2 and self.old:
                yield self.rng.choice(self.old)
                continue
            one = self.next()
            if one is None:
                yield None
                continue
            if dice < self.hostility:
                yield self.mutate(one)
            yield one
            self.old.append(one)


def random_request(rng, *, kinds=NON_POSTED, requesters=3, tags=8):
    """A request of one of few requesters with one of few tags, so that names are used again."""
    tlp = random_tlp(rng, kinds=(rng.choice(kinds),))
    tlp.requester_id = [0x0000, 0x0100, 0x0208, 0xFFFF][rng.randrange(requesters)]
    tlp.tag = rng.choice([n * 0x81 % 1024 for n in range(tags)])
    return tlp


def read(tag, *, length=1, requester=0x0100, address=0x1000):
    """A memory read of whole dwords."""
    return Tlp(0, 0, length=length, first_be=15, last_be=15 if length > 1 else 0, address=address,
               requester_id=requester, tag=tag)

