"""Hostile TLPs into every PCIe side of the whole system, each accounted for.

The fate of a TLP is computed before it is sent: for the buffers and parsers at the ports in
:class:`~dxpu_sim.system.benches.fuzz_oracle.Oracle`, for the logic behind them in the golden
switch. Each TLP must leave at the computed port with the computed bytes, or be answered exactly as
computed; or it is dropped and the counter of the cause rises by one (all counters of all proxies
are compared). After each batch, every slot and the switch must answer well-formed requests in full,
in both directions. From time to time slots are also reset, pulled and bound anew
(:mod:`dxpu_sim.system.benches.upheaval`).

``$DXPU_SYSTEM``: options of the design, as JSON. ``$DXPU_FUZZ``: number of hostile TLPs.
"""

import json
import os
import random
import time
from collections import Counter

import cocotb
from cocotb.triggers import Event, Timer, select

from dxpu.proxy.malformed import MalformedReporter
from dxpu.tlp.types import Malformed, TlpClass, Type
from dxpu_model.switch import UP
from dxpu_model.tlp import KINDS, Tlp, classify, malformed
from dxpu_sim.pcie.hostile import Aim, Hostile, HostileSource
from dxpu_sim.pcie.ports import Mailbox
from dxpu_sim.system.setup import Proxy, bind, open_session, wait_for_slot
from dxpu_sim.system.shape import shape
from dxpu_sim.system.traffic import (
    CANARY_TAG, FIRST_ERROR_REGISTERS, Traffic, config, shows_errors,
)

from . import upheaval
from .fuzz_oracle import HOST_BUFFER, SLOT_BUFFER, Oracle

OPTIONS = json.loads(os.environ.get("DXPU_SYSTEM", "{}"))
COUNT = int(os.environ.get("DXPU_FUZZ", "1000"))

#: Counters of transport, without information on the fate of a TLP.
CARRIED = ("fabric_tx_frames", "fabric_rx_frames", "mac0_tx_good", "mac0_rx_good", "mac1_tx_good",
           "mac1_rx_good", "table_committed", "fabric_tx_waited", "pool_waited",
           # Errors: depend on the order and simultaneity of errors.
           "switch_unlogged", "switch_unsent")
#: Fates of hostile TLPs, by counter.
ENDS = {"pcie_malformed", "pcie_discarded", "pcie_overflow", "from_slots_malformed",
        "tlp_malformed",
        "slot1_overflow", "switch_config", "switch_unsupported0",
        "switch_unclaimed0", "switch_unexpected0", "switch_unsupported1", "switch_unclaimed1",
        "tracking_unexpected", "switch_blocked", "switch_peer", "switch_interrupt",
        # In an upheaval.
        "tracking_answered", "tracking_closed", "fabric_tx_unroutable"}
FIRST_BUS, INSIDE = 1, 2
DEVICE = 0x68 // 4  # Device Control
ACS = 0x164 // 4  # ACS Capability and Control
MEMORY, WIDE, IO = 0x8000_0000, 0x40_0000_0000, 0x1000


def buses(port):
    """Secondary and subordinate bus number of a downstream port."""
    return 3 + 2 * port, 4 + 2 * port


class Fuzz(Traffic):
    """The system, its oracle, and the TLPs on their way."""

    def __init__(self, dut):
        design = shape(OPTIONS)
        self.slots = [(b, s + 1) for b, count in enumerate(design.boxes) for s in range(count)]
        super().__init__(
            {UP: Mailbox(dut, "host")} | {n: Mailbox(dut, f"gpu{n}")
                                          for n in range(len(self.slots))},
            Oracle(design.ports, self.slots), random.Random(int(os.environ["DXPU_SEED"])))
        self.ports, self.paths = design.ports, min(2, OPTIONS.get("paths", 2))
        self.proxies = [Proxy(dut, f"{name}_bus", map, node) for name, map, node in
                        zip(design.names, design.maps, design.nodes, strict=True)]
        self.sent = Counter()
        #: Counts unknown to the oracle; the upheaval under way, which replaces the oracle.
        self.base, self.upheaval = Counter(), None
        self.operation, self.deck = 100, []
        #: Slots whose GPUs are absent; slots whose links work.
        self.absent, self.up = set(), set()
        self._pulled = {slot: Event() for slot in range(len(self.slots))}

    async def _play_link(self, slot):
        """Simulate the link of a slot: down for a while after a reset request, and while pulled."""
        box, pulled = self.boxes[slot], self._pulled[slot]
        while True:
            while pulled.is_set() or not box.idle:
                await Timer(100, "ns")
            self.up.add(slot)
            box.link(True)
            await select(box.until_reset(), pulled.wait())
            self.up.discard(slot)
            box.link(False)
            await Timer(500, "ns")
            await box.until_released()

    def pull(self, slot, pulled):
        """Take the link of a slot away, or let it come up again."""
        (self._pulled[slot].set if pulled else self._pulled[slot].clear)()

    async def tell_presence(self):
        """Update the presence of GPUs in the registers of the boxes."""
        for n, box in enumerate(self.proxies[1:]):
            await box.write("control.present", slots=sum(
                1 << s - 1 for slot, (owner, s) in enumerate(self.slots)
                if owner == n and slot not in self.absent))

    def place(self, slot):
        """The host, the box of a slot, and the slot's number there."""
        box, number = self.slots[slot]
        return self.proxies[0], self.proxies[1 + box], number

    def route(self, slot):
        """Stream and path of a slot; neighbours in a box differ, if there are enough of both."""
        number = self.slots[slot][1]
        streams = min(2, self.proxies[0].streams)
        return {"paths": 1 << (number - 1) % self.paths, "stream": (number - 1) % streams}

    @staticmethod
    def buffer(side):
        """Size of the largest TLP accepted, in bytes."""
        return HOST_BUFFER if side == UP else SLOT_BUFFER

    async def enqueue(self, side, hostile):
        """Send a TLP without an expectation."""
        await self._queues[side].put(hostile)

    async def _transmit(self, side, hostile):
        while side != UP and side not in self.up:
            await Timer(100, "ns")
        await super()._transmit(side, hostile)

    def _received(self, side, record):
        if self.upheaval is None or self._by_switch(side, record):
            super()._received(side, record)
        else:
            self.upheaval.received(side, record.raw)

    async def connect(self):
        """Do the manager's part: nodes, sessions, bindings."""
        self.boxes[UP].link(True)
        for slot in range(len(self.slots)):
            cocotb.start_soon(self._play_link(slot))
        await Timer(20, "us")
        host, *boxes = self.proxies
        for proxy in self.proxies:
            await proxy.write("control.fabric", packing_limit=512, ack_delay=125)
        await self.tell_presence()
        sessions = sorted({(b, self.route(n)["stream"]) for n, (b, _) in enumerate(self.slots)})
        for n, (b, stream) in enumerate(sessions):
            await open_session(host, boxes[b], peer_a=b, peer_b=0, tag_a=n + 1, tag_b=n + 99,
                               stream=stream)
        for port, (b, slot) in enumerate(self.slots):
            await bind(host, port, boxes[b], slot, generation=1, operation_id=port + 1,
                       **self.route(port))
        for port in range(len(self.slots)):
            await wait_for_slot(host, port, link=1)
            self.oracle.switch.present[port] = True
        self.oracle.switch.interrupts()

    async def canaries(self):
        """Check that the system works in every direction, and has handled all earlier TLPs."""
        await self.acknowledge(range(len(self.slots)))
        for port in range(len(self.slots)):
            offset = 4 * self.rng.randrange(1024 - 8)
            length = self.rng.randint(1, 8)
            options = {"length": length, "first_be": 15, "last_be": 15 if length > 1 else 0,
                       "tag": CANARY_TAG}
            await self.fair(UP, Tlp(*KINDS["MRd64"], address=WIDE + (port << 28) + offset,
                                    requester_id=0x0008, **options))
            await self.fair(port, Tlp(*KINDS["MRd32"], address=0x1000_0000 + offset,
                                      requester_id=buses(port)[0] << 8, **options))
            await self.fair(UP, config(INSIDE << 8 | port << 3, 6))
        assert self.left >= 3 * len(self.slots), "the canaries are not answered"
        await self.drain(1000)
        self.compare_messages()

    async def totals(self):
        """All counters of all proxies."""
        return {f"{proxy.name.removesuffix('_bus')}.{counter}": total for proxy in self.proxies
                for counter, total in (await proxy.counters()).items()}

    def _known(self):
        """Expected values of the counters."""
        known = Counter(self.base)
        known.update(self.oracle.totals())
        return known

    async def diagnose(self):
        """Counters that differ from the counts of the oracle."""
        totals = {name: total for name, total in (await self.totals()).items()
                  if total and not name.endswith(CARRIED)}
        expected = {name: total for name, total in self._known().items() if total}
        return [f"{name} is {totals.get(name, 0)}, not {expected.get(name, 0)}"
                for name in sorted({*totals, *expected})
                if totals.get(name, 0) != expected.get(name, 0)]

    async def counters(self):
        """Check that all counters equal the counts of the oracle."""
        await Timer(3, "us")
        self.problems += await self.diagnose()
        self.check()

    async def until_told(self):
        """Wait until the ports know of malformed TLPs of their slots: boxes report them slowly."""
        await Timer(MalformedReporter.PAUSE * 8 * (len(self.slots) + 1) + 20_000, "ns")

    async def agree(self):
        """Bring golden switch and virtual switch to the same state.

        The state consists of interrupt wires, messages that end in the switch, events, errors and
        counters.
        """
        await self.until_told()
        self._asked = self._acknowledged = 0
        slots, switch = range(len(self.slots)), self.oracle.switch
        for slot in slots:
            for wire in range(4):
                await self.fair(slot, Tlp(1, Type.MESSAGE_LOCAL, message_code=0x24 + wire,
                                          requester_id=buses(slot)[0] << 8))
        await self.fair(UP, Tlp(1, Type.MESSAGE_BROADCAST, message_code=0x19))
        await self.fair(UP, Tlp(3, Type.MESSAGE_LOCAL, length=1, message_code=0x50,
                                payload=bytes([75, 0, 0, 0])))
        await self.acknowledge(slots)
        for function, f in enumerate((switch.up, *switch.down)):
            kept = f.map.access_image("RW")
            for dword, mask in enumerate(f.map.access_image("RW1C")):
                if mask:
                    await self.fair(UP, self.write_to(function, dword,
                                                      f.read(dword) & kept[dword] | mask))
        # TLPs that end in the switch, such as PME_TO_Ack, show nowhere: wait for them to arrive.
        await self.drain(10_000)
        known, totals = self._known(), await self.totals()
        self.base.update({name: total - known[name] for name, total in totals.items()
                          if not name.endswith(CARRIED)})

    # Configuration

    @staticmethod
    def write_to(function, dword, value):
        """A configuration write to a function of the switch; 0 is the upstream port."""
        if function:
            return config(INSIDE << 8 | function - 1 << 3, dword, value)
        return config(FIRST_BUS << 8, dword, value, type1=False)

    def configuration(self):
        """The writes that configure the tree."""
        def up(register, value):
            return config(FIRST_BUS << 8, register, value, type1=False)

        yield up(6, buses(self.ports - 1)[1] << 16 | INSIDE << 8 | FIRST_BUS)
        yield up(8, 0xBFF0_8000)
        yield up(9, 0xFFF1_0001)
        yield up(10, WIDE >> 32)
        yield up(11, (WIDE >> 32) + 1)
        yield up(7, 0xF010)
        yield up(12, 0)
        yield up(15, 0x2_0000)
        yield up(DEVICE, 0x100 | 2 << 5)  # Max_Payload_Size of 512 bytes
        yield up(1, 7)
        for port in range(self.ports):
            def down(register, value, target=INSIDE << 8 | port << 3):
                return config(target, register, value)

            secondary, subordinate = buses(port)
            memory, wide, io = (MEMORY >> 16) + 16 * port, WIDE + (port << 28), 0x10 * (port + 1)
            yield down(6, subordinate << 16 | secondary << 8 | INSIDE)
            yield down(8, memory << 16 | memory)
            yield down(9, (wide + 0xFFF_FFFF & 0xFFF0_0000) | wide >> 16 & 0xFFF0)
            yield down(10, wide >> 32)
            yield down(11, wide >> 32)
            yield down(7, io << 8 | io)
            yield down(12, 0)
            yield down(15, 0x2_0000)
            yield down(DEVICE, 0x100 | port % 3 << 5)  # 128, 256 and 512 bytes
            if port == 0:
                yield down(ACS, 1 << 16)  # Source Validation
            yield down(1, 7)

    async def configure(self):
        """Configure the tree."""
        for write in self.configuration():
            await self.fair(UP, write)
        await self.settle()

    def writable(self):
        """Writable bits of each dword of each function, with their values."""
        return {(function, dword): (f.read(dword) & mask)
                for function, f in enumerate((self.oracle.switch.up, *self.oracle.switch.down))
                for dword, mask in enumerate(f.map.access_image("RW")) if mask}

    async def restore(self, before):
        """Set all writable bits back to ``before``."""
        # The bus numbers of the upstream port first: they lead to the other ports.
        for place in sorted(before, key=lambda place: (place[0], place[1] != 6)):
            function, dword = place
            if before[place] != self.writable()[place] or place == (0, 6):
                await self.fair(UP, self.write_to(function, dword, before[place]))
        await self.settle()
        assert self.writable() == before

    def aim(self):
        """Targets of hostile TLPs."""
        inside = range(len(self.slots) + 1)
        windows = [MEMORY + (n << 20) for n in inside] + [WIDE + (n << 28) for n in inside]
        return Aim(
            addresses=[*windows, *(w - 0x1000 for w in windows), 0, 0x1000_0000, 0xFFFF_F000],
            ports=[IO * (n + 1) for n in inside],
            identifiers=[0, FIRST_BUS << 8, INSIDE << 8, *(INSIDE << 8 | n << 3 for n in inside),
                         *(bus << 8 for n in inside for bus in buses(n))])

    def hostiles(self, side):
        """Endless hostile TLPs for a port, without changes of configuration space."""
        aim = self.aim()
        if side == UP:
            aim.requesters = [0x0000, 0x0008]
        else:
            aim.requesters = [bus << 8 | f for bus in buses(side) for f in (0, 0, 1, 0xFF)]
        source = HostileSource(self.rng, aim, discards=0)
        while True:
            hostile = source.draw()
            if malformed(hostile.raw) is Malformed.NONE:
                info = classify(hostile.raw)
                if side == UP and info.is_config and (info.is_write
                                                      or shows_errors(hostile.raw)):
                    continue
                # A request and the apparent completion of a request must not meet: the result would
                # depend on their order.
                if (info.tag >= 512) != (info.cls is TlpClass.CPL) and info.cls is not TlpClass.P:
                    continue
            yield hostile

    def configs(self):
        """Endless configuration requests to any target, right and wrong, mostly writes."""
        rng = self.rng
        source = HostileSource(rng, self.aim(), writes=True)
        writable = sorted({dword for _, dword in self.writable()})
        # Secondary Bus Reset and Link Disable would take too long to undo.
        spared = {(15, 1 << 22), (0x70 // 4, 1 << 4)}
        while True:
            target = rng.choice([source.identifier(), *source.aim.identifiers])
            own = target >> 8 == FIRST_BUS or rng.random() < 0.1
            value = rng.choice([None, 0, 0xFFFF_FFFF, rng.getrandbits(32), rng.getrandbits(32)])
            register = rng.choice([*rng.sample(writable, 4), rng.randrange(128),
                                   rng.randrange(1024)])
            if register in FIRST_ERROR_REGISTERS:
                continue
            for dword, bits in spared:
                if value is not None and register == dword:
                    value &= ~bits
            tlp = config(target, register, value, type1=not own,
                         enables=rng.choice([15, 15, rng.getrandbits(4)]))
            if rng.random() < 0.1:
                # Interrupt enables of a slot in use, without clearing events.
                tlp = config(INSIDE << 8 | rng.randrange(len(self.slots)) << 3, 0x78 // 4,
                             rng.getrandbits(16), enables=3)
            tlp.requester_id, tlp.tag = rng.getrandbits(16), rng.getrandbits(9)
            tlp.ep = rng.random() < 0.05
            if rng.random() < 0.1:
                tlp.digest = rng.randbytes(4)
            if rng.random() < 0.1:
                tlp.prefixes = (bytes([0x90]) + rng.randbytes(3),)
            if rng.random() < 0.1:
                setattr(tlp, *rng.choice([("length", 0), ("length", 2), ("tc", 3), ("attr", 1),
                                          ("last_be", 1), ("at", 1)]))
            yield Hostile(tlp.pack(), False, "config")


async def misconfigure(fuzz, configs, count):
    """Send hostile configuration requests from the host, one after the other; then repair."""
    await fuzz.until_told()
    before = fuzz.writable()
    for _ in range(count):
        hostile = next(configs)
        fuzz.sent[hostile.kind] += 1
        reached = fuzz.oracle.totals()["host.fabric_tx_tlps"]
        await fuzz.send(UP, hostile)
        await fuzz.settle()
        # The error of a TLP dropped without an answer must not meet the next change.
        await Timer(1, "us")
        if fuzz.oracle.totals()["host.fabric_tx_tlps"] != reached:
            # A slot's answer may end in the switch, and must not meet the next change.
            await Timer(10, "us")
    await fuzz.restore(before)
    await fuzz.canaries()


async def batch(fuzz, sources, count):
    """Send hostile TLPs into all ports at once."""
    rng = fuzz.rng
    for box in fuzz.boxes.values():
        box.gaps(send=rng.choice([0, 0, 0.5]), receive=rng.choice([0, 0, 0.5]))

    async def stream(side, share):
        for _ in range(share):
            hostile = next(sources[side])
            fuzz.sent[hostile.kind] += 1
            await fuzz.send(side, hostile)

    tasks = [cocotb.start_soon(stream(side, count // (2 if side == UP else 2 * len(fuzz.slots))))
             for side in fuzz.boxes]
    for task in tasks:
        await task
    await fuzz.settle()
    await fuzz.canaries()


@cocotb.test()
async def fuzz(dut):
    """Hostile TLPs at all ports, all accounted for; the system works on."""
    run = Fuzz(dut)
    await run.connect()
    await run.configure()
    await run.canaries()
    sources, configs = {side: run.hostiles(side) for side in run.boxes}, run.configs()
    start, rounds, moves = time.monotonic(), 0, Counter()
    # Disturbances are dealt from a deck, as many in a batch as find time; at the end, the rest.
    while (left := COUNT - sum(run.sent.values())) > 0 or len(moves) < len(upheaval.MOVES):
        if left <= 0 or rounds % 8 == 7:
            moves += await upheaval.run(run, sources, 150)
        else:
            await batch(run, sources, 150)
        rounds += 1
        if rounds % 5 == 0:
            await misconfigure(run, configs, 40)
        if rounds % 20 == 0:
            await run.counters()
    await run.counters()
    seconds = time.monotonic() - start
    total = sum(run.sent.values())
    print(f"fuzz: {total} hostile TLPs in {rounds} batches, {total / seconds:.0f} a second, "
          f"{int(dut.cycle.value)} cycles")
    print(f"fuzz: {dict(run.sent)}, {dict(moves)}")
    totals = await run.totals()
    print("fuzz:", {name: n for name, n in totals.items() if n})
    # Every fate of a TLP must have occurred.
    ends = {name.partition(".")[2] for name, n in totals.items() if n}
    assert ends >= ENDS, ENDS - ends
    assert set(moves) == set(upheaval.MOVES)
