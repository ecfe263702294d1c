"""MAC and RGMII under Verilator against an RGMII PHY model that nobody here wrote, skewed."""

import pytest
from amaranth import *

from dxpu.ethernet import Rgmii
from dxpu_sim.ethernet.rgmii_design import RgmiiBench
from dxpu_sim.run.runner import Design, SimulationFailed, simulate

#: The bench reads and writes the memories in these modules.
PUBLIC = ("top.source", "top.sink")


def run(design, **kwargs):
    testcase = kwargs.pop("testcase", None)
    simulate(design, "dxpu_sim.ethernet.rgmii_bench", public=PUBLIC, testcase=testcase, env=kwargs)


@pytest.mark.parametrize("skew_ps, rx_period_ps, core_period_ps", [
    (2000, 8000, 8000),
    (1000, 8002, 16000),  # the least set-up time, another frequency, a slow core
    (2900, 7998, 4000),  # the least hold time
])
def test_rgmii(skew_ps, rx_period_ps, core_period_ps):
    run(Design(RgmiiBench), FRAMES=6, RX_SKEW_PS=skew_ps, RX_PERIOD_PS=rx_period_ps,
        CORE_PERIOD_PS=core_period_ps)


@pytest.mark.long
@pytest.mark.parametrize("delay_ps", [1100, 2600])
def test_rgmii_with_a_phy_that_delays_txc(delay_ps):
    run(Design(RgmiiBench, {"tx_delay": "phy"}), FRAMES=4, TX_DELAY_PS=delay_ps)


@pytest.mark.long
@pytest.mark.parametrize("skew_ps", range(600, 3600, 400))
def test_rgmii_long(skew_ps):
    run(Design(RgmiiBench), FRAMES=100, RX_SKEW_PS=skew_ps, RX_PERIOD_PS=7998 + skew_ps % 5,
        CORE_PERIOD_PS=8000 + 10 * skew_ps)


class Swapped(Rgmii):
    """Mutant: takes the high nibble first."""

    @staticmethod
    def decode(rising, falling):
        return Cat(falling[:4], rising[:4]), rising[4], rising[4] ^ falling[4]


class SwappedBench(RgmiiBench):
    RGMII = Swapped


class Plain(Rgmii):
    """Mutant: sends the error bit itself."""

    @staticmethod
    def encode(byte, valid, error):
        return Cat(byte[:4], valid), Cat(byte[4:], error)


class PlainBench(RgmiiBench):
    RGMII = Plain


@pytest.mark.long
@pytest.mark.parametrize("bench", [SwappedBench, PlainBench])
def test_mutants_are_found(bench):
    with pytest.raises(SimulationFailed, match="line_rate|errors"):
        run(Design(bench), FRAMES=4, testcase="line_rate")


@pytest.mark.parametrize("variables", [
    {"RX_SKEW_PS": 4100}, {"TX_DELAY_PS": 2100},  # 2 ns on each side
])
def test_a_clock_that_is_delayed_twice_is_found(variables):
    with pytest.raises(SimulationFailed, match="line_rate"):
        run(Design(RgmiiBench), FRAMES=4, testcase="line_rate", **variables)
