"""A simulated box on an Ethernet interface of Linux, at full speed, while programs use the box.

``$DXPU_IFACE``: the interface. ``$DXPU_COMMANDS``: commands to run in sequence, as JSON: a list of
lists of words. The output of each command goes to ``command<n>.out`` and ``.err`` in the folder of
the run. The first command with an exit status other than 0 fails the test.
``console`` in that folder is the serial line of the box.
"""

import json
import os
import subprocess
import time
from pathlib import Path

import cocotb

from dxpu_host import EthernetPort

from .box_system import BOX_NODE, BoxSystem
from .carrier import POLL_NS, Carrier
from .serial_line import SerialLine

#: The longest wait for a command, in seconds.
PATIENCE_S = 240


@cocotb.test()
async def a_box_on_a_network(dut):
    """Carry frames in and out until all commands have ended."""
    system = BoxSystem(dut, gpu={"vram_bytes": 1 << 20})
    port = EthernetPort(os.environ["DXPU_IFACE"], BOX_NODE)
    carrier = Carrier(system, port)
    # Timers as in hardware, except for the quiet time.
    await system.prepare(wait=488, retry=488)
    line = SerialLine(system.box, "console")
    for n, words in enumerate(json.loads(os.environ["DXPU_COMMANDS"])):
        begin, cycles = time.monotonic(), 0
        with open(f"command{n}.out", "w") as out, open(f"command{n}.err", "w") as err:
            command = subprocess.Popen(words, stdout=out, stderr=err)
        try:
            while command.poll() is None:
                assert time.monotonic() < begin + PATIENCE_S, f"{words} has no end"
                cycles += POLL_NS // 8
                await carrier.step()
                await line.serve()
        finally:
            command.kill()
            command.wait()
        took = time.monotonic() - begin
        print(f"software_host_network: command {n}: status {command.returncode}, {took:.1f} s, "
              f"{cycles / took:,.0f} cycles a second")
        assert command.returncode == 0, Path(f"command{n}.err").read_text()
    line.close()
    port.close()
