"""``dxpu docs``: pages that can be made, say the right things, and are whole."""

import re
from pathlib import Path

import pytest

from dxpu.proxy.registers import CONTROL_BASE, COUNTERS_BASE, TABLE_BASE
from dxpu.switch.config.identity import Identity, SlotOptions
from dxpu.switch.config.placeholder_map import placeholder_map
from dxpu.switch.config.port_map import DOWNSTREAM, UPSTREAM, function_map
from dxpu_boards.registers import BASES, map_of
from dxpu_boards.registry import BOARDS
from dxpu_cli import main as cli
from dxpu_cli.commands import docs, generate
from dxpu_tools import files


DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def pages():
    return docs.pages()


def test_writes_every_page(tmp_path, capsys, pages):
    out = tmp_path / "new" / "folder"
    assert cli.main(["docs", "--out", str(out)]) == 0
    assert {path.name: path.read_text() for path in out.iterdir()} == pages
    assert "begin with" in capsys.readouterr().out
    # Again, over what is there; other files stay.
    (out / "mine.txt").write_text("mine")
    (out / "ports.md").write_text("old")
    assert cli.main(["docs", "--out", str(out)]) == 0
    assert (out / "mine.txt").read_text() == "mine"
    assert (out / "ports.md").read_text() == pages["ports.md"]


def test_index_leads_to_every_page(pages):
    links = re.findall(r"\]\(([^)]+)\)", pages["index.md"])
    assert sorted(links) == sorted(set(pages) - {"index.md"})


def test_links_inside_a_page_lead_to_its_headings(pages):
    for name, page in pages.items():
        headings = {h.strip("` ").lower() for h in re.findall(r"^#+ (.*)$", page, re.M)}
        for target in re.findall(r"\]\(#([^)]+)\)", page):
            assert target in headings, f"{name}: {target}"


@pytest.mark.parametrize("name, least", [
    ("host", 100), ("box", 100), ("host_board", 80), ("box_board", 75)])
def test_register_pages_have_every_register_at_its_address(pages, name, least):
    page = pages[f"{name}_registers.md"]
    role, _, board = name.partition("_")
    proxy = generate.make(role, **docs.SHAPE)
    blocks = {name: block for name, block in map_of(
        proxy, BOARDS["versa-ecp5-5g"], width=64).blocks.items()
        if (name in BASES) == bool(board)}
    assert set(blocks) == {"host_board": {"board", "events", "tlp", "pcie"},
                           "box_board": {"board", "events"}}.get(
                               name, {"control", "counters", "table"})
    seen = 0
    for base, block in blocks.values():
        for placed in block.placed:
            if placed.rows is None:
                assert f"| `{base + placed.address:#06x}` | `{placed.register.name}` |" in page
            elif placed.index == 0:
                assert (f"| `{base + placed.address:#06x} + {placed.rows.stride:#x} n` | "
                        f"`{placed.rows.name}[n].{placed.register.name}` |") in page
            seen += 1
            for field in placed.register.fields:
                assert f"| `{field.name}` |" in page
    assert seen > least


@pytest.mark.parametrize("role", ["host", "box"])
def test_pages_of_proxies_with_keys_have_registers_for_them(pages, role):
    page = pages[f"{role}_registers_keys.md"]
    for text in ("| `0x07e0 + 0x4 n` | `key[n].word` |", "| `0x07f8` | `security` |",
                 "| 31:0 | `bytes` | write only, reads 0 |", "`fabric_opening_knock`",
                 "`key_incomplete`"):
        assert text in page, text
        assert (text in pages[f"{role}_registers.md"]) == ("security" in text)


@pytest.mark.parametrize("role", ["host", "box"])
def test_pages_of_managed_proxies_have_counters_for_that(pages, role):
    for name in ("knock", "tag", "busy", "calculated"):
        text = f"`management_{name}`"
        assert text in pages[f"{role}_registers_managed.md"], text
        assert text not in pages[f"{role}_registers_keys.md"]


def test_addresses_that_software_relies_on(pages):
    for role in ("host", "box"):
        page = pages[f"{role}_registers.md"]
        for line in (
            f"| `{CONTROL_BASE:#06x}` | `identity` | Identifies a proxy. |",
            "| 31:0 | `value` | constant | `0x44585055` | \"DXPU\". |",
            f"| `{COUNTERS_BASE:#06x}` | ",
            f"| `{TABLE_BASE + 0x18:#06x}` | `commit` | Writing this register gives the command. |",
            f"| `{TABLE_BASE + 0x800:#06x} + 0x40 n` | `row[n].state` |",
            "| 11:0 | `number` | read, write | `0xfff` | Node number; 0xFFF: none assigned. |",
        ):
            assert line in page, f"{role}: {line}"


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("role", ["host", "box"])
def test_every_counter_is_explained(role, split):
    _, block = generate.make(role, **docs.SHAPE, split=split).registers.blocks["counters"]
    assert len(block.placed) > 40
    for placed in block.placed:
        assert placed.register.doc.endswith("."), placed.path
        assert "{" not in placed.register.doc
    texts = {placed.register.name: placed.register.doc for placed in block.placed}
    assert texts["fabric_tx_frames"] == "Frames sent."
    assert texts["mac1_rx_good"] == "Good frames received on path 1."


def test_counters_that_pages_name_are_there():
    known = {placed.register.name for role in ("host", "box") for build in (
        {}, {"split": True}, {"arq": "selective"}) for placed in generate.make(
            role, **docs.SHAPE, **build).registers.blocks["counters"][1].placed}
    counter = re.compile(r"`((?:fabric|mac\d+|switch|tracking|pool|to_slots|binding)_\w+)`")
    named = {}
    for file in DOCS.rglob("*.md"):
        if file.parent.name != "tutorial":  # its first changes add some
            named |= dict.fromkeys(counter.findall(file.read_text()), file.name)
    assert len(named) > 20
    assert not {name: file for name, file in named.items() if name not in known}


def test_first_register_writes_have_their_addresses():
    """Registers, by their paths, at the addresses of the proxies that the page's commands make."""
    page = (DOCS / "reference/ports.md").read_text()
    section = page[page.index("### First register writes"):]
    section = section[:section.index("\n## ")]
    maps = {}
    for role, options in re.findall(r"dxpu generate (host|box) -o \S+ (.*)", section):
        given = {name: int(value) for name, value in re.findall(r"--(\w+) (\d+)", options)}
        maps[role] = generate.make(role, **{**docs.SHAPE, **given}).registers
    rows = re.findall(r"^\| \d+ \| `(\S+)`[^|]* \| (\S+) \| \S+ \| (\S+) \|", section, re.M)
    assert len(rows) == 10
    for path, box, host in rows:
        for role, address in (("box", box), ("host", host)):
            if address != "-":
                assert f"{maps[role].address(path):04X}h" == address, f"{role}: {path}"
    others = re.findall(r"`((?:control|table)\.\S+)` \((?:host, )?(\w{4}h)\)", section)
    assert len(others) == 3
    for path, address in others:
        assert f"{maps['host'].address(path):04X}h" == address, path


@pytest.mark.parametrize("kind, form, options", [
    (UPSTREAM, "", {}), (DOWNSTREAM, "", {}),
    (DOWNSTREAM, "_dpc", {"surprise": False, "dpc": True})])
def test_configuration_pages_have_every_register(pages, kind, form, options):
    page = pages[f"{kind}_port{form}.md"]
    assert ("DPC Status" in page) == bool(form)
    for r in function_map(kind, Identity(slot=SlotOptions(**options))).registers:
        assert f"## {r.offset:03X}h {r.name} ({r.bits} bits)" in page
    assert ("Slot Control" in page) == (kind == DOWNSTREAM)


def test_placeholder_page_has_every_register(pages):
    for r in placeholder_map().registers:
        assert f"## {r.offset:03X}h {r.name} ({r.bits} bits)" in pages["placeholder.md"]


def test_port_tables(pages):
    plain, axi = pages["ports.md"].split("## `dxpu_host` with `--axi`")
    host, box = plain.split("## `dxpu_box`")
    for line in ("| `clk` | in | 1 |", "| `gmii1_rx_rst` | in | 1 |",
                 "| `bus_request_address` | in | 16 |"):
        assert line in host and line in box
    assert "| `upstream_rx_data` | in | 64 |" in host and "upstream" not in box
    assert "| `upstream_tx_np_ready` | in | 1 |" in host
    assert "| `slot7_tx_cpl_dwords` | out | 2 |" in box and "slot" not in host
    assert "| `reset` | out | 8 |" in box and "`reset`" not in host
    assert "gmii" not in axi and "axis" not in plain
    for line in ("| `eth1_rx_clk` | in | 1 |", "| `m_axis_eth1_tkeep` | out | 8 |",
                 "| `s_axil_awaddr` | in | 16 |"):
        assert axi.count(line) == 2
    assert axi.count("| `s_axis_upstream_rx_tuser` | in | 1 |") == 1


@pytest.mark.parametrize("page", ["host_registers.md", "host_board_registers.md", "ports.md",
                                  "upstream_port.md", "placeholder.md"])
def test_tables_have_as_many_cells_as_their_heads(pages, page):
    cells = None
    for line in pages[page].splitlines():
        if not line.startswith("|"):
            cells = None
            continue
        count = len(re.findall(r"(?<!\\)\|", line))
        assert cells in (None, count), line
        cells = count


def test_mistakes_get_one_line(tmp_path, capsys, monkeypatch):
    (tmp_path / "file").write_text("")
    assert cli.main(["docs", "--out", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err == (
        f"dxpu docs: error: --out must be a folder, but {str(tmp_path / 'file')!r} is a file\n")
    assert cli.main(["docs", "--out", str(tmp_path / "file" / "below")]) == 2
    assert capsys.readouterr().err.startswith("dxpu docs: error: cannot write to ")
    with pytest.raises(SystemExit) as end:
        cli.main(["docs", "--colour", "red"])
    assert end.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_page_is_written_whole_or_not_at_all(tmp_path, capsys, monkeypatch):
    def full(source, destination):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    assert cli.main(["docs", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"dxpu docs: error: cannot write to {str(tmp_path)!r}: No space left on device\n")
    assert not list(tmp_path.iterdir())
