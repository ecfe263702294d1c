"""The site of ``make docs``: it builds without a warning, and leads to every page."""

import pickle
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
KINDS = ("tutorial", "howto", "reference", "explanation")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Folder with the site; the build ends with 0 only if Sphinx had nothing to say."""
    out = tmp_path_factory.mktemp("site")
    run = subprocess.run([sys.executable, DOCS / "make_site.py", out], capture_output=True,
                         text=True)
    assert run.returncode == 0, run.stderr
    return out


def test_every_page_is_in_one_kind_and_once(site):
    """The contents of each kind are those of its index page."""
    tree = pickle.loads((site / "doctrees/environment.pickle").read_bytes()).toctree_includes
    assert tree["index"] == [f"{kind}/index" for kind in KINDS]
    written = {page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.rglob("*.md")}
    named = Counter(page for pages in tree.values() for page in pages)
    assert written - {"index"} <= set(named)
    assert set(named.values()) == {1}
    assert "reference/made/host_registers" in named


def test_pages_are_below_their_kind():
    """A page lies in the folder of its kind; two that everybody knows by heart do not."""
    there = {page.relative_to(DOCS).parts[0] for page in DOCS.rglob("*.md")}
    assert there == {*KINDS, "index.md", "architecture.md", "testplan.md"}


def test_pictures_and_files_are_in_the_site(site):
    front = (site / "html/index.html").read_text()
    picture, = re.findall(r'<img[^>]* src="(_images/[^"]+)"', front)
    assert (site / "html" / picture).exists()
    for page in (site / "html").rglob("*.html"):
        for target in re.findall(r'(?:href|src)="([^"#:]+)["#]', page.read_text()):
            assert (page.parent / target.partition("?")[0]).exists(), f"{page.name}: {target}"


def test_made_pages_are_not_in_the_tree():
    assert not (DOCS / "reference/made").exists()


def _prose(page):
    """Lines of a page with their numbers, but for code, tables, headings and pictures."""
    fence = ""
    for number, line in enumerate(page.read_text().splitlines(), 1):
        text = line.strip()
        mark = re.match(r"`{3,}", text)
        if fence:
            fence = "" if text == fence else fence
        elif mark:
            fence = mark[0]
        elif not text.startswith(("|", "#", "![")):
            yield number, line


@pytest.mark.parametrize("page", [*sorted(ROOT.glob("*.md")),
                                  *sorted(DOCS.rglob("*.md"))],
                         ids=lambda page: page.relative_to(ROOT).as_posix())
def test_prose_wraps_at_100(page):
    """A line with one long word, such as a frame in hexadecimal, cannot."""
    for number, line in _prose(page):
        assert len(line) <= 100 or max(map(len, line.split())) > 90, f"{page}:{number}: too long"
