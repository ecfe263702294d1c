"""Power is lost at either end, between any two writes of a change of keys, under traffic.

``$DXPU_POWER`` holds as JSON the list of cuts: the end that gets the next key first, the end that
loses its power, and the number of writes before. Counts go to ``result.json`` in the run's folder.
"""

import json
import os
from pathlib import Path

import cocotb
from cocotb.triggers import Timer

from .bad_line import Faults
from .fault_design import ENDS, SETTINGS, fault_name, fields
from .power_design import PowerBench

__all__ = ["WRITES"]

CUTS = json.loads(os.environ.get("DXPU_POWER", "[]"))
#: Writes of a change of keys: four words and the command, at one end and at the other.
WRITES = 10
#: 10 us for the first answer, so that an attempt takes 320 us; 10 us of silence.
WAITS = {"ack_delay": 125, "packing_limit": 512, "retry_wait": 20, "hello_wait": 20, "quiet": 20}
#: Longest time until a session is open again, in us: ten attempts. TLPs that must come then.
PATIENCE, TLPS = 3200, 80


class Run:
    """Both ends, and who gives them keys."""

    def __init__(self, dut):
        self.dut, self.boots, self.number = dut, dict.fromkeys(ENDS, 1), 0

    def read(self, name):
        """Value of an output."""
        return int(getattr(self.dut, name).value)

    def set(self, **values):
        """Set inputs."""
        for name, value in values.items():
            getattr(self.dut, name).value = value

    async def until(self, condition, what):
        """Wait until ``condition()``."""
        for _ in range(PATIENCE):
            if condition():
                return
            await Timer(1, "us")
        states = {end: self.state(end) for end in ENDS}
        raise AssertionError(f"{what}: not within {PATIENCE} us; keys {states}")

    def state(self, end):
        """Whether an end has a key, and a next one."""
        return self.read(f"{end}_key_valid"), self.read(f"{end}_key_two")

    def is_up(self):
        """The session is open at both ends."""
        return not any(self.read(f"{end}_down") for end in ENDS)

    def new_key(self):
        """A key that was not used yet."""
        self.number += 1
        return bytes(self.number + n & 0xFF for n in range(0, 256, 16))

    async def strobe(self, name):
        """A pulse."""
        self.set(**{name: 1})
        await Timer(50, "ns")
        self.set(**{name: 0})
        await Timer(50, "ns")

    async def write_word(self, end, key, n):
        """One word of a key."""
        self.set(**{f"{end}_key_column": n,
                    f"{end}_key_word": int.from_bytes(key[4 * n:4 * n + 4], "little")})
        await self.strobe(f"{end}_key_put")

    async def give(self, end, following):
        """The command that gives the peer the key of which all words are written."""
        self.set(**{f"{end}_key_next": int(following)})
        await self.strobe(f"{end}_key_give")
        await self.until(lambda: self.state(end) == (1, int(following)), f"key of {end}")

    async def give_key(self, end, key, *, following=False):
        """A whole key."""
        for n in range(4):
            await self.write_word(end, key, n)
        await self.give(end, following)

    async def power(self, end):
        """The power of an end goes and comes back; it has random words, and no key."""
        self.boots[end] += 1
        self.set(**{f"{end}_reset": 1, f"{end}_boot": self.boots[end]})
        await Timer(5, "us")
        self.set(**{f"{end}_reset": 0})
        await Timer(1, "us")
        assert self.state(end) == (0, 0)
        await self.until(lambda: self.read(f"{end}_random"), f"random words of {end}")

    def totals(self, what):
        """Of what came to the ends."""
        return [self.read(f"to_{end}_total_{what}") for end in ENDS]

    async def traffic(self):
        """TLPs come to both ends; returns what was lost until then: of each flow some have come."""
        await self.until(self.is_up, "a session")
        await Timer(20, "us")  # rows are bound
        before = self.totals("tlps")
        await self.until(lambda: all(now - then > TLPS for now, then in zip(
            self.totals("tlps"), before, strict=True)), "traffic")
        assert self.is_up()
        return self.totals("lost")

    async def new_session(self):
        """The line is dead for a while."""
        opened = [self.read(f"{end}_session_opened") for end in ENDS]
        self.set(dead=1)
        await self.until(lambda: all(self.read(f"{end}_down") for end in ENDS), "a lost session")
        self.set(dead=0)
        await self.until(lambda: self.is_up() and all(
            self.read(f"{end}_session_opened") > n for end, n in zip(ENDS, opened, strict=True)),
            "a session")

    async def nothing_opens(self, us=1000):
        """No session for so long, at either end."""
        before = [self.read(f"{end}_session_opened") for end in ENDS]
        await Timer(us, "us")
        assert [self.read(f"{end}_session_opened") for end in ENDS] == before and not self.is_up()


async def cut(run, first, dark, writes, old, new):
    """A change of keys, with a loss of power after so many writes."""
    second = ENDS[1 - ENDS.index(first)]
    other = ENDS[1 - ENDS.index(dark)]
    given, sessions = {}, run.read("host_session_lost")

    async def step(n):
        end = first if n < WRITES // 2 else second
        n %= WRITES // 2
        if n < 4:
            await run.write_word(end, new, n)
        else:
            await run.give(end, following=True)
            given[end] = True

    lost = await run.traffic()
    for n in range(writes):
        await step(n)
    # Giving keys ends nothing and loses nothing.
    if writes < WRITES:
        assert run.read("host_session_lost") == sessions
        assert run.totals("lost") == lost
    await run.power(dark)
    await run.nothing_opens(400)
    # What the page says: the old key, then the next one.
    await run.give_key(dark, old)
    await run.give_key(dark, new, following=True)
    lost = await run.traffic()
    assert await run.traffic() == lost
    # The change goes on where it was: the other end, if it has not the next key.
    if not given.get(other):
        await run.give_key(other, new, following=True)
    for _ in range(6):
        if [run.state(end) for end in ENDS] == [(1, 0), (1, 0)]:
            break
        await run.new_session()
    assert [run.state(end) for end in ENDS] == [(1, 0), (1, 0)]
    lost = await run.traffic()
    assert await run.traffic() == lost


@cocotb.test()
async def cuts(dut):
    """Each cut, one after the other, each with another key."""
    run = Run(dut)
    run.set(**WAITS, delay=60, fixed=0, hello=1, surplus=255, salt=int(os.environ["DXPU_SEED"]),
            dead=0)
    assert set(WAITS) == set(SETTINGS)
    for end in ENDS:
        run.set(**{fault_name(end, name): 0 for name, _ in fields(Faults)})
        run.set(**{f"{end}_most": (1 << 32) - 1, f"{end}_pause": 65_000, f"{end}_boot": 1,
                   f"{end}_enable": 1})
    await Timer(1, "us")
    run.set(salt=0)
    for end in ENDS:
        await run.until(lambda end=end: run.read(f"{end}_random"), "random words")
    await run.nothing_opens(100)
    old = run.new_key()
    for end in ENDS:
        await run.give_key(end, old)
    with open("progress.txt", "w", buffering=1) as progress:
        for first, dark, writes in CUTS:
            new = run.new_key()
            await cut(run, first, dark, writes, old, new)
            before, old = old, new
            progress.write(f"{first} {dark} {writes}\n")
    # The key before the last one is dead, at both ends.
    for end in ENDS:
        await run.give_key(end, before)
        run.set(dead=1)
        await run.until(lambda: all(run.read(f"{end}_down") for end in ENDS), "its end")
        run.set(dead=0)
        await run.nothing_opens()
        await run.give_key(end, old)
        await run.traffic()
    names = [name for name, _ in PowerBench().signature.members.items()]
    Path("result.json").write_text(json.dumps({
        name: run.read(name) for name in names
        if name.startswith("to_") and "_total_" in name or name.split("_")[0] in ENDS
        and name.removeprefix("host_").removeprefix("box_") in PowerBench().stats}))
