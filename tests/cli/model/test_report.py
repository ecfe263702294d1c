"""``dxpu model report``, and its page in a browser."""

import asyncio
from pathlib import Path

import pytest

from dxpu_cli.main import main
from dxpu_performance import measured
from tests.model.performance.test_measured import ALL
from tests.support.browser import CHROMIUM, browser

SAMPLE = Path(__file__).parents[2] / "model/performance/samples/kineto.json"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("report")
    measured.write(where / "rtl.json", ALL)
    assert main(["model", "report", str(SAMPLE), "--rtl", str(where / "rtl.json"), "--out",
                 str(where / "out")]) == 0
    return where / "out"


def test_the_folder_has_the_page_and_each_picture_twice(folder):
    names = {path.stem for path in (folder / "pictures").iterdir()}
    assert names == {"round-trip", "parity", "copies", "split", "scaling", "peer", "map",
                     "kernels-1"}
    for name in names:
        assert (folder / f"pictures/{name}.svg").stat().st_size > 2000
        assert (folder / f"pictures/{name}.png").stat().st_size > 2000


@pytest.mark.skipif(CHROMIUM is None, reason="browser: there is no Chromium")
def test_a_browser_shows_the_page(folder, tmp_path):
    """On a wide window and on a narrow one: no error, nothing asked for, nothing cut off."""
    async def look():
        async with browser(tmp_path) as there:
            page = await there.page((folder / "report.html").as_uri(), width=1280, height=900)
            for width in (1280, 480):
                await page.look(width, 900)
                assert await page.js("document.documentElement.scrollWidth") <= width
                sizes = await page.js("[...document.querySelectorAll('figure svg')].map(e => "
                                      "e.getBoundingClientRect().width)")
                assert len(sizes) == 8 and min(sizes) > 300
            assert not page.errors
            assert [url for url in page.asked if not url.startswith("file:")] == []
    asyncio.run(look())


def test_two_fabrics_are_one_too_many(capsys, tmp_path):
    assert main(["model", "report", "--paper", "--rtl", "x", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        "dxpu model: error: --paper and --rtl are two fabrics: give one\n")
