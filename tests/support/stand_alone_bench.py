"""A stand-in for the registers of a box, and what a stand-alone box must write to them."""

import random

from dxpu.bringup import SetUpSequencer, StandAloneState, Waits
from dxpu.fabric.session.session import Phase
from dxpu.proxy.box import BoxProxy
from tests.support.testbench import seed, simulate

SLOTS, STREAMS = 3, 2
MAP, KEYED_MAP = (BoxProxy(64, slots=SLOTS, paths=2, peers=2, streams=STREAMS, keys=keys).registers
                  for keys in (False, True))
#: ``proof`` is long enough for all writes.
WAITS = Waits(retry=11, hello=12, quiet=13, proof=60)
DONE, STALE = 1, 6
WHO = {"host": 0x042, "node": 0x109, "stream": 1, "path": 1}
BOOT = 0xB007
KEY = bytes(range(0xA0, 0xB0))


class Proxy:
    """Plays the registers of a proxy, after random waits; knows what was written, in order.

    ``codes`` are what commits end with, the last one from then on; ``missing`` is a register that
    is not there. ``looks`` counts how often a session was looked at; it is open if ``is_open``.
    """

    def __init__(self, dut, map, *, node=0xFFF, codes=(DONE,), missing=None):
        self._dut, self._codes, self._missing = dut, list(codes), missing
        self.written, self.node = [], node
        self.looks, self.is_open = [], False
        self._rng = random.Random(seed())
        self._paths = {base + p.address: (f"{name}.{p.path}", p.register)
                       for name, (base, block) in map.blocks.items() for p in block.placed}

    async def serve(self, ctx):
        port = self._dut.bus
        while True:
            await ctx.tick().repeat(self._rng.randint(1, 4))
            ctx.set(port.request.ready, 1)
            request, = await ctx.tick().sample(port.request.p).until(port.request.valid)
            ctx.set(port.request.ready, 0)
            await ctx.tick().repeat(self._rng.randint(1, 6))
            ctx.set(port.response.p, self._answer(request))
            ctx.set(port.response.valid, 1)
            await ctx.tick().until(port.response.ready)
            ctx.set(port.response.valid, 0)

    def _answer(self, request):
        path, register = self._paths[request.address]
        if path == self._missing:
            return {"data": 0, "error": 1}
        if request.write:
            self.written.append((path, register.unpack(request.data)))
            if path == "control.node":
                self.node = register.unpack(request.data)["number"]
            return {"data": 0, "error": 0}
        if path == "control.node":
            return {"data": self.node, "error": 0}
        if path.startswith("control.session["):
            self.looks.append(path)
            return {"data": (Phase.OPEN if self.is_open else Phase.LISTEN).value, "error": 0}
        assert path == "table.result" and self.written[-1][0] == "table.commit"
        code = self._codes.pop(0) if len(self._codes) > 1 else self._codes[0]
        return {"data": code | self.written[-1][1]["row"] << 8, "error": 0}


def opening(who=WHO, *, binds=1, key=None, clear=None):
    """The writes of a console up to the bindings, and those that undo them: with a ``key``, or
    without one, in a box whose peers may be ``clear``."""
    return [
        ("control.node", {"number": who["node"] if binds else 0xFFF}),
        ("control.peer[0].node", {"number": who["host"], "valid": binds,
                                  **({} if clear is None else {"clear": clear})}),
        *[(f"control.key[{n}].word", {"bytes": int.from_bytes(key[4 * n:4 * n + 4], "little")})
          for n in range(4 if key else 0)],
        *[("control.peer[0].key", {"next": 0, "valid": 0})] * bool(key),
        ("control.retry", {"wait": 11}), ("control.hello", {"wait": 12}),
        ("control.quiet", {"time": 13}), ("control.boot", {"counter": BOOT}),
        (f"control.session[{who['stream']}].mode", {"opener": 2 * binds}),
        ("control.present", {"slots": 0b111})]


def bindings(who=WHO, *, generation=1, binds=1):
    """The writes that bind the rows, or release them."""
    words = []
    for row in range(SLOTS):
        words += [
            ("table.operation_id", {"value": generation << 7 | row << 1 | binds}),
            ("table.target", {"node": who["host"], "slot": 0, "stream": who["stream"]}),
            ("table.paths", {"mask": 1 << who["path"]}),
            ("table.commit", {"generation": generation, "row": row, "used": binds})]
    return words


def expected(who=WHO, *, generation=1, binds=1):
    """The writes that docs/reference/boards.md has for a console, and those that undo them."""
    return [*opening(who, binds=binds), *bindings(who, generation=generation, binds=binds)]


async def greet(ctx, dut, who=WHO):
    ctx.set(dut.who, who)
    ctx.set(dut.heard, 1)
    await ctx.tick()
    ctx.set(dut.heard, 0)
    ctx.set(dut.who, {"host": 0xBAD, "node": 0xBAD, "stream": 0, "path": 0})
    await ctx.tick()


async def again(ctx, dut):
    ctx.set(dut.again, 1)
    await ctx.tick()
    ctx.set(dut.again, 0)


def state(ctx, dut):
    return StandAloneState(ctx.get(dut.state))


def run(bench, *, map=MAP, **proxy):
    """``bench(ctx, dut, proxy)`` with a sequencer that is enabled; returns the proxy."""
    dut = SetUpSequencer(map, slots=SLOTS, streams=STREAMS, waits=WAITS)
    model = Proxy(dut, map, **proxy)

    async def keys(ctx):
        async for *_, column in ctx.changed(dut.column):
            ctx.set(dut.key_column, int.from_bytes(KEY[4 * column:4 * column + 4], "little"))

    async def process(ctx):
        ctx.set(dut.enable, 1)
        ctx.set(dut.boot, BOOT)
        await ctx.tick().repeat(3)
        await bench(ctx, dut, model)

    simulate(dut, process, background=[model.serve, *[keys] * (map is KEYED_MAP)],
             deadline=20_000)
    return model


def attach_listener(m, rx, listener, frames):
    """Let a listener see what a depacketizer refuses, and count ``frames``. The answer of the link
    comes a cycle after a header."""
    m.d.comb += [
        listener.refused.strobe.eq(rx.stat_refused),
        listener.refused.header.eq(rx.committed.payload.header),
        listener.refused.hello.eq(rx.hello),
    ]
    with m.If(rx.verdict.ready):
        m.d.sync += rx.verdict.valid.eq(0)
    with m.If(rx.header.valid):
        m.d.sync += rx.verdict.valid.eq(1)
    m.d.sync += frames.eq(frames + rx.judged)
