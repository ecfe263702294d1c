"""Differential test: virtual switch and the switch model of cocotbext-pcie, with equal
configurations and TLPs.

For each TLP the routing decisions are compared: the ports at which the TLP leaves, byte for byte,
or the completer and its status. Decisions may differ only where a rule of :data:`RULES` names a
deviation of the model from the specification; then the virtual switch must behave as the golden
switch. Every rule must have been needed.

Not compared, because the model lacks them: byte count, lower address and type of completions
(2.2.9), values of registers (the switches have different registers), prefixes, digests, tags above
255, and answers to requests whose requester ID is not of their slot, which DXPU sends to the slot
all the same.
"""

import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import cocotb
from cocotb.triggers import Timer

from dxpu.tlp.types import CompletionStatus, Routing, TlpClass, Type
from dxpu_model.switch import UP, GoldenSwitch
from dxpu_model.switch_function import GoldenFunction
from dxpu_model.tlp import (
    COMPLETION, KINDS, MESSAGE_CODES, Info, Tlp, classify, complete, is_message, malformed,
    random_tlp,
)
from dxpu_sim.pcie.checkers import CheckFailed
from dxpu_sim.pcie.hostile import Aim, HostileSource
from dxpu_sim.pcie.model_switch import ModelSwitch
from dxpu_sim.pcie.ports import Mailbox, quiet
from dxpu_sim.pcie.tlps import pack, unpack
from dxpu_sim.system.traffic import config, lane

from .golden import golden_switch

PORTS = 3
COUNT = int(os.environ.get("DXPU_TLPS", "2500"))
FIRST_BUS = 1


@dataclass
class Case:
    """A TLP at a port of a switch."""

    golden: GoldenSwitch
    side: int
    info: Info

    @property
    def bridges(self) -> list[GoldenFunction]:
        """All ports, the upstream port first."""
        return [self.golden.up, *self.golden.down]

    @property
    def by_address(self) -> bool:
        """Memory, I/O or AtomicOp request."""
        return bool(self.info.is_memory or self.info.is_io)

    def holds(self, bridge: GoldenFunction, **fields: int) -> bool:
        """Whether a window of ``bridge`` contains the address, if ``fields`` had these values."""
        names = {"io": ("Command", "I/O Space Enable"),
                 "memory": ("Command", "Memory Space Enable"),
                 "isa": ("Bridge Control", "ISA Enable")}
        saved = dict(bridge.fields)
        bridge.fields |= {names[name]: value for name, value in fields.items()}
        try:
            return bridge.in_window(self.info)
        finally:
            bridge.fields = saved


def disabled(case: Case) -> bool:
    """An enable closes a window with the address, or the way up."""
    if not case.by_address:
        return False
    masters = [] if case.side == UP else [case.golden.up, case.golden.down[case.side]]
    return (any(case.holds(b, io=1, memory=1, isa=0) and not case.holds(b, isa=0)
                for b in case.bridges)
            or any(not b.get("Command", "Bus Master Enable") for b in masters))


def asleep(case: Case) -> bool:
    """A port is not in D0."""
    return case.by_address and not all(b.in_d0() for b in case.bridges)


def isa(case: Case) -> bool:
    """An I/O address in the holes of a window."""
    return bool(case.info.is_io) and any(
        case.holds(b, isa=0, io=1) != case.holds(b, io=1) for b in case.bridges)


def no_such_device(case: Case) -> bool:
    """Without ARI, only device 0 exists directly below a downstream port."""
    target = case.info.target_id or 0
    return bool(case.info.is_type1) and bool(target & 0xF8) and any(
        b.buses()[0] == target >> 8 for b in case.golden.down)


def unnumbered(case: Case) -> bool:
    """Bus 0, and a port without a bus number."""
    return (case.info.routing is Routing.ID and (case.info.target_id or 0) >> 8 == 0
            and any(b.buses() == (0, 0) for b in case.bridges))


def message(routing: Routing) -> Callable[[Case], bool]:
    """A message with this routing."""
    return lambda case: bool(case.info.is_message) and case.info.routing is routing


def error_message(case: Case) -> bool:
    """An error message, and a bridge on its way without the enable to pass it."""
    ways = [] if case.side == UP else [case.golden.up, case.golden.down[case.side]]
    return case.info.message_code in (0x30, 0x31, 0x33) and not all(
        b.get("Bridge Control", "SERR# Enable") and (
            case.info.message_code == 0x30 or b.get("Command", "SERR# Enable")) for b in ways)


def poisoned(case: Case) -> bool:
    """A poisoned configuration write."""
    return bool(case.info.is_config and case.info.is_write and case.info.ep)


def other_device(case: Case) -> bool:
    """A Type 0 request to the upstream port with a device number other than 0."""
    return (bool(case.info.is_config) and not case.info.is_type1 and case.side == UP
            and bool((case.info.target_id or 0) & 0xF8))


def to_the_switch(case: Case) -> bool:
    """A message by ID with the ID of the upstream port."""
    return bool(case.info.is_message) and case.info.target_id == case.golden.captured


def beyond_the_model(case: Case) -> bool:
    """An AtomicOp or a locked read, for which the model has no UR."""
    return bool(case.info.is_atomic or (case.info.is_locked and case.info.is_memory))


#: Deviations of the model: name, section of the specification, condition on a TLP. PCIe Base 5.0,
#: or P2P: PCI-to-PCI Bridge 1.2.
RULES: tuple[tuple[str, str, Callable[[Case], bool]], ...] = (
    ("enables", "7.5.1.1.3", disabled),
    ("power state", "5.3.1.4", asleep),
    ("ISA Enable", "P2P 3.2.5.18", isa),
    ("device 0 only", "7.3.1", no_such_device),
    ("bus 0 of an unnumbered bridge", "7.5.1.3.2", unnumbered),
    ("broadcast to all", "2.2.8", message(Routing.BROADCAST)),
    ("local messages", "2.2.8", message(Routing.LOCAL)),
    ("gathered messages", "2.2.8, 5.3.3.2.1", message(Routing.GATHER)),
    ("enables of error messages", "6.2.6, 7.5.1.3.12", error_message),
    ("poisoned writes", "2.7.2.2", poisoned),
    ("messages for the upstream port end there", "2.2.4.2", to_the_switch),
    ("UR for AtomicOps and locked reads", "2.3.1", beyond_the_model),
    ("device number of an upstream port", "2.2.6.2", other_device),
)


class Differential:
    """The virtual switch, the model, and the golden switch, side by side."""

    def __init__(self, dut):
        quiet()
        self.dut = dut
        self.rng = random.Random(int(os.environ["DXPU_SEED"]))
        self.boxes = {UP: Mailbox(dut, "host")}
        self.boxes |= {n: Mailbox(dut, f"device{n}") for n in range(PORTS)}
        model = ModelSwitch(PORTS)
        self.wires = {UP: model.wires["host"]} | {n: model.wires[n] for n in range(PORTS)}
        self.golden = golden_switch(PORTS)
        self.golden.present = [True] * PORTS
        self.ours, self.theirs = [], []
        for side in self.boxes:
            self.boxes[side].received.append(
                lambda record, side=side: self.ours.append((side, record.raw)))
            self.wires[side].received.append(
                lambda record, side=side: self.theirs.append((side, record.raw)))
        self.used, self.ways = Counter(), Counter()

    async def play(self, side, raw):
        """Send one TLP through all three; return the TLPs that left the virtual switch."""
        case = Case(self.golden, side, classify(raw))
        rules = [name for name, _, applies in RULES if applies(case)]
        golden = (self.golden.from_upstream(raw) if side == UP
                  else self.golden.from_slot(side, raw))
        messages, _ = self.golden.interrupts()
        golden += [(UP, out) for out in messages] + self.golden.limits
        self.golden.limits = []
        self.ours.clear()
        self.theirs.clear()
        await self.wires[side].send(raw)
        await self.boxes[side].send(raw)
        await Timer(700, "ns")
        ours, theirs, right = (sorted(self._decision(side, raw, out) for out in side_out)
                               for side_out in (self.ours, self.theirs, golden))
        what = f"{Tlp.unpack(raw)} at {side}\nours  {ours}\nmodel {theirs}\nspec  {right}"
        if ours != right:
            raise CheckFailed(f"not what the specification says: {what}")
        # Messages of the switch itself; the model sends none.
        routed = [way for way in ours if way[0] != "told"]
        if routed != theirs:
            if not rules:
                raise CheckFailed(f"different, and no rule says so: {what}")
            self.used.update(rules[:1])
        self.ways["as the model" if routed == theirs else "as the specification"] += 1
        self.ways.update(f"{way[0]} {'up' if way[1] == UP else 'down'}" for way in ours)
        if not ours:
            self.ways["nothing"] += 1
        return list(self.ours)

    @staticmethod
    def _decision(side, raw, out):
        """Comparable part of a TLP that left."""
        to, data = out
        info = classify(data)
        if lane(side, raw, data)[0] == side:
            return ("forwarded", to, data.hex())
        if info.is_message:
            return ("told", to, info.message_code, info.requester_id)
        return ("completed", to, info.status, info.completer_id, info.requester_id, info.tag)

    async def start(self):
        """Start all three switches."""
        await Timer(20, "us")
        self.dut.present.value = (1 << PORTS) - 1
        await Timer(1, "us")
        self.golden.interrupts()
        self.golden.limits = []
        # The switch captures the upstream port's number from writes; the model also from reads.
        await self.play(UP, config(FIRST_BUS << 8, 3, 0, type1=False).pack())

    async def configure(self):
        """Configure the same random tree in all three; return targets in it."""
        rng = self.rng
        aim = Aim([0x1000, 0x1000_0000, 0xFFFF_F000], [0, 0xFFFC], [0, FIRST_BUS << 8], [0])
        inside = rng.randint(2, 9)
        writes = {UP: {}, **{n: {} for n in range(PORTS)}}
        bus, memory, wide, io = inside, rng.randrange(0x800, 0x900), rng.choice([
            0xA00, 0x40_000]), rng.choice([0, 0xF000])
        first = memory, wide, io
        aim.identifiers += [inside << 8 | n << 3 for n in range(PORTS + 1)]
        for n in range(PORTS):
            if rng.random() < 0.15:
                continue  # not configured at all
            secondary, bus = bus + 1, bus + rng.choice([1, 1, 3])
            sizes = [rng.choice([0, 1, 2, 5]) for _ in range(3)]
            writes[n] = self._bridge(inside, secondary, bus, memory, sizes[0], wide, sizes[1],
                                     io, sizes[2])
            aim.identifiers += [secondary << 8, bus << 8, bus << 8 | 1 << 3]
            for base, size, unit, places in ((memory, sizes[0], 20, aim.addresses),
                                             (wide, sizes[1], 20, aim.addresses),
                                             (io, sizes[2], 12, aim.ports)):
                places += [base << unit, (base + size << unit) - 4, base + size << unit]
            aim.ports += [(io << 12) + 0x100, (io << 12) + 0x400]
            memory, wide, io = (a + b for a, b in zip((memory, wide, io), sizes, strict=True))
        spare = rng.choice([0, 0, 1])
        writes[UP] = self._bridge(FIRST_BUS, inside, bus + spare, first[0],
                                  memory - first[0] + spare, first[1], wide - first[1] + spare,
                                  first[2], io - first[2] + spare)
        aim.identifiers += [bus + 1 << 8, bus + 2 << 8]

        def request(n, register, value):
            if n == UP:
                return config(FIRST_BUS << 8, register, value, type1=False)
            return config(inside << 8 | n << 3, register, value)

        # The old numbers reach only the upstream port, hence first.
        for n in (UP, *range(PORTS)):
            # Clear values of the last round in registers that this round leaves alone.
            clean = {1: 0, 6: 0, 7: 0, 8: 0, 9: 0, 10: 0, 11: 0, 12: 0, 0xF: 0, 0x44 // 4: 0,
                     0x88 // 4: 0}
            for register, value in (clean | writes[n]).items():
                await self.play(UP, request(n, register, value).pack())
        return aim

    def _bridge(self, primary, secondary, subordinate, memory, megabytes, wide, wide_megabytes,
                io, pages):
        rng = self.rng
        # An empty window has its base above its limit.
        end, wide_end, io_end = memory + megabytes - 1, wide + wide_megabytes - 1, io + pages - 1
        if not megabytes:
            memory, end = 0xFFF, 0
        if not wide_megabytes:
            wide, wide_end = 0xFFF, 0
        if not pages:
            io, io_end = 0xF, 0
        return {
            6: subordinate << 16 | secondary << 8 | primary,
            8: (end & 0xFFF) << 20 | (memory & 0xFFF) << 4,
            9: (wide_end & 0xFFF) << 20 | (wide & 0xFFF) << 4, 10: wide >> 12, 11: wide_end >> 12,
            7: (io_end & 15) << 12 | (io & 15) << 4, 12: (io_end >> 4) << 16 | io >> 4,
            0xF: rng.choice([2, 2, 2, 0, 6]) << 16,
            0x44 // 4: rng.choice([0] * 12 + [3]),
            0x88 // 4: rng.choice([0, 0, 0, 1 << 5]),
            1: rng.choice([7] * 6 + [rng.getrandbits(3)]) | 0x100 * rng.getrandbits(1),
        }

    def stimulus(self, aim):
        """A random well-formed TLP that the model can represent, and its entry."""
        rng = self.rng
        while True:
            side = rng.choice([UP, UP, *range(PORTS)])
            aim.requesters = [0x0000, 0x0010]
            if side != UP:
                secondary, subordinate = self.golden.down[side].buses()
                if not secondary:
                    continue
                aim.requesters = [secondary << 8, subordinate << 8 | 1]
            source = HostileSource(rng, aim, writes=True)
            tlp = source.aimed(random_tlp(rng, max_payload=10, kinds=self._kinds()))
            tlp.prefixes, tlp.digest = (), None
            tlp.tag &= 0xFF
            tlp.th = tlp.hint = 0
            if is_message(tlp.type):
                self._tidy_message(tlp, source)
            elif tlp.type in COMPLETION:
                tlp.byte_count = 4 * max(1, tlp.length)
                tlp.lower_address = 0
            elif tlp.type in (Type.CONFIG_0, Type.CONFIG_1):
                if side == UP and not tlp.type & 1:
                    tlp.target_id = FIRST_BUS << 8 | rng.choice([0, 0, 1, 0x10])
                if tlp.fmt & 2:
                    # Writes must not change a route.
                    tlp.register, tlp.first_be = 3, 1
                    if not tlp.type & 1:
                        tlp.target_id = FIRST_BUS << 8
            raw = tlp.pack()
            if malformed(raw) or self._unknown(raw):
                continue
            return side, raw

    def _kinds(self):
        groups = (("MRd", "MWr", "FetchAdd", "Swap", "CAS"), ("IO",), ("Cfg",), ("Cpl",), ("Msg",))
        group = self.rng.choices(groups, [4, 2, 2, 2, 2])[0]
        return tuple(kind for kind in KINDS if kind.startswith(group))

    def _tidy_message(self, tlp, source):
        rng = self.rng
        tlp.type = tlp.type & 0x18 | rng.choice([0, 0, 2, 2, 3, 4, 5])
        tlp.message_code = rng.choice(MESSAGE_CODES)
        if tlp.type & 7 == 0 and rng.random() < 0.4:
            tlp.message_code = rng.choice([0x30, 0x31, 0x33])
        tlp.tc = 0
        tlp.message_bytes = bytes(8)
        tlp.target_id = rng.choice([*3 * [source.identifier()], self.golden.captured])
        if not tlp.fmt & 2:
            tlp.length = 0

    @staticmethod
    def _unknown(raw):
        try:
            return pack(unpack(raw)) != raw
        except (ValueError, KeyError):
            return True


@cocotb.test()
async def same_decisions(dut):
    """Random TLPs at all ports in random trees."""
    run = Differential(dut)
    await run.start()
    sent = 0
    while sent < COUNT:
        # In the first round nothing is configured.
        aim = await run.configure() if sent else Aim(
            [0, 0x1000, 0xF_F000, 0x10_0000], [0, 0x1000], [0, 0, 0x100], [])
        for _ in range(125):
            side, raw = run.stimulus(aim)
            for to, out in await run.play(side, raw):
                info = classify(out)
                if info.cls is TlpClass.NP:
                    answer = complete(Tlp.unpack(out), CompletionStatus.UR,
                                      0 if to == UP else run.golden.down[to].buses()[0] << 8)
                    await run.play(to, answer.pack())
            sent += 1
    print(f"differential: {dict(run.ways)}")
    print(f"differential: {dict(run.used)}")
    unused = {name for name, *_ in RULES} - set(run.used)
    assert not unused, unused
