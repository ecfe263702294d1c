"""Changes of fabric or workload, and the effect of each."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from .fabric import Fabric
from .kernels import share_kept
from .measured import Measured
from .prediction import Case, closed_form
from .program import Action, Do, Program, overlapped

__all__ = ["FABRIC_CHANGES", "SHORT_US", "WORKLOAD_CHANGES", "Change", "Effect", "effects",
           "fused", "gateware_changes", "graphed"]

#: A kernel of at most this time is short (paper, section 4).
SHORT_US = 10.0
#: Short kernels that one kernel replaces, assumed: what XLA did to ResNet-50 is not published by
#: kernel. Likewise operations of one graph.
FUSED = 4
OF_A_GRAPH = 100
#: Conversion of packets of a fabric with a fast switch, in all four traversals.
FAST_CONVERSION_US = 0.25


@dataclass(frozen=True)
class Change:
    """A change by name, and the function making the change, with the result None where nothing
    changes."""

    name: str
    apply: Callable[[Case], Case | None]


@dataclass(frozen=True)
class Effect:
    """Share of speed after a change, and round trip and copies then."""

    name: str
    kept: float
    gain: float
    round_trip_us: float
    to_gpu_gb_s: float

    @property
    def points(self) -> float:
        """Gain in points, to a tenth; no zero has a minus."""
        return round(100 * self.gain, 1) + 0.0


def fused(program: Program, group: int = FUSED) -> Program:
    """Runs of short kernels in a stream of a thread become a kernel for each ``group``, as
    long as all together; the processor spends as much time as before."""
    return _joined(program, group, SHORT_US)


def graphed(program: Program, group: int = OF_A_GRAPH) -> Program:
    """Successive operations of a stream become graphs: a single command is fetched for each
    ``group``."""
    def mark(thread: tuple[Action, ...]) -> tuple[Action, ...]:
        found, length, stream = [], 0, -1
        for action in thread:
            same = action.do is Do.RUN and action.stream == stream
            length = length % group + 1 if same else 1
            stream = action.stream if action.do is Do.RUN else -1
            found.append(action._replace(fetched=action.fetched and length == 1))
        return tuple(found)

    return replace(program, threads=tuple(map(mark, program.threads)))


def _joined(program: Program, group: int, short_us: float) -> Program:
    """Actions keep numbers, for references by other actions: joined actions become work of the
    processor alone."""
    def join(thread: tuple[Action, ...]) -> tuple[Action, ...]:
        found: list[Action] = []
        head, length = -1, 0
        for action in thread:
            short = action.do is Do.RUN and action.busy_us <= short_us
            if short and head >= 0 and found[head].stream == action.stream and length < group:
                found[head] = found[head]._replace(busy_us=found[head].busy_us + action.busy_us)
                found.append(action._replace(do=Do.GO_ON, busy_us=0.0))
                length += 1
                continue
            head, length = (len(found), 1) if short else (-1, 0)
            found.append(action)
        return tuple(found)

    return replace(program, threads=tuple(map(join, program.threads)))


def _with_fabric(make: Callable[[Fabric], Fabric]) -> Callable[[Case], Case | None]:
    def apply(case: Case) -> Case | None:
        there = make(case.fabric)
        return None if there == case.fabric else replace(case, fabric=there)
    return apply


def _with_program(make: Callable[[Program], Program]) -> Callable[[Case], Case | None]:
    def apply(case: Case) -> Case | None:
        there = make(case.program)
        return None if there.threads == case.program.threads else replace(case, program=there)
    return apply


def _round_trip(us: float) -> Callable[[Fabric], Fabric]:
    return lambda fabric: replace(fabric, round_trip_us=max(us, fabric.native_round_trip_us))


def _fast_conversion(fabric: Fabric) -> Fabric:
    quicker = max(0.0, fabric.conversion_us - FAST_CONVERSION_US)
    return replace(fabric, conversion_us=fabric.conversion_us - quicker, round_trip_us=max(
        fabric.native_round_trip_us, fabric.round_trip_us - quicker))


def _generation_4(fabric: Fabric) -> Fabric:
    if fabric.link.generation >= 4:
        return fabric
    return replace(fabric, link=replace(fabric.link, generation=4), tags=2 * fabric.tags)


def _packed(fabric: Fabric) -> Fabric:
    """TLPs of 64 B sharing frames of 1500 B: 30 bytes beside the data of each, of a payload of
    128 B; `docs/reference/wire-format.md` has the table."""
    packed = 128 / 0.809 - 128
    return replace(fabric, cable=replace(fabric.cable, tlp_overhead_bytes=min(
        packed, fabric.cable.tlp_overhead_bytes)))


def _overlap(case: Case) -> Case | None:
    if case.program.counts[Do.TO_GPU][0] == 0 or case.hidden_share == 0:
        return None
    return replace(case, program=overlapped(case.program), exposed=0.0)


#: Changes of the fabric.
FABRIC_CHANGES = (
    Change("round trip of 4.9 us", _with_fabric(_round_trip(4.9))),
    Change("conversion of 250 ns", _with_fabric(_fast_conversion)),
    Change("PCIe generation 4, twice the tags", _with_fabric(_generation_4)),
    Change("reads of 256 B", _with_fabric(
        lambda fabric: replace(fabric, read_bytes=max(256, fabric.read_bytes)))),
    Change("copies as writes of the CPU", _with_fabric(
        lambda fabric: replace(fabric, written=True))),
    Change("two proxies", _with_fabric(
        lambda fabric: replace(fabric, proxies=max(2, fabric.proxies)))),
    Change("TLPs packed into frames", _with_fabric(_packed)),
    Change("one frame of 1000 lost", _with_fabric(
        lambda fabric: replace(fabric, loss=max(0.001, fabric.loss) * (fabric.repeat_us > 0)))),
    Change("a kilometre more", _with_fabric(
        lambda fabric: replace(fabric, distance_km=fabric.distance_km + 1))),
)
#: Changes of the workload.
WORKLOAD_CHANGES = (
    Change(f"short kernels fused, {FUSED} into one", _with_program(fused)),
    Change(f"graphs of {OF_A_GRAPH} operations", _with_program(graphed)),
    Change("copies that kernels hide", _overlap),
)


def gateware_changes(measured: Measured) -> tuple[Change, ...]:
    """Changes to the round trips measured on the gateware, a change for each rate of the line."""
    def to(us: float) -> Callable[[Fabric], Fabric]:
        return lambda fabric: fabric if fabric.round_trip_us == us else replace(
            fabric, round_trip_us=max(us, fabric.native_round_trip_us), conversion_us=0.0)

    return tuple(Change(f"round trip of the gateware, {rate}",
                        _with_fabric(to(found.round_trip.p50_ns / 1000)))
                 for rate, found in measured.rates.items())


def effects(case: Case, changes: tuple[Change, ...] = FABRIC_CHANGES + WORKLOAD_CHANGES
            ) -> list[Effect]:
    """Effect of each change by the closed form, in the order given; the native speed stays that
    of the case. Changes without an effect on the case are left out."""
    before = share_kept(closed_form(case).total)
    found = []
    for change in changes:
        there = change.apply(case)
        if there is not None:
            kept = share_kept(closed_form(there).total)
            found.append(Effect(change.name, kept, kept - before, there.fabric.far_round_trip_us,
                                there.fabric.to_gpu_gb_s(there.gpus)))
    return found
