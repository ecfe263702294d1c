"""Number of spare GPUs to hold, by failures in the past or a rate of an operator.

Failures come at random, and each takes a GPU away until the end of a repair. Then the number of
GPUs in repair at any time is Poisson distributed, however long each repair takes, with the mean
number of failures in the mean time of a repair.

Ref: DxPU paper, 3.2; Palm, "Analysis of the Erlang traffic formulae for busy-signal arrangements"
(1938), as in Sherbrooke, "Optimal Inventory Modeling of Systems" (2004), 2.2; Garwood, "Fiducial
limits for the Poisson distribution", Biometrika 28 (1936); docs/reference/manager.md ("Spares")
"""

import json
import math
from collections import defaultdict
from collections.abc import Container, Iterable
from dataclasses import asdict, dataclass

from .errors import Impossible
from .lifecycle import State
from .records import Gpu, parse
from .store import Event

__all__ = ["IN_SERVICE", "Failures", "Plan", "Policy", "plan", "poisson_cdf", "spares_for",
           "upper_rate"]

#: Days of a year, and seconds.
_DAYS, _YEAR = 365.0, 365.0 * 86400.0
#: What is taken for granted of a model before anything is seen: a failure in so many GPU-years.
#: 220 GPUs and GPU memories failed of 16,384 in 54 days: 9 % in a year ("The Llama 3 Herd of
#: Models", arXiv:2407.21783, table 5).
PRIOR_YEARS = 11.0
#: The rate of a plan is above the true one with this probability.
CONFIDENCE = 0.95
#: States of GPUs that may fail, spares among them.
IN_SERVICE = frozenset({State.FREE, State.SPARE, State.RESERVED, State.ATTACHING, State.ATTACHED,
                        State.DRAINING})


def poisson_cdf(most: int, mean: float) -> float:
    """Probability of ``most`` events or fewer, if ``mean`` are expected."""
    # By logarithms, as exp(-mean) alone is 0 from a mean of 745 on.
    return min(1.0, math.fsum(math.exp(n * math.log(mean) - mean - math.lgamma(n + 1))
                              for n in range(most + 1))) if mean else 1.0


def spares_for(mean: float, probability: float) -> int:
    """The fewest spares with which nobody waits for one, with a probability at least.

    Parameters
    ----------
    mean : float
        GPUs in repair, as expected.
    probability : float
        That no more than the spares are in repair.
    """
    # Terms 20 standard deviations below a large mean are nothing, and the first ones are 0.
    count = max(0, int(mean - 20.0 * math.sqrt(mean))) if mean > 500.0 else 0
    covered, term = 0.0, math.exp(
        (count * math.log(mean) if count else 0.0) - mean - math.lgamma(count + 1))
    while covered + term < probability:
        covered, count = covered + term, count + 1
        term *= mean / count
    return count


def upper_rate(failures: int, years: float, confidence: float = CONFIDENCE) -> float:
    """Failures of a GPU in a year that are not exceeded with some confidence.

    At this rate ``failures`` or fewer would be seen in ``years`` GPU-years with a probability of
    1 - ``confidence`` only.
    """
    low, high = 0.0, 1.0
    while poisson_cdf(failures, high * years) > 1.0 - confidence:
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = (low + high) / 2.0
        if poisson_cdf(failures, middle * years) > 1.0 - confidence:
            low = middle
        else:
            high = middle
    return high


class Failures:
    """Failures and GPU-years by model, from the events of a pool.

    A GPU counts while in service; if former events are forgotten, from the first known event on.
    """

    def __init__(self) -> None:
        self._counts: defaultdict[str, int] = defaultdict(int)
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._now: dict[str, tuple[Gpu, float]] = {}

    def take(self, event: Event) -> None:
        """The next event of the pool, in order."""
        if not event.key.startswith(f"{Gpu.KIND}/"):
            return
        before, since = self._now.pop(event.key, (None, 0.0))
        if before is not None and before.state in IN_SERVICE:
            self._seconds[before.model] += max(0.0, event.time - since)
        gpu = parse(event.key, event.text) if event.text is not None else None
        if not isinstance(gpu, Gpu):
            return
        if gpu.state is State.FAILED and before is not None and before.state is not State.FAILED:
            self._counts[gpu.model] += 1
        self._now[event.key] = gpu, event.time

    def seen(self, model: str, now: float) -> tuple[int, float]:
        """Failures of a model, and its GPU-years, until now."""
        seconds = self._seconds[model] + sum(
            max(0.0, now - since) for gpu, since in self._now.values()
            if gpu.model == model and gpu.state in IN_SERVICE)
        return self._counts[model], seconds / _YEAR


@dataclass(frozen=True)
class Policy:
    """How many spares somebody wants.

    Parameters
    ----------
    keeps : bool
        The manager keeps so many free GPUs back by itself.
    probability : float
        That no failed GPU is without a spare.
    repair_days : float
        From a failure until a GPU is there again.
    rate : float or None
        Failures of a GPU in a year; ``None``: as measured.

    Raises
    ------
    Impossible
    """

    keeps: bool = False
    probability: float = 0.999
    repair_days: float = 7.0
    rate: float | None = None

    def __post_init__(self) -> None:
        if not 0.5 <= self.probability <= 0.999999:
            raise Impossible(f"the probability is 0.5 to 0.999999, not {self.probability:g}")
        if not 0.0 < self.repair_days <= 3650.0:
            raise Impossible(f"a repair takes above 0 and up to 3650 days, not "
                             f"{self.repair_days:g}")
        if self.rate is not None and not 0.0 <= self.rate <= 100.0:
            raise Impossible(f"a GPU fails 0 to 100 times in a year, not {self.rate:g}")

    def text(self) -> str:
        """The policy as a setting."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def of(cls, text: str) -> "Policy":
        """The policy in a setting; empty: the default one."""
        return cls(**json.loads(text)) if text else cls()


@dataclass(frozen=True)
class Plan:
    """Spares of a model.

    Attributes
    ----------
    model : str
    gpus : int
        GPUs in service, with spares.
    failures : int
    years : float
        GPU-years of the failures.
    rate : float
        Failures of a GPU in a year, for the plan.
    mean : float
        GPUs in repair at a time, as expected.
    wanted, held : int
        Spares.
    covered : float
        Probability that no failed GPU is without a spare, with the present spares.
    """

    model: str
    gpus: int
    failures: int
    years: float
    rate: float
    mean: float
    wanted: int
    held: int
    covered: float


def plan(gpus: Iterable[Gpu], failures: Failures, policy: Policy, now: float,
         closed: Container[int] = ()) -> list[Plan]:
    """Spares of each model, in order of models; spares in ``closed`` boxes do not count, as no host
    gets a GPU there."""
    by: defaultdict[str, list[Gpu]] = defaultdict(list)
    for gpu in gpus:
        if gpu.state in IN_SERVICE:
            by[gpu.model].append(gpu)
    plans = []
    for model, members in sorted(by.items()):
        seen, years = failures.seen(model, now)
        rate = policy.rate if policy.rate is not None else upper_rate(seen, years + PRIOR_YEARS)
        mean = len(members) * rate * policy.repair_days / _DAYS
        held = sum(gpu.state is State.SPARE and gpu.box not in closed for gpu in members)
        plans.append(Plan(model, len(members), seen, years, rate, mean,
                          spares_for(mean, policy.probability), held, poisson_cdf(held, mean)))
    return plans
