"""What passed is remembered as long as nothing that it depends on has changed, and not longer."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dxpu_sim.run import recall
from dxpu_sim.run.recall import Passed, remembering, simulation

BENCH = "dxpu_sim.ethernet.mac_bench"


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("DXPU_CACHE", str(tmp_path / "cache"))


def run(folder, *parameters, built="program", text="42", fails=False):
    """A simulation that writes ``text``; whether it was run."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with simulation(folder, built, BENCH, *parameters) as needed:
        if needed:
            (folder / "result").write_text(text)
            if fails:
                raise RuntimeError("the simulation failed")
    assert (folder / "result").read_text() == text
    return needed


def test_a_run_is_recalled_while_nothing_changes(tmp_path):
    with remembering():
        assert run(tmp_path / "a", 1)
        assert not run(tmp_path / "a", 1)
        assert not run(tmp_path / "b", 1)
        assert run(tmp_path / "b", 2)
        assert run(tmp_path / "b", 1, built="another program")
        with remembering(False):
            assert run(tmp_path / "a", 1)
    assert run(tmp_path / "a", 1)


def test_a_run_depends_on_its_bench(tmp_path, monkeypatch):
    class Changed:
        def __contains__(self, module):
            return True

        def digest(self, module, hardware):
            assert not hardware
            return "changed"

    with remembering():
        assert run(tmp_path / "a")
        monkeypatch.setattr(recall, "project_sources", Changed)
        assert run(tmp_path / "a")
        assert not run(tmp_path / "a")


def test_a_run_that_fails_is_not_kept(tmp_path):
    with remembering():
        for _ in range(2):
            with pytest.raises(RuntimeError, match="the simulation failed"):
                run(tmp_path / "a", fails=True)
        assert run(tmp_path / "a")


def test_a_run_that_leaves_much_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(recall, "_LARGEST", 1000)
    with remembering():
        assert run(tmp_path / "a", text="x" * 1001)
        assert run(tmp_path / "a", text="x" * 1001)
        assert run(tmp_path / "b", 1, text="x" * 1000)
        assert not run(tmp_path / "b", 1, text="x" * 1000)


@pytest.fixture
def passed(tmp_path):
    """Memory of a small tree."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text("import helper\n")
    (tmp_path / "tests" / "helper.py").write_text("X = 1\n")
    (tmp_path / "page.md").write_text("a page\n")
    return Passed(tmp_path, [tmp_path / "tests"])


def keys(root, test="test_it"):
    return Passed(root, [root / "tests"]).key(root / "tests" / "test_it.py", test)


def test_what_a_key_depends_on(tmp_path, passed, monkeypatch):
    key = keys(tmp_path)
    assert keys(tmp_path) == key != keys(tmp_path, "test_other")
    monkeypatch.setenv("DXPU_SEED", "7")
    assert keys(tmp_path) != key
    monkeypatch.delenv("DXPU_SEED")
    (tmp_path / "tests" / "helper.py").write_text("X = 2\n")
    assert keys(tmp_path) != key
    with pytest.raises(ValueError, match="must be below one of the folders of sources"):
        passed.key(tmp_path / "page.md", "test_it")


def test_a_test_that_passed_is_known_until_what_it_read_changes(tmp_path, passed):
    assert not passed.known("key")
    with passed.watch("key"):
        assert (tmp_path / "page.md").read_text()
        (tmp_path / "written.txt").write_text("no input\n")
    assert passed.known("key") and not passed.known("other")
    (tmp_path / "written.txt").write_text("still none\n")
    assert passed.known("key")
    (tmp_path / "page.md").write_text("another page\n")
    assert not passed.known("key")
    (tmp_path / "page.md").unlink()
    assert not passed.known("key")


def test_a_test_that_failed_is_not_known(passed):
    with pytest.raises(AssertionError), passed.watch("key"):
        raise AssertionError("it failed")
    assert not passed.known("key")


TESTS = """\
import pytest
from pathlib import Path

def count(name):
    with open(Path(__file__).parents[1] / name, "a") as file:
        file.write("x")

@pytest.mark.long
def test_long():
    count("long")

@pytest.mark.long
@pytest.mark.machine
def test_machine():
    count("machine")

def test_quick():
    count("quick")

@pytest.mark.long
def test_fails():
    count("fails")
    assert False
"""


def test_pytest_runs_long_tests_once(tmp_path):
    """The tests of a tree with this one's conftest.py."""
    tests = tmp_path / "tests"
    tests.mkdir()
    here = Path(__file__).parents[2]
    # With what it imports of the tests.
    for name in ("__init__.py", "conftest.py", "support/__init__.py", "support/pysim.py",
                 "support/skipped.py"):
        (tests / name).parent.mkdir(exist_ok=True)
        shutil.copy(here / name, tests / name)
    (tests / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n  long\n  machine\n")

    def count(*options):
        """How often each has run, and what pytest said at its end."""
        result = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
            cwd=tmp_path, capture_output=True, text=True,
            env={name: v for name, v in os.environ.items() if name != "PYTEST_ADDOPTS"})
        said = result.stdout.splitlines()[-1]
        counts = {name: int(number) for number, name in re.findall(r"(\d+) (\w+)", said)}
        counts.pop("in", None)
        assert result.returncode == 1, result.stdout
        return [len((tmp_path / name).read_text())
                for name in ("long", "machine", "quick", "fails")], counts

    assert count() == ([1, 1, 1, 1], {"passed": 3, "failed": 1})
    assert count() == ([1, 2, 2, 2], {"passed": 2, "failed": 1, "remembered": 1})
    assert count("--again") == ([2, 3, 3, 3], {"passed": 3, "failed": 1})
    (tests / "test_some.py").write_text("# a remark\n" + TESTS)
    assert count() == ([2, 4, 4, 4], {"passed": 2, "failed": 1, "remembered": 1})
    (tests / "test_some.py").write_text("SEEN = 1\n" + TESTS)
    assert count() == ([3, 5, 5, 5], {"passed": 3, "failed": 1})
