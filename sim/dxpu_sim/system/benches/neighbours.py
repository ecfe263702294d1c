"""Frames of a bad neighbour into proxies in use: each is counted by its cause, none has an effect.

All GPUs copy, and their registers are read, as long as the frames come. Their traffic is checked as
usual (every byte, every TLP at both ends). Every counter must rise exactly by the expectation for
the frames sent.

``$DXPU_SYSTEM``: options of the design, as JSON. ``$DXPU_FRAMES``: number of frames.
"""

import json
import os
import time

import cocotb
from cocotb.triggers import Timer

from dxpu_sim.fabric.intruder import KINDS, Intruder, Peer, Target
from dxpu_sim.pcie.ports import Mailbox
from dxpu_sim.system.system import SimulatedSystem

OPTIONS = json.loads(os.environ.get("DXPU_SYSTEM", "{}"))
COUNT = int(os.environ.get("DXPU_FRAMES", "1000"))

#: Fates of frames that must occur, so that the bench shows something.
ENDS = {"mac0_rx_giant", *(f"fabric_rx_{cause}" for cause in (
    "ethertype", "version", "hcrc", "type", "field", "length", "padding", "record", "body",
    "unhandled", "refused")), *(f"fabric_link_{cause}" for cause in (
        "wrong_node", "no_session", "wrong_tag", "stray"))}
#: Frames of others may delay an acknowledgement until its frame is sent again.
MORE = ("fabric_tx_repeated", "fabric_link_duplicate")


async def targets_of(system):
    """Targets: sessions and bindings as the proxies have them."""
    tags = [await system.host.read(f"control.session[{system.host.session(n)}].tags")
            for n in range(len(system.boxes))]
    slots = [tuple((slot, 0) for b, slot in system.slots if b == n)
             for n in range(len(system.boxes))]
    host = Target("host", system.host.node, tuple(
        Peer(box.node, 0, tag["rx"], pairs)
        for box, tag, pairs in zip(system.boxes, tags, slots, strict=True)))
    boxes = [Target(f"box{n}", box.node, (Peer(system.host.node, 0, tag["tx"], tuple(
        (0, slot) for slot, _ in pairs)),))
        for n, (box, tag, pairs) in enumerate(zip(system.boxes, tags, slots, strict=True))]
    return [host, *boxes]


async def use(system, driver, done):
    """Copies and register accesses until ``done``; returns the number of bytes copied."""
    copied = 0
    while not done:
        data = system.rng.randbytes(system.rng.randint(100, 1500))
        assert await driver.copy_there_and_back(data, 0) == data
        value = system.rng.getrandbits(32)
        await driver.write_register("SCRATCH", value)
        assert await driver.read_register("SCRATCH") == value
        copied += len(data)
        await Timer(system.rng.randint(1, 200), "us")
    return copied


@cocotb.test()
async def bad_neighbours(dut):
    """Frames of all kinds between the frames of the sessions."""
    system = SimulatedSystem(dut, OPTIONS)
    await system.start()
    mailbox, heard = Mailbox(dut, "intruder"), []
    mailbox.received.append(heard.append)
    targets = await targets_of(system)
    intruder = Intruder(system.rng, targets)
    before = await system.counters()

    start, done = time.monotonic(), []
    users = [cocotb.start_soon(use(system, driver, done)) for driver in system.drivers]
    for _ in range(COUNT):
        await mailbox.send(intruder.draw())
    done.append(True)
    copied = [await user for user in users]
    await Timer(50, "us")
    assert min(copied) > 0
    print(f"neighbours: {COUNT} frames in {time.monotonic() - start:.0f} s and "
          f"{int(dut.cycle.value)} cycles, {copied} bytes copied meanwhile, {dict(intruder.made)}")

    after = await system.finish(allow=(*ENDS, *MORE))
    problems, ends = [], set()
    for target in targets:
        risen = {name: total - before[target.name][name]
                 for name, total in after[target.name].items()}
        expected = target.expected
        expected["fabric_rx_refused"] = sum(
            risen[name] for name in (*ENDS, *MORE)
            if name.startswith("fabric_link_")) - target.refused_bad
        for name in sorted({*ENDS, *expected}):
            if risen[name] != expected[name]:
                problems.append(f"{target.name}.{name} is {risen[name]}, not {expected[name]}")
        ends |= {name for name, count in expected.items() if count}
        print(f"neighbours: {target.name}: "
              f"{ {name: count for name, count in expected.items() if count} }")
    assert not problems, problems
    assert not heard, "somebody answers the intruder"
    if COUNT >= 1000:
        assert ends >= ENDS, ENDS - ends
        assert set(intruder.made) == set(KINDS)
