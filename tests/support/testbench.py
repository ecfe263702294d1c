"""Test-bench parts for Amaranth's own simulator: drive, collect and check streams of packets.

Packets are ``bytes`` on the Python side (see :class:`Packet`). All random choices come from a
:class:`random.Random` that the test makes from its seed (:func:`seed`).
"""

import contextlib
import functools
import os
import random
import warnings
from dataclasses import dataclass, field
from typing import Any

from amaranth.hdl import Cat, Fragment, ShapeCastable, Value
from amaranth.sim import Simulator

from dxpu.memory import CHECKED
from dxpu.stream import PacketLayout, payload_shape

__all__ = ["Packet", "StreamViolation", "access", "check_stream", "collect_packets",
           "collect_words", "count_pulses", "drive_packets", "drive_words", "seed", "shared",
           "simulate"]


def seed() -> int:
    """Seed of this run (``$DXPU_SEED``, default 1); printed, so that a failure can be repeated."""
    value = int(os.environ.get("DXPU_SEED", "1"))
    print(f"seed {value}")
    return value


@dataclass
class Packet:
    """A packet on a :class:`~dxpu.stream.PacketLayout` stream: whole dwords, and its meta."""

    data: bytes
    meta: Any = None
    discard: bool = False
    #: Cycles of the first and the last beat (set by :func:`collect_packets` and
    #: :func:`drive_packets`).
    first_cycle: int = field(default=-1, compare=False)
    last_cycle: int = field(default=-1, compare=False)


def _simulator(dut, period):
    sim = Simulator(Fragment.get(dut, CHECKED))  # with the assertions of memories
    sim.add_clock(period)
    return sim


#: Components that tests share, each with its simulator.
_SHARED: dict[Any, Simulator] = {}


@functools.lru_cache(maxsize=6)
def shared(design, *args, **kwargs):
    """The component ``design(*args, **kwargs)``; the same one again for equal arguments.

    Its simulator is made once, which takes as long as some hundreds of cycles of a large one. Each
    :func:`simulate` begins in its reset state. Only for tests that change nothing of it.
    """
    for dut in list(_SHARED)[:-5]:
        del _SHARED[dut]
    dut = design(*args, **kwargs)
    _SHARED[dut] = _simulator(dut, 8e-9)
    return dut


def _again(dut):
    """The simulator of a shared component, in its reset state and without processes."""
    sim = _SHARED[dut]
    sim._engine.forget_testbenches()
    sim.reset()
    return sim


class StreamViolation(AssertionError):
    """A stream broke the rules of :mod:`amaranth.lib.stream` or of the packet format."""


def simulate(dut, *processes, background=(), deadline: int = 200_000, vcd: str | None = None,
             period: float = 8e-9) -> None:
    """Run ``processes`` (async functions of ``ctx``) on ``dut`` until all have returned.

    ``background`` processes (checkers, endless drivers) end with them. A run longer than
    ``deadline`` cycles raises :exc:`TimeoutError`: the hardware hangs.
    """
    sim = _again(dut) if dut in _SHARED else _simulator(dut, period)
    left = len(processes)

    def wrap(process):
        async def testbench(ctx):
            nonlocal left
            await process(ctx)
            left -= 1
        return testbench

    for process in processes:
        sim.add_testbench(wrap(process))
    for process in background:
        sim.add_testbench(process, background=True)
    with warnings.catch_warnings(), sim.write_vcd(vcd) if vcd else contextlib.nullcontext():
        warnings.simplefilter("ignore")
        limit = deadline * period * 1e15
        while left:
            sim.advance()
            if sim._engine.now > limit:
                raise TimeoutError(f"{left} process(es) still waiting after {deadline} cycles")


def _gap(rng: random.Random | None, density: float) -> int:
    """Random number of idle cycles; ``density`` is the mean share of busy cycles."""
    if rng is None or density >= 1:
        return 0
    n = 0
    while rng.random() > density:
        n += 1
    return n


def drive_words(stream, words, *, rng=None, density: float = 1.0):
    """Process that puts ``words`` on ``stream``; random gaps if ``rng`` and ``density`` < 1."""
    async def process(ctx):
        for word in words:
            if n := _gap(rng, density):
                await ctx.tick().repeat(n)
            ctx.set(stream.payload, word)
            ctx.set(stream.valid, 1)
            await ctx.tick().until(stream.ready)
            ctx.set(stream.valid, 0)
    return process


def collect_words(stream, count: int, into: list, *, rng=None, density: float = 1.0):
    """Process that appends ``count`` words of ``stream`` to ``into``, with random gaps."""
    raw, made = _raw(stream.payload)

    async def process(ctx):
        while len(into) < count:
            if n := _gap(rng, density):
                await ctx.tick().repeat(n)
            ctx.set(stream.ready, 1)
            value, = await ctx.tick().sample(raw).until(stream.valid)
            into.append(made(value))
            ctx.set(stream.ready, 0)
    return process


def _raw(payload):
    """A payload as a plain value, and the function that makes its contents of that. To make them in
    every cycle takes longer than to simulate a small design."""
    raw = Value.cast(payload)
    if not hasattr(payload, "shape") or not isinstance(payload.shape(), ShapeCastable):
        return raw, lambda value: value
    shape, mask = payload.shape(), (1 << len(raw)) - 1
    return raw, lambda value: shape.from_bits(value & mask)


def beats(layout: PacketLayout, packet: Packet):
    """The beats of ``packet`` as values for ``ctx.set``."""
    step = layout.width // 8
    if not packet.data or len(packet.data) % 4:
        raise ValueError(f"a packet must be whole dwords, not {len(packet.data)} bytes")
    chunks = [packet.data[n:n + step] for n in range(0, len(packet.data), step)]
    for n, chunk in enumerate(chunks):
        beat = {
            "data": int.from_bytes(chunk, "little"), "dwords": len(chunk) // 4,
            "first": n == 0, "last": n == len(chunks) - 1,
            "discard": packet.discard and n == len(chunks) - 1,
        }
        if layout.meta is not None:
            beat["meta"] = packet.meta
        yield beat


def drive_packets(stream, packets, *, rng=None, density: float = 1.0):
    """Process that puts ``packets`` on a packet stream, with random gaps within and between."""
    layout = payload_shape(stream)

    async def process(ctx):
        for packet in packets:
            for beat in beats(layout, packet):
                if n := _gap(rng, density):
                    await ctx.tick().repeat(n)
                ctx.set(stream.payload, beat)
                ctx.set(stream.valid, 1)
                await ctx.tick().until(stream.ready)
                ctx.set(stream.valid, 0)
    return process


def collect_packets(stream, count: int, into: list, *, rng=None, density: float = 1.0,
                    discarded: list | None = None):
    """Process that appends ``count`` packets of ``stream`` to ``into`` and checks their framing.

    Packets that end with ``discard`` go to ``discarded`` and do not count towards ``count``;
    without ``discarded`` they are violations.
    """
    layout = payload_shape(stream)
    raw, made = _raw(stream.payload)

    async def process(ctx):
        chunk, now = None, 0
        while len(into) < count:
            if n := _gap(rng, density):
                await ctx.tick().repeat(n)
                now += n
            ctx.set(stream.ready, 1)
            async for *_, valid, value in ctx.tick().sample(stream.valid, raw):
                now += 1
                if valid:
                    beat = made(value)
                    break
            ctx.set(stream.ready, 0)
            if bool(beat.first) != (chunk is None):
                raise StreamViolation(f"first={beat.first} "
                                      f"{'inside' if chunk is not None else 'outside'} a packet")
            if beat.first:
                chunk, start = b"", now
                meta = beat.meta if layout.meta is not None else None
            elif layout.meta is not None and beat.meta != meta:
                raise StreamViolation("meta changed inside a packet")
            if not 1 <= beat.dwords <= layout.lanes or (not beat.last
                                                        and beat.dwords != layout.lanes):
                raise StreamViolation(f"{beat.dwords} dwords in a beat with last={beat.last}")
            chunk += int(beat.data).to_bytes(layout.width // 8, "little")[:beat.dwords * 4]
            if beat.last:
                packet = Packet(chunk, meta, bool(beat.discard), start, now)
                if packet.discard:
                    if discarded is None:
                        raise StreamViolation("unexpected discard")
                    discarded.append(packet)
                else:
                    into.append(packet)
                chunk = None
    return process


def check_stream(stream, name: str = "stream"):
    """Background process: once valid, the payload must not change and valid must not fall."""
    raw, _ = _raw(stream.payload)

    async def process(ctx):
        held = None
        async for *_, valid, ready, payload in ctx.tick().sample(stream.valid, stream.ready, raw):
            if held is not None:
                if not valid:
                    raise StreamViolation(f"{name}: valid fell before the word was taken")
                if payload != held:
                    raise StreamViolation(f"{name}: payload changed before it was taken")
            held = payload if valid and not ready else None
    return process


def count_pulses(dut, into: dict[str, int], *names: str):
    """Background process that adds up the one-cycle outputs ``stat_<name>`` of ``dut``.

    Without ``names``, all such outputs of the component. ``into`` holds 0 from the start.
    """
    names = names or tuple(n.removeprefix("stat_") for n in dut.signature.members
                           if n.startswith("stat_"))
    into.update(dict.fromkeys(names, 0))

    async def process(ctx):
        async for *_, pulses in ctx.tick().sample(Cat(getattr(dut, f"stat_{n}") for n in names)):
            if pulses:
                for n, name in enumerate(names):
                    into[name] += pulses >> n & 1
    return process


async def access(ctx, bus, address: int, value: int | None = None):
    """One read by a :class:`~dxpu.csr.RegisterPort`, or write of ``value``; returns the data read
    and the error bit.
    """
    ctx.set(bus.request.p, {"address": address, "write": value is not None, "data": value or 0})
    ctx.set(bus.request.valid, 1)
    await ctx.tick().until(bus.request.ready)
    ctx.set(bus.request.valid, 0)
    ctx.set(bus.response.ready, 1)
    response, = await ctx.tick().sample(bus.response.p).until(bus.response.valid)
    ctx.set(bus.response.ready, 0)
    return response.data, response.error
