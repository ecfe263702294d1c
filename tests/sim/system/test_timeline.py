"""The timeline picture: what it says, that it is whole, and that it is the same every time."""

import struct
import xml.etree.ElementTree as ET

import pytest

from dxpu_sim.system.timeline import Stage, draw, totals

STAGES = [
    Stage("host", "conversion 1", 1000, 1240, "conversion"),
    Stage("Ethernet", "switch", 1240, 2640, "Ethernet"),
    Stage("box", "receive", 2640, 2640, "MAC"),
    Stage("box", "conversion 2", 2640, 2960, "conversion"),
]
LANES = ["host", "Ethernet", "box"]


def test_totals_in_the_order_of_kinds():
    assert totals(STAGES) == {"conversion": 560, "MAC": 0, "Ethernet": 1400}
    assert list(totals(STAGES)) == ["conversion", "MAC", "Ethernet"]


def test_svg_and_png(tmp_path):
    files = [tmp_path / "t.svg", tmp_path / "t.png"]
    draw(STAGES, LANES, files, title="One read", cycle_ns=8)
    root = ET.parse(files[0]).getroot()
    assert root.tag.endswith("svg")
    # Matplotlib writes the text of every label as a comment beside its outlines.
    text = files[0].read_text()
    for label in ("One read", "conversion 1  240 ns · 30 cycles", "switch  1,400 ns",
                  "conversion 2  320 ns · 40 cycles", "Ethernet", "box"):
        assert f"<!-- {label} -->" in text, label
    raw = files[1].read_bytes()
    assert raw.startswith(b"\x89PNG\r\n\x1a\n") and raw.endswith(b"IEND\xaeB`\x82")
    width, height = struct.unpack(">II", raw[16:24])
    assert width > 1000 and height > 400
    again = tmp_path / "again.svg"
    draw(STAGES, LANES, [again], title="One read", cycle_ns=8)
    assert again.read_text() == text


@pytest.mark.parametrize("stages, message", [
    ([], "a timeline needs at least one stage"),
    ([Stage("host", "x", 0, 1, "magic")],
     "kind must be one of PCIe, conversion, MAC, Ethernet, GPU, not 'magic'"),
    ([Stage("moon", "x", 0, 1, "MAC")], "lane must be one of host, Ethernet, box, not 'moon'"),
    ([Stage("host", "x", 2, 1, "MAC")], "stage 'x' ends before it starts"),
])
def test_wrong_stages(stages, message, tmp_path):
    with pytest.raises(ValueError) as error:
        draw(stages, LANES, [tmp_path / "t.svg"], title="", cycle_ns=8)
    assert str(error.value) == message
    assert not list(tmp_path.iterdir())
