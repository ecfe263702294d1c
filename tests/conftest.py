"""Proofs and simulations leave their logs below build/, wherever pytest was started; long tests
that passed with the same sources, seed and tools are not run again; the last line says what was not
shown."""

import os
from pathlib import Path

# CPython 3.11 refuses to compile a large module after a generator was closed while running, which
# is how the Amaranth simulator ends; so import the one large module that pytest would import late.
import hypothesis  # noqa: F401
import pytest
from dxpu_sim.run.recall import Passed, remembering
from dxpu_tools.collection import collect_rarely
from tests.support.pysim import use_quick_engine
from tests.support.skipped import NotShown

ROOT = Path(__file__).parents[1]

os.chdir(ROOT)
collect_rarely()
use_quick_engine()


def pytest_addoption(parser):
    parser.addoption("--again", action="store_true",
                     help="run long tests though they passed before and nothing has changed")


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(NotShown())
    if not config.option.again:
        memory = Memory(Passed(ROOT, [ROOT / name for name in (
            "hdl", "model", "sim", "host", "boards", "manager", "cli", "tests")]))
        config.pluginmanager.register(memory)
        config.pluginmanager.register(Recall(memory))


class Memory:
    """Remembers what passes of the long tests that depend on the tree and its seed alone."""

    def __init__(self, passed):
        self._passed = passed
        self._looked_up = {}

    def look_up(self, item):
        """Key of a test, None if it is never remembered, and whether it passed before and depends
        on nothing that has changed since."""
        if item.nodeid not in self._looked_up:
            marks = {mark.name for mark in item.iter_markers()}
            key = None
            if "long" in marks and "machine" not in marks:
                key = self._passed.key(item.path, item.nodeid)
            self._looked_up[item.nodeid] = key, key is not None and self._passed.known(key)
        return self._looked_up[item.nodeid]

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem):
        key, known = self.look_up(pyfuncitem)
        if key is None or known:
            return (yield)
        with remembering(), self._passed.watch(key):
            return (yield)

    def pytest_report_teststatus(self, report):
        if report.when == "call" and ("remembered", True) in report.user_properties:
            return "remembered", "r", "REMEMBERED"
        return None

    def pytest_terminal_summary(self, terminalreporter):
        if count := len(terminalreporter.getreports("remembered")):
            terminalreporter.write_line(f"{count} long tests passed before with the same sources, "
                                        "seed and tools, and were not run (--again runs them)")


class Recall:
    """Stands in for the body of a test that is remembered."""

    def __init__(self, memory):
        self._memory = memory

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem):
        _, known = self._memory.look_up(pyfuncitem)
        if not known:
            return None
        pyfuncitem.user_properties.append(("remembered", True))
        return True
