"""The simulations behind ``dxpu bench paper``.

``$DXPU_PAPER`` has as JSON: ``design`` (arguments of the design), ``settings`` (of the proxies) and
``steps`` (:class:`~.rig.NativeRig`). Figures of the steps go to ``result.json`` of the run, and how
many are done to ``progress.txt``.
"""

import json
import os
from pathlib import Path

import cocotb

from .rig import NativeRig, Rig

PLAN = json.loads(os.environ.get("DXPU_PAPER", "{}"))


async def steps(rig, after=dict):
    """Make all steps, and write down what they found."""
    await rig.start()
    found = []
    with open("progress.txt", "w", buffering=1) as progress:
        for step in PLAN["steps"]:
            found.append(await rig.step(step) | after())
            progress.write(f"{len(found)}\n")
    Path("result.json").write_text(json.dumps(found))


@cocotb.test()
async def native(dut):
    """A DMA engine at a PCIe link."""
    await steps(NativeRig(dut))


@cocotb.test()
async def proxies(dut):
    """DMA engines behind proxies."""
    rig = Rig(dut, PLAN["design"], PLAN["settings"])
    await steps(rig, lambda: {"times": rig.times()})
