"""I/O buffers at both clock edges with delay elements, which Amaranth's ``io`` lacks.

Each buffer has the signature of ``io.DDRBuffer`` and its contract (the rising edge is ``[0]``), so
it fits :class:`dxpu.ethernet.RgmiiDelays`; latencies equal those of ``io.DDRBuffer``::

    RgmiiDelays(rx_buffer=partial(Ecp5DelayedInput, taps=40))

This project has measured none of them on a board; the number of taps for a board depends on its
clock tree. Ref: Lattice FPGA-TN-02035 (ECP5 high-speed I/O), 5.9; AMD UG471 (7 series SelectIO), 2;
Gowin UG289 (GPIO), IODELAY
"""

from functools import partial

from amaranth import *
from amaranth.lib import io, wiring

__all__ = ["ECP5_INPUT", "SERIES7_INPUT", "Ecp5DelayedInput", "Ecp5DelayedOutput",
           "GowinDelayedInput", "Series7DelayControl", "Series7DelayedInput"]


class _Delayed(wiring.Component):
    """Common part: a plain buffer, and per pin a delay element and a DDR register.

    Parameters
    ----------
    port : io.PortLike
    domain : str
        Clock domain, at the rising edge.
    taps : int
        Steps of the delay, from 0 to ``TAPS``.
    """

    #: Direction: "i" or "o".
    DIRECTION = "i"
    #: Largest number of steps.
    TAPS = 127

    def __init__(self, port, *, domain, taps):
        if not isinstance(taps, int) or not 0 <= taps <= self.TAPS:
            raise ValueError(f"taps must be in 0..{self.TAPS}, not {taps!r}")
        super().__init__(io.DDRBuffer.Signature(self.DIRECTION, len(port)).flip())
        self._port, self._domain, self._taps = port, domain, taps

    def elaborate(self, platform):
        m = Module()
        m.submodules.pins = pins = io.Buffer(self.DIRECTION, self._port)
        if self.DIRECTION == "o":
            m.d.comb += pins.oe.eq(self.oe)
        for n in range(len(self._port)):
            delayed = Signal(name=f"delayed{n}")
            if self.DIRECTION == "i":
                m.submodules[f"delay{n}"] = self._delay(pins.i[n], delayed)
                m.submodules[f"ddr{n}"] = self._register(delayed, self.i[0][n], self.i[1][n])
            else:
                m.submodules[f"ddr{n}"] = self._register(delayed, self.o[0][n], self.o[1][n])
                m.submodules[f"delay{n}"] = self._delay(delayed, pins.o[n])
        return m


class Ecp5DelayedInput(_Delayed):
    """ECP5: DELAYG (127 steps of about 25 ps) before IDDRX1F."""

    def _delay(self, i, o):
        return Instance("DELAYG", p_DEL_MODE="USER_DEFINED", p_DEL_VALUE=self._taps, i_A=i, o_Z=o)

    def _register(self, pin, rising, falling):
        return Instance("IDDRX1F", i_SCLK=ClockSignal(self._domain), i_RST=Const(0), i_D=pin,
                        o_Q0=rising, o_Q1=falling)


class Ecp5DelayedOutput(_Delayed):
    """ECP5: ODDRX1F before DELAYG (127 steps of about 25 ps), for TXC."""

    DIRECTION = "o"
    _delay = Ecp5DelayedInput._delay

    def _register(self, pin, rising, falling):
        return Instance("ODDRX1F", i_SCLK=ClockSignal(self._domain), i_RST=Const(0),
                        i_D0=rising, i_D1=falling, o_Q=pin)


class Series7DelayedInput(_Delayed):
    """7 series: IDELAYE2 (31 steps of 78 ps at 200 MHz) before IDDR.

    The design needs one :class:`Series7DelayControl` with the same ``group``.
    """

    TAPS = 31

    def __init__(self, port, *, domain, taps, group="rgmii", refclk_hz=200e6):
        super().__init__(port, domain=domain, taps=taps)
        self._group, self._refclk_hz = group, refclk_hz

    def _delay(self, i, o):
        return Instance(
            "IDELAYE2", a_IODELAY_GROUP=self._group,
            p_IDELAY_TYPE="FIXED", p_IDELAY_VALUE=self._taps, p_DELAY_SRC="IDATAIN",
            p_SIGNAL_PATTERN="DATA", p_HIGH_PERFORMANCE_MODE="TRUE",
            p_REFCLK_FREQUENCY=self._refclk_hz / 1e6,
            i_IDATAIN=i, i_DATAIN=Const(0), i_C=Const(0), i_CE=Const(0), i_INC=Const(0),
            i_LD=Const(0), i_LDPIPEEN=Const(0), i_REGRST=Const(0), i_CINVCTRL=Const(0),
            i_CNTVALUEIN=Const(0, 5), o_DATAOUT=o)

    def _register(self, pin, rising, falling):
        return Instance(
            "IDDR", p_DDR_CLK_EDGE="SAME_EDGE_PIPELINED", i_C=ClockSignal(self._domain),
            i_CE=Const(1), i_D=pin, i_R=Const(0), i_S=Const(0), o_Q1=rising, o_Q2=falling)


class Series7DelayControl(wiring.Component):
    """7 series: calibrates the delay elements of ``group`` by a clock of 200 or 300 MHz.

    Parameters
    ----------
    domain : str
        Clock domain; its reset must last 60 ns.

    Members
    -------
    ready : Out(1)
        Asynchronous.
    """

    ready: wiring.Out(1)

    def __init__(self, *, domain, group="rgmii"):
        super().__init__()
        self._domain, self._group = domain, group

    def elaborate(self, platform):
        m = Module()
        m.submodules.control = Instance(
            "IDELAYCTRL", a_IODELAY_GROUP=self._group, i_REFCLK=ClockSignal(self._domain),
            i_RST=ResetSignal(self._domain), o_RDY=self.ready)
        return m


class GowinDelayedInput(_Delayed):
    """Gowin: IODELAY (127 steps of 18 to 30 ps, by family) before IDDR."""

    def _delay(self, i, o):
        return Instance("IODELAY", p_C_STATIC_DLY=self._taps, i_DI=i, i_SDTAP=Const(0),
                        i_SETN=Const(0), i_VALUE=Const(0), o_DO=o)

    def _register(self, pin, rising, falling):
        return Instance("IDDR", i_CLK=ClockSignal(self._domain), i_D=pin,
                        o_Q0=rising, o_Q1=falling)


#: Data delayed by as much as its own clock, which is centred in the data at the pins and reaches
#: the registers by the global network (GDDRX1_RX.SCLK.Centered): nextpnr's value for DEL_MODE
#: SCLK_CENTERED, 39 steps, some 1 ns.
ECP5_INPUT = partial(Ecp5DelayedInput, taps=39)
#: The same behind IBUF and BUFG: 2 ns, as in LiteEth for boards with Kintex-7.
SERIES7_INPUT = partial(Series7DelayedInput, taps=26)
