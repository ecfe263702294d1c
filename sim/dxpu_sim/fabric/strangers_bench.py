"""Strangers beside a session that needs a key, or needs none: what they reach.

``$DXPU_STRANGERS`` holds the case as JSON: ``keys`` of the design; of a blind stranger who tries
all tags: ``frames``, how many, ``start``, the first tag; ``tlps`` that are sent meanwhile. The
counts go to ``result.json`` in the run's folder.
"""

import json
import os
from pathlib import Path

import cocotb
from amaranth.lib.wiring import Out
from cocotb.triggers import Timer

from .fault_design import ENDS
from .strangers_design import StrangersBench, ranges

CASE = json.loads(os.environ.get("DXPU_STRANGERS", "{}"))
#: Waits of both ends as in hardware at 1 Gb/s, 250 us for the first answer; no quiet time.
SETTINGS = {"ack_delay": 125, "packing_limit": 512, "retry_wait": 488, "hello_wait": 488,
            "quiet": 1}
#: Longest time that anything here may take, in us.
PATIENCE = 3_000


class Run:
    """Both ends, and what they count."""

    def __init__(self, dut):
        self.dut = dut
        members = StrangersBench(keys=CASE["keys"]).signature.members
        self.outputs = [name for name, member in members.items() if member.flow is Out]

    def read(self, name):
        """Value of an output."""
        return int(getattr(self.dut, name).value)

    def counts(self):
        """Values of all outputs."""
        return {name: self.read(name) for name in self.outputs}

    def write(self, before):
        """Write down what the outputs have become more since ``before``, which is of
        :meth:`counts`."""
        Path("result.json").write_text(json.dumps({
            name: value - before[name] for name, value in self.counts().items()}))

    async def until(self, condition, what, *, ns=1000):
        """Wait until ``condition()``."""
        for _ in range(PATIENCE * 1000 // ns):
            if condition():
                return
            await Timer(ns, "ns")
        raise AssertionError(f"{what}: not within {PATIENCE} us; counts: "
                             f"{ {name: n for name, n in self.counts().items() if n} }")

    async def prepare(self):
        """Settings; random words and keys are there, and no session is opened yet."""
        dut = self.dut
        for name, value in SETTINGS.items():
            getattr(dut, name).value = value
        dut.hello.value, dut.surplus.value = 1, 255
        dut.salt.value = int(os.environ["DXPU_SEED"])
        for end in ENDS:
            getattr(dut, f"{end}_boot").value = 0
        await Timer(1, "us")
        dut.salt.value = 0
        await self.until(lambda: all(self.read(f"{end}_random") for end in ENDS), "random words")

    async def stranger(self, end, first, last=None, *, start=None, limit=1 << 31):
        """Let him send frames to an end, from the first of ``first`` to the last of ``last``
        (:func:`~.strangers_design.ranges`). With ``start`` he tries all tags, from that on."""
        numbers = ranges(end)
        for name, value in {"first": numbers[first][0], "last": numbers[last or first][1],
                            "sweeps": int(start is not None), "start": start or 0,
                            "limit": self.read(f"stranger_{end}_count") + limit}.items():
            getattr(self.dut, f"stranger_{end}_{name}").value = value
        await Timer(100, "ns")
        getattr(self.dut, f"stranger_{end}_enable").value = 1

    async def says(self, end, *frames, limit, **options):
        """Let him send that many frames to an end, and wait until they are gone."""
        count = self.read(f"stranger_{end}_count") + limit
        await self.stranger(end, *frames, limit=limit, **options)
        await self.until(lambda: self.read(f"stranger_{end}_count") == count, "frames")
        self.silence()
        await Timer(20, "us")

    def silence(self):
        """No stranger sends."""
        for end in ENDS:
            getattr(self.dut, f"stranger_{end}_enable").value = 0

    async def open(self, boot=1):
        """Let the session open; the time that it takes, in us."""
        for end in ENDS:
            getattr(self.dut, f"{end}_boot").value = boot
        begin = self.read("cycle")
        await self.until(lambda: not any(self.read(f"{end}_down") for end in ENDS), "a session",
                         ns=200)
        return (self.read("cycle") - begin) / 125

    async def reset(self):
        """Reset both ends, and wait for random words."""
        for end in ENDS:
            getattr(self.dut, f"{end}_boot").value = 0
            getattr(self.dut, f"{end}_reset").value = 1
        await Timer(1, "us")
        for end in ENDS:
            getattr(self.dut, f"{end}_reset").value = 0
        await self.until(lambda: all(self.read(f"{end}_random") for end in ENDS), "random words")

    def send(self, most):
        """Let TLPs go in both directions."""
        for end in ENDS:
            getattr(self.dut, f"{end}_most").value = most
            getattr(self.dut, f"{end}_enable").value = 1


@cocotb.test()
async def floods(dut):
    """Openings while strangers fill the lines to both ends, a kind of frames after the other."""
    run, took = Run(dut), {}
    await run.prepare()
    for names in ((), ("HELLO",), ("HELLO_ACK",), ("HELLO_DONE",), ("MGMT",), ("HELLO", "MGMT")):
        for end in ENDS if names else ():
            await run.stranger(end, *names)
        await Timer(50, "us")
        before, cycle = run.counts(), run.read("cycle")
        us = await run.open()
        took[" to ".join(names) or "nobody"] = {
            "us": us, "cycles": run.read("cycle") - cycle,
            "frames": {end: run.read(f"stranger_{end}_count") - before[f"stranger_{end}_count"]
                       for end in ENDS}}
        run.silence()
        await Timer(20, "us")
        await run.reset()
    Path("result.json").write_text(json.dumps(took))
    print(f"strangers: {took}")


@cocotb.test()
async def blind(dut):
    """All tags with small numbers, into an open session in use, at both ends."""
    run, limit = Run(dut), CASE["frames"]
    await run.prepare()
    await run.open()
    run.send(CASE["tlps"])
    before = run.counts()
    for end in ENDS:
        await run.stranger(end, "TLP", "FENCE", start=CASE["start"], limit=limit)
    ends = [before[f"stranger_{end}_count"] + limit for end in ENDS]

    def lost():
        return any(run.read(f"{end}_session_lost") for end in ENDS)

    with open("progress.txt", "w", buffering=1) as progress:
        while not lost() and [run.read(f"stranger_{end}_count") for end in ENDS] != ends:
            await Timer(100, "us")
            progress.write(f"{run.read('stranger_box_count')}\n")
    run.silence()
    await Timer(50, "us")
    if not lost():
        await run.until(lambda: all(
            run.read(f"to_{end}_total_tlps") >= CASE["tlps"] for end in ENDS), "all TLPs")
        await Timer(50, "us")
    run.write(before)


@cocotb.test()
async def take_over(dut):
    """A HELLO in the host's name, and guesses of the tag that the box offers."""
    run = Run(dut)
    await run.prepare()
    await run.open()
    await Timer(20, "us")  # so that the box may draw another tag
    before = run.counts()
    await run.says("box", "take over", limit=25)
    run.write(before)


@cocotb.test()
async def pose(dut):
    """The box is silent, and somebody answers in its place."""
    run = Run(dut)
    await run.prepare()
    before = run.counts()
    dut.host_boot.value = 1
    await Timer(20, "us")
    await run.says("host", "pose", limit=48)
    run.write(before)
