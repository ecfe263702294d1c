"""Scenarios of ``dxpu waves``: parts of the run of ``dxpu demo``, each as short as can be."""

from typing import NamedTuple

__all__ = ["SCENARIOS", "Scenario"]


class Scenario(NamedTuple):
    """A run of some steps of the demo's bench."""

    text: str
    #: Names in :data:`dxpu_sim.system.benches.demo.STEPS`; empty: all.
    steps: tuple[str, ...]
    #: Kind of the event around which the window is by default.
    around: str


SCENARIOS = {
    "bind": Scenario("a host boots with empty slots, and GPUs arrive", ("boot",), "bind"),
    "read": Scenario("drivers use registers, memory and interrupts; a read is measured",
                     ("boot", "use", "measure_round_trip"), "interrupt"),
    "copy": Scenario("GPUs copy, one alone and all together",
                     ("boot", "use", "copy", "copy_together"), "interrupt"),
    "faults": Scenario("GPUs copy while 1% of all frames gets lost, and a path dies",
                       ("boot", "use", "copy_through_a_bad_fabric"), "fault"),
    "pull": Scenario("somebody pulls a GPU while it copies", ("boot", "use", "pull"), "down"),
    "demo": Scenario("the whole demo", (), "bind"),
}
