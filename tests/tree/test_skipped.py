"""The last line of a test run says which tiers this machine could not show."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import skipped

REASONS = [
    "Skipped: Linux: no qemu-system-x86_64",
    "Skipped: Linux: no qemu-system-x86_64",
    "Skipped: GTKWave: no gtkwave (Debian: gtkwave xvfb)",
    "Skipped: Linux: something else",
]


def test_each_tier_is_told_once_with_every_reason():
    assert skipped.line(REASONS) == (
        "not shown on this machine: Linux (no qemu-system-x86_64; something else), "
        "GTKWave (no gtkwave (Debian: gtkwave xvfb)); 4 tests skipped")


def test_a_reason_without_a_tier_is_told_too():
    assert skipped.line(["Skipped: git is not installed"]) == (
        "not shown on this machine: git is not installed; 1 test skipped")


def test_no_line_if_nothing_was_skipped():
    assert skipped.line([]) == ""


@pytest.mark.parametrize("options", [
    ("-n", "2"), pytest.param((), marks=pytest.mark.long)], ids=["two processes", "one process"])
def test_it_is_the_last_line_of_a_run(options, tmp_path):
    (tmp_path / "conftest.py").write_text(
        "from tests.support import skipped\n"
        "def pytest_configure(config):\n"
        "    if not hasattr(config, 'workerinput'):\n"
        "        config.pluginmanager.register(skipped.NotShown())\n")
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "def test_good(): pass\n"
        "def test_tier(): pytest.skip('Icarus: no iverilog')\n"
        "@pytest.mark.xfail\n"
        "def test_wrong(): assert False\n")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(tmp_path)],
        cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])})
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.rstrip().splitlines()[-1] == (
        "not shown on this machine: Icarus (no iverilog); 1 test skipped")


def test_this_run_has_it(request):
    plugins = request.config.pluginmanager.get_plugins()
    told = any(isinstance(plugin, skipped.NotShown) for plugin in plugins)
    assert told != hasattr(request.config, "workerinput")


def test_every_test_that_skips_names_its_tier():
    texts = [(path.name, text) for path in Path(__file__).parents[1].rglob("*.py")
             for text in re.findall(r"""pytest\.skip\(f?["'](.*?)["']\)""", path.read_text())]
    assert len(texts) > 4
    for name, text in texts:
        assert re.match(r"\w+: ", text), f"{name}: {text}"
