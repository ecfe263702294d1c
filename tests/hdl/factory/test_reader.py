"""dxpu.factory.FactoryReader: what a flash says at its pins, whole or not at all, never a hang."""

import random
import struct
from hashlib import sha256
from zlib import crc32

import pytest
from amaranth import *
from amaranth.sim import Simulator

from dxpu.factory import DEFAULT_MAC, FactoryReader, FactoryRecord, FactoryState, RecordError
from dxpu_sim.board.spi_flash import SpiFlash
from tests.support.testbench import seed

ADDRESS = 0x3F0000
DEFAULT = (int.from_bytes(DEFAULT_MAC, "big"), 0, 0, 0)


def golden(mac=0x001122334455, serial=0x01020304, key=bytes(range(100, 132)), *, version=1,
           magic=b"DXPF", flags=None):
    """A record by hand."""
    body = struct.pack(">4sBBHII32s4s", magic, version, bool(key) if flags is None else flags,
                       mac >> 32, mac & 0xFFFF_FFFF, serial, key or b"",
                       sha256(key).digest() if key else b"")
    return body + struct.pack(">I", crc32(body))


def shown(mac=0x001122334455, serial=0x01020304, key=bytes(range(100, 132))):
    """What is to be seen of it: MAC, serial number, fingerprint, and whether there is a key."""
    return mac, serial, int.from_bytes(sha256(key).digest()[:4], "big") if key else 0, bool(key)


class Bench:
    """A reader and a flash; ``cipo`` may replace what that says."""

    def __init__(self, data=b"", *, hz=31.25e6, cipo=None):
        self.rng = random.Random(seed())
        self.reader = FactoryReader(address=ADDRESS, hz=hz)
        self.flash = SpiFlash({}, rng=self.rng)
        self.period, self.cipo, self.reset = 1e9 / hz, cipo, Signal()
        r = self.reader
        self._looked = Cat(r.drive, r.cs, r.sck, r.copi, r.state, r.mac, r.serial, r.fingerprint,
                           r.has_key)
        #: Cycles that a reading may last still.
        self.late = Signal(16)
        self.write(data)

    def write(self, data):
        self.flash.data.update({ADDRESS + n: value for n, value in enumerate(data)})

    def run(self, testbench):
        m, looked = Module(), Signal(len(self._looked))
        m.d.comb += looked.eq(self._looked)
        self._looked = looked
        m.submodules.reader = ResetInserter(self.reset)(self.reader)
        with m.If(self.late != 0):
            m.d.sync += self.late.eq(self.late - 1)
        sim = Simulator(m)
        sim.add_clock(self.period * 1e-9)
        sim.add_testbench(self._pins, background=True)
        sim.add_testbench(testbench)
        sim.run()

    async def _pins(self, ctx):
        """The flash; and nothing that is shown changes while a reading runs, but by a reset."""
        reader, cycle, before, chosen = self.reader, 0, None, 0
        while True:
            now, cycle = ctx.get(self._looked), cycle + 1
            drive, cs, sck, copi = now & 1, now >> 1 & 1, now >> 2 & 1, now >> 3 & 1
            # What nobody drives is pulled: not chosen, and no clock. That takes long, so first
            # it is driven.
            assert drive or not chosen
            chosen = cs
            self.flash.step(cycle * self.period, cs & drive, sck & drive, copi & drive)
            # As it is just before the next edge.
            said = self.flash.output((cycle + 1) * self.period - 1)
            ctx.set(reader.cipo, said if self.cipo is None else self.cipo())
            now >>= 4
            if now & 7 == FactoryState.READING.value:
                assert before in (None, now >> 3) or ctx.get(self.reset)
            before = now >> 3
            await ctx.tick()

    async def ends(self, ctx):
        """Waits for the end of a reading; returns state and rest."""
        reader = self.reader
        over = (reader.state != FactoryState.READING) | (self.late == 0)
        ctx.set(self.late, round(260e3 / self.period))
        if not ctx.get(over):
            await ctx.tick().until(over)
        assert ctx.get(self.late), "it hangs"
        return ctx.get(reader.state), self.now(ctx)

    async def again(self, ctx, pause=10):
        if pause:
            await ctx.tick().repeat(pause)
        ctx.set(self.reader.again, 1)
        await ctx.tick()
        ctx.set(self.reader.again, 0)
        assert ctx.get(self.reader.state) == FactoryState.READING

    def now(self, ctx):
        r = self.reader
        return tuple(ctx.get(x) for x in (r.mac, r.serial, r.fingerprint, r.has_key))

    async def key(self, ctx):
        found = []
        for n in range(32):
            ctx.set(self.reader.key_address, n)
            await ctx.tick()
            found.append(ctx.get(self.reader.key))
        return bytes(found)


@pytest.mark.parametrize("hz", [31.25e6, 62.5e6, 100e6, 125e6])
def test_a_record_is_read(hz):
    bench = Bench(golden(), hz=hz)

    async def testbench(ctx):
        assert bench.now(ctx) == DEFAULT
        assert await bench.ends(ctx) == (FactoryState.VALID, shown())
        assert await bench.key(ctx) == bytes(range(100, 132))
        await ctx.tick().repeat(3)
        # Others may use the flash.
        assert not ctx.get(bench.reader.drive)

    bench.run(testbench)
    assert bench.flash.reads == [ADDRESS] and bench.flash.read == 56 and not bench.flash.aborted


@pytest.mark.parametrize("record, state", [
    (golden(key=None), FactoryState.VALID),
    (golden(version=2), FactoryState.VERSION),
    (golden(version=2)[:-1] + b"x", FactoryState.VERSION),
    (golden(version=0), FactoryState.VERSION),
    (golden(magic=b"DXPG"), FactoryState.DAMAGED),
    (golden(flags=3), FactoryState.DAMAGED),
    (golden(flags=128), FactoryState.DAMAGED),
    (golden(mac=0x01005E000001), FactoryState.DAMAGED),
    (golden()[:55], FactoryState.DAMAGED),
    (golden()[:4], FactoryState.VERSION),
    (b"", FactoryState.ABSENT),
    (bytes(56), FactoryState.ABSENT),
    (bytes(55) + b"\1", FactoryState.DAMAGED),
    (b"\xFF" * 55, FactoryState.ABSENT),
    (b"\xFF" * 55 + b"\xFE", FactoryState.DAMAGED)])
def test_what_is_no_record_is_the_default(record, state):
    """After one that is, and the tools agree."""
    bench = Bench(golden())
    good = state == FactoryState.VALID

    async def testbench(ctx):
        assert await bench.ends(ctx) == (FactoryState.VALID, shown())
        bench.flash.data.clear()
        bench.write(record)
        await bench.again(ctx)
        assert await bench.ends(ctx) == (state, shown(key=None) if good else DEFAULT)
        assert not any(await bench.key(ctx))

    bench.run(testbench)
    data = record + b"\xFF" * (56 - len(record))
    if good:
        assert FactoryRecord.from_bytes(data).key is None
    else:
        with pytest.raises(RecordError) as error:
            FactoryRecord.from_bytes(data)
        assert error.value.state == state


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.long)])
def test_each_damaged_byte_is_found(step):
    """With a good record in between, so that nothing of it stays."""
    record, bench = golden(), Bench(hz=31.25e6)

    async def testbench(ctx):
        for place in range(0, 56, step):
            bench.write(record)
            bench.write(record[:place] + bytes([record[place] ^ bench.rng.randint(1, 255)]))
            if place:
                await bench.again(ctx)
            state, found = await bench.ends(ctx)
            assert found == DEFAULT, place
            assert state == (FactoryState.VERSION if place == 4 else FactoryState.DAMAGED), place
        bench.write(record)
        await bench.again(ctx)
        assert await bench.ends(ctx) == (FactoryState.VALID, shown())

    bench.run(testbench)


@pytest.mark.parametrize("cipo", ["garbage", "ones", "zeros"])
def test_without_a_flash(cipo):
    rng = random.Random(seed())
    bench = Bench(cipo={"garbage": lambda: rng.getrandbits(1), "ones": lambda: 1,
                        "zeros": lambda: 0}[cipo])

    async def testbench(ctx):
        for turn in range(3):
            if turn:
                await bench.again(ctx)
            state, found = await bench.ends(ctx)
            assert found == DEFAULT
            assert state == (FactoryState.DAMAGED if cipo == "garbage" else FactoryState.ABSENT)

    bench.run(testbench)


def test_a_new_record_comes_whole_or_not_at_all():
    """Flash changes at any time of a reading: the old one, the new one, or nothing; key included.
    `_pins` sees that nothing shows before."""
    first = {"mac": 0x001122334455, "serial": 0x01020304, "key": bytes(range(100, 132))}
    second = {"mac": 0xFEDCBA987654, "serial": 0xF0E0D0C0, "key": bytes(range(32))}
    bench, seen = Bench(golden(**first), hz=31.25e6), set()

    async def testbench(ctx):
        await bench.ends(ctx)
        for turn in range(14):
            old, new = (first, second) if turn % 2 == 0 else (second, first)
            bench.write(golden(**old))
            await bench.again(ctx, pause=bench.rng.choice((0, 1, 30)))
            assert await bench.ends(ctx) == (FactoryState.VALID, shown(**old))
            assert await bench.key(ctx) == old["key"]
            await bench.again(ctx)
            await ctx.tick().repeat(2900 + bench.rng.randrange(2300))
            # The key is the old one as long as the reading runs.
            if ctx.get(bench.reader.state) == FactoryState.READING:
                assert (await bench.key(ctx)) in (old["key"], new["key"], bytes(32))
            bench.write(golden(**new))
            state, found = await bench.ends(ctx)
            key = await bench.key(ctx)
            seen.add(state)
            if state == FactoryState.VALID:
                which = old if found == shown(**old) else new
                assert (found, key) == (shown(**which), which["key"])
            else:
                assert (found, key) == (DEFAULT, bytes(32))

    bench.run(testbench)
    assert seen == {FactoryState.VALID, FactoryState.DAMAGED}


def test_the_old_key_stays_while_it_reads():
    bench = Bench(golden())

    async def testbench(ctx):
        await bench.ends(ctx)
        bench.write(golden(key=bytes(range(32))))
        await bench.again(ctx)
        for _ in range(5):
            await ctx.tick().repeat(900)
            assert ctx.get(bench.reader.state) == FactoryState.READING
            assert await bench.key(ctx) == bytes(range(100, 132))
        assert (await bench.ends(ctx))[0] == FactoryState.VALID
        assert await bench.key(ctx) == bytes(range(32))

    bench.run(testbench)


def test_a_reset_at_any_time():
    """For a cycle; the flash may be in the middle of a command."""
    bench = Bench(golden())

    async def testbench(ctx):
        for wait in (0, 1, *(bench.rng.randrange(2900, 5100) for _ in range(12)), 180, 5200):
            await ctx.tick().repeat(wait + 1)
            ctx.set(bench.reset, 1)
            await ctx.tick()
            ctx.set(bench.reset, 0)
            assert ctx.get(bench.reader.state) == FactoryState.READING
            assert bench.now(ctx) == DEFAULT
        assert await bench.ends(ctx) == (FactoryState.VALID, shown())

    bench.run(testbench)
    assert bench.flash.aborted > 2


def test_no_second_reading_while_one_runs():
    bench = Bench(golden())

    async def testbench(ctx):
        for _ in range(50):
            await bench.again(ctx, pause=100)
        assert (await bench.ends(ctx))[0] == FactoryState.VALID

    bench.run(testbench)
    assert bench.flash.reads == [ADDRESS]


@pytest.mark.parametrize("address", [-1, 0xFFFFC9, 1.0])
def test_addresses(address):
    with pytest.raises(ValueError, match=r"^address must be one of 24 bits with the record"):
        FactoryReader(address=address, hz=1e6)
