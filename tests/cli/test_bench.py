"""``dxpu bench``: simulators are prepared together, figures are whole, failures are one line."""

import json
import signal
from pathlib import Path

import pytest

from dxpu_cli import main as cli
from dxpu_cli.bench import command, synthesised, takeover
from dxpu_cli.output import OutputFolder
from dxpu_sim.run.runner import SimulationFailed
from tests.support.etcd_bench import need_etcd

FIGURES = {"conversion_cycles": [1, 2, 3, 4], "round_trip_ns": 5576,
           "parts": [{"parsed": 1, "out": n} for n in range(1, 5)],
           "loads": {"50": [{"out": {"median": 1.5 * n, "most": 9 * n}} for n in range(1, 5)]}}


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """The command where simulations have these results, by width, or end with these errors."""
    prepared = []

    def run(results, *argv):
        def simulate(design, bench, *, folder, **others):
            folder.mkdir(parents=True)
            result = results[design.kwargs["width"]]
            if isinstance(result, str):
                raise SimulationFailed(f"{result}; see {folder / 'run.log'}\nmore")
            (folder / "result.json").write_text(json.dumps(result))

        monkeypatch.setattr("dxpu_sim.run.runner.simulate", simulate)
        monkeypatch.setattr("dxpu_cli.prepare.prepare",
                            lambda simulators, progress: prepared.append(list(simulators)))
        return cli.main(["bench", "traversal", "--out", "figures.json", *argv])

    monkeypatch.chdir(tmp_path)
    run.prepared = prepared
    return run


def test_figures_of_all_widths(bench, tmp_path, capsys):
    assert bench({64: FIGURES, 512: FIGURES}) == 0
    assert bench.prepared == [["64 bits", "512 bits"]]
    assert json.loads((tmp_path / "figures.json").read_text()) == {"64": FIGURES, "512": FIGURES}
    said = capsys.readouterr().out
    assert "all 10 (80 ns at 125 MHz), round trip 5,576 ns" in said
    assert "50 % of the line" in said and "GPU to fabric: out 4.5, 27" in said
    assert "Simulating at 512 bits" in said
    # Nothing but the figures stays.
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]


def test_a_failure_leaves_the_last_good_figures(bench, tmp_path, capsys):
    assert bench({64: FIGURES}, "--width", "64") == 0
    assert bench({64: FIGURES, 512: "no time"}) == 1
    assert list(json.loads((tmp_path / "figures.json").read_text())) == ["64"]
    assert capsys.readouterr().err == (
        "dxpu bench: error: the simulation failed: no time; see "
        "build/bench/traversal/failed/512/run.log\n")
    assert (tmp_path / "build/bench/traversal/failed/64/result.json").exists()


def test_two_at_a_time_in_one_place(bench, capsys):
    with OutputFolder("", "build/bench/traversal"):
        assert bench({64: FIGURES}, "--width", "64") == 2
    said = capsys.readouterr().err
    assert "another run" in said and said.count("\n") == 1


@pytest.mark.parametrize("argv, problem", [
    (["clock", "--part", "engine,gpu"],
     "--part must be of engine, small-engine, switch, host, box, aes, aes-ram, cmac, ccm, random, "
     "opening, management, observed-host, observed-box, mirror, not 'engine,gpu'"),
    (["scale", "--part", "size,speed"], "--part must be of size, latency, clock, not 'size,speed'"),
    (["scale", "--against", "paths"], "--against must be of rows, sessions, width, not 'paths'"),
    (["size", "--width", "65"], "--width must be of 32, 64, 128, 256, 512, not '65'"),
])
def test_mistakes(argv, problem, capsys):
    assert cli.main(["bench", *argv]) == 2
    assert problem in capsys.readouterr().err


def test_only_the_named_parts_are_measured(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "require", lambda *names: None)
    monkeypatch.setattr(synthesised, "_clock",
                        lambda component, what, device, progress: [what, device])
    assert cli.main(["bench", "clock", "--part", "switch,engine", "--out", "figures.json"]) == 0
    assert json.loads(Path("figures.json").read_text()) == {"64": {
        "switch": ["the switch, 8 ports", "um5g-45k"],
        "engine": ["the engine, 16 peers, 4 streams", "um5g-45k"]}}


def test_times_of_a_takeover(monkeypatch, tmp_path, capsys):
    need_etcd()
    monkeypatch.setattr(takeover, "MEMBERS", (1,))
    monkeypatch.setattr(takeover, "ENDS", {"killed": signal.SIGKILL})
    out = tmp_path / "out.json"
    assert cli.main(["bench", "takeover", "--rounds", "1", "--out", str(out)]) == 0
    (leads,), (done,) = json.loads(out.read_text())["1 of etcd"]["killed"].values()
    assert 0 < leads < done
    heading, line = capsys.readouterr().out.splitlines()
    assert heading.split("  ")[0] == "seconds, median and most"
    assert heading.endswith("  another leads   a wish is fulfilled")
    assert line.split() == ["killed,", "etcd", "of", "1",
                            *2 * [f"{leads:.2f}"], *2 * [f"{done:.2f}"]]


def test_a_takeover_without_an_etcd(monkeypatch, capsys):
    monkeypatch.setenv("PATH", "/nowhere")
    assert cli.main(["bench", "takeover"]) == 2
    assert capsys.readouterr().err.startswith(
        "dxpu bench: error: no etcd (Debian: etcd-server; or ")
    assert cli.main(["bench", "takeover", "--rounds", "0"]) == 2
    assert "--rounds" in capsys.readouterr().err


def test_times_of_decisions(tmp_path, capsys):
    assert cli.main(["bench", "allocation", "--out", str(tmp_path / "out.json")]) == 0
    figures = json.loads((tmp_path / "out.json").read_text())
    assert list(figures) == ["512", "4096"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["microseconds,", "median", "512", "GPUs", "4096", "GPUs"]
    for times in figures.values():
        assert [line[:26].strip() for line in lines[1:]] == list(times)
        assert all(time > 0 for time in times.values())


def test_a_pool_of_few_nodes(tmp_path, capsys):
    """All processes end; more nodes than there are numbers are refused."""
    out = str(tmp_path / "out.json")
    assert cli.main(["bench", "pool", "--nodes", "2,4", "--cycles", "3", "--out", out]) == 0
    figures = json.loads((tmp_path / "out.json").read_text())
    assert list(figures) == ["2", "4"]
    assert all(figure > 0 for figures in figures.values() for figure in figures.values())
    lines = capsys.readouterr().out.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("nodes"))
    assert lines[start].split() == ["nodes", "2", "4", "slope"]
    assert [line[:32].strip().rpartition(", ")[0] for line in lines[start + 1:]] == list(
        figures["2"])
    assert cli.main(["bench", "pool", "--nodes", "4066"]) == 2
    assert "--nodes must be of 2 to 4064, in steps of 2, not '4066'" in capsys.readouterr().err
