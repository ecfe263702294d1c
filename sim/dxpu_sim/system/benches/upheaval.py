"""Slots that are reset, pulled and bound anew in the middle of hostile TLPs.

The fate of each TLP then depends on the cycle, so nothing is predicted here. Instead, laws must
hold: each request from the host, and from an undisturbed slot, has exactly one final completion;
all TLPs into and out of the fabric are counted; no other counters rise than those for ends of
lives. Afterwards golden switch and virtual switch are brought to the same state again, and
:mod:`dxpu_sim.system.benches.fuzz` goes on.
"""

import re
from collections import Counter

import cocotb
from cocotb.triggers import Timer

from dxpu.tlp.types import Malformed, TlpClass
from dxpu_model.switch import UP
from dxpu_model.tlp import Tlp, classify, malformed
from dxpu_sim.pcie.checkers import Header
from dxpu_sim.pcie.hostile import Hostile
from dxpu_sim.system.setup import bind, slot_state, unbind, wait_for_slot

__all__ = ["MOVES", "Upheaval"]

BRIDGE_CONTROL, BUS_RESET = 0x3C // 4, 1 << 22
LINK_CONTROL, LINK_DISABLE = 0x70 // 4, 1 << 4
SLOT_CONTROL, POWER_BLINKS, POWER_OFF = 0x78 // 4, 2 << 8, 3 << 8

#: Requester IDs of the host itself.
HOST_IDS = (0x0000, 0x0008)

#: Counters that may rise by hostile TLPs and ends of lives. All others must stay. A row cannot be
#: bound anew until the end of its last binding has left, so commands are refused and repeated.
MAY_RISE = re.compile(r"""\w+\.(
    pcie_(malformed|discarded|overflow) | (slot|egress)\d*_overflow | \w+_slots_malformed
    | tlp_malformed
    | switch_(config|(unsupported|unclaimed|unexpected)[01]|blocked|peer|interrupt|fenced)
    | switch_un(logged|sent)  # of errors that come while one is logged, or too many at a time
    | tracking_(closed|answered|fenced|unexpected|stale|irregular)
    | to_slots_dropped | fabric_tx_(unroutable|large|waited|refused) | pool_waited
    | fabric_[rt]x_(unbound|tlps|frames)
    | fabric_rx_abandoned  # the data of a TLP in the split form did not leave any more
    | mac\d_[rt]x_good | table_(committed|refused) | link_ignored | binding_refused)""", re.VERBOSE)


class Upheaval:
    """One period of disturbances.

    Parameters
    ----------
    fuzz : :class:`~dxpu_sim.system.benches.fuzz.Fuzz`
    touched : set of int
        Disturbed slots.

    Attributes
    ----------
    moves : Counter
        Disturbances so far, by kind.
    """

    def __init__(self, fuzz, touched):
        self.fuzz, self.rng, self.touched = fuzz, fuzz.rng, touched
        self.moves = Counter()
        self.expected = {side: Counter() for side in fuzz.boxes}
        self.ended = {side: Counter() for side in fuzz.boxes}
        self.generation = {}

    # Traffic

    async def send(self, side, hostile):
        """Send a TLP; record whether it needs a completion."""
        limit = self.fuzz.buffer(side)
        if malformed(hostile.raw) is Malformed.NONE and len(hostile.raw) <= limit and not (
                hostile.discard) and classify(hostile.raw).cls is TlpClass.NP:
            tlp = Tlp.unpack(hostile.raw)
            self.expected[side][tlp.requester_id, tlp.tag] += 1
        await self.fuzz.enqueue(side, hostile)

    def received(self, side, raw):
        """Handle a TLP that has left: record completions, answer requests."""
        header = Header.parse(raw)
        info = classify(raw)
        if info.cls is TlpClass.CPL:
            data = header.length * 4 - (header.lower_address & 3) if header.fmt & 2 else 0
            if header.status or not data or header.byte_count <= data:
                self.ended[side][header.requester_id, header.tag] += 1
        elif info.cls is TlpClass.NP:
            cocotb.start_soon(self._answer(side, raw))

    async def _answer(self, side, raw):
        for completion in self.fuzz._completions(side, Tlp.unpack(raw)):
            await self.fuzz.enqueue(side, Hostile(completion.pack(), False, "answer"))

    def missing(self):
        """Requests with too few or too many final completions."""
        problems = []
        for side in self.expected:
            if side in self.touched:
                continue
            for key in self.expected[side] | self.ended[side]:
                # A request under another's requester ID gets no completion; the owner of the ID
                # does.
                borrowed = any(key in asked for other, asked in self.expected.items()
                               if other != side)
                if side == UP:
                    # Completions for a foreign requester ID go to the host, if anywhere.
                    certain = key[0] in HOST_IDS and not borrowed
                else:
                    # Unexpected completions of the host have the other tags, and may go to a slot.
                    own = self.fuzz.oracle.switch.down[side].has_bus(key[0] >> 8)
                    certain = own and key[1] < 512 and not borrowed
                wanted, got = self.expected[side][key], self.ended[side][key]
                if certain and wanted != got:
                    problems.append(f"port {side}: {wanted} requests and {got} completions of "
                                    f"{key[0]:#06x} tag {key[1]:#x}")
        return problems

    # Disturbances of slots

    async def _write(self, slot, dword, value):
        write = self.fuzz.write_to(slot + 1, dword, value)
        await self.send(UP, Hostile(write.pack(), False, "fair"))

    async def _level(self, slot, dword, bit):
        """Set a bit for a while."""
        value = self.fuzz.writable()[slot + 1, dword]
        for bits in (value | bit, value):
            await self._write(slot, dword, bits)
            await Timer(self.rng.randint(100, 6000), "ns")

    async def bus_reset(self, slot):
        """Secondary Bus Reset of the port."""
        await self._level(slot, BRIDGE_CONTROL, BUS_RESET)

    async def link_disable(self, slot):
        """Link Disable of the port."""
        await self._level(slot, LINK_CONTROL, LINK_DISABLE)

    async def pull(self, slot):
        """Pull the GPU, and put it back."""
        fuzz = self.fuzz
        fuzz.pull(slot, True)
        fuzz.absent.add(slot)
        await fuzz.tell_presence()
        await Timer(self.rng.randint(100, 15_000), "ns")
        fuzz.pull(slot, False)
        fuzz.absent.discard(slot)
        await fuzz.tell_presence()

    async def flap(self, slot):
        """Take the link of the GPU down for a while."""
        self.fuzz.pull(slot, True)
        await Timer(self.rng.randint(100, 6000), "ns")
        self.fuzz.pull(slot, False)

    async def manager_reset(self, slot):
        """Reset the slot, as a manager, at the host or at the box."""
        host, box, place = self.fuzz.place(slot)
        if self.rng.random() < 0.5:
            await host.write("control.reset", ports=1 << slot)
        else:
            await box.write("control.reset", slots=1 << place - 1)

    async def rebind(self, slot):
        """Release the slot by force, and bind it again."""
        host, box, place = self.fuzz.place(slot)
        for command, options in ((unbind, {}), (bind, self.fuzz.route(slot))):
            self.fuzz.operation += 1
            await command(host, slot, box, place, generation=self.fuzz.operation,
                          operation_id=self.fuzz.operation, **options)
            await Timer(self.rng.randint(1, 6000), "ns")

    async def detach(self, slot):
        """Detach, release and bind the slot. The power indicator is off for a moment only."""
        host, _, _ = self.fuzz.place(slot)
        while not (await slot_state(host, slot))["detach"]:  # BIND may still be on its way
            await host.write("control.detach", ports=1 << slot)
            await Timer(1, "us")
        value = self.fuzz.writable()[slot + 1, SLOT_CONTROL]
        for bits in (value & ~POWER_OFF | POWER_BLINKS, value):
            await self._write(slot, SLOT_CONTROL, bits)
        await wait_for_slot(host, slot, detach=3)
        await self.rebind(slot)

    async def trouble(self, slot):
        """Disturb a slot several times in turn."""
        for _ in range(self.rng.randint(1, 3)):
            await Timer(self.rng.randint(1, 8000), "ns")
            if not self.fuzz.deck:
                self.fuzz.deck += self.rng.sample(MOVES, len(MOVES))
            move = self.fuzz.deck.pop()
            self.moves[move] += 1
            await getattr(self, move)(slot)


#: Kinds of disturbances.
MOVES = ("bus_reset", "link_disable", "pull", "flap", "manager_reset", "rebind", "detach")


async def _quiet(fuzz, upheaval):
    """Wait until all requests are answered, and everything has arrived."""
    for _ in range(60):
        await fuzz.drain(5000)
        if not upheaval.missing():
            break
    return await _still(fuzz)


async def _still(fuzz):
    """Wait until no frame is on its way; returns all counters."""
    while True:
        totals = await fuzz.totals()
        # The largest frame takes 35 us to leave, and 35 us more from the switch on.
        await Timer(80, "us")
        if totals == await fuzz.totals():
            return totals


async def run(fuzz, sources, count):
    """Send ``count`` hostile TLPs into all ports during disturbances of some slots; then repair.

    Returns the disturbances.
    """
    rng, host = fuzz.rng, fuzz.proxies[0]
    await fuzz.counters()
    slots = range(len(fuzz.slots))
    touched = set(rng.sample(slots, rng.randint(1, len(fuzz.slots) - 1)))
    before = await fuzz.totals()
    crossed = {side: (box.tlps_sent, box.tlps_received) for side, box in fuzz.boxes.items()}
    fuzz.upheaval = upheaval = Upheaval(fuzz, touched)

    async def stream(side, share):
        for _ in range(share):
            hostile = next(sources[side])
            fuzz.sent[hostile.kind] += 1
            await upheaval.send(side, hostile)
            await Timer(rng.randint(1, 200), "ns")

    tasks = [cocotb.start_soon(stream(side, count // (2 if side == UP else 2 * len(slots))))
             for side in fuzz.boxes]
    tasks += [cocotb.start_soon(upheaval.trouble(slot)) for slot in sorted(touched)]
    for task in tasks:
        await task
    for slot in sorted(touched):
        await wait_for_slot(host, slot, link=1)
    after = await _quiet(fuzz, upheaval)
    fuzz.upheaval = None
    crossed = {side: (box.tlps_sent - crossed[side][0], box.tlps_received - crossed[side][1])
               for side, box in fuzz.boxes.items()}
    fuzz.problems += upheaval.missing()
    fuzz.problems += laws(fuzz, Counter(after), Counter(before), crossed)
    fuzz.check()
    await fuzz.agree()
    await fuzz.canaries()
    return upheaval.moves


def laws(fuzz, after, before, crossed):
    """Laws among the counters that hold for all disturbances; returns violations."""
    rose = Counter({name: after[name] - before[name] for name in after})
    problems = []

    def equal(what, left, right):
        if left != right:
            problems.append(f"{what}: {left}, not {right}: {dict(+rose)}")

    names = {box for box, _ in fuzz.slots}
    equal("sent by the host and received by boxes", rose["host.fabric_tx_tlps"],
          sum(rose[f"box{b}.fabric_rx_tlps"] for b in names))
    equal("sent by boxes and received by the host", rose["host.fabric_rx_tlps"],
          sum(rose[f"box{b}.fabric_tx_tlps"] for b in names))
    for b in names:
        mine = [n for n, (box, _) in enumerate(fuzz.slots) if box == b]
        places = [fuzz.slots[n][1] for n in mine]
        ends = ("to_slots_dropped", "to_slots_malformed", "fabric_rx_unbound")
        equal(f"ends of what came to box {b}", rose[f"box{b}.fabric_rx_tlps"],
              sum(crossed[n][1] for n in mine) + sum(rose[f"box{b}.{end}"] for end in ends))
        ends = ("from_slots_malformed", "fabric_tx_tlps", "fabric_tx_unbound",
                "fabric_tx_unroutable", "fabric_tx_large",
                *(f"slot{place}_discarded" for place in places))
        equal(f"ends of what box {b} took", sum(crossed[n][0] for n in mine),
              sum(rose[f"box{b}.{end}"] for end in ends))
    problems += [f"{name} rose by {n}" for name, n in rose.items()
                 if n and not MAY_RISE.fullmatch(name)]
    return problems
