"""A simulated box that serves programs of this machine, until its end is due.

``$DXPU_SERVED``: JSON with ``system`` (options of the design), ``iface`` or ``socket`` (the
interface, or a UNIX socket to be made), ``seconds`` (until the end; 0: for ever), ``pcap`` (name of
a capture, or empty), ``console`` (of a serial line, or empty) and ``vram`` (bytes of each GPU).
``progress.txt`` says how it is going.
"""

import json
import os
import time
from contextlib import ExitStack
from pathlib import Path

import cocotb
from cocotb.utils import get_sim_time

from dxpu_host import EthernetPort
from dxpu_sim.ethernet.frame_socket import FrameSocket
from dxpu_sim.ethernet.pcap import PcapWriter
from dxpu_sim.pcie.capture import capture_tlps
from dxpu_sim.run.steps import Steps

from .box_system import BOX_NODE, BoxSystem
from .carrier import Carrier
from .serial_line import SerialLine

#: A second word on how it is going comes after so many seconds.
NEWS_S = 0.5
#: A frame or TLP of the box is known that long after its first byte, at most.
WINDOW_NS = 20_000
#: Steps without a rest after somebody has asked by the serial line.
AWAKE = 200


def capture(system, path):
    """Write all frames and TLPs of the box into a file from now on; returns its context."""
    writer = PcapWriter(path, fcs=False, window_ns=WINDOW_NS)
    line = writer.interface("box path 0")
    for inbound, records in ((True, system.ethernet.sent), (False, system.ethernet.received)):
        records.append(lambda record, inbound=inbound: writer.write(
            line, round(get_sim_time("ns")), record.raw, inbound=inbound))
    capture_tlps(system.mailboxes, writer, period_ns=8)
    return writer


@cocotb.test()
async def a_box_that_serves(dut):
    """Carry frames in and out until the end."""
    given, steps = json.loads(os.environ["DXPU_SERVED"]), Steps(Path.cwd())
    system = BoxSystem(dut, given["system"], gpu={"vram_bytes": given["vram"]})
    with ExitStack() as stack:
        port = (FrameSocket(Path(given["socket"])) if given["socket"]
                else EthernetPort(given["iface"], BOX_NODE))
        stack.callback(port.close)
        writer = stack.enter_context(capture(system, given["pcap"])) if given["pcap"] else None
        # Timers as in hardware, except for the quiet time.
        await system.prepare(wait=488, retry=488)
        carrier, awake = Carrier(system, port), 0
        line = SerialLine(system.box, given["console"]) if given["console"] else None
        if line:
            stack.callback(line.close)
        steps.step("The box is there")
        begin = last = time.monotonic()
        while not given["seconds"] or time.monotonic() < begin + given["seconds"]:
            await carrier.step(rest=not awake)
            awake = AWAKE if line and await line.serve() else max(0, awake - 1)
            if time.monotonic() > last + NEWS_S:
                last = time.monotonic()
                steps.detail(f"{carrier.came:,} frames came, {carrier.went:,} went, "
                             f"{get_sim_time('us'):,.0f} us simulated")
                if writer:
                    writer.flush()
