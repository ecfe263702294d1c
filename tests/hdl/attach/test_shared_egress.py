"""dxpu.attach.shared_egress: nothing lost, no order broken, no stream stopped by another."""

import random
from collections import defaultdict

import pytest
from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.attach.shared_egress import SharedEgress
from dxpu.priority import Turns
from dxpu.tlp.types import TlpClass
from tests.support.egress_mutants import FAULTS, with_fault
from tests.support.testbench import Packet, drive_packets, seed, simulate

P, NP, CPL = TlpClass
NAMES = {P: "p", NP: "np", CPL: "cpl"}
SMALL = dict(space=(512, 256, 512), packets=8)
#: Found by a test of its own, and by the proofs alone.
TAKES_ONE_AWAY = "one that comes to the port takes one away that was taken"
AT_PORT = "a posted request at its port was taken"
LAST_TURN = "a turn that reads nothing is the last one"


def tlp(rng, slot, cls, dwords, discard=False):
    return Packet(rng.randbytes(4 * dwords), dict(row=slot, cls=cls, life=rng.randrange(256),
                                                  units=rng.randrange(300)), discard)


def some(rng, count, *, slots, classes=tuple(TlpClass), largest=24, discard=0.0):
    return [tlp(rng, rng.choice(slots), rng.choice(classes), rng.randint(3, largest),
                rng.random() < discard) for _ in range(count)]


def key(packet):
    return packet.meta["row"], packet.meta["cls"]


class Bench(wiring.Component):
    """The streams side by side, in the order of ``keys``: one value to sample and to set."""

    def __init__(self, width, *, slots, design=SharedEgress, **space):
        self.dut = design(width, slots=slots, **(space or SMALL))
        self.keys = [(n, cls) for n in range(slots) for cls in TlpClass]
        self.streams = [getattr(self.dut.slot[n], NAMES[cls]) for n, cls in self.keys]
        self.layout = self.streams[0].payload.shape()
        self.width, self.slots, count = width, slots, len(self.keys)
        super().__init__({"ready": In(count), "valid": Out(count),
                          "beats": Out(count * self.layout.size)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = self.dut
        m.d.comb += [self.valid.eq(Cat(s.valid for s in self.streams)),
                     self.beats.eq(Cat(s.payload.as_value() for s in self.streams))]
        for stream, ready in zip(self.streams, self.ready, strict=True):
            m.d.comb += stream.ready.eq(ready)
        return m

    def mask(self, keys):
        return sum(1 << n for n, k in enumerate(self.keys) if k in keys)


class Contract:
    """What must leave where, told from what goes in; checks each beat that is offered."""

    def __init__(self, bench, packets):
        self.bench = bench
        self.left, self.older, self.units = (defaultdict(list) for _ in range(3))
        self.dropped, self.taken, self.told, self.overflows = (defaultdict(int) for _ in range(4))
        #: Cycle of the first beat of the last TLP that was offered, and of each handshake.
        self.offered, self.cycle, self.beats = {}, 0, defaultdict(list)
        posted = defaultdict(int)
        for packet in packets:
            slot, cls = key(packet)
            if -(-len(packet.data) * 8 // bench.width) > bench.dut.beats[cls.value]:
                self.dropped[slot] += 1
            elif not packet.discard:
                self.left[slot, cls].append(packet.data)
                self.older[slot, cls].append(posted[slot])
                self.units[slot, cls].append(packet.meta["units"])
                posted[slot] += cls is P

    async def watch(self, ctx):
        """Background process."""
        bench, size = self.bench, self.bench.layout.size
        parts, held = {k: b"" for k in bench.keys}, {}
        async for _, _, strobe, news, over, valid, ready, empty, beats in ctx.tick().sample(
                bench.dut.released_strobe, bench.dut.released, bench.dut.overflow, bench.valid,
                bench.ready, bench.dut.empty, bench.beats):
            self.cycle += 1
            if strobe:
                where = news.row, TlpClass(news.cls)
                assert news.units == self.units[where][self.told[where]]
                self.told[where] += 1
                assert not empty >> where[0] & 1
            for n in range(bench.slots):
                self.overflows[n] += over >> n & 1
            assert not any(not valid >> n & 1 for n in held), "valid fell"
            done = []
            for n, k in enumerate(bench.keys):
                if not valid >> n & 1:
                    continue
                assert not empty >> k[0] & 1
                bits = beats >> n * size & (1 << size) - 1
                assert held.pop(n, bits) == bits, "a beat changed"
                beat = bench.layout.from_bits(bits)
                assert self.taken[k[0], P] >= self.older[k][self.taken[k]], "passes a posted one"
                assert beat.first == (not parts[k]) and not beat.discard
                if beat.first and k not in self.offered:
                    self.offered[k] = self.cycle
                if not ready >> n & 1:
                    held[n] = bits
                    continue
                self.beats[k].append(self.cycle)
                parts[k] += int(beat.data).to_bytes(bench.width // 8, "little")[:4 * beat.dwords]
                if beat.last:
                    assert parts[k] == self.left[k][self.taken[k]]
                    parts[k] = b""
                    done.append(k)
            for k in done:
                self.taken[k] += 1

    def check_all_left(self, but=()):
        for k, packets in self.left.items():
            if k not in but:
                assert self.taken[k] == self.told[k] == len(packets), k
        assert {n: c for n, c in self.overflows.items() if c} == self.dropped


def run(bench, packets, *, rng, density=1.0, ready=1.0, blocked=(), after=0, but=(),
        deadline=20_000):
    """Drives ``packets``; streams in ``blocked`` are not taken ``after`` so many beats, others
    with probability ``ready``. Returns the contract when all streams ``but`` those are done."""
    contract = Contract(bench, packets)

    async def take(ctx):
        while True:
            may = ~bench.mask([k for k in blocked if len(contract.beats[k]) >= after])
            ctx.set(bench.ready, may & (-1 if ready == 1 else sum(
                (rng.random() < ready) << n for n in range(len(bench.keys)))))
            await ctx.tick()

    async def finish(ctx):
        while any(contract.taken[k] < len(v) for k, v in contract.left.items() if k not in but):
            await ctx.tick()
        await ctx.tick().repeat(5)
        for n in range(bench.slots):
            idle = all(contract.taken[k] == len(contract.left[k]) for k in bench.keys if k[0] == n)
            assert ctx.get(bench.dut.empty[n]) == idle

    simulate(bench, drive_packets(bench.dut.i, packets, rng=rng, density=density), finish,
             background=[contract.watch, take], deadline=deadline)
    contract.check_all_left(but)
    return contract


@pytest.mark.parametrize("width, slots, ready", [(64, 3, 1), (64, 2, 0.3), (32, 1, 0.6),
                                                 (512, 2, 0.7), *(
    pytest.param(*x, marks=pytest.mark.long) for x in ((64, 8, 0.5), (128, 16, 0.8)))])
def test_random_traffic(width, slots, ready):
    """Discarded TLPs and those that are too large are among the others."""
    rng = random.Random(seed())
    packets = some(rng, 100, slots=range(slots), discard=0.1, largest=50)
    for n in range(0, len(packets), 16):
        packets[n] = tlp(rng, rng.randrange(slots), rng.choice(list(TlpClass)), 140)
    contract = run(Bench(width, slots=slots), packets, rng=rng, density=rng.choice([1, 0.7]),
                   ready=ready)
    assert sum(contract.dropped.values()) > 3


@pytest.mark.parametrize("fault", [
    f for f in FAULTS if f not in (TAKES_ONE_AWAY, AT_PORT, LAST_TURN)])
def test_mutants_are_found(fault):
    """The contract is one that can be broken."""
    rng = random.Random(seed())
    packets = some(rng, 100, slots=[0], largest=20)
    with pytest.raises((AssertionError, TimeoutError)):
        run(Bench(64, slots=1, design=with_fault(SharedEgress, fault)), packets, rng=rng, ready=0.3,
            deadline=2500)


def follow(design):
    """A completion behind a posted request, then posted requests of any length that are not taken.

    Each run has one that comes to its port another number of cycles after the first was taken.
    """
    rng = random.Random(seed())
    for beats in range(1, 12):
        packets = [tlp(rng, 0, cls, dwords) for cls, dwords in (
            (P, 16), (CPL, 4), (P, 2 * beats), (P, 16))]
        run(Bench(64, slots=1, design=design), packets, rng=rng, deadline=300,
            blocked={(0, P)}, after=8 + beats - 1, but={(0, P)})


def test_a_posted_request_at_its_port_holds_back_nothing_that_is_older():
    follow(SharedEgress)
    with pytest.raises(TimeoutError):
        follow(with_fault(SharedEgress, TAKES_ONE_AWAY))


@pytest.mark.parametrize("after", [0, 2])
@pytest.mark.parametrize("cls", TlpClass)
def test_a_stream_that_is_never_taken_stops_no_other(cls, after):
    """Not even in the middle of a TLP; but what came after a posted one has to wait for it."""
    rng = random.Random(seed())
    bench = Bench(64, slots=2)
    # As much for the stream as its region can hold, and for those that wait for it.
    held = [tlp(rng, 1, cls, 8) for _ in range(8)]
    waiting = [tlp(rng, 1, c, 8) for c in (NP, CPL) for _ in range(8) if cls is P]
    others = [tlp(rng, 1, c, 6) for c in TlpClass for _ in range(20) if cls not in (c, P)]
    others += some(rng, 60, slots=[0], largest=8)
    rng.shuffle(others)
    before = [tlp(rng, 1, c, 6) for c in (NP, CPL)]
    stopped = {(1, c) for c in TlpClass if cls in (c, P)}
    contract = run(bench, [*(before if cls is P else ()), *held, *waiting, *others], rng=rng,
                   blocked=stopped if cls is not P else {(1, P)}, after=after,
                   but=stopped)
    assert [len(contract.beats[k]) for k in sorted(stopped, key=bench.keys.index)] == (
        [after, 3, 3] if cls is P else [after])


def test_who_sends_only_what_was_released_never_waits():
    """Though streams are stalled for ever, and regions are filled to the last beat and TLP."""
    rng = random.Random(seed())
    bench = Bench(64, slots=2)
    dut, blocked = bench.dut, {(0, NP), (1, CPL)}
    sent, space = 0, {k: [dut.beats[k[1].value], dut.packets] for k in bench.keys}
    sizes, stalls = defaultdict(list), 0
    contract = Contract(bench, [])

    def add(packet):
        k = key(packet)
        contract.left[k].append(packet.data)
        contract.older[k].append(len(contract.left[k[0], P]) - (k[1] is P))
        contract.units[k].append(packet.meta["units"])
        sizes[k].append(-(-len(packet.data) // 8))
        space[k][0] -= sizes[k][-1]
        space[k][1] -= 1

    async def source(ctx):
        nonlocal sent
        while sent < 200:
            packet = some(rng, 1, slots=[0, 1], largest=rng.choice([4, 64]))[0]
            k = key(packet)
            if -(-len(packet.data) // 8) > space[k][0] or not space[k][1]:
                await ctx.tick()
                continue
            add(packet)
            sent += 1
            await drive_packets(dut.i, [packet])(ctx)

    async def news(ctx):
        nonlocal stalls
        async for *_, ready, strobe, released in ctx.tick().sample(
                dut.i.ready, dut.released_strobe, dut.released):
            stalls += not ready
            if strobe:
                k = released.row, TlpClass(released.cls)
                space[k][0] += sizes[k][contract.told[k]]
                space[k][1] += 1

    async def take(ctx):
        while True:
            ctx.set(bench.ready, rng.getrandbits(6) & ~bench.mask(blocked))
            await ctx.tick()

    async def finish(ctx):
        nonlocal stalls
        await ctx.tick().repeat(4 * bench.slots)
        stalls = 0  # but for those after reset
        await source(ctx)
        while any(contract.taken[k] < len(v) for k, v in contract.left.items() if k not in blocked):
            await ctx.tick()

    simulate(bench, finish, background=[news, contract.watch, take], deadline=20_000)
    assert stalls == 0
    assert all(min(space[k]) < 12 for k in blocked)


def test_full_regions_drop_and_nobody_waits():
    """With ``overflow="drop"``: what finds its region full of beats or of TLPs is dropped whole and
    counted, also in the middle of a TLP; everything else passes at full rate."""
    rng = random.Random(seed())
    bench = Bench(64, slots=2, **SMALL, overflow="drop")
    beats, packets = bench.dut.beats[P.value], bench.dut.packets
    # Three TLPs of 20 beats fill a region of 64 to the 60th; a fourth does not fit, one of 4 does.
    first = [tlp(rng, 0, P, 40) for _ in range(4)] + [tlp(rng, 0, P, 8)]
    small = [tlp(rng, 0, NP, 4) for _ in range(packets + 3)]
    others = [tlp(rng, 1, cls, 6) for cls in TlpClass for _ in range(4)]
    kept = [*first[:3], first[4], *small[:packets], *others]
    contract, waits = Contract(bench, kept), []
    contract.dropped[0] = 4

    async def watch(ctx):
        async for *_, valid, ready in ctx.tick().sample(bench.dut.i.valid, bench.dut.i.ready):
            waits.append(valid and not ready)

    async def finish(ctx):
        await ctx.tick().repeat(12)  # after reset
        waits.clear()
        ctx.set(bench.ready, bench.mask([(1, cls) for cls in TlpClass]))
        await drive_packets(bench.dut.i, [*first, *small, *others])(ctx)
        while sum(contract.taken[1, cls] for cls in TlpClass) < len(others):
            await ctx.tick()
        assert not any(waits)
        ctx.set(bench.ready, -1)
        while sum(contract.taken.values()) < len(kept):
            await ctx.tick()
        await ctx.tick().repeat(5)

    simulate(bench, finish, background=[contract.watch, watch], deadline=3000)
    assert beats == 64
    contract.check_all_left()


def test_latency():
    """First beat at most four cycles later than from queues of one's own."""
    rng = random.Random(seed())
    for cls in TlpClass:
        bench = Bench(64, slots=2)
        packet = tlp(rng, 1, cls, 16)
        came = []

        async def last(ctx, bench=bench, came=came):
            async for _, _, valid, beat in ctx.tick().sample(
                    bench.dut.i.valid & bench.dut.i.ready, bench.dut.i.payload):
                came.append(1 if valid and beat.last else 0)

        contract = Contract(bench, [packet])

        async def finish(ctx, contract=contract, cls=cls, bench=bench, packet=packet):
            ctx.set(bench.ready, -1)
            await drive_packets(bench.dut.i, [packet])(ctx)
            while not contract.taken[1, cls]:
                await ctx.tick()

        simulate(bench, finish, background=[contract.watch, last], deadline=200)
        assert contract.offered[1, cls] - (came.index(1) + 1) == 6


def test_latency_behind_a_posted_request():
    """Eight cycles from when it is taken."""
    rng = random.Random(seed())
    bench = Bench(64, slots=2)
    packets = [tlp(rng, 1, P, 3), tlp(rng, 1, CPL, 3), tlp(rng, 1, NP, 3)]
    contract = Contract(bench, packets)

    async def finish(ctx):
        await drive_packets(bench.dut.i, packets)(ctx)
        await ctx.tick().repeat(20)
        ctx.set(bench.ready, -1)
        while not (contract.taken[1, NP] and contract.taken[1, CPL]):
            await ctx.tick()

    simulate(bench, finish, background=[contract.watch], deadline=200)
    taken = contract.beats[1, P][-1]
    assert sorted(contract.offered[1, c] - taken for c in (NP, CPL)) == [8, 9]


@pytest.mark.parametrize("dwords", [4, 32])
def test_throughput(dwords):
    """A beat in each cycle, alone and all together."""
    rng = random.Random(seed())
    for keys in ([(0, P)], [(1, CPL)], [(n, c) for n in range(3) for c in TlpClass]):
        bench = Bench(64, slots=3, space=(512,) * 3, packets=32)
        packets = [tlp(rng, *k, dwords) for k in keys for _ in range(2 * 56 // dwords)]
        contract = Contract(bench, packets)

        async def finish(ctx, bench=bench, contract=contract, keys=keys, packets=packets):
            # Posted requests go first, so that others need not wait for them.
            await drive_packets(bench.dut.i, [p for p in packets if key(p)[1] is P])(ctx)
            blocked = (CPL, NP) if len(keys) > 1 else ()
            if blocked:
                ctx.set(bench.ready, bench.mask([(n, P) for n in range(3)]))
                await ctx.tick().repeat(200)
            await drive_packets(bench.dut.i, [p for p in packets if key(p)[1] is not P])(ctx)
            ctx.set(bench.ready, -1)
            await ctx.tick().repeat(500)

        simulate(bench, finish, background=[contract.watch], deadline=3000)
        contract.check_all_left()
        cycles = sorted(c for k in keys if k[1] is not P or len(keys) == 1
                        for c in contract.beats[k])
        # Two beats of each stream wait in front of PCIe.
        cycles = cycles[2 * len(keys):-2 * len(keys)]
        rate = (len(cycles) - 1) / (cycles[-1] - cycles[0])
        assert rate > 0.9, (keys, rate)


def test_turns_are_fair():
    """While a request stands, each other is picked twice at most."""
    rng = random.Random(seed())
    dut = Turns(count=9)
    since = {}

    async def process(ctx):
        for _ in range(2000):
            requests = rng.getrandbits(9) | sum(1 << n for n in since)
            ctx.set(dut.requests, requests)
            now = ctx.get(dut.now)
            assert now & requests == now and now.bit_count() == (requests != 0)
            pick = now.bit_length() - 1
            for n in range(9):
                if requests >> n & 1 and rng.random() < 0.7 or n in since:
                    since.setdefault(n, defaultdict(int))[pick] += 1
                    assert n == pick or since[n][pick] <= 2
            since.pop(pick, None)
            await ctx.tick()
            assert ctx.get(dut.valid) == (now != 0) and ctx.get(dut.chosen) == now
            assert not now or ctx.get(dut.number) == pick

    simulate(dut, process)


@pytest.mark.parametrize("wrong, message", [
    (dict(slots=0), "slots must be 1 to 16, not 0"),
    (dict(slots=17), "slots must be 1 to 16, not 17"),
    (dict(space=(512, 512)), r"space must be three powers of two .*, not \(512, 512\)"),
    (dict(space=(512, 8, 512)), r"space must be three powers of two .*, not \(512, 8, 512\)"),
    (dict(space=(512, 96, 512)), r"space must be three powers of two .*, not \(512, 96, 512\)"),
    (dict(overflow="stop"), "overflow must be 'wait' or 'drop', not 'stop'"),
    (dict(packets=1), "packets must be a power of two of at least 2, not 1"),
    (dict(packets=12), "packets must be a power of two of at least 2, not 12"),
    (dict(packets=4.0), "packets must be a power of two of at least 2, not 4.0"),
])
def test_arguments_are_checked(wrong, message):
    with pytest.raises(ValueError, match=message):
        SharedEgress(64, **dict(slots=2) | wrong)
