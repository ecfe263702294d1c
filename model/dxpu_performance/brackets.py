"""The simulation against table 9: published shares beside both modes.

The paper gives mean and share of short kernels. Two durations stand for the rest: short kernels of
5 us, in the middle of the published class up to 10 us, and equal long kernels with the right mean.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from . import published
from .calibration import DELAY_US
from .program import of_durations
from .simulation import NATIVE, Link, Mode, simulate
from .workload import Durations

__all__ = ["SHORT_US", "Bracket", "brackets"]

#: Duration of the short kernels, assumed.
SHORT_US = 5.0
#: Kernels of a simulated run.
_KERNELS = 600


@dataclass(frozen=True)
class Bracket:
    """A published share and both modes of the simulation, in percent."""

    run: published.KernelRun
    serial: float
    prefetch: float

    @property
    def place(self) -> str:
        """Place of the published share: ``inside``, ``below`` or ``above`` the modes."""
        if self.run.percent < self.serial:
            return "below"
        return "inside" if self.run.percent <= self.prefetch else "above"


def brackets() -> Iterator[Bracket]:
    """Simulate each run of ResNet-50. Inference is assumed to have as many short kernels as
    training with the same batch."""
    for run in published.RESNET50:
        short = published.SHORT_KERNELS_PERCENT[run.batch] / 100
        long_us = (run.mean_us - short * SHORT_US) / (1 - short)
        program = of_durations(Durations.of([1000 * SHORT_US, 1000 * long_us],
                                            [_KERNELS * short, _KERNELS * (1 - short)]), _KERNELS)
        native = simulate(program, NATIVE).time_us
        serial, prefetch = (100 * native / simulate(program, Link(DELAY_US), mode).time_us
                            for mode in Mode)
        yield Bracket(run, serial, prefetch)
