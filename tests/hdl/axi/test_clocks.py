"""The clocks that docs/howto/attach-a-fast-mac.md asks for are those at which frames fit."""

import math
import re
from pathlib import Path

from dxpu.proxy.common import LARGEST_FRAME
from dxpu_sim.ethernet.axi_line import FRAME_OVERHEAD

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/howto/attach-a-fast-mac.md"


def least(rate, width, sizes):
    """Hz at which the beats of a frame take no longer than the frame on its line."""
    return max(-(-size * 8 // width) * rate / (8 * (size + FRAME_OVERHEAD)) for size in sizes)


def test_clocks_of_the_page():
    rows = re.findall(r"^\| (\d+) Gb/s \| (\d+) \| ([\d.]+) MHz \| ([\d.]+) MHz \|$",
                      PAGE.read_text(), re.M)
    assert len(rows) > 5
    for rate, width, *clocks in rows:
        for clock, sizes in zip(clocks, (range(60, LARGEST_FRAME + 1, 4), (1472,)), strict=True):
            hertz = least(int(rate) * 1e9, int(width), sizes)
            assert float(clock) == math.ceil(hertz / 1e5) / 10, (rate, width)


def test_the_largest_frame_is_as_the_pages_say():
    for page in (PAGE, ROOT / "docs/reference/axi-ports.md"):
        assert f"{LARGEST_FRAME:,}" in page.read_text().replace("\n  ", " "), page.name
