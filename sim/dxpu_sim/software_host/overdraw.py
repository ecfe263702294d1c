"""A host that sends without credits loses its slot, without effect on other hosts.

Two hosts share a box with two slots. The good host keeps to its credits and reads from the GPU of
slot 2 all the time. The bad host floods slot 1 regardless of its credits. Both are
:class:`dxpu_host.box.Box`, which has neither sockets nor clocks, so both live in simulated time.
"""

import random

import cocotb
from cocotb.triggers import Event as Happening
from cocotb.triggers import Timer
from cocotb.utils import get_sim_time

from dxpu.fabric.wire.format import ErrorCode, EventCode
from dxpu_host.box import Box, SlotDown, SlotReady, TlpCame
from dxpu_host.credits import Accounts
from dxpu_host.link import Address
from dxpu_host.session import TagSource
from dxpu_host.timers import Timers
from dxpu_model.receiver import judge
from dxpu_model.tlp import KINDS, Tlp
from dxpu_model.wire import Event, Frame
from dxpu_sim.endpoint.gpu import VENDOR_ID

from .box_system import BOX_NODE, BoxSystem

P, NP, CPL = range(3)
GOOD, BAD = 0x001, 0x002
#: Same waits as the box's registers (:meth:`BoxSystem.prepare`): a dead session is lost within 1
#: ms.
TIMERS = Timers(retry=40e-6, hello=40e-6, quiet=60e-6, refresh=100e-6, completion=5e-3,
                attach=2e-3)
#: Longest time to an answer; number of writes of 512 bytes in a flood, 4.7 us each; longest time to
#: an answer during a flood.
PATIENCE_US, FLOOD = 40, 30
FLOOD_US = PATIENCE_US + 4.7 * FLOOD


class Boundless(Accounts):
    """Sends all TLPs, regardless of credits."""

    def allows(self, cls, units):
        return True


class Greedy(Box):
    """A host without regard for credits."""

    ACCOUNTS = Boundless


class Node:
    """A host of one slot, at the Ethernet of the bench."""

    def __init__(self, system, node, slot, kind=Box):
        self.node, self.slot = node, slot
        self.box = kind(Address(node, BOX_NODE), timers=TIMERS, now=self.now(), boot=node,
                        tags=TagSource(random.Random(system.rng.getrandbits(32))))
        self.ready, self.downs, self.completions, self.events = 0, [], [], []
        self._ethernet, self._came, self._wake = system.ethernet, [], Happening()
        system.ethernet.received.append(self._receive)

    @staticmethod
    def now():
        return get_sim_time("ns") * 1e-9

    def _receive(self, record):
        frame = judge(record.raw)
        if isinstance(frame, Frame) and frame.dst_node == self.node:
            self._came.append(frame)
            self._wake.set()

    async def run(self):
        """Run for ever."""
        while True:
            came, self._came = self._came, []
            for frame in came:
                if isinstance(frame.body, Event):
                    self.events.append((EventCode(frame.body.code), frame.body.argument))
                self._take(self.box.receive(frame, self.now()))
            self._take(self.box.turn(self.now()))
            for raw in self.box.take():
                await self._ethernet.send(raw)
            await Timer(1, "us")

    def _take(self, happened):
        for event in happened:
            if isinstance(event, SlotReady):
                self.ready += 1
            elif isinstance(event, SlotDown):
                self.downs.append(event)
            elif isinstance(event, TlpCame):
                self.completions.append(Tlp.unpack(event.tlp))
                event.done()

    async def bind(self):
        await until(lambda: self.box.open, 2000, "a session")
        self.box.bind(self.slot, 1)
        await until(lambda: self.ready, 500, "RESET_DONE")

    async def ask(self, tag):
        """Read the vendor ID of the GPU; returns microseconds until the answer."""
        start = get_sim_time("ns")
        self.box.send(self.slot, Tlp(*KINDS["CfgRd0"], length=1, first_be=15, tag=tag,
                                     requester_id=0x0008, target_id=0x0100).pack())
        await until(lambda: self.completions, 400, "a completion")
        completion = self.completions.pop()
        assert completion.tag == tag and completion.payload[:2] == VENDOR_ID.to_bytes(2, "little")
        return (get_sim_time("ns") - start) / 1000


async def until(condition, us, what):
    for _ in range(2 * us):
        if condition():
            return
        await Timer(500, "ns")
    raise AssertionError(f"no {what} within {us} us")


def write(units, address=0x10000):
    """A write of ``units`` times 16 bytes."""
    return Tlp(*KINDS["MWr32"], length=4 * units, payload=bytes(16 * units), address=address,
               first_be=15, last_be=15, requester_id=0x0008).pack()


async def start(dut):
    """Start two hosts, and wait until their slots are ready."""
    system = BoxSystem(dut)
    await system.prepare(hosts=[BAD, GOOD])
    good, bad = Node(system, GOOD, 2), Node(system, BAD, 1, Greedy)
    for node in (good, bad):
        cocotb.start_soon(node.run())
    await good.bind()
    await bad.bind()
    assert await bad.ask(1) < PATIENCE_US and await good.ask(1) < PATIENCE_US
    return system, good, bad


async def asks(good, times, patience=PATIENCE_US):
    """Check that the good host gets answers in time."""
    slowest = 0
    for n in range(times):
        slowest = max(slowest, await good.ask(n % 32))
    assert slowest < patience, f"an answer took {slowest} us"
    assert good.box.open and good.ready == 1 and not good.downs
    return slowest


@cocotb.test()
async def a_host_that_sends_without_credits_loses_its_slot_alone(dut):
    """The GPU of slot 1 takes no posted TLP, and its host sends 30 writes of 512 bytes. Then the
    host requests a reset, which arrives, and keeps to its credits.
    """
    system, good, bad = await start(dut)
    system.links[0].hold(P)
    for _ in range(FLOOD):
        bad.box.send(1, write(32))
    slowest = await asks(good, 30, FLOOD_US)
    await until(lambda: (EventCode.ERROR, ErrorCode.OVERFLOW) in bad.events, 100, "ERROR OVERFLOW")
    totals = await system.box.counters()
    assert totals["to_slots_overflow"] >= 1 and totals["egress1_overflow"] == 0
    assert totals["fabric_rx_tlps"] >= FLOOD
    # The host took the event for the end of a life, and requested another life: RESET came in.
    assert len(bad.downs) == 1 and "credits" in bad.downs[0].reason
    await until(lambda: bad.ready == 2, 500, "RESET_DONE")
    # Resets with BIND, by the box itself, with RESET.
    assert system.gpus[0].resets == 3 and bad.box.open
    system.links[0].hold(P, False)
    assert await bad.ask(2) < PATIENCE_US
    # The host sends as much as may be under way at a time, without consequences.
    for n in range(40):
        bad.box.send(1, write(8))
        if n % 8 == 7:
            await bad.ask(n % 32)
    await asks(good, 3)
    after = await system.box.counters()
    assert after["to_slots_overflow"] == totals["to_slots_overflow"] and bad.ready == 2
    assert after["fabric_session_lost"] == 0
    print(f"overdraw: {totals['to_slots_overflow']} TLPs dropped, then all as of a closed slot; "
          f"the other host waited {slowest:.1f} us at most")


@cocotb.test()
async def a_tlp_above_the_largest_payload_is_dropped_and_costs_nobody_anything(dut):
    """Writes of 4096 bytes, with credits: the GPU never sees such a write, and the credits come
    back each time.
    """
    system, good, bad = await start(dut)
    before = (await system.box.counters())["to_slots_large"]
    for n in range(8):
        bad.box.send(1, write(256))
        assert await bad.ask(n) < PATIENCE_US + 34  # time on the line
    await asks(good, 3)
    totals = await system.box.counters()
    assert totals["to_slots_large"] - before == 8
    assert totals["to_slots_overflow"] == 0 and bad.ready == 1 and not bad.downs
    assert system.gpus[0].resets == 1
