"""`dxpu_host` against the Verilog of the box proxy, over wires that lose frames."""

import re

import pytest

import dxpu_sim.benches
from dxpu_sim.hdl.box_bench import BoxBench
from dxpu_sim.runner import Design, said, simulate

BENCHES = dxpu_sim.benches.__path__[0]


def names(bench, pattern):
    with open(f"{BENCHES}/{bench}.py") as source:
        return re.findall(pattern, source.read(), re.MULTILINE)


def one_short(found):
    """The first; the others are long."""
    first, *others = found
    return [first, *(pytest.param(name, marks=pytest.mark.long) for name in others)]


@pytest.mark.parametrize("case", one_short(names("software_host", r"^async def (\w+)\(dut\)")))
def test_one_box_with_two_gpus(case):
    folder = simulate(Design(BoxBench, {}), "dxpu_sim.benches.software_host", testcase=f"{case}$")
    print(said(folder, "software_host"))


@pytest.mark.parametrize("mutant", one_short(
    names("software_host_mutants", r"^class (\w+)\(Host\)")))
def test_finds(mutant):
    simulate(Design(BoxBench, {}), "dxpu_sim.benches.software_host_mutants",
             env={"DXPU_MUTANT": mutant})
