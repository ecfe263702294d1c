"""Proxies as their netlists for ECP5, in the simulated system."""

import json

import pytest

from dxpu_sim.run.runner import Design, simulate
from dxpu_sim.system.design import System

SMALL = {"boxes": (1,), "ports": 1, "paths": 1}


@pytest.mark.long
@pytest.mark.parametrize("case", [
    "registers_and_video_memory", "copies_of_all_gpus_at_once", "msi",
    "spoiled_frames_are_dropped_counted_and_sent_again"])
def test_host_and_box(case):
    """Enumeration, registers, copies of some KiB both ways, interrupts, and frames sent again. The
    host is mapped as on the Versa, which it nearly fills."""
    design = Design(System, SMALL, netlists=("top.host", "top.box0"), crowded=("top.host",))
    simulate(design, "dxpu_sim.system.benches.system", testcase=f"{case}$",
             env={"DXPU_SYSTEM": json.dumps(SMALL)})
