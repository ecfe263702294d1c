"""Proxies that are managed by frames alone, beside the traffic of GPUs.

Options of the design come as JSON in ``$DXPU_SYSTEM``, the number of hostile frames in
``$DXPU_HOSTILE``.
"""

import json
import os
from dataclasses import replace

import cocotb
from cocotb.triggers import Timer
from cocotb.utils import get_sim_time

from dxpu.management.format import FOLLOWS_MAX, Kind, Status, Subject
from dxpu_model.management import Event, Message, Operation, knock
from dxpu_model.wire import reseal
from dxpu_sim.endpoint.driver import find_gpus
from dxpu_sim.pcie.ports import Mailbox
from dxpu_sim.system.nodes import factory_of
from dxpu_sim.system.managed import MANAGER_MAC, ManagedProxy, Manager
from dxpu_sim.system.setup import bind, let_open, wait_for_session, wait_for_slot
from dxpu_sim.system.system import SimulatedSystem

OPTIONS = json.loads(os.environ.get("DXPU_SYSTEM", "{}"))
HOSTILE = int(os.environ.get("DXPU_HOSTILE", "300"))
#: Waits that a simulation can wait for: 31 us, and 51 us after the end of a session.
TIMERS = {"boot": 1, "wait": 60, "quiet": 100}


class Pool:
    """A host and a box, and their manager at an Ethernet port of its own."""

    def __init__(self, dut, number=1, epoch=1):
        self.system = SimulatedSystem(dut, OPTIONS)
        self.manager = Manager(Mailbox(dut, "intruder"), self.system.rng)
        self.host, self.box = (self.proxy(proxy, number, epoch)
                               for proxy in (self.system.host, self.system.boxes[0]))

    def proxy(self, proxy, number=1, epoch=1, address=0xFFF):
        """A proxy that is reached by frames."""
        return ManagedProxy(proxy.dut, proxy.name, proxy.map, proxy.node, manager=self.manager,
                            number=number, epoch=epoch, address=address)

    async def use(self):
        """Numbers, a key, a session and a binding, all by frames; returns the GPU's driver."""
        await Timer(50, "us")  # until there are random words
        await let_open(self.host, self.box, peer_host=0, peer_box=0, key=bytes(range(16)), **TIMERS)
        await self.box.write("control.present", slots=1)
        await wait_for_session(self.host, 0, timeout_us=3000)
        await bind(self.host, 0, self.box, 1, generation=1, operation_id=1)
        await wait_for_slot(self.host, 0, link=1)
        self.system.routes.present.add(0)
        await self.system.rc.enumerate()
        driver, = find_gpus(self.system.rc)
        await driver.open()
        return driver

    async def copy(self, driver, size=2000):
        """Copy so many bytes there and back."""
        data = self.system.rng.randbytes(size)
        assert await driver.copy_there_and_back(data, 0) == data


@cocotb.test()
async def a_manager_sets_a_pool_up(dut):
    """From unnumbered nodes to a GPU in use; the registers say the same at their own port."""
    pool = Pool(dut)
    driver = await pool.use()
    await pool.copy(driver)
    for managed, proxy in ((pool.host, pool.system.host), (pool.box, pool.system.boxes[0])):
        assert await proxy.read("control.node") == {"number": proxy.node}
        assert (await proxy.read("control.security"))["managed"] == 1
        assert (await proxy.read("table.fence_epoch"))["value"] == 1
        identity = managed._end.identity
        assert (identity.mac, identity.serial) == factory_of(proxy.node)[1:]
        assert identity.capabilities & 0x20
        # By its number, too, as another manager number; and many registers at once.
        other = pool.proxy(proxy, number=2, address=proxy.node)
        answer = await other.request([Operation(0, 4), Operation(0x1000, 70)], epoch=0)
        assert answer.status == Status.DONE
        for n, word in enumerate(answer.words[:4]):
            assert word == await proxy.access(4 * n)
        # The only change of the table is the binding.
        assert (identity.table, other._end.identity.table) == (0, 1)
        # A deposed manager reads, and writes nothing.
        assert (await managed.request([Operation.write(0x8, 7)], epoch=0)).status == Status.REFUSED
        await managed.request([Operation.write(0x8, proxy.node)], epoch=5)
        assert (await managed.request([Operation.write(0x8, 7)])).status == Status.STALE
        assert await proxy.read("control.node") == {"number": proxy.node}


@cocotb.test()
async def nodes_tell_what_happens(dut):
    """Of the link, the session and the slot, in order, as the registers show it; each once."""
    pool = Pool(dut)
    host, box = pool.host, pool.box
    driver = await pool.use()
    await pool.copy(driver)
    await Timer(300, "us")
    opened = Event(Subject.SESSION, 0, 1 << 31)
    for node in (host, box):
        assert [e for e in node.events if e.code == Subject.PATH] == [Event(Subject.PATH, 0, 1)]
        assert [e for e in node.events if e.code == Subject.SESSION] == [opened]
    # Bound; then a card, or a GPU, and its link.
    slots = [e.argument for e in host.events if e.code == Subject.SLOT]
    assert slots[0] == 1 and slots[-1] == 7, slots
    slots = [e.argument for e in box.events if e.code == Subject.SLOT]
    assert slots[0] == 2 and slots[-1] == 7, slots
    for node in (host, box):
        node.events.clear()
    # The session ends, and the host loses the card; it opens anew.
    await box.write("control.session[0].open")
    await Timer(700, "us")
    for node in (host, box):
        of_session = [e.argument for e in node.events if e.code == Subject.SESSION]
        assert of_session == [1 << 30, 1 << 31], (node.name, node.events)
    state = await host.read("control.slot[0].state")
    assert (state["present"], state["link"], state["lost"]) == (0, 0, 1)
    assert [e for e in host.events if e.code == Subject.SLOT][-1] == Event(Subject.SLOT, 0, 9)
    for proxy in (pool.system.host, pool.system.boxes[0]):
        assert not (await proxy.counters())["management_untold"]


def hostile(rng, node, key, seen):
    """A frame of a stranger who sees all: made up, recorded, altered, or under another key."""
    _, mac, _ = factory_of(node)
    if seen and rng.random() < 0.5:
        frame = bytearray(rng.choice(seen))
        if rng.random() < 0.5:
            frame[rng.randrange(14, len(frame))] ^= 1 << rng.randrange(8)
            return reseal(bytes(frame))
        return bytes(frame)
    message = Message(
        rng.choice(list(Kind)), rng.randrange(1, 5), rng.choice((0, 1, 2, rng.getrandbits(32))),
        rng.choice((bytes(8), rng.randbytes(8))), rng.randbytes(8),
        rng.randbytes(4 * rng.randrange(FOLLOWS_MAX // 4)), rng.choice((0xFFF, node)), 0, mac,
        MANAGER_MAC)
    if rng.random() < 0.3:
        message = replace(message, kind=Kind.ASK, counter=0, node_nonce=bytes(8),
                          follows=knock(key))
    return message.frame()


@cocotb.test()
async def hostile_frames_change_nothing(dut):
    """Of a stranger who has recorded all that was said, to both proxies, while a GPU is used; the
    manager still gets its answers, nothing is lost, no register was written."""
    pool = Pool(dut)
    rng = pool.system.rng
    driver = await pool.use()
    seen, send = [], pool.manager.mailbox.send
    proxies = (pool.system.host, pool.system.boxes[0])

    async def record(frame):
        seen.append(frame)
        await send(frame)

    pool.manager.mailbox.send = record
    for managed in (pool.host, pool.box):
        await managed.request([Operation.write(0x8, managed.node)])
    pool.manager.mailbox.send = send

    async def state():
        """All registers of the control block that nobody but a manager changes, and the table."""
        found = []
        for proxy in proxies:
            for path in ("control.node", "control.fabric", "control.retry", "control.boot",
                         "control.hello", "control.quiet", "control.peer[0].node",
                         "control.peer[0].key", "table.fence_epoch", "table.row[0].binding"):
                found.append(await proxy.read(path))
        return found

    before, done = await state(), []

    async def use():
        while not done:
            await pool.copy(driver, rng.randint(100, 1500))

    user = cocotb.start_soon(use())
    for n in range(HOSTILE):
        proxy = rng.choice(proxies)
        key = rng.choice((rng.randbytes(16), factory_of(proxy.node)[0]))
        await send(hostile(rng, proxy.node, key, seen))
        if n % 50 == 49:
            for managed in (pool.host, pool.box):
                answer = await managed.request([Operation(0x0)], epoch=0)
                assert answer.words == (await managed_identity(managed),)
    done.append(True)
    await user
    assert await state() == before
    await pool.copy(driver)
    for proxy in proxies:
        counts = {name: total for name, total in (await proxy.counters()).items()
                  if name.startswith("management_") and total}
        print(f"managed: {proxy.name}: {counts}")
        assert counts["management_stale"] and counts["management_damaged"]
        assert counts["management_knock"]


async def managed_identity(managed):
    """What the identity register reads."""
    placed, _ = managed.map.find("control.identity")
    return placed.register.reset


#: Bytes of preamble, FCS and gap, and time of a byte at 1 Gb/s in ns.
BESIDE, BYTE_NS = 24, 8
#: Bytes of a copy, and register reads that are measured.
COPY, READS = 8_192, 30


class Flood:
    """Frames of a stranger that take ``share`` of the line to each proxy.

    ``other``: of a type that nobody handles, which has no effect but the time that it takes.
    ``blind``: requests without the nonces. ``sniffer``: requests of the association that there is,
    with the next counter and a wrong tag, so each costs a calculation.
    """

    def __init__(self, pool, kind, *, share):
        self.pool, self.share, self.kind = pool, share, kind
        self.frames = [self.frame(node) for node in (pool.host, pool.box)]
        self.ends, self.count = False, 0

    def frame(self, node):
        """A frame to a node."""
        told, rng = node._end._told, self.pool.system.rng
        message = replace(told, kind=Kind.REQUEST, counter=node._end._counter + 1,
                          follows=rng.randbytes(24 + 16))
        if self.kind == "blind":
            message = replace(message, node_nonce=rng.randbytes(8))
        frame = message.frame()
        return frame[:12] + b"\x88\xb6" + frame[14:] if self.kind == "other" else frame

    async def run(self):
        """Send until :attr:`ends`."""
        mailbox = self.pool.manager.mailbox
        while not self.ends:
            frame = self.frames[self.count % 2]
            await mailbox.send(frame)
            self.count += 1
            await Timer(int((len(frame) + BESIDE) * BYTE_NS / self.share), "ns")


async def speeds(pool, driver):
    """Time of a copy to the host and one to the GPU, in ns a byte; of a register read, in ns."""
    found = {}
    for name, copy in (("to host", driver.copy_to_host), ("to GPU", driver.copy_to_gpu)):
        base, _ = pool.memory
        begin = get_sim_time("ns")
        await copy(base, 0, COPY)
        found[name] = (get_sim_time("ns") - begin) / COPY
    begin = get_sim_time("ns")
    for _ in range(READS):
        await driver.read_register("MAGIC")
    found["read"] = (get_sim_time("ns") - begin) / READS
    return found


@cocotb.test()
async def a_flood_takes_its_part_of_the_wire_and_no_more(dut):
    """Frames of management with wrong tags slow copies and reads as frames that nobody handles do,
    and copies by no more than their share of the line; they are answered by nothing."""
    pool = Pool(dut)
    driver = await pool.use()
    pool.memory = pool.system.rc.alloc_region(COPY)
    for node in (pool.host, pool.box):
        await node.request([Operation(0)])
    proxies = {"host": pool.system.host, "box": pool.system.boxes[0]}
    found, clean = {}, await speeds(pool, driver)
    print(f"flood: nobody: {clean}")
    for share in (0.25, 0.5):
        for kind in ("other", "blind", "sniffer"):
            flood = Flood(pool, kind, share=share)
            before = {name: await proxy.counters() for name, proxy in proxies.items()}
            heard, task = len(pool.manager.frames), cocotb.start_soon(flood.run())
            await Timer(20, "us")
            found[kind, share] = await speeds(pool, driver)
            flood.ends = True
            await task
            await Timer(100, "us")
            dropped = {f"{name} {counter}": total - before[name][counter]
                       for name, proxy in proxies.items()
                       for counter, total in (await proxy.counters()).items()
                       if counter.startswith("management_") and total != before[name][counter]}
            print(f"flood: {kind} {share}: {found[kind, share]}, {flood.count} frames, {dropped}")
            assert len(pool.manager.frames) == heard
            for name in ("host", "box"):
                assert (f"{name} management_tag" in dropped) == (kind == "sniffer")
                assert (f"{name} management_stale" in dropped) == (kind == "blind")
    for (kind, share), took in found.items():
        for name, time in took.items():
            assert time < 1.05 * found["other", share][name], (kind, share, name)
            if name != "read":
                assert time < 1.05 * clean[name] / (1 - share), (kind, share, name)
