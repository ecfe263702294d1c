"""The node, or its manager, is reset at any step of management: nothing acts twice, no nonce
has two texts under a key, and both work again."""

import random

import pytest
from amaranth import Module, ResetInserter, Signal

from dxpu.management.format import SEALED, Kind
from dxpu_model.management import Answer, ManagerEnd, Message, Operation
from tests.hdl.management.test_unit import KEY, MANAGER, NODE, Bench
from tests.hdl.management.test_unit_mutants import MUTANTS, without
from tests.support.management_bench import FENCE_EPOCH
from tests.support.testbench import seed, simulate

#: Cycles after which a manager sends a frame again, and how often it does so.
WAIT, TRIES = 2500, 3
#: Latest reset after a frame: longer than the unit takes for one.
LATEST = 2200
#: A conversation begins that often at most, until it has gone well.
ASSOCIATIONS = 4
STEPS = [Kind.ASK, Kind.CHALLENGE, Kind.REQUEST, Kind.ANSWER, Kind.EVENT, Kind.EVENT_ACK]


class Crash(Exception):
    """The manager has forgotten all."""


class Node(Bench):
    """A unit with a reset, before a manager with another one; what was on the wire."""

    def __init__(self, rng):
        super().__init__(rng=rng, paths=1, node=0x105)
        self.reset, self.crashes, self.giving = Signal(), False, False
        self.draws, self.wire, self.came = [rng.getrandbits(32) for _ in range(4000)], [], []
        #: The next reset: of which end, which frame from now on it follows, cycles after that.
        self.plan, self.due, self.resets = None, None, {"node": 0, "manager": 0}
        #: Newest value of a write or an event; events that nobody has heard.
        self.value, self.events = 0, []

    def module(self):
        m = Module()
        m.submodules.node = ResetInserter(self.reset)(super().module())
        return m

    def run(self, process):
        simulate(self.module(), process, background=[*self.around(), self.surroundings],
                 deadline=5_000_000)

    def passes(self, frame):
        """A frame is on the wire, from either end."""
        self.wire.append(frame)
        if self.plan and Message.parse(frame).kind == self.plan[1]:
            self.plan[2] -= 1
            if self.plan[2] == 0:
                self.due = self.plan[3]

    async def surroundings(self, ctx):
        """Registers, the line to the manager, and the resets."""
        dut, pending, frame = self.dut, None, b""
        bus, path = dut.bus, dut.path_o[0]
        ctx.set(path.ready, 1)
        while True:
            _, _, asks, request, taken, heard, valid, beat = await ctx.tick().sample(
                bus.request.valid & bus.request.ready, bus.request.p,
                bus.response.valid & bus.response.ready, dut.event.ready & dut.event.valid,
                path.valid, path.payload)
            if heard:
                self.events.pop(0)
            if taken:
                pending = None
            if asks:
                pending = 0
                if request.write:
                    self.registers.write(request.address, request.data)
                else:
                    pending = self.registers.read(request.address)
            if valid:
                frame += beat.data.to_bytes(8, "little")[:4 * beat.dwords]
                if beat.last:
                    self.passes(frame)
                    self.came.append(frame)
                    frame = b""
            ctx.set(self.reset, 0)
            if self.due is not None and not self.giving:
                self.due -= 1
                if self.due < 0:
                    self.resets[self.plan[0]] += 1
                    if self.plan[0] == "manager":
                        self.crashes = True
                    else:
                        ctx.set(self.reset, 1)
                        self.events.clear()
                        self.registers.values[FENCE_EPOCH] = 0
                        pending, frame = None, b""
                    self.plan = self.due = None
            ctx.set(dut.event.valid, len(self.events) > 0)
            if self.events:
                ctx.set(dut.event.payload.code, 1)
                ctx.set(dut.event.payload.argument, int.from_bytes(
                    self.events[0].to_bytes(4, "big"), "little"))
            ctx.set(bus.request.ready, pending is None)
            ctx.set(bus.response.valid, pending is not None)
            ctx.set(bus.response.p.data, pending or 0)

    async def send(self, ctx, frame):
        """The manager sends a frame."""
        self.giving = True
        await self.give(ctx, frame)
        self.giving = False
        self.passes(frame)

    async def exchange(self, ctx, frame, take, tries=TRIES):
        """Send a frame, if there is one, until ``take`` finds something; None if it does not."""
        for _ in range(tries):
            if frame:
                await self.send(ctx, frame)
            for _ in range(WAIT):
                if self.crashes:
                    self.crashes = False
                    raise Crash
                while self.came:
                    if (found := take(self.came.pop(0))) is not None:
                        return found
                await ctx.tick()
        return None

    async def converse(self, ctx, end):
        """All that a manager does, once; returns whether it went well."""
        def answer(frame):
            found = end.take(frame)
            return found if isinstance(found, Answer) else None

        def event(frame):
            found = end.take(frame)
            return found if isinstance(found, tuple) else None

        def opened(frame):
            end.take(frame)
            return end.open or None

        if not await self.exchange(ctx, end.ask(), opened):
            return False
        for _ in range(2):
            self.value += 1
            request = end.request(1, [Operation.write(0x100, self.value), Operation(0x100)])
            found = await self.exchange(ctx, request, answer)
            if found is None or found.words != (self.value,):
                return False
        self.value += 1
        self.events.append(self.value)
        while self.events:  # one may be left that an earlier manager has not heard
            if (told := await self.exchange(ctx, None, event)) is None:
                return False
            assert told[0].argument <= self.value and told[0].code == 1
            await self.send(ctx, told[2])
            if told[0].argument == self.value:
                await self.exchange(ctx, None, lambda frame: None, tries=1)
        return True

    def manager(self):
        """One that knows nothing but the key of the node."""
        return ManagerEnd(KEY, 2, self.rng.randbytes, node=0x105, node_mac=NODE, own_mac=MANAGER)

    async def until_it_goes_well(self, ctx):
        """The number of associations that it takes."""
        end = self.manager()
        for n in range(1, ASSOCIATIONS + 1):
            try:
                if await self.converse(ctx, end):
                    return n
            except Crash:
                end = self.manager()
        raise AssertionError(f"not after {ASSOCIATIONS} associations: {self.counts}")


def texts(wire):
    """What was sent under each key and nonce."""
    found = {}
    for message in map(Message.parse, wire):
        if message.kind in SEALED:
            found.setdefault((message.manager, message.node_nonce, message.manager_nonce,
                              message.kind, message.counter), set()).add(message.follows)
    return found


def resets_at_each_step(rounds):
    """Each end is reset so often after each kind of frame."""
    rng = random.Random(seed())
    node, took = Node(rng), []
    plans = [[end, kind, rng.choice((1, 1, 2)) if kind in (Kind.REQUEST, Kind.ANSWER) else 1,
              rng.choice((0, rng.randrange(300), rng.randrange(LATEST)))]
             for _ in range(rounds) for end in ("node", "manager") for kind in STEPS]
    rng.shuffle(plans)

    async def process(ctx):
        await ctx.tick().repeat(2000)
        for plan in plans:
            node.plan = plan
            tries = await node.until_it_goes_well(ctx)
            while node.plan or node.crashes:  # the reset came late, or is about to come
                tries = await node.until_it_goes_well(ctx)
            took.append(tries)
            # What was recorded does nothing, once more.
            log = list(node.registers.log)
            recorded = sorted({f for f in node.wire if f[32] == Kind.REQUEST})
            for frame in rng.sample(recorded, min(3, len(recorded))):
                await node.give(ctx, frame)
                await ctx.tick().repeat(900)
            assert node.registers.log == log

    node.run(process)
    print(f"associations: {took}; resets: {node.resets}")
    assert sum(node.resets.values()) == len(plans)
    written = [value for address, value in node.registers.log if address == 0x100]
    assert len(written) == len(set(written))
    assert all(len(found) == 1 for found in texts(node.wire).values())
    assert len({(key[1], key[2]) for key in texts(node.wire)}) >= len(plans)


@pytest.mark.parametrize("rounds", [1, pytest.param(12, marks=pytest.mark.long)])
def test_resets_at_each_step(rounds):
    resets_at_each_step(rounds)


@pytest.mark.long
@pytest.mark.parametrize("name", ["the nonce is not drawn anew", "events have one number",
                                  "the answer is not kept"])
def test_a_missing_step_is_found(name, monkeypatch):
    without(monkeypatch, MUTANTS[name])
    with pytest.raises(AssertionError):
        resets_at_each_step(2)
