"""The simulation behind the incast cases of ``dxpu faults``: many hosts send to one box.

The case comes as JSON in ``$DXPU_FAULTS`` (:class:`dxpu_sim.fabric.cases.Case`, ``tlps``, and
``pcap`` if there shall be a capture of that name). The counts go to ``result.json`` in the run's
folder, even if the run got stuck.
"""

import json
import os
import random
import time
from contextlib import nullcontext
from pathlib import Path

import cocotb
from amaranth.lib.wiring import Out
from cocotb.triggers import Timer
from cocotb.utils import get_sim_time

from .capture import capture_switch
from .fault_bench import LOOK_NS, PATIENCE_NS, quiet
from .incast_design import SETTINGS, IncastBench


@cocotb.test()
async def campaign(dut):
    """One case of the campaign; the calling program judges the counts."""
    case, begin = json.loads(os.environ["DXPU_FAULTS"]), time.perf_counter()
    rng, hosts = random.Random(int(os.environ["DXPU_SEED"])), case["hosts"]
    outputs = [name for name, member in
               IncastBench(hosts=hosts, arq=case["arq"]).signature.members.items()
               if member.flow is Out]
    for name in (*SETTINGS, "delay", "fixed", "queue_bytes"):
        getattr(dut, name).value = case[name]
    dut.most.value = case["tlps"] // hosts
    dut.salt.value = rng.randrange(1, 1 << 20)
    await Timer(1, "us")  # past the reset
    dut.salt.value = 0
    dut.enable.value = 1
    result = {"stuck": ""}
    try:
        with capture_switch(dut, case["pcap"], hosts) if "pcap" in case else nullcontext():
            await _finish(dut, case["tlps"] // hosts * hosts, result)
    finally:
        result |= {name: int(getattr(dut, name).value) for name in outputs}
        result |= {"seconds": time.perf_counter() - begin, "ns": get_sim_time("ns")}
        Path("result.json").write_text(json.dumps(result))


async def _finish(dut, most, result):
    before, since = -1, get_sim_time("ns")
    with open("progress.txt", "w", buffering=1) as progress:
        while True:
            await Timer(LOOK_NS, "ns")
            taken, now = int(dut.to_box_total_tlps.value), get_sim_time("ns")
            progress.write(f"{taken}\n")
            if taken != before:
                before, since = taken, now
            if taken >= most and await quiet(dut):
                return
            if int(dut.failed.value) or now - since > PATIENCE_NS:
                result["stuck"] = ("a session has failed" if int(dut.failed.value) else
                                   f"nothing arrived for {PATIENCE_NS // 1_000_000} ms")
                return
