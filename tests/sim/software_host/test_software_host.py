"""`dxpu_host` against the Verilog of the box proxy, over wires that lose frames."""

import json

import pytest

from dxpu_sim.run.runner import Design, said, simulate
from dxpu_sim.software_host.box_design import BoxBench
from tests.support.bench_cases import bench_cases

BENCH = "dxpu_sim.software_host.bench"
MUTANTS = "dxpu_sim.software_host.mutants"


def one_short(found):
    """The first; the others are long."""
    first, *others = found
    return [first, *(pytest.param(name, marks=pytest.mark.long) for name in others)]


@pytest.mark.parametrize("case", one_short(bench_cases(BENCH)))
def test_one_box_with_two_gpus(case):
    folder = simulate(Design(BoxBench, {}), BENCH, testcase=f"{case}$")
    print(said(folder, "software_host"))


# A box with a key and `dxpu_host` are in tests/sim/board/test_stand_alone.py, too, which is short.
@pytest.mark.long
@pytest.mark.parametrize("case", bench_cases(BENCH))
def test_the_same_under_a_key(case):
    options = {"keys": True}
    folder = simulate(Design(BoxBench, options), BENCH, testcase=f"{case}$",
                      env={"DXPU_BOX": json.dumps(options)})
    print(said(folder, "software_host"))


@pytest.mark.parametrize("mutant", one_short(
    bench_cases(MUTANTS, r"^class (\w+)\(Host\)")))
def test_finds(mutant):
    simulate(Design(BoxBench, {}), MUTANTS,
             env={"DXPU_MUTANT": mutant})
