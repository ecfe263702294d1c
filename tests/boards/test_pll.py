"""dxpu_boards.pll: every plan is legal and as good as an exhaustive search finds; limits; errors.

The checker knows the primitives from their documents, not from the solver.
"""

import re
from dataclasses import replace
from fractions import Fraction as F

import hypothesis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dxpu_boards.pll import ECP5, MMCME2, PLLE2, Output, PllError, solve
from tests.support.testbench import seed

#: Least and most MHz of input, phase detector, oscillator, outputs; dividers of input and outputs;
#: feedback dividers. Ref: FPGA-DS-02012, 3.19; UG472; DS182, -2.
LIMITS = {
    "EHXPLLL": ((8, 400), (10, 400), (400, 800), (F("3.125"), 400), 128, 128, (1, 80)),
    "MMCME2_BASE": ((10, 933), (10, 500), (600, 1440), (F("4.69"), 933), 106, 128, (2, 64)),
    "PLLE2_BASE": ((19, 933), (19, 500), (800, 1866), (F("6.25"), 933), 56, 128, (2, 64)),
}


def check(plan, source, wanted):
    """What the primitive does with the numbers of a plan."""
    name = plan.family.primitive
    inputs, detectors, oscillators, outputs, most_input, most_output, feedback = LIMITS[name]
    assert 1 <= plan.input_divider <= most_input
    assert feedback[0] <= plan.feedback_divider <= feedback[1]
    assert inputs[0] <= F(str(source)) <= inputs[1]
    detector = F(str(source)) / plan.input_divider
    assert detectors[0] <= detector <= detectors[1]
    oscillator = detector * plan.feedback_divider
    if name == "EHXPLLL":
        oscillator *= plan.outputs[plan.feedback_output].divider
    else:
        assert plan.feedback_output is None
    assert oscillators[0] <= oscillator <= oscillators[1]
    for setting in plan.outputs:
        assert 1 <= setting.divider <= most_output
        assert outputs[0] <= oscillator / setting.divider <= outputs[1]
        periods, eighths = divmod(setting.eighths, 8)
        if name == "EHXPLLL":
            assert setting.divider - 1 + periods <= 127  # CPHASE has seven bits
        else:
            assert periods <= 63
        assert 0 <= periods < setting.divider
    for setting, output in zip(plan.outputs, wanted, strict=False):
        mhz = oscillator / setting.divider
        assert abs(mhz / F(str(output.mhz)) - 1) <= F(str(output.tolerance))
        late = F(setting.eighths, 8) / oscillator  # in microseconds
        off = abs(late * mhz * 360 - F(str(output.phase))) % 360
        assert min(off, 360 - off) <= F(str(output.phase_tolerance))
        assert (setting.mhz, setting.phase) == (mhz, late * mhz * 360)


FAMILIES = st.sampled_from([ECP5, MMCME2, PLLE2])
OUTPUTS = st.lists(st.builds(
    Output, mhz=st.sampled_from([5, 12.5, 25, 31.25, 33.333, 50, 62.5, 100, 125, 156.25, 400]),
    phase=st.sampled_from([0, 45, 90, 180, 270, 300]),
    tolerance=st.sampled_from([0, 50e-6, 0.01, 0.3]),
    phase_tolerance=st.sampled_from([0, 1, 10, 45])), min_size=1, max_size=4)


@st.composite
def possible(draw):
    """A family, an input, and outputs that settings within the limits give, drawn first."""
    family = draw(FAMILIES)
    inputs, detectors, oscillators, outputs, most_input, most_output, feedback = LIMITS[
        family.primitive]
    through = family is ECP5
    divider = draw(st.integers(1, 8))
    least = max(F(inputs[0]), F(detectors[0]) * divider)
    source = least + draw(st.integers(0, 20))
    detector = source / divider
    # An output that is fed back has a frequency of its own to be legal.
    ways = [(fed, multiplier)
            for fed in (range(1, most_output + 1) if through else (1,))
            for multiplier in range(feedback[0], feedback[1] + 1)
            if oscillators[0] <= detector * multiplier * fed <= oscillators[1]
            and (not through or outputs[0] <= detector * multiplier <= outputs[1])]
    hypothesis.assume(ways)
    fed, multiplier = draw(st.sampled_from(ways))
    oscillator = detector * multiplier * fed
    dividers = [n for n in range(1, most_output + 1)
                if outputs[0] <= oscillator / n <= outputs[1]]
    wanted = []
    # One output less than there are, so that one is left to feed back.
    for _ in range(draw(st.integers(1, 3))):
        n = draw(st.sampled_from(dividers))
        latest = min(8 * n - 1, 8 * (127 - (n - 1)) + 7 if through else 8 * 63 + 7)
        eighths = draw(st.integers(0, latest))
        wanted.append(Output(oscillator / n, F(45 * eighths, n)))
    return family, source, wanted


@hypothesis.seed(seed())
@settings(deadline=None, max_examples=40, database=None)
@given(possible())
def test_what_can_be_made_is_planned(case):
    """Exactly as asked for, with no tolerance."""
    family, source, wanted = case
    check(solve(family, source, wanted), source, wanted)


def test_every_plan_is_legal():
    plans = []

    @hypothesis.seed(seed())
    @settings(deadline=None, max_examples=60, database=None)
    @given(FAMILIES, st.sampled_from([8, 10, 12, 19.2, 25, 27, 30, 48, 100, 125, 200, 400]),
           OUTPUTS)
    def attempt(family, source, wanted):
        try:
            plan = solve(family, source, wanted)
        except PllError as error:
            # Nothing else can be wrong with what is asked for.
            assert re.match(r"no plan for |(the input|an output) of \w+ must be ", str(error))
            return
        check(plan, source, wanted)
        plans.append(plan)

    attempt()
    assert len(plans) >= 5  # a solver that refuses is not legal


#: Small enough to try everything.
SMALL = {
    "EHXPLLL": replace(ECP5, input_divider=3, feedback_divider=(1, 6), output_divider=7, outputs=3,
                       periods=8),
    "MMCME2_BASE": replace(MMCME2, input_divider=3, feedback_divider=(2, 9), output_divider=9,
                           periods=4),
}


def search(family, source, wanted):
    """Worst errors of frequency and phase of the best settings, or ``None``: everything tried."""
    found = []
    through = family.primitive == "EHXPLLL"
    for divider in range(1, family.input_divider + 1):
        for feedback in range(family.feedback_divider[0], family.feedback_divider[1] + 1):
            for fed in range(1, family.output_divider + 1) if through else (1,):
                detector = F(source) / divider
                oscillator = detector * feedback * fed
                if not (family.phase_detector[0] <= detector <= family.phase_detector[1]
                        and family.oscillator[0] <= oscillator <= family.oscillator[1]):
                    continue
                errors = [_errors(family, oscillator, o) for o in wanted]
                spare = (len(wanted) < family.outputs
                         and family.output[0] <= oscillator / fed <= family.output[1])
                ways = [errors] if spare or not through else []
                # Or one of the outputs feeds back, and has just that divider.
                ways += [[[e for e in es if n != m or e[2] == fed] for m, es in enumerate(errors)]
                         for n in range(len(errors)) if through]
                found += [tuple(max(min(es)[n] for es in way) for n in (0, 1))
                          for way in ways if all(way)]
    return min(found, default=None)


def _errors(family, oscillator, output):
    """Errors of frequency and phase, and divider, of all settings that will do."""
    found = []
    for divider in range(1, family.output_divider + 1):
        mhz = oscillator / divider
        wrong = abs(mhz / F(str(output.mhz)) - 1)
        for eighths in range(8 * divider):
            start = divider - 1 if family.primitive == "EHXPLLL" else 0
            off = abs(F(45 * eighths, divider) - F(str(output.phase)))
            off = min(off, 360 - off)
            if (start + eighths // 8 <= family.periods and wrong <= F(str(output.tolerance))
                    and family.output[0] <= mhz <= family.output[1]
                    and off <= F(str(output.phase_tolerance))):
                found.append((wrong, off, divider))
    return found


@hypothesis.seed(seed())
@settings(deadline=None, max_examples=60, database=None)
@given(st.sampled_from(sorted(SMALL)), st.sampled_from([20, 25, 50, 100, 150, 200, 400]),
       st.lists(st.builds(
           Output, mhz=st.sampled_from([75, 100, 125, 133.3, 150, 200, 300]),
           phase=st.sampled_from([0, 90, 200, 350]), tolerance=st.sampled_from([0, 0.02, 0.2]),
           phase_tolerance=st.sampled_from([0, 5, 60])), min_size=1, max_size=3))
def test_no_plan_is_missed_and_none_is_better(name, source, wanted):
    best = search(SMALL[name], source, wanted)
    if best is None:
        with pytest.raises(PllError, match="no plan for"):
            solve(SMALL[name], source, wanted)
        return
    plan = solve(SMALL[name], source, wanted)
    check(plan, source, wanted)
    errors = [(abs(s.mhz / F(str(o.mhz)) - 1), abs(s.phase - F(str(o.phase))))
              for s, o in zip(plan.outputs, wanted, strict=False)]
    assert (max(e[0] for e in errors), max(min(e[1], 360 - e[1]) for e in errors)) == best


@pytest.mark.parametrize("source, divider, oscillator", [(100, 1, 500), (30, 1, 750), (25, 1, 750)])
def test_what_boards_need(source, divider, oscillator):
    """Core, transmit clock, and that a quarter later, exactly, from each board's oscillator."""
    plan = solve(ECP5, source, [Output(62.5), Output(125), Output(125, 90)])
    assert (plan.input_divider, plan.oscillator) == (divider, oscillator)
    assert [(s.mhz, s.phase) for s in plan.outputs[:3]] == [(62.5, 0), (125, 0), (125, 90)]


def test_an_output_of_its_own_feeds_back_where_none_fits():
    plan = solve(ECP5, 30, [Output(125)])
    assert plan.feedback_output == 1 and len(plan.outputs) == 2
    # Where all outputs are taken, another oscillator has to do.
    plan = solve(ECP5, 100, [Output(62.5), Output(125), Output(125, 90), Output(50)])
    assert len(plan.outputs) == 4 and plan.feedback_output < 4


@pytest.mark.parametrize("family", [ECP5, MMCME2, PLLE2])
def test_limits_are_allowed_and_what_is_beyond_is_not(family):
    (least, most), detectors, *_ = LIMITS[family.primitive][:2]
    for source in (max(least, detectors[0]), most):
        check(solve(family, source, [Output(100, tolerance=0.2)]), source,
              [Output(100, tolerance=0.2)])
    for source in (F(least) - F(1, 1000), F(most) + F(1, 1000)):
        with pytest.raises(PllError, match=f"the input of {family.primitive} must be"):
            solve(family, source, [Output(100)])
    low, high = LIMITS[family.primitive][3]
    for mhz in (low - F(1, 1000), high + F(1, 1000)):
        with pytest.raises(PllError, match=f"an output of {family.primitive} must be"):
            solve(family, 100, [Output(mhz)])


@pytest.mark.parametrize("source, outputs, message", [
    (100, [], "EHXPLLL has 1 to 4 outputs, not 0"),
    (100, [Output(100)] * 5, "EHXPLLL has 1 to 4 outputs, not 5"),
    (9, [Output(100)], "no plan for EHXPLLL from 9 MHz to 100 MHz at 0 degrees"),
    (25, [Output(12.288)], "no plan for EHXPLLL from 25 MHz to 12.288 MHz at 0 degrees"),
    (100, [Output(100, 33)], "no plan for EHXPLLL from 100 MHz to 100 MHz at 33 degrees"),
    (100, [Output(100, 360)], "a phase must be 0 to below 360 degrees, not 360"),
    (100, [Output(100, -90)], "a phase must be 0 to below 360 degrees, not -90"),
    (100, [Output(100, tolerance=-0.1)],
     "a tolerance must not be negative, and that of a frequency below 1"),
    (100, [Output(100, tolerance=1)],
     "a tolerance must not be negative, and that of a frequency below 1"),
    ("fast", [Output(100)], "the input must be a number, not 'fast'"),
    (100, [Output(float("nan"))], "a frequency must be a number, not nan"),
    (100, [Output(float("inf"))], "a frequency must be a number, not inf"),
])
def test_errors_are_one_line(source, outputs, message):
    with pytest.raises(PllError) as error:
        solve(ECP5, source, outputs)
    assert str(error.value) == message
