"""A system whose manager is a program on an Ethernet interface of Linux.

Options of the design come as JSON in ``$DXPU_SYSTEM``; ``$DXPU_IFACE`` is the interface,
``$DXPU_COMMAND`` the program as JSON, a list of words. Nothing but the program touches a register
of the proxies. GPU n must be bound to port n of the host; the output of the program goes to
``command.out`` and ``command.err`` in the folder of the run.
"""

import json
import os
import subprocess
import time
from pathlib import Path

import cocotb
from cocotb.triggers import Timer

from dxpu_host import EthernetPort
from dxpu_sim.endpoint.driver import find_gpus
from dxpu_sim.pcie.ports import Mailbox
from dxpu_sim.system.setup import wait_for_slot
from dxpu_sim.system.system import SimulatedSystem

OPTIONS = json.loads(os.environ.get("DXPU_SYSTEM", "{}"))
#: Interval at which the simulation looks for frames, and the longest wait for the program.
POLL_NS, PATIENCE_S = 2000, 540


async def managed(dut):
    """Carry frames in and out until the program has ended."""
    port = EthernetPort(os.environ["DXPU_IFACE"], 0xFFE)
    mailbox = Mailbox(dut, "intruder")

    def pass_on(record):
        if not record.discard:
            port.send(record.raw)

    mailbox.received.append(pass_on)
    begin, cycles = time.monotonic(), 0
    with open("command.out", "w") as out, open("command.err", "w") as err:
        command = subprocess.Popen(json.loads(os.environ["DXPU_COMMAND"]), stdout=out, stderr=err)
    try:
        while command.poll() is None:
            assert time.monotonic() < begin + PATIENCE_S, "the manager has no end"
            cycles += POLL_NS // 8
            await Timer(POLL_NS, "ns")
            while (frame := port.receive()) is not None:
                await mailbox.send(frame)
    finally:
        command.kill()
        command.wait()
        mailbox.received.remove(pass_on)  # nodes go on speaking
        port.close()
    took = time.monotonic() - begin
    print(f"managed_network: status {command.returncode}, {took:.1f} s, {cycles:,} cycles, "
          f"{cycles / took:,.0f} cycles a second")
    assert command.returncode == 0, Path("command.err").read_text()


@cocotb.test()
async def gpus_are_used_after_a_program_has_set_all_up(dut):
    """The host enumerates every GPU, reads its registers, and copies."""
    system = SimulatedSystem(dut, OPTIONS)
    await managed(dut)
    for port in range(len(system.gpus)):
        await wait_for_slot(system.host, port, link=1)
        system.routes.present.add(port)
    await system.rc.enumerate()
    drivers = find_gpus(system.rc)
    assert len(drivers) == len(system.gpus)
    for n, driver in enumerate(drivers):
        await driver.open()  # reads identity and serial number in BAR 0
        data = system.rng.randbytes(1500)
        assert await driver.copy_there_and_back(data, 0) == data
        print(f"managed_network: GPU {n} in use")
    await system.idle()
    system.checker.finish()
