"""tests/support/formal.py: a verdict is found once for a netlist, whichever it is."""

import pytest
from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from tests.support import formal
from tests.support.formal import NotInductive, ProofFailed, prove


class Small(wiring.Component):
    """Counts, and asserts that the count stays below a limit."""

    up: In(1)

    def __init__(self, limit):
        super().__init__()
        self._limit = limit

    def elaborate(self, platform):
        m = Module()
        count = Signal(4)
        m.d.sync += [count.eq(count + self.up), Assert(count < self._limit)]
        return m


@pytest.fixture
def runs(monkeypatch, tmp_path):
    """Cycles of the proofs that the tools were asked for."""
    monkeypatch.setenv("DXPU_CACHE", str(tmp_path))
    asked, run = [], formal._run

    def counted(path, netlist, depth, *others):
        asked.append(depth)
        return run(path, netlist, depth, *others)

    monkeypatch.setattr(formal, "_run", counted)
    return asked


def test_what_holds_is_found_once(runs):
    for _ in range(2):
        prove(Small(limit=4), depth=3)
    assert runs == [3]
    prove(Small(limit=5), depth=3)
    assert runs == [3, 3]


def test_what_is_violated_too(runs):
    for _ in range(2):
        with pytest.raises(ProofFailed, match=r"Small \(bmc, depth 8\): "):
            prove(Small(limit=4), depth=8)
    assert runs == [8]


def test_a_failed_induction_is_no_violation(runs):
    for _ in range(2):
        with pytest.raises(NotInductive, match=r"Small \(prove, depth 2\): "):
            prove(Small(limit=4), depth=2, mode="prove")
    assert runs == [2]


def test_a_tool_that_fails_says_nothing(runs, monkeypatch):
    """It may do better the next time."""
    for _ in range(2):
        with pytest.raises(RuntimeError):
            prove(Small(limit=4), depth=8, mode="no such mode")
    assert runs == [8, 8]
