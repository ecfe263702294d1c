"""Clocks and resets of a board: a PLL, a clock domain for each of its outputs, their resets."""

from dataclasses import dataclass
from fractions import Fraction

from amaranth import *
from amaranth.lib import io, wiring
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.lib.wiring import In, Out

from .pll import ECP5, Output, Plan, solve

__all__ = ["CORE_83", "Clock", "Clocks", "Resets", "plan"]


@dataclass(frozen=True)
class Clock:
    """A clock domain made by a board.

    Parameters
    ----------
    domain : str
    mhz : number
    phase : number
        Delay against the other clocks, in degrees.
    margin : number
        Reserve that a good build must have after routing, as a part of the frequency: a clock of
        100 MHz with a margin of 0.1 must be able to run at 110 MHz.
    """

    domain: str
    mhz: float
    phase: float = 0
    margin: float = 0


#: The core of a board whose proxies meet 91.7 MHz.
CORE_83 = Clock("sync", Fraction(250, 3), margin=0.1)


def plan(family, mhz, clocks) -> Plan:
    """PLL for these :class:`Clock`, with exact frequencies; raises
    :exc:`~dxpu_boards.pll.PllError`."""
    return solve(family, mhz, [Output(clock.mhz, clock.phase) for clock in clocks])


class Resets(wiring.Component):
    """Resets of all clock domains of a board, from one cause.

    ``cause`` may come at any time and for any length, and sets ``reset`` at once, without a clock.
    ``reset`` ends ``CYCLES`` cycles of ``oscillator`` after ``cause``, so even the shortest cause
    gives every domain a long reset. The reset of each of ``domains`` follows ``reset``: it begins
    at once and ends two cycles of the domain later, in step with its clock. A domain whose clock
    stands still stays in reset.

    Parameters
    ----------
    domains : list of str

    Members
    -------
    cause : In(1)
        Asynchronous.
    reset : Out(1)
        Asynchronous; for domains made elsewhere (receive clocks of PHYs).
    """

    #: 10 us at 25 MHz, 1.3 us at 200 MHz: every domain sees many cycles.
    CYCLES = 256

    cause: In(1)
    reset: Out(1)

    def __init__(self, domains):
        super().__init__()
        self._domains = list(domains)

    def elaborate(self, platform):
        m = Module()
        # The reset of `oscillator` begins without a clock as well, so `reset` needs no edge.
        m.submodules.oscillator = ResetSynchronizer(self.cause, domain="oscillator")
        count = Signal(range(self.CYCLES))
        over = Signal()
        m.d.oscillator += [count.eq(count + 1), over.eq(over | (count == self.CYCLES - 1))]
        m.d.comb += self.reset.eq(ResetSignal("oscillator") | ~over)
        for domain in self._domains:
            m.submodules[domain] = ResetSynchronizer(self.reset, domain=domain)
        return m


class Clocks(wiring.Component):
    """The board's oscillator, a PLL, and a clock domain for each output of the PLL.

    Requests the platform's default clock and, if present, its default reset (a button). The top
    must define the domains: ``m.domains += clocks.domains()``. All domains are in reset until the
    PLL has locked, when the lock is lost, while the button is pressed, and by ``cause``
    (:class:`Resets`); the clocks run on meanwhile. Each clock has a constraint: for ECP5 from here;
    for 7 series the tool derives the constraint from that of the oscillator.

    Parameters
    ----------
    clocks : list of Clock
    family : Family
        Family of the PLL.

    Members
    -------
    cause : In(1)
        Asynchronous: resets everything, as the button does.
    locked : Out(1)
        Asynchronous.
    reset : Out(1)
        ``reset`` of :class:`Resets`.
    """

    cause: In(1)
    locked: Out(1)
    reset: Out(1)

    def __init__(self, clocks, family=ECP5):
        super().__init__()
        self._clocks = tuple(clocks)
        self._family = family

    def domains(self) -> list[ClockDomain]:
        """New domains, one for each clock and ``oscillator``, for the module that uses them."""
        return [ClockDomain(name) for name in (*(c.domain for c in self._clocks), "oscillator")]

    def elaborate(self, platform):
        m = Module()
        m.submodules.pin = pin = io.Buffer("i", platform.request(platform.default_clk, dir="-"))
        m.d.comb += ClockSignal("oscillator").eq(pin.i)

        settings = plan(self._family, platform.default_clk_frequency / 1e6, self._clocks)
        # The constraints use these names, so the names must survive synthesis.
        outputs = [Signal(name=f"pll_{clock.domain}", attrs={"keep": 1})
                   for clock in self._clocks]
        primitive = _ehxplll if self._family.through_output else _series7
        primitive(m, settings, pin.i, outputs, self.locked)
        for clock, setting, signal in zip(self._clocks, settings.outputs, outputs, strict=False):
            m.d.comb += ClockSignal(clock.domain).eq(signal)
            if self._family.through_output:
                platform.add_clock_constraint(signal, float(setting.mhz * 1_000_000))

        pressed = Const(0)
        if platform.default_rst is not None:
            button = io.Buffer("i", platform.request(platform.default_rst, dir="-"))
            m.submodules.button = button
            pressed = button.i
        m.submodules.resets = resets = Resets([clock.domain for clock in self._clocks])
        m.d.comb += [resets.cause.eq(~self.locked | pressed | self.cause),
                     self.reset.eq(resets.reset)]
        return m


#: Outputs of EHXPLLL, in order.
EHXPLLL = ("CLKOP", "CLKOS", "CLKOS2", "CLKOS3")


def _ehxplll(m, plan, source, outputs, locked):
    """Make an EHXPLLL. Ref: Lattice FPGA-TN-02200

    An output is late by CPHASE less its divider plus one whole periods, and FPHASE eighths.
    """
    outputs = list(outputs)
    if len(outputs) < len(plan.outputs):
        outputs.append(Signal(name="pll_feedback"))
    arguments = {}
    for name, setting, signal in zip(EHXPLLL, plan.outputs, outputs, strict=False):
        arguments |= {
            f"p_{name}_ENABLE": "ENABLED",
            f"p_{name}_DIV": setting.divider,
            f"p_{name}_CPHASE": setting.divider - 1 + setting.eighths // 8,
            f"p_{name}_FPHASE": setting.eighths % 8,
            f"o_{name}": signal,
        }
    m.submodules.pll = Instance(
        "EHXPLLL",
        # Charge pump and loop filter: Project Trellis' settings, used by its ECP5 designs.
        a_ICP_CURRENT="12", a_LPF_RESISTOR="8", a_MFG_ENABLE_FILTEROPAMP="1",
        a_MFG_GMCREF_SEL="2",
        p_PLLRST_ENA="DISABLED", p_INTFB_WAKE="DISABLED", p_STDBY_ENABLE="DISABLED",
        p_DPHASE_SOURCE="DISABLED",
        p_OUTDIVIDER_MUXA="DIVA", p_OUTDIVIDER_MUXB="DIVB", p_OUTDIVIDER_MUXC="DIVC",
        p_OUTDIVIDER_MUXD="DIVD",
        p_CLKI_DIV=plan.input_divider, p_CLKFB_DIV=plan.feedback_divider,
        p_FEEDBK_PATH=EHXPLLL[plan.feedback_output],
        i_CLKI=source, i_CLKFB=outputs[plan.feedback_output],
        i_RST=Const(0), i_STDBY=Const(0), i_PHASESEL0=Const(0), i_PHASESEL1=Const(0),
        i_PHASEDIR=Const(0), i_PHASESTEP=Const(0), i_PHASELOADREG=Const(0), i_PLLWAKESYNC=Const(0),
        i_ENCLKOP=Const(0), i_ENCLKOS=Const(0), i_ENCLKOS2=Const(0), i_ENCLKOS3=Const(0),
        o_LOCK=locked, **arguments)


def _series7(m, plan, source, outputs, locked):
    """Make a PLL of 7 series. Ref: AMD UG472, UG953"""
    real = plan.family.primitive == "MMCME2_BASE"
    feedback, fed_back = Signal(), Signal()
    arguments = {("p_CLKFBOUT_MULT_F" if real else "p_CLKFBOUT_MULT"):
                 float(plan.multiplier) if real else plan.multiplier}
    for n, (setting, signal) in enumerate(zip(plan.outputs, outputs, strict=True)):
        raw = Signal(name=f"output{n}")
        fractional = real and n == 0
        arguments |= {
            f"p_CLKOUT{n}_DIVIDE" + "_F" * fractional:
                float(setting.divider) if fractional else setting.divider,
            f"p_CLKOUT{n}_PHASE": float(setting.phase),
            f"o_CLKOUT{n}": raw,
        }
        m.submodules[f"buffer{n}"] = Instance("BUFG", i_I=raw, o_O=signal)
    m.submodules.feedback = Instance("BUFG", i_I=feedback, o_O=fed_back)
    m.submodules.pll = Instance(
        plan.family.primitive,
        p_CLKIN1_PERIOD=float(1000 / plan.source), p_DIVCLK_DIVIDE=plan.input_divider,
        i_CLKIN1=source, i_RST=Const(0), i_PWRDWN=Const(0),
        i_CLKFBIN=fed_back, o_CLKFBOUT=feedback, o_LOCKED=locked, **arguments)
