"""A guest below a simulated system; scenarios and images come as JSON in ``$DXPU_LINUX``."""

import json
import os
import re
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path

import cocotb
from cocotb.utils import get_sim_time

from dxpu_sim.ethernet.namespace import why_not
from dxpu_sim.run.steps import Steps
from dxpu_sim.system.pool_process import CommandOperator, PoolProcess

from .carrier.complaints import complaints, stalls
from .carrier.guest import Guest, GuestStalled
from .carrier.images import Images
from .host import LinuxHost, LinuxSystem, Pump
from .run import Run
from .scenarios import MACHINES, SCENARIOS, boot

GIVEN = json.loads(os.environ["DXPU_LINUX"])
FOLDER = Path.cwd()
STEPS = Steps(FOLDER)


def images():
    """Images as found by the command."""
    paths = {"qemu", "kernel", "initramfs"}
    return Images(**{f.name: Path(GIVEN["images"][f.name]) if f.name in paths
                     else GIVEN["images"][f.name] for f in fields(Images)})


async def make_ready(dut, system):
    """Do the manager's part before bindings; by frames alone if the proxies have keys of a
    manager, who binds then, too: returns that operator."""
    if not GIVEN["system"].get("managed"):
        await system.prepare()
        return None
    STEPS.step("A manager finds the nodes and gives them numbers")
    reason = why_not()
    operator = CommandOperator(system, PoolProcess(dut, system, FOLDER / "pool", veth=not reason))
    await operator.set_up()
    STEPS.detail(f"at a UNIX socket ({reason})" if reason else "over a veth")
    return operator


async def run_scenarios(dut, guests, machine, result, stack):
    """Run everything from boot to the last check; fill ``result`` on the way. What must be finished
    at the end is put on ``stack``."""
    system = LinuxSystem(dut, GIVEN["system"], guests, gpu=GIVEN["gpu"])
    if GIVEN["pcap"]:
        stack.enter_context(system.capture(FOLDER / GIVEN["pcap"]))
    dut.loss.value = round(machine.loss * 65536)
    operator = await make_ready(dut, system)
    shown = time.monotonic()

    def waiting():
        nonlocal shown
        if time.monotonic() - shown > 1:
            shown = time.monotonic()
            STEPS.detail(f"{sum(h.accesses for h in hosts):,} accesses, "
                         f"{get_sim_time('us') / 1000:.1f} ms simulated")

    hosts = [LinuxHost(guest, system, n) for n, guest in enumerate(guests)]
    pump = Pump(hosts, on_wait=waiting)
    STEPS.step(f"Booting Linux ({GIVEN['machine']})")
    begin = time.monotonic()
    runs = [Run(host, result["evidence"], operator=operator) for host in hosts]
    for run in runs:
        run.others = [r for r in runs if r is not run]
        await run.host.boot()
        await boot(run)
    for name in GIVEN["scenarios"]:
        STEPS.step(f"Scenario {name}")
        result["running"] = name
        await SCENARIOS[name].run(runs[0])
        result["scenarios"][name] = True
    result["running"] = None
    STEPS.step("Asking for complaints")
    for n, run in enumerate(runs):
        said = await run.host.say("dmesg -r")
        (FOLDER / f"dmesg{n or ''}.txt").write_text(said + "\n")
        result["complaints"] += complaints(said, run.expected)
        result["stalls"] += stalls(said)
    result["guest_seconds"] = float((await hosts[0].say("cat /proc/uptime")).split()[0])
    await pump.stop()
    if operator is not None:
        operator.end()
    await system.idle()
    system.checker.finish()
    result["counts"] = dict(sum((root.counts for root in system.roots), Counter())) | {
        "accesses": sum(h.accesses for h in hosts)}
    result["simulated_ms"] = get_sim_time("us") / 1000
    result["seconds"] = time.monotonic() - begin
    if result["complaints"]:
        first, *others = result["complaints"]
        raise AssertionError(f"Linux complains: {first}" + (
            f" (and {len(others)} more, see dmesg.txt)" if others else ""))


@cocotb.test()
async def scenarios(dut):
    """Boot, then one scenario after the other; the outcome is in ``result.json``."""
    result = {"scenarios": {}, "evidence": {}, "complaints": [], "stalls": [],
              "stalled": False, "running": "boot"}
    machine = MACHINES[GIVEN["machine"]]
    guests = []
    try:
        with ExitStack() as stack:
            for n in range(machine.guests):
                guests.append(Guest(images(), FOLDER, options=machine.kernel, number=n))
            await run_scenarios(dut, guests, machine, result, stack)
    except BaseException as error:
        text = str(error) or "an error in the simulation, see the log"
        result["error"] = re.sub(r"\s*\n\s*", " | ", text)
        result["stalled"] = isinstance(error, GuestStalled)
        raise
    finally:
        for guest in guests:
            guest.end()
        (FOLDER / "result.json").write_text(json.dumps(result, indent=1))
