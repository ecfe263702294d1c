"""A proxy and a data link layer (DLL) in Python, with the PcieEdge under test in between."""

import warnings
from collections import deque
from dataclasses import dataclass

from amaranth.sim import Simulator

from dxpu.attach import PcieEdge
from tests.support.testbench import Packet, beats

CLASSES = ("p", "np", "cpl")
#: Limits of each class after reset: TLPs, units of 16 bytes.
INITIAL = {"p": (6, 40), "np": (5, 12), "cpl": (6, 40)}
SETTLE = 64


@dataclass
class Plan:
    """Plan of a run.

    Shares of busy cycles of the four drivers and takers, and of the DLL when it takes while the
    link is down; cycles of its clock for which the DLL keeps the link up; probability of a bad TLP
    of the DLL; delay before PERST# in ns, and its length.
    """

    send: float = 1.0
    take: float = 1.0
    dll_send: float = 1.0
    dll_take: float = 1.0
    drain: float = 1.0
    lives: tuple = ()
    bad: float = 0.0
    perst: tuple = ()


class Bench:
    """General checks, while TLPs pass in both directions.

    ``sent`` are (class, bytes) of the proxy in order, ``passed`` those of the DLL.
    """

    def __init__(self, rng, width, link_width, plan, clocks=(16, 16, 0)):
        self.rng, self.plan, self.clocks = rng, plan, clocks
        self.dut = PcieEdge(width, link_width=link_width, settle=SETTLE)
        self.life = self.near_life = 0  # life of the DLL; life seen by the proxy
        self.up = self.near_up = False
        self.limits = {c: list(INITIAL[c]) for c in CLASSES}  # limits of the proxy
        self.used = {c: [0, 0] for c in CLASSES}  # credits used by the DLL
        self.born, self.whole, self.arrived, self.ended = {}, [], [], 0
        self.to_dll = {c: [] for c in CLASSES}  # TLPs offered while the link was up
        self.dll_got = {c: [] for c in CLASSES}
        self.older, self.posted, self.posted_taken = {}, 0, 0
        self.refused = self.dropped = self.cut = self.early = 0
        self.kept_life = {}
        self.left = 0
        #: Numbers of two TLPs; cycles from the end of the first to the end of the second.
        self.watch, self.paces = (), {}

    def tlps(self, count, largest=20, classes=CLASSES):
        """TLPs that all differ."""
        return [(self.rng.choice(classes), n.to_bytes(4, "little") + self.rng.randbytes(
            4 * self.rng.randint(2, largest))) for n in range(count)]

    def units(self, tlp):
        return -(-(len(tlp) - 12) // 16)

    # The proxy.

    def offer(self, cls, tlps):
        """Sends the TLPs of a class; non-posted TLPs and completions only after all older posted
        TLPs."""
        stream = getattr(self.dut.port, f"tx_{cls}")

        async def process(ctx):
            await ctx.tick().until(self.dut.port.link_up)
            for tlp, older in tlps:
                while not ctx.get(self.dut.port.link_up) and self.rng.random() > 0.01:
                    await ctx.tick()
                while cls != "p" and self.proxy_posted < older:
                    await ctx.tick()
                up = None
                for beat in beats(stream.payload.shape(), Packet(tlp)):
                    while self.rng.random() > self.plan.send:
                        await ctx.tick()
                    ctx.set(stream.payload, beat)
                    ctx.set(stream.valid, 1)
                    ready = False
                    while not ready:
                        _, _, ready, now = await ctx.tick().sample(
                            stream.ready, self.dut.port.link_up)
                        if up is None:
                            up = now
                            if up:
                                self.older[int.from_bytes(tlp[:4], "little")] = self.posted
                                self.kept_life[tlp] = self.near_life
                                self.to_dll[cls].append(tlp)
                            else:
                                self.refused += 1
                    ctx.set(stream.valid, 0)
                if cls == "p":
                    self.proxy_posted += 1
                    self.posted += bool(up)
            self.left -= 1
        return process

    async def take(self, ctx):
        """Takes TLPs of the DLL, whole or cut, and returns their credits."""
        stream, port = self.dut.port.rx, self.dut.port
        tlp, held, waiting, cycle, ends = None, None, deque(), 0, []
        for c in CLASSES:
            ctx.set(getattr(port, f"rx_{c}"), dict(zip(("header", "data"), INITIAL[c],
                                                       strict=True)))
        while True:
            ready = self.rng.random() < self.plan.take
            ctx.set(stream.ready, ready)
            _, _, valid, beat, up, drops = await ctx.tick().sample(
                stream.valid, stream.payload, port.link_up, self.dut.stat_dropped)
            self.dropped += drops.bit_count()
            cycle += 1
            if up and not self.near_up:
                self.near_life = self.life
            self.near_up = up
            assert held is None or valid and beat == held, "the rules of streams"
            held = beat if valid and not ready else None
            if valid and ready:
                assert bool(beat.first) == (tlp is None), "a TLP without its end or beginning"
                tlp = (tlp or b"") + _bytes(beat)
                if beat.last:
                    self.ended += beat.discard
                    if not beat.discard:
                        self.arrived.append(tlp)
                        self._pace("rx", ends, cycle)
                        assert tlp in self.born, "nobody passed that"
                        assert not up or self.born[tlp] == self.near_life, "of an old life"
                        self.early += self.born[tlp] > self.near_life
                        waiting.append(tlp)
                    tlp = None
            if waiting and self.rng.random() < 0.3:
                tlp_freed = waiting.popleft()
                cls = self.class_of[tlp_freed]
                self.limits[cls][0] += 1
                self.limits[cls][1] += self.units(tlp_freed)
                ctx.set(getattr(port, f"rx_{cls}"), {
                    "header": self.limits[cls][0] & 0xFFFF, "data": self.limits[cls][1] & 0xFFFF})

    # The DLL.

    async def control(self, ctx):
        """Raises the link when allowed, and lowers it when demanded or planned."""
        dut, lives = self.dut, iter(self.plan.lives)
        rest = next(lives, None)
        while True:
            _, _, ready, reset = await ctx.tick("pcie").sample(dut.ready, dut.reset)
            assert not (ready and reset)
            if self.up:
                rest = rest and rest - 1
                if reset or rest == 0:
                    self.up = False
                    rest = next(lives, None) if rest == 0 else rest
            elif ready and self.rng.random() < 0.5:
                self.up = True
                self.life += 1
            ctx.set(dut.link.link_up, self.up)

    def dll_send(self, tlps):
        """Passes TLPs as credits allow; a TLP cut by the end of a life is not repeated."""
        stream, link = self.dut.link.rx, self.dut.link

        async def process(ctx):
            for cls, tlp in tlps:
                limit, used = getattr(link, f"rx_{cls}"), self.used[cls]
                while not self.up or used[0] == ctx.get(limit.header) \
                        or used[1] + self.units(tlp) > ctx.get(limit.data):
                    assert used[0] <= self.limits[cls][0]
                    await ctx.tick("pcie")
                bad = self.rng.random() < self.plan.bad
                self.born[tlp] = self.life
                for beat in beats(stream.payload.shape(), Packet(tlp, discard=bad)):
                    while self.up and self.rng.random() > self.plan.dll_send:
                        await ctx.tick("pcie")
                    ctx.set(stream.payload, beat)
                    ctx.set(stream.valid, 1)
                    ready = False
                    while not ready:
                        _, _, ready = await ctx.tick("pcie").sample(stream.ready)
                        if not ready and self.life != self.born[tlp] or not self.up:
                            break
                    ctx.set(stream.valid, 0)
                    if not ready:
                        self.cut += not beat["first"]
                        break
                    if not self.up and not beat["last"]:
                        self.cut += 1
                        break
                else:
                    if bad:
                        self.cut += 1
                    else:
                        self.whole.append(tlp)
                        used[0] += 1
                        used[1] += self.units(tlp)
            self.left -= 1
        return process

    def dll_take(self, cls):
        """Takes TLPs of a class; drops them while the link is down."""
        stream = getattr(self.dut.link, f"tx_{cls}")

        async def process(ctx):
            tlp, held, offered, cycle, ends = b"", None, False, 0, []
            while True:
                share = self.plan.dll_take if self.up else self.plan.drain
                ready = self.rng.random() < share
                ctx.set(stream.ready, ready)
                taken = self.posted_taken
                _, _, valid, beat, up = await ctx.tick("pcie").sample(
                    stream.valid, stream.payload, self.dut.link.link_up)
                assert held is None or valid and beat == held, "the rules of streams"
                held = beat if valid and not ready else None
                cycle += 1
                if valid:
                    assert bool(beat.first) == (not tlp) and not beat.discard
                    if not offered and cls != "p":
                        first = int(beat.data) & 0xFFFFFFFF
                        assert taken >= self.older[first], "it has passed a posted request"
                    offered = True
                if valid and ready:
                    tlp += _bytes(beat)
                    if beat.last:
                        self.dll_got[cls].append(tlp)
                        self._pace("tx", ends, cycle)
                        assert tlp in self.kept_life, "the proxy did not send that"
                        assert not up or self.kept_life[tlp] == self.life, "of an old life"
                        self.posted_taken += cls == "p"
                        tlp, offered = b"", False
        return process

    # Both.

    async def resets(self, ctx):
        """Asserts PERST#, at any time."""
        for pause, length in self.plan.perst:
            await ctx.delay(pause * 1e-9)
            ctx.set(self.dut.perst, 1)
            await ctx.delay(length * 1e-9)
            if length > 200:
                assert not ctx.get(self.dut.port.link_up)
            ctx.set(self.dut.perst, 0)

    def run(self, sent, passed, limit_us=600):
        """Run until all TLPs were sent and have arrived; then judge."""
        self.class_of = {tlp: cls for cls, tlp in passed}
        self.proxy_posted = 0
        streams, older = {c: [] for c in CLASSES}, 0
        for cls, tlp in sent:
            streams[cls].append((tlp, older))
            older += cls == "p"
        self.sent = len(sent)
        self.left = 4
        sim = Simulator(self.dut)
        near, far, phase = self.clocks
        sim.add_clock(near * 1e-9)
        sim.add_clock(far * 1e-9, phase=phase * 1e-9, domain="pcie")
        ends = [self.control, self.take, *(self.dll_take(c) for c in CLASSES),
                *(self.offer(c, streams[c]) for c in CLASSES), self.dll_send(passed), self.resets]
        for process in ends:
            sim.add_testbench(process, background=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            until = None
            while until is None or sim._engine.now < until:
                sim.advance()
                assert sim._engine.now < limit_us * 1e9, "the hardware hangs"
                if until is None and not self.left:
                    # Allow for slow takers.
                    until = sim._engine.now + 400 * max(near, far) * 1e6
        self.judge()

    def _pace(self, what, ends, cycle):
        ends.append(cycle)
        if self.watch and len(ends) == self.watch[1]:
            self.paces[what] = cycle - ends[self.watch[0] - 1]

    def judge(self):
        """Check that no TLP was lost, doubled, cut or reordered, and that credits are complete."""
        assert self.arrived == self.whole
        assert self.dll_got == self.to_dll
        assert self.ended == self.cut
        assert self.dropped == self.refused
        assert sum(map(len, self.to_dll.values())) + self.refused == self.sent
        for c in CLASSES:
            assert [a - b for a, b in zip(self.limits[c], self.used[c], strict=True)] == \
                list(INITIAL[c])


def _bytes(beat):
    return int(beat.data).to_bytes(64, "little")[:4 * beat.dwords]
