"""The whole top of a board as a stand-alone box, and `dxpu_host` as its only partner."""

import pytest
from amaranth import *

from dxpu_boards.top import Top
from dxpu_sim.board.design import BoardBench
from dxpu_sim.run.runner import Design, SimulationFailed, said, simulate

BENCH, KEYED_BENCH = "dxpu_sim.board.bench", "dxpu_sim.board.keyed_bench"
KEYED = Design(BoardBench, {"keys": True, "managed": True, "faster": 500})


@pytest.mark.parametrize("case", [
    "a_pc_uses_a_box_that_nobody_has_set_up", "the_button_makes_it_anew",
    "the_address_comes_out_of_the_flash",
    pytest.param("the_button_at_any_time", marks=pytest.mark.long)])
def test_versa(case):
    print(said(simulate(Design(BoardBench, {}), BENCH, testcase=f"{case}$"), "stand_alone"))


class BindsToAnother(BoardBench):
    """Mutant: rows are bound to another node."""

    class TOP(Top):
        def _stand_alone(self, m, file):
            port = super()._stand_alone(m, file)
            sequencer = m.submodules.stand_alone._sequencer
            program = sequencer._program

            def wrong():
                words, *rest = program()
                return [(path, value ^ (path == "table.target") << 9) for path, value in words
                        ], *rest

            sequencer._program = wrong
            return port


@pytest.mark.long
def test_a_wrong_set_up_is_found():
    with pytest.raises(SimulationFailed, match="does not answer BIND"):
        simulate(Design(BindsToAnother, {}), BENCH, testcase="a_pc_uses")


@pytest.mark.parametrize("case", [
    "who_has_the_key_gets_the_box", "a_knock_that_was_recorded_does_not_hold_the_box",
    "a_flood_of_knocks_does_not_hold_the_box", "without_a_key_anyone_is_taken",
    "a_damaged_record_lets_nobody_in"])
def test_versa_with_keys(case):
    print(said(simulate(KEYED, KEYED_BENCH, testcase=f"{case}$"), "stand_alone"))


def test_a_manager_reaches_the_registers_of_a_board():
    simulate(KEYED, "dxpu_sim.board.managed_bench")
