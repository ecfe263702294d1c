"""``dxpu bench scale``: one parameter at a time, in the chosen parts, each figure once."""

import json
from types import SimpleNamespace

import pytest

from dxpu_cli import main as cli
from dxpu_cli.bench import command, scale
from dxpu_tools import cache

PART = {"LUT4": 83_640, "FF": 83_640, "DP16KD": 208}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The command without synthesis, routing and simulation; ``run.made`` has what they were for:
    LUT4 are 100 for each row and 1 for each bit, and one block RAM is for each bit."""
    made = []

    def packed(shape, what, progress, device):
        made.append(("size", shape))
        used = {"LUT4": 100 * shape["rows"] + shape["width"], "FF": 50, "DP16KD": shape["width"]}
        return {name: (count, PART[name]) for name, count in used.items()}

    def routed(shape, what, device, progress, seeds):
        made.append(("clock", shape, device, seeds))
        return {"LUT4": 900, "MHz": {"clk": [100 + shape["rows"]]}}

    def run_case(simulator, what, case, seed, folder, progress, *, ports):
        made.append(("latency", simulator.design.kwargs))
        return {str(port): [25 + port, 19, 16, 24] for port in ports}

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DXPU_CACHE", str(tmp_path / "cache"))
    for name, value in (("packed", packed), ("routed", routed), ("run_case", run_case),
                        ("engine", lambda **shape: shape)):
        monkeypatch.setattr(scale, name, value)
    monkeypatch.setattr(command, "require", lambda *names: None)
    monkeypatch.setattr("dxpu_cli.prepare.prepare", lambda simulators, progress: None)
    # Digests of the sources take seconds.
    monkeypatch.setattr("dxpu_sim.run.verilate.Design.key", property(lambda d: repr(d.kwargs)))
    monkeypatch.setattr("dxpu_tools.closure.project_sources",
                        lambda: SimpleNamespace(digest=lambda *modules: repr(modules)))

    def run(*argv):
        assert cli.main(["bench", "scale", "--out", "scale.json", *argv]) == 0
        return json.loads((tmp_path / "scale.json").read_text())

    run.made = made
    return run


def test_one_parameter_at_a_time(run, capsys):
    found = run("--part", "size")
    assert found["baseline"] == {"rows": 8, "peers": 16, "streams": 4, "width": 64, "paths": 2}
    assert found["seed"] == 1
    assert {name: figures["LUT4"] for name, figures in found["size"]["rows"].items()} == {
        "1": 164, "2": 264, "4": 464, "8": 864, "16": 1664, "32": 3264}
    assert [*found["size"]["width"]] == ["32", "64", "128", "256", "512"]
    assert {"1x1", "16x4", "64x1"} < {*found["size"]["sessions"]}
    for _, shape in run.made:
        changed = {name for name, value in shape.items() if value != found["baseline"][name]}
        assert len(changed) <= 1 or changed == {"peers", "streams"}
    said = capsys.readouterr().out
    assert "size by rows; 16 peers x 4 streams, 64 bits" in said
    assert "      32  3264 LUT4, 50 FF, 64 DP16KD" in said


def test_a_figure_is_measured_once(run):
    """The common point of all parameters, too; a second run measures nothing."""
    first = run("--part", "size,clock")
    made = len(run.made)
    shapes = [repr(one) for one in run.made]
    assert len({*shapes}) == made
    assert run("--part", "size,clock") == first and len(run.made) == made


def test_a_run_that_ends_leaves_what_was_measured(run, monkeypatch, tmp_path):
    def at_width(shape, *others, packed=scale.packed):
        if shape["width"] == 128:
            raise KeyboardInterrupt
        return packed(shape, *others)

    monkeypatch.setattr(scale, "packed", at_width)
    with pytest.raises((KeyboardInterrupt, AssertionError)):
        run("--part", "size", "--against", "width")
    assert [*json.loads((tmp_path / "scale.json").read_text())["size"]["width"]] == ["32", "64"]


def test_a_large_engine_is_routed_in_the_larger_part(run):
    found = run("--part", "clock", "--against", "width")
    assert {name: figures["part"] for name, figures in found["clock"]["width"].items()} == {
        "32": "ECP5-5G-45", "64": "ECP5-5G-45", "128": "ECP5-5G-85", "256": "ECP5-5G-85"}
    assert found["clock"]["width"]["64"] == {"MHz": 108, "LUT4": 900, "part": "ECP5-5G-45"}
    assert [(device, seeds) for part, *_, device, seeds in (
        one for one in run.made if one[0] == "clock")][0] == ("um5g-45k", (1,))


def test_a_read_by_the_first_and_by_the_last_port(run, capsys):
    found = run("--part", "latency", "--against", "rows,sessions")
    assert found["latency"]["rows"] == {
        "1": {"0": [25, 19, 16, 24]},
        "8": {"0": [25, 19, 16, 24], "7": [32, 19, 16, 24]},
        "32": {"0": [25, 19, 16, 24], "31": [56, 19, 16, 24]}}
    systems = [kwargs for _, kwargs in run.made]
    # What `dxpu demo` simulates has a simulator already.
    assert {"width": 64, "boxes": (2, 1), "ports": 8} in systems
    assert {"width": 64, "boxes": (2,), "ports": 8, "peers": 1, "streams": 1} in systems
    assert "port 31: 56, 19, 16, 24, all 115 cycles" in capsys.readouterr().out


def test_another_engine_is_measured_anew(run, monkeypatch):
    run("--part", "size", "--against", "rows")
    made = len(run.made)
    monkeypatch.setattr(cache, "version", lambda tool: "another")
    run("--part", "size", "--against", "rows")
    assert len(run.made) == 2 * made
