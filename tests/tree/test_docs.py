"""Documents that derive from something must agree with it."""

import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.examples import pages
from tests.tree.test_imports import FOLDERS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("picture", ["architecture", "linux", "scale", "gpu_states",
                                     "task_states"])
def test_pictures_are_what_their_sources_draw(picture):
    drawn = subprocess.run([sys.executable, ROOT / f"docs/figures/{picture}.py"],
                           capture_output=True, text=True, check=True).stdout
    assert (ROOT / f"docs/figures/{picture}.svg").read_text() == drawn


def test_the_page_of_scale_has_the_stored_figures():
    tables = subprocess.run([sys.executable, ROOT / "docs/figures/scale.py", "--tables"],
                            capture_output=True, text=True, check=True).stdout
    page = (ROOT / "docs/explanation/scale.md").read_text()
    for table in tables.strip().split("\n\n"):
        assert table in page


def test_every_test_that_the_test_plan_names_exists():
    plan = (ROOT / "docs/testplan.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", plan)
    assert len(named) > 20
    for file, function in named:
        path = ROOT / file
        assert path.exists(), f"docs/testplan.md names {file}"
        assert not function or re.search(rf"^def {function}\(", path.read_text(), re.M), (
            f"docs/testplan.md names {file}::{function}")


def test_every_test_file_is_in_the_test_plan():
    plan = (ROOT / "docs/testplan.md").read_text()
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        name = path.relative_to(ROOT).as_posix()
        assert name in plan, f"{name} is not in docs/testplan.md"


def test_links_in_documents_lead_somewhere():
    """Headings of pages, too, with the anchors that forges and the site make of them."""
    for page in pages():
        text = re.sub(r"^( *)(`{3,}).*?^\1\2$", "", page.read_text(), flags=re.M | re.S)
        for target, _, heading in re.findall(r"\]\(([^)#\s]*)(#([^)\s]+))?\)", text):
            if "://" in target:
                continue
            there = page.parent / target if target else page
            assert there.exists(), f"{page.name} links to {target}"
            if heading and there.suffix == ".md":
                assert heading in anchors(there), f"{page.name} links to {target}#{heading}"


def anchors(page):
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_what_documents_name_of_the_code_is_there(page):
    """Modules and their members by their full names."""
    for name in re.findall(r"`(dxpu(?:_\w+)?(?:\.\w+)+)(?:\([^`]*\))?`", page.read_text()):
        assert pkgutil.resolve_name(name), f"{page.name} names {name}"


def test_pages_that_sources_name_are_there():
    """But for a page that a test makes."""
    for folder in FOLDERS:
        for file in (ROOT / folder).rglob("*.py"):
            for page in re.findall(r"\bdocs/[\w/-]+\.md", file.read_text()):
                assert (ROOT / page).exists(), f"{file} names {page}"
