"""``dxpu faults``: the campaign holds, and finds links that are wrong."""

import json
from dataclasses import asdict

import pytest

from dxpu_sim.cli import main
from dxpu_sim.faults import cases
from dxpu_sim.faults.score import score
from dxpu_sim.hdl.fault_bench import FaultBench
from dxpu_sim.runner import Design, simulate
from link_mutants import Eager, Repetitive


@pytest.mark.parametrize("tlps", [20_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_campaign(tmp_path, tlps, capsys):
    """All cases."""
    file = tmp_path / "faults.json"
    status = main(["faults", "--tlps", str(tlps), "--json", str(file), "--out", str(tmp_path)])
    print(capsys.readouterr().out)
    report = json.loads(file.read_text())
    assert report["problems"] == [] and report["ok"] and status == 0
    assert report["tlps"] >= tlps
    assert not any(report[name] for name in ("lost", "duplicated", "reordered", "changed"))
    assert set(report["cases"]) == {c.name for c in [*cases.campaign(), *cases.goodput()]}
    assert (tmp_path / "goodput.svg").stat().st_size and (tmp_path / "goodput.png").stat().st_size


class Mutated(FaultBench):
    """The bench with another link in both engines."""

    def __init__(self, mutant):
        super().__init__()
        for engine in self._engines.values():
            engine._link.__class__ = {"Eager": Eager, "Repetitive": Repetitive}[mutant]


@pytest.mark.long
@pytest.mark.parametrize("mutant, case, error", [
    ("Eager", "loss 1.0%", "lost"), ("Repetitive", "doubled", "duplicated")])
def test_campaign_finds(tmp_path, mutant, case, error):
    case = next(c for c in cases.campaign() if c.name == case)
    folder = simulate(Design(Mutated, {"mutant": mutant}), "dxpu_sim.benches.faults",
                      env={"DXPU_FAULTS": json.dumps({**asdict(case), "tlps": 2000})},
                      folder=tmp_path / "run")
    judged = score(case, json.loads((folder / "result.json").read_text()))
    assert judged.errors[error] and judged.problems
