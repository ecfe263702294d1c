"""dxpu_sim.run.rest: what is at rest is left out, and nothing else differs."""

import re

import pytest

from dxpu_sim.run import rest
from dxpu_sim.run.runner import Design, build, simulate
from dxpu_sim.run.verilate import verilog
from tests.support.resting_bench import Computed, Resting

BENCH = "tests.support.resting_bench"


def digests(design):
    return (simulate(design, BENCH) / "digests.txt").read_text().splitlines()


def test_values_are_those_of_a_design_all_of_which_is_computed():
    expected = digests(Design(Computed, {}))
    assert len(set(expected)) == len(expected) == 2000, "the design does too little"
    assert digests(Design(Resting, {})) == expected


def test_three_workers_are_parts():
    text = rest.leave_out(verilog(Design(Resting, {})))
    assert len(re.findall(r"always_latch", text)) == 3
    assert (build(Design(Resting, {})) / "top.v").read_text() == text


def parts(text):
    return len(re.findall("always_latch", rest.leave_out(text)))


@pytest.mark.parametrize("known, unknown", [
    ("always @(posedge clk)", "always @(posedge clk, posedge rst)"),  # cleared at once
    ("always @(posedge clk)", "always @(negedge clk)"),
    ("assign ", "assign seen = clk;\n  assign "),  # the clock is data, too
    ("  always ", "  vendor_cell cell (\n    .clk(clk)\n  );\n  always "),  # not in the text
])
def test_what_is_not_known_is_computed(known, unknown):
    text = verilog(Design(Resting, {}))
    head, worker, others = re.split(r"(?=^module .top\.core\.(?:first|second) )", text, maxsplit=2,
                                    flags=re.MULTILINE)
    assert known in worker
    assert parts(head + worker.replace(known, unknown, 1) + others) == parts(text) - 1 == 2


def test_an_instance_that_always_works_is_no_part():
    text = verilog(Design(Resting, {}))
    assert parts(re.sub(r"^(  \S+ +)first \($", r"\1scheduler (", text, flags=re.MULTILINE)) == 2
