"""Attacks of a bad host on the virtual switch alone; every answer and every counter is checked.

Each test has a simulation of its own, so each begins with a reset. The golden switch is the oracle.
"""

import os
import random
from collections import Counter

import cocotb
from cocotb.triggers import Timer

from dxpu.switch.config.fields import FUNCTION_DWORDS, HIGH, HIGH_DWORDS
from dxpu.tlp.types import Malformed
from dxpu_model.switch import UP
from dxpu_model.tlp import KINDS, Tlp, classify, malformed
from dxpu_sim.pcie.checkers import CheckFailed
from dxpu_sim.pcie.hostile import Aim, Hostile, HostileSource
from dxpu_sim.pcie.ports import Mailbox
from dxpu_sim.system.traffic import Traffic, config, lane, made_by_switch, shows_errors

from .design import SwitchTop
from .golden import golden_switch

PORTS = 3
#: Size of the buffers at the ports, in bytes.
BUFFER = 4096
FIRST_BUS, INSIDE = 5, 6
#: Error counters that depend on the order and simultaneity of errors.
OF_ERRORS = ("unlogged", "unsent")
COMMAND, BUSES, BRIDGE_CONTROL, POWER, LINK, SLOT = 1, 6, 0xF, 0x44 // 4, 0x70 // 4, 0x78 // 4


class Oracle:
    """The golden switch behind parsers that pass only well-formed TLPs."""

    def __init__(self):
        self.switch = golden_switch(PORTS)
        self.counts = Counter()

    def interrupt_seen(self):
        """Count an interrupt when it is seen."""
        self.counts["interrupt"] += 1

    def power_limit_seen(self, slot):
        """Power limits are not counted."""

    def totals(self):
        """All counters other than zero."""
        own = {n: count for n, count in self.switch.counts.items()
               if n not in ("interrupt", *OF_ERRORS)}
        return +(self.counts + Counter(own))

    def enter(self, side, hostile):
        """TLPs that leave because ``hostile`` enters at ``side``."""
        bad = malformed(hostile.raw, self.switch.max_payload(side)) is not Malformed.NONE
        self.counts["malformed"] += bad and not hostile.discard
        if bad or hostile.discard:
            self.counts["discarded"] += 1
            return []
        switch, raw = self.switch, hostile.raw
        leaving = switch.from_upstream(raw) if side == UP else switch.from_slot(side, raw)
        return [(to, lane(side, raw, out), out) for to, out in leaving] + made_by_switch(
            *switch.interrupts())


class Bench(Traffic):
    """The switch with a mailbox at each port; all slots except the last have devices."""

    def __init__(self, dut):
        self.dut = dut
        super().__init__(
            {UP: Mailbox(dut, "host")} | {n: Mailbox(dut, f"device{n}") for n in range(PORTS)},
            Oracle(), random.Random(int(os.environ["DXPU_SEED"])))
        self.golden = self.oracle.switch

    async def start(self, present=0b011):
        """Wait for the configuration spaces, and put devices into slots."""
        await Timer(20, "us")
        self.dut.present.value = present
        self.golden.present = [bool(present >> n & 1) for n in range(PORTS)]
        await Timer(100, "ns")
        self.golden.interrupts()

    async def host(self, *tlps):
        """Send TLPs from the host and wait for all answers; bytes or :class:`Tlp`."""
        for tlp in tlps:
            raw = tlp if isinstance(tlp, bytes) else tlp.pack()
            await self.send(UP, Hostile(raw, False, "host"))
        await self.settle()

    def to(self, function, register, value=None, **options):
        """A configuration request to function 0, the upstream port, or n, downstream port n - 1."""
        if function == 0:
            return config(FIRST_BUS << 8, register, value, type1=False, **options)
        inside = self.golden.up.buses()[0]
        return config(inside << 8 | function - 1 << 3, register, value, **options)

    async def quiet(self):
        """Wait until the switch is idle, then check its own messages."""
        await self.acknowledge(range(PORTS))
        for slot in range(PORTS):
            # Leaves or is counted, which shows that all earlier TLPs were handled.
            bus = self.golden.down[slot].buses()[0]
            await self.fair(slot, Tlp(*KINDS["Cpl"], requester_id=bus << 8, byte_count=4))
        await self.drain(1000)
        for _ in range(200):
            if not self.wrong_counters():
                break
            await Timer(2, "us")
        await Timer(2, "us")
        self.compare_messages()

    def wrong_counters(self):
        """Wrong counters, each with its value and the expected value."""
        expected = self.oracle.totals()
        totals = {name: int(getattr(self.dut, f"count_{name}").value)
                  for name in SwitchTop.COUNTERS}
        return {name: (total, expected[name] & 0xFFFF) for name, total in totals.items()
                if total != expected[name] & 0xFFFF and name not in OF_ERRORS}

    async def finish(self):
        """Check that nothing is left, and that messages and all counters are right."""
        await self.quiet()
        if wrong := self.wrong_counters():
            raise CheckFailed(f"counters, and what was expected: {wrong}")
        print(f"bad_host: {dict(self.oracle.totals())}")


@cocotb.test()
async def every_register(dut):
    """Every dword of configuration space: reads in every function; writes of various values and
    byte enables in some functions, then reads.
    """
    bench = Bench(dut)
    rng = bench.rng
    await bench.start()
    await bench.host(bench.to(0, BUSES, 0xFF << 16 | INSIDE << 8 | FIRST_BUS))
    for function in range(PORTS + 1):
        await bench.host(*(bench.to(function, register) for register in range(1024)))
    registers = [*range(FUNCTION_DWORDS), *range(HIGH, HIGH + HIGH_DWORDS),
                 *rng.sample(range(FUNCTION_DWORDS, 1024), 30)]
    #: Number of functions in which each of these registers is written.
    some = int(os.environ.get("DXPU_FUNCTIONS", "2"))
    for register in registers:
        for function in rng.sample(range(PORTS + 1), some):
            f = (bench.golden.up, *bench.golden.down)[function]
            before = f.read(register)
            accesses = [(0xFFFF_FFFF, 15), (0, 15), (rng.getrandbits(32), rng.getrandbits(4)),
                        (0xFFFF_FFFF, rng.choice([0, 1, 2, 4, 8])), (rng.getrandbits(32), 15)]
            for value, enables in [*rng.sample(accesses, 3), (before, 15)]:
                await bench.host(bench.to(function, register, value, enables=enables),
                                 bench.to(function, register, enables=rng.getrandbits(4)))
                if function == 0 and register in (BUSES, BRIDGE_CONTROL):
                    # Undo hiding and resets, which other tests cover.
                    await bench.host(bench.to(0, BUSES, 0xFF << 16 | INSIDE << 8 | FIRST_BUS))
    # No bit has changed that must not.
    for function in range(PORTS + 1):
        await bench.host(*(bench.to(function, register) for register in range(FUNCTION_DWORDS)))
    assert bench.oracle.totals()["config"] >= (1024 + FUNCTION_DWORDS) * (
        PORTS + 1) + 8 * some * len(registers)
    await bench.finish()


@cocotb.test()
async def malformed_and_misdirected_requests(dut):
    """Wrong sizes and reserved fields have no effect and no answer; wrong targets get UR."""
    bench = Bench(dut)
    rng = bench.rng
    await bench.start()
    await bench.host(bench.to(0, BUSES, 0xFF << 16 | INSIDE << 8 | FIRST_BUS))
    for _ in range(600):
        function, register = rng.randrange(PORTS + 1), rng.randrange(128)
        value = rng.choice([None, rng.getrandbits(32)])
        if (function, register) in ((0, BUSES), (0, BRIDGE_CONTROL)):
            continue
        tlp = bench.to(function, register, value, enables=rng.getrandbits(4))
        match rng.randrange(8):
            case 0:
                tlp.length = rng.choice([0, 2, 3, 512, 1024])
            case 1:
                tlp.length = rng.choice([2, 3, 16])
                tlp.payload = rng.randbytes(4 * tlp.length) if value is not None else b""
            case 2:
                tlp.last_be = rng.randint(1, 15)
            case 3:
                setattr(tlp, rng.choice(["tc", "attr", "at"]), rng.randint(1, 3))
            case 4:
                tlp.payload = rng.choice([b"", bytes(8)])
            case 5:
                tlp.target_id |= rng.randint(1, 7)
            case 6:
                tlp.target_id = rng.choice([INSIDE << 8 | rng.randrange(PORTS, 32) << 3,
                                            rng.getrandbits(16)])
                tlp.type |= 1
            case 7:
                tlp.ep = int(value is not None)
        good = bench.to(function, register)
        await bench.host(tlp, good)
    totals = bench.oracle.totals()
    assert min(totals["malformed"], totals["unsupported0"]) > 100
    await bench.finish()


@cocotb.test()
async def before_anything_is_configured(dut):
    """Hostile TLPs at all ports after reset, of a switch without bus numbers and windows."""
    bench = Bench(dut)
    await bench.start(0b111)
    for _ in range(20):
        await hostile_traffic(bench, Aim([0, 0x8000_0000], [0], [0, 0x0100], [0]), 100)
    assert not set(bench.oracle.totals()) - {
        "malformed", "discarded", "unsupported0", "unclaimed0", "unexpected0",
        "unsupported1", "unclaimed1", "unexpected1", "config", "interrupt"}
    await bench.finish()


async def hostile_traffic(bench, aim, count):
    """Send hostile TLPs into all ports at once, without configuration writes."""
    async def stream(side):
        source = HostileSource(bench.rng, aim, discards=0)
        for _ in range(count // 2 if side == UP else count // 2 // PORTS):
            hostile = source.draw()
            if malformed(hostile.raw) is Malformed.NONE and side == UP:
                info = classify(hostile.raw)
                if info.is_config and (info.is_write or shows_errors(hostile.raw)):
                    continue
            if len(hostile.raw) <= BUFFER:
                await bench.send(side, hostile)

    for task in [cocotb.start_soon(stream(side)) for side in bench.boxes]:
        await task
    await bench.quiet()


@cocotb.test()
async def nonsense_configurations(dut):
    """Reversed and duplicate bus numbers, inverted windows, random enables and power states."""
    bench = Bench(dut)
    await bench.start(0b111)
    for _ in range(int(os.environ.get("DXPU_ROUNDS", "40"))):
        aim = await misconfigure(bench)
        await hostile_traffic(bench, aim, 100)
    assert {"peer", "blocked", "fenced", "unclaimed1", "unsupported1", "unsupported0"} <= set(
        bench.oracle.totals())
    await bench.finish()


async def misconfigure(bench):
    """Set random values in all routing registers; return useful targets of TLPs."""
    rng = bench.rng
    aim = Aim([0x1000_0000], [0], [0], [0])
    few = [rng.randrange(256) for _ in range(4)]
    # The upstream port last, as the way to the other ports leads through it.
    await bench.host(bench.to(0, BUSES, 0xFF << 16 | INSIDE << 8 | FIRST_BUS))
    for function in (*range(1, PORTS + 1), 0):
        secondary, subordinate = sorted(rng.choices([0, 3, 9, 255, *few], k=2))
        if rng.random() < 0.2:
            secondary, subordinate = subordinate, secondary
        if function == 0 and rng.random() < 0.8:
            secondary, subordinate = rng.choice([1, 2]), 255
        low, high = (rng.choice([0, 1, 2, 3, 0xFFE, 0xFFF, rng.randrange(16)]) for _ in range(2))
        wide = [rng.choice([0, 0x10, 0x4_0000, 0xF_FFFF_FFFF_FF >> 4]) + rng.randrange(4)
                for _ in range(2)]
        if rng.random() < 0.7:
            low, high = min(low, high), max(low, high)
            wide.sort()
        io = [rng.choice([0, 1, 0xF, 0x10, 0xF_FFFF]) for _ in range(2)]
        aim.addresses += [low << 20, (high << 20) + 0xFF000,
                          wide[0] << 20, (wide[1] << 20) + 0xFF000]
        aim.ports += [io[0] << 12, (io[1] << 12) + 0xFFC, (io[0] << 12) + 0x100]
        aim.identifiers += [secondary << 8, subordinate << 8]
        aim.requesters += [secondary << 8, subordinate << 8 | 1]
        options = 2 << 16 | rng.getrandbits(1) << 18
        writes = {
            BUSES: subordinate << 16 | secondary << 8 | rng.getrandbits(8),
            8: high << 20 | low << 4, 9: (wide[1] & 0xFFF) << 20 | (wide[0] & 0xFFF) << 4,
            10: wide[0] >> 12, 11: wide[1] >> 12,
            7: (io[1] & 15) << 12 | (io[0] & 15) << 4, 12: (io[1] >> 4) << 16 | io[0] >> 4,
            COMMAND: rng.choice([7, 7, 7, rng.getrandbits(16) & 0x547]),
            POWER: rng.choice([0, 0, 0, 0, 1, 2, 3]), BRIDGE_CONTROL: options,
            # Without LTR: its messages are delayed.
            0x88 // 4: rng.choice([0, 0, 1 << 5, 1 << 7, 1 << 15, rng.getrandbits(16) & 0xFBFF]),
        }
        if function:
            writes |= {0x164 // 4: rng.choice([0, 0, rng.getrandbits(7)]) << 16,
                       LINK: rng.choice([0, 0, 0, 0, 0x10])}
        order = list(writes)
        rng.shuffle(order)
        if function == 0:
            order = [r for r in order if r != BUSES] + [BUSES]
        await bench.host(*(bench.to(function, register, writes[register]) for register in order))
    bench.golden.set_live()
    return aim
