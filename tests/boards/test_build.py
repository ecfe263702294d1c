"""dxpu_boards.build: a small design all the way to a bitstream; what is not good fails and says so.
"""

import json
import re
from dataclasses import replace
from fractions import Fraction

import pytest
from dxpu_boards import ecp5, report
from dxpu_boards.board import Shape
from dxpu_boards.build import BuildFailed, build
from dxpu_boards.clocks import Clock
from dxpu_boards.crossings import Crossing
from dxpu_boards.registry import BOARDS
from tests.support.board_standin import StandIn

#: The Versa, with a core of 62.5 MHz and so 68.75 wanted.
VERSA = replace(BOARDS["versa-ecp5-5g"], clocks=(
    Clock("sync", 62.5, margin=0.1), *BOARDS["versa-ecp5-5g"].clocks[1:]))


class Steps:
    """Remembers what progress was told."""

    def __init__(self):
        self.names, self.failed = [], None

    def step(self, name):
        self.names.append(name)

    def update(self, detail):
        pass

    def refresh(self):
        pass

    def done(self, *, failed=False):
        self.failed = failed


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Folder, report and steps of a build for the Versa."""
    folder, steps = tmp_path_factory.mktemp("build"), Steps()
    return folder, build(VERSA, StandIn(VERSA), folder, role="box", shape=Shape(), progress=steps,
                         seed=3), steps


def test_a_build_leaves_bitstream_netlist_and_reports(built):
    folder, _, steps = built
    assert steps.names == ["elaboration", "synthesis", "clocks and crossings", "packing",
                           "placement", "routing", "bitstream"]
    assert steps.failed is False
    bits = (folder / "versa-ecp5-5g-box.bit").read_bytes()
    # The preamble of a bitstream and the part in its comment. Ref: FPGA-TN-02039
    assert b"\xff\xff\xbd\xb3" in bits and b"LFE5UM5G-45F" in bits
    # The vectors check the part's number before they write.
    assert "01112043" in (folder / "versa-ecp5-5g-box.svf").read_text() or "81112043" in \
        (folder / "versa-ecp5-5g-box.svf").read_text()
    assert json.loads((folder / "netlist.json").read_text())["modules"]["top"]["cells"]


def test_the_report_has_every_clock_and_what_is_used(built):
    folder, result, _ = built
    data = json.loads((folder / "report.json").read_text())
    assert (data["board"], data["role"], data["seed"]) == ("versa-ecp5-5g", "box", 3)
    assert data["part"] == "LFE5UM5G-45F-8BG381" and data["met"] is True
    assert {name: (c["constraint_mhz"], c["wanted_mhz"]) for name, c in data["clocks"].items()} \
        == {"sync": (62.5, pytest.approx(68.75)), "tx": (125, 125), "tx90": (125, 125),
            "eth_rgmii_0.rx_clk": (125, 125), "eth_rgmii_1.rx_clk": (125, 125),
            "clk100_0": (100, 100)}
    for clock in data["clocks"].values():
        assert clock["achieved_mhz"] > clock["wanted_mhz"] and clock["met"]
        assert 0 < clock["longest_path"]["delay_ns"] < 1000 / clock["achieved_mhz"] + 1
    assert data["used"]["FF"]["available"] == 43848 and data["used"]["DP16KD"]["used"] == 0
    assert 50 < data["used"]["FF"]["used"] < 200 and 50 < data["used"]["LUT4"]["used"] < 200
    text = (folder / "report.txt").read_text()
    assert re.search(r"^sync +62\.50 MHz +68\.75 MHz +[\d.]+ MHz  met$", text, re.M)


def test_every_crossing_is_explained(built):
    folder, result, _ = built
    kinds = {(c["source"], c["target"]): c["kind"]
             for c in json.loads((folder / "report.json").read_text())["crossings"]}
    for clock in ("tx", "tx90", "eth_rgmii_0.rx_clk", "eth_rgmii_1.rx_clk"):
        assert kinds[clock, "sync"] == "synchroniser"
        assert kinds["clk100_0", clock] == "reset"
    # All that nextpnr reports from clock to clock is among them.
    clocks = {clock.name for clock in result.clocks}
    reported = {pair for pair in result.delays if set(pair) <= clocks}
    assert reported and reported <= set(kinds)


def test_the_pll_in_the_netlist_makes_the_clocks(built):
    """Worked out from the primitive's own parameters, as the data sheet has them."""
    cells = json.loads((built[0] / "netlist.json").read_text())["modules"]["top"]["cells"]
    pll, = (cell for cell in cells.values() if cell["type"] == "EHXPLLL")
    number = {name: int(value, 2) for name, value in pll["parameters"].items()
              if re.fullmatch("[01]{8,}", value)}
    fed = pll["parameters"]["FEEDBK_PATH"]
    assert pll["connections"]["CLKFB"] == pll["connections"][fed]
    oscillator = Fraction(100, number["CLKI_DIV"]) * number["CLKFB_DIV"] * number[f"{fed}_DIV"]
    assert 400 <= oscillator <= 800
    for output, mhz, degrees in (("CLKOP", 62.5, 0), ("CLKOS", 125, 0), ("CLKOS2", 125, 90)):
        divider = number[f"{output}_DIV"]
        late = number[f"{output}_CPHASE"] - (divider - 1) + Fraction(number[f"{output}_FPHASE"], 8)
        assert (oscillator / divider, late / divider * 360) == (mhz, degrees)
        assert pll["parameters"][f"{output}_ENABLE"] == "ENABLED"


def failed(board, design, folder):
    """The one line of a build that fails; nobody finds a bitstream."""
    steps = Steps()
    with pytest.raises(BuildFailed) as error:
        build(board, design, folder, role="box", shape=Shape(), progress=steps)
    assert steps.failed and not list(folder.glob("*.bit")) and not list(folder.glob("*.svf"))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_clock_that_is_too_slow(tmp_path):
    board = replace(VERSA, clocks=(Clock("sync", 250, margin=0.2), *VERSA.clocks[1:]))
    (tmp_path / "versa-ecp5-5g-box.bit").write_text("of an earlier build")
    line = failed(board, StandIn(board, bits=200), tmp_path)
    assert re.fullmatch(r"clock sync reaches \d+\.\d MHz and must reach 300 MHz \(250 MHz and 20% "
                        r"margin\); its longest path is from count_sync to count_sync, [\d.]+ ns",
                        line), line
    data = json.loads((tmp_path / "report.json").read_text())
    assert data["met"] is False and data["clocks"]["sync"]["met"] is False
    assert "NOT MET" in (tmp_path / "report.txt").read_text()


@pytest.mark.parametrize("reached, tries, placed", [
    ((67.9, 66.0, 70.0, 71.0), 5, 3), ((58.0, 70.0), 5, 1), *(
        pytest.param(*p, marks=pytest.mark.long) for p in (
            ((67.9, 66.0, 70.0, 71.0), 2, 2), ((68.8, 70.0), 5, 1)))])
def test_another_placing_is_tried_if_that_may_help(tmp_path, monkeypatch, reached, tries, placed):
    """``reached``: MHz of the core clock, placing by placing; 68.75 are wanted."""
    real, seeds = ecp5.place_and_route, []

    def place_and_route(folder, *args, seed, **others):
        if not seeds:
            real(folder, *args, seed=seed, **others)
        figures = json.loads((folder / ecp5.REPORT).read_text())
        for clock in figures["fmax"].values():
            clock["achieved"] = reached[len(seeds)] if clock["constraint"] == 62.5 else 500.0
        (folder / ecp5.REPORT).write_text(json.dumps(figures))
        seeds.append(seed)

    monkeypatch.setattr(ecp5, "place_and_route", place_and_route)
    good = reached[placed - 1] > 68.75
    try:
        build(VERSA, StandIn(VERSA), tmp_path, role="box", shape=Shape(), progress=Steps(), seed=4,
              tries=tries)
    except BuildFailed as error:
        assert not good and f"reaches {reached[placed - 1]} MHz" in str(error)
    else:
        assert good
    assert seeds == [*range(4, 4 + placed)]
    data = json.loads((tmp_path / "report.json").read_text())
    assert (data["seed"], data["met"]) == (seeds[-1], good)
    assert (tmp_path / "versa-ecp5-5g-box.bit").exists() is good


@pytest.mark.parametrize("worth", [-1, 1])
def test_where_luts_are_short_logic_takes_less_room_if_that_saves_enough(
        tmp_path, monkeypatch, worth):
    steps, netlists = Steps(), []
    monkeypatch.setattr(ecp5, "CROWDED", 0.001)
    monkeypatch.setattr(ecp5, "WORTH", worth)
    real = ecp5.map_again

    def map_again(folder, mhz):
        netlists.append((folder / ecp5.NETLIST).read_bytes())
        real(folder, mhz)
        netlists.append((folder / ecp5.NETLIST).read_bytes())

    monkeypatch.setattr(ecp5, "map_again", map_again)
    result = build(VERSA, StandIn(VERSA), tmp_path, role="box", shape=Shape(), progress=steps)
    assert steps.names[1:4] == ["synthesis", "mapping for less room", "clocks and crossings"]
    assert (tmp_path / "mapping.log").exists() and netlists[0] != netlists[1]
    assert (tmp_path / ecp5.NETLIST).read_bytes() == netlists[worth < 0]
    assert result.used["LUT4"][0] > 0.001 * 43848 and not result.failures


@pytest.mark.long
def test_what_does_not_fit_is_not_placed(tmp_path):
    """One more block RAM than the smallest part has, in one line and at once."""
    board = BOARDS["colorlight-5a-75b"]
    line = failed(board, StandIn(board, rams=57), tmp_path)
    assert line == ("does not fit: it takes 57 DP16KD, and the LFE5U-25F-6BG256 has 56; give fewer "
                    "slots, peers, streams or soft GPUs of a box (1 is the least), or take a board "
                    "with a larger part")


def test_a_crossing_without_a_synchroniser(tmp_path):
    line = failed(VERSA, StandIn(VERSA, careless=True), tmp_path)
    assert line == ("without a synchroniser or queue from clock eth_rgmii_0.rx_clk to clock sync: "
                    "seen_rx0 to lit")


def test_a_clock_without_a_constraint(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.support.board_standin.request_rgmii", pins_only)
    assert failed(VERSA, StandIn(VERSA), tmp_path) == "clock rx0_clk has no constraint"


def pins_only(platform, board, path):
    """:func:`request_rgmii` that forgets the receive clock."""
    from dxpu_boards.board import request_rgmii
    monkey = platform.add_clock_constraint
    platform.add_clock_constraint = lambda clock, hertz: None
    try:
        return request_rgmii(platform, board, path)
    finally:
        platform.add_clock_constraint = monkey


@pytest.mark.parametrize("achieved, wanted, met", [
    (62.5, 62.5, True), (62.4, 62.5, False), (68.7, 68.75, False), (None, 125, True)])
def test_margins_count(achieved, wanted, met):
    path = report.LongestPath(16.1, "a", "b")
    clock = report.ClockFigures("sync", 62.5, wanted, achieved, path)
    assert clock.met is met
    made = report.BuildReport("board", "host", "part", 1, "speed", {}, clocks=[clock], crossings=[
        Crossing("tx", "sync", "queue", 2, "a to b")], delays={("tx", "sync"): 1.25})
    assert bool(made.failures) is not met
    assert "tx to sync: 2 x queue; longest way 1.25 ns (a to b)" in made.as_text()
