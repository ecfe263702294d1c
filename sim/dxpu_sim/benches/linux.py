"""A guest below a simulated system; scenarios and images come as JSON in ``$DXPU_LINUX``."""

import json
import os
import re
import time
from dataclasses import fields
from pathlib import Path

import cocotb
from cocotb.utils import get_sim_time

from dxpu_sim.linux.complaints import complaints
from dxpu_sim.linux.guest import Guest
from dxpu_sim.linux.host import LinuxHost, LinuxSystem
from dxpu_sim.linux.images import Images
from dxpu_sim.linux.run import Run
from dxpu_sim.linux.scenarios import MACHINES, SCENARIOS, boot

GIVEN = json.loads(os.environ["DXPU_LINUX"])
FOLDER = Path.cwd()


def images():
    """Images as the command found them."""
    paths = {"qemu", "kernel", "initramfs"}
    return Images(**{f.name: Path(GIVEN["images"][f.name]) if f.name in paths
                     else GIVEN["images"][f.name] for f in fields(Images)})


def say(kind, text):
    """A line for the command, which shows it."""
    with open(FOLDER / "progress.txt", "a") as file:
        file.write(f"{kind} {text}\n")


async def run_scenarios(dut, guest, machine, result):
    """Everything from boot to the last check; ``result`` is filled on the way."""
    system = LinuxSystem(dut, GIVEN["system"], guest, gpu=GIVEN["gpu"])
    dut.loss.value = round(machine.loss * 65536)
    await system.prepare()
    shown = time.monotonic()

    def waiting():
        nonlocal shown
        if time.monotonic() - shown > 1:
            shown = time.monotonic()
            say("update", f"{host.accesses} accesses, {get_sim_time('us') / 1000:.1f} ms simulated")

    host = LinuxHost(guest, system, on_wait=waiting)
    say("step", f"Booting Linux ({GIVEN['machine']})")
    begin = time.monotonic()
    await host.boot()
    run = Run(host, result["evidence"])
    await boot(run)
    for name in GIVEN["scenarios"]:
        say("step", f"Scenario {name}")
        result["running"] = name
        await SCENARIOS[name].run(run)
        result["scenarios"][name] = True
    result["running"] = None
    say("step", "Asking for complaints")
    said = await host.say("dmesg -r")
    (FOLDER / "dmesg.txt").write_text(said + "\n")
    result["complaints"] = complaints(said, run.expected)
    result["guest_seconds"] = float((await host.say("cat /proc/uptime")).split()[0])
    await host.stop()
    await system.idle()
    system.checker.finish()
    result["counts"] = dict(system.root.counts) | {"accesses": host.accesses}
    result["simulated_ms"] = get_sim_time("us") / 1000
    result["seconds"] = time.monotonic() - begin
    if result["complaints"]:
        raise AssertionError("Linux complains: " + " / ".join(result["complaints"]))


@cocotb.test()
async def scenarios(dut):
    """Boot, then one scenario after the other; what came out is in ``result.json``."""
    result = {"scenarios": {}, "evidence": {}, "complaints": [], "running": "boot"}
    machine = MACHINES[GIVEN["machine"]]
    guest = Guest(images(), FOLDER, options=machine.kernel)
    try:
        await run_scenarios(dut, guest, machine, result)
    except BaseException as error:
        text = str(error) or "an error in the simulation, see the log"
        result["error"] = re.sub(r"\s*\n\s*", " | ", text)
        raise
    finally:
        guest.end()
        (FOLDER / "result.json").write_text(json.dumps(result, indent=1))
