"""Plans for PLLs: from the desired frequencies to the parameters of the primitive.

Exact arithmetic (fractions) throughout; all settings of the part are tried.

Ref: Lattice FPGA-DS-02012, 3.19 (ECP5, sysCLOCK PLL timing) and FPGA-TN-02200 (ECP5 PLL usage); AMD
UG472 (7 series clocking), DS182 (Kintex-7 switching characteristics, speed grade -2).
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

__all__ = ["ECP5", "MMCME2", "PLLE2", "Family", "Output", "Plan", "PllError", "Setting", "solve"]


class PllError(ValueError):
    """There is no plan, or an argument is wrong; the message is one line."""


@dataclass(frozen=True)
class Family:
    """Limits of a primitive; frequencies in MHz, pairs are least and most.

    The oscillator runs at input / input divider x multiplier. With ``through_output``, one of the
    outputs is fed back, and the multiplier is its divider times the feedback divider. An output is
    the oscillator's clock, divided, and delayed by a number of eighths of the oscillator's period.
    A counter of whole periods goes up to ``periods``; with ``counts_divider`` the counter begins at
    the divider less one.
    """

    primitive: str
    outputs: int
    input: tuple[Fraction, Fraction]
    phase_detector: tuple[Fraction, Fraction]
    oscillator: tuple[Fraction, Fraction]
    output: tuple[Fraction, Fraction]
    input_divider: int
    feedback_divider: tuple[int, int]
    output_divider: int
    through_output: bool
    periods: int
    counts_divider: bool

    def most_eighths(self, divider: int) -> int:
        """Largest delay of an output with this divider, in eighths of the oscillator's period."""
        periods = self.periods - (divider - 1 if self.counts_divider else 0)
        return min(8 * periods + 7, 8 * divider - 1)


def _range(least, most):
    return Fraction(least), Fraction(most)


#: All ECP5 and ECP5-5G parts.
ECP5 = Family("EHXPLLL", 4, _range(8, 400), _range(10, 400), _range(400, 800),
              _range("3.125", 400), 128, (1, 80), 128, True, 127, True)
#: Kintex-7 of speed grade -2; fractional dividers are not used.
MMCME2 = Family("MMCME2_BASE", 7, _range(10, 933), _range(10, 500), _range(600, 1440),
                _range("4.69", 933), 106, (2, 64), 128, False, 63, False)
PLLE2 = Family("PLLE2_BASE", 6, _range(19, 933), _range(19, 500), _range(800, 1866),
               _range("6.25", 933), 56, (2, 64), 128, False, 63, False)


@dataclass(frozen=True)
class Output:
    """Desired properties of an output.

    Parameters
    ----------
    mhz : number
    phase : number
        Delay in degrees, 0 to below 360.
    tolerance : number
        Permitted error of the frequency, relative: 50e-6 is 50 ppm.
    phase_tolerance : number
        Permitted error of the phase, in degrees.
    """

    mhz: float
    phase: float = 0
    tolerance: float = 0
    phase_tolerance: float = 0


@dataclass(frozen=True)
class Setting:
    """An output: oscillator / ``divider``, delayed by ``eighths`` of the oscillator's period."""

    divider: int
    eighths: int
    mhz: Fraction
    phase: Fraction


@dataclass(frozen=True)
class Plan:
    """All parameters of a PLL; frequencies in MHz.

    ``outputs`` have the order of the request. ``feedback_output`` is the index of the output that
    is fed back; an index one beyond the request is an additional output for feedback only.
    ``None``: the feedback has its own path.
    """

    family: Family
    source: Fraction
    input_divider: int
    multiplier: int
    feedback_divider: int
    feedback_output: int | None
    oscillator: Fraction
    outputs: tuple[Setting, ...]


def solve(family: Family, source, outputs) -> Plan:
    """The best plan: least error of frequency, then of phase (the worst output counts), then the
    fastest phase detector, then the fewest outputs, then the fastest oscillator.

    Parameters
    ----------
    family : Family
    source : number
        Input in MHz.
    outputs : list of Output

    Raises
    ------
    PllError
        If there is no plan, or the arguments are wrong.
    """
    source, wanted = _check(family, source, outputs)
    best = None
    for divider in range(1, family.input_divider + 1):
        detector = source / divider
        if not family.phase_detector[0] <= detector <= family.phase_detector[1]:
            continue
        for multiplier in range(ceil(family.oscillator[0] / detector),
                                floor(family.oscillator[1] / detector) + 1):
            found = _plan(family, source, divider, multiplier, wanted)
            if found and (best is None or found[0] < best[0]):
                best = found
    if best is None:
        raise PllError(f"no plan for {family.primitive} from {float(source):g} MHz to "
                       + ", ".join(f"{float(o.mhz):g} MHz at {float(o.phase):g} degrees"
                                   for o in wanted))
    return best[1]


def _number(what, value):
    try:
        return Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        raise PllError(f"{what} must be a number, not {value!r}") from None


def _check(family, source, outputs):
    """The arguments as fractions."""
    source = _number("the input", source)
    if not 1 <= len(outputs) <= family.outputs:
        raise PllError(f"{family.primitive} has 1 to {family.outputs} outputs, not {len(outputs)}")
    if not family.input[0] <= source <= family.input[1]:
        raise PllError(_outside(family, "the input", family.input, source))
    wanted = []
    for output in outputs:
        exact = Output(_number("a frequency", output.mhz), _number("a phase", output.phase),
                       _number("a tolerance", output.tolerance),
                       _number("a tolerance", output.phase_tolerance))
        if not family.output[0] <= exact.mhz <= family.output[1]:
            raise PllError(_outside(family, "an output", family.output, exact.mhz))
        if not 0 <= exact.phase < 360:
            raise PllError(f"a phase must be 0 to below 360 degrees, not {float(exact.phase):g}")
        if not 0 <= exact.tolerance < 1 or exact.phase_tolerance < 0:
            raise PllError("a tolerance must not be negative, and that of a frequency below 1")
        wanted.append(exact)
    return source, wanted


def _outside(family, what, limits, value):
    return (f"{what} of {family.primitive} must be {float(limits[0]):g} to {float(limits[1]):g} "
            f"MHz, not {float(value):g}")


def _plan(family, source, divider, multiplier, wanted):
    """Rank and plan for this oscillator, or ``None``."""
    oscillator = source / divider * multiplier
    choices = [_settings(family, oscillator, output) for output in wanted]
    if not all(choices):
        return None
    best = None
    for through, feedback_divider, chosen, spare in _feedback(family, oscillator, multiplier,
                                                              choices):
        rank = (max(error[0] for error, _ in chosen), max(error[1] for error, _ in chosen),
                divider, len(spare), -oscillator)
        if best is None or rank < best[0]:
            best = rank, Plan(family, source, divider, multiplier, feedback_divider, through,
                              oscillator, (*(setting for _, setting in chosen), *spare))
    return best


def _settings(family, oscillator, output):
    """Errors (of frequency, of phase) and setting for each suitable divider, best first."""
    least = ceil(oscillator / (output.mhz * (1 + output.tolerance)))
    most = floor(oscillator / (output.mhz * (1 - output.tolerance)))
    found = []
    for divider in range(max(1, least), min(family.output_divider, most) + 1):
        mhz = oscillator / divider
        if not family.output[0] <= mhz <= family.output[1]:
            continue
        limit = family.most_eighths(divider)
        nearest = round(output.phase * divider / 45) % (8 * divider)
        # If the nearest delay is too late, the latest or the earliest delay is next.
        off, eighths = min((_apart(Fraction(45 * n, divider), output.phase), n)
                           for n in {min(nearest, limit), 0})
        if off <= output.phase_tolerance:
            found.append(((abs(mhz / output.mhz - 1), off),
                          Setting(divider, eighths, mhz, Fraction(45 * eighths, divider))))
    return sorted(found, key=lambda choice: choice[0])


def _apart(a, b):
    """Distance of two phases in degrees, the short way."""
    return min(abs(a - b), 360 - abs(a - b))


def _feedback(family, oscillator, multiplier, choices):
    """Possible feedbacks: index of the output, feedback divider, choice for each output, outputs
    for feedback only.
    """
    least, most = family.feedback_divider
    first = [choice[0] for choice in choices]
    if not family.through_output:
        if least <= multiplier <= most:
            yield None, multiplier, first, ()
        return
    for index, choice in enumerate(choices):
        for errors, setting in choice:
            if multiplier % setting.divider == 0 and multiplier // setting.divider <= most:
                chosen = [*first[:index], (errors, setting), *first[index + 1:]]
                yield index, multiplier // setting.divider, chosen, ()
                break
    if len(choices) < family.outputs:
        for divider in range(min(multiplier, family.output_divider), 0, -1):
            mhz = oscillator / divider
            if (multiplier % divider == 0 and multiplier // divider <= most
                    and family.output[0] <= mhz <= family.output[1]):
                spare = Setting(divider, 0, mhz, Fraction(0))
                yield len(choices), multiplier // divider, first, (spare,)
                return
