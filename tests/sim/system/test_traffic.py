"""Traffic of the benches of the whole system."""

import random
from itertools import islice

from dxpu.switch.config.port_map import DOWNSTREAM, UPSTREAM, function_map
from dxpu.tlp.types import Malformed
from dxpu_model.tlp import classify, malformed
from dxpu_sim.system.benches.fuzz import Fuzz
from dxpu_sim.system.benches.fuzz_oracle import Oracle


class Alone(Fuzz):
    """The bench without a design."""

    def __init__(self):
        self.slots, self.rng = [(0, 1)], random.Random(1)
        self.oracle = Oracle(1, self.slots)


def test_no_configuration_request_reads_the_log_of_a_first_error():
    """Which error of a port is the first depends on the order in which its errors are reported."""
    logs = {f"{r.name} ({r.offset:03X}h)": r.offset // 4 for kind in (UPSTREAM, DOWNSTREAM)
            for r in function_map(kind).registers
            if r.name.startswith(("Advanced Error", "Header Log", "TLP Prefix Log"))}
    assert len(logs) == 9
    named = {classify(hostile.raw).register for hostile in islice(Alone().configs(), 4000)
             if malformed(hostile.raw) is Malformed.NONE}
    assert not [name for name, dword in logs.items() if dword in named]
