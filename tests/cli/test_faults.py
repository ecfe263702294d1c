"""dxpu_sim.fabric: what a score finds, what a user can do wrong."""

import json
from dataclasses import replace

import pytest

from dxpu_cli.commands import faults as command
from dxpu_cli.main import main
from dxpu_sim.fabric import cases
from dxpu_sim.fabric.fault_design import ENDS, FaultBench
from dxpu_sim.fabric.incast import shares
from dxpu_sim.fabric.incast_design import IncastBench
from dxpu_sim.fabric.score import goodput, goodput_in_theory, score
from dxpu_sim.run.runner import SimulationFailed

NAMES = [*FaultBench().signature.members]


def clean():
    """What the bench counts if 100 TLPs go each way in 60 frames, with ten ACKs."""
    result = {**dict.fromkeys(NAMES, 0), "stuck": ""}
    for end in ENDS:
        result |= {f"{end}_made": 100, f"to_{end}_total_tlps": 100, f"{end}_tx_frames": 70,
                   f"to_{end}_path0_frames": 70, f"to_{end}_path0_delivered": 70,
                   f"{end}_rx_frames": 70}
    return result


CASE = cases.Case("any", "")


def test_a_clean_run():
    judged = score(CASE, clean())
    assert judged.problems == () and judged.tlps == 200 and not any(judged.errors.values())


@pytest.mark.parametrize("change, problem", [
    ({"stuck": "nothing arrived"}, "nothing arrived"),
    ({"to_box_total_lost": 1, "to_box_total_tlps": 99}, "1 TLPs lost"),
    ({"to_box_total_tlps": 98}, "2 TLPs lost"),
    ({"to_host_total_doubled": 1, "to_host_total_tlps": 101}, "1 TLPs duplicated"),
    ({"to_host_total_reordered": 3}, "3 TLPs reordered"),
    ({"to_box_total_passed": 1}, "1 TLPs passed"),
    ({"to_box_total_changed": 1}, "1 TLPs changed"),
    ({"host_tx_frames": 71}, "frames to the box sent by the engine and taken by the lines: 71, 70"),
    ({"to_box_path1_lost": 1}, "frames to the box taken by the lines and lost or delivered"),
    ({"box_rx_frames": 69}, "frames to the box delivered and counted by cause: 70, 69"),
    ({"box_rx_frames": 69, "box_rx_refused": 1}, "frames to the box refused by the link"),
    ({"box_link_gap": 1}, "frames to the box refused by the link and by cause: 0, 1"),
    ({"to_host_path0_changed": 2}, "frames to the host changed and dropped for it: 2, 0"),
], ids=str)
def test_what_is_wrong(change, problem):
    problems = score(CASE, clean() | change).problems
    assert problem in "\n".join(problems)


def test_frames_that_were_dropped_and_explained():
    change = {"box_rx_frames": 67, "box_rx_hcrc": 1, "box_rx_refused": 2, "box_link_gap": 1,
              "box_link_duplicate": 1, "to_box_path0_changed": 1}
    assert score(CASE, clean() | change).problems == ()


def test_a_case_that_shows_nothing():
    case = cases.Case("loss", "", shows=("lost", "repeated"))
    judged = score(case, clean() | {"host_tx_repeated": 1})
    assert judged.problems == () and judged.silent == ("lost",)


@pytest.mark.parametrize("tlps, status", [(8000, 0), (100_000, 1)])
def test_a_short_run_skips_what_shows_nothing_and_says_so(
        tlps, status, monkeypatch, capsys, tmp_path):
    """Nothing was lost of 8,000 TLPs, so nothing has failed; of 100,000 some must be."""
    monkeypatch.setattr(command._Campaign, "_simulate", lambda self, progress: vars(self).update(
        _results={case.name: clean() for case in self._chosen},
        _scores={case.name: score(case, clean()) for case in self._chosen}))
    monkeypatch.setattr(command, "require", lambda extra: None, raising=False)
    names = ["loss 1.0%", "clean"]
    file = tmp_path / "faults.json"
    assert main(["faults", "--tlps", str(tlps), "--out", str(tmp_path), "--json", str(file),
                 *(word for name in names for word in ("--case", name))]) == status
    out = capsys.readouterr().out
    report = json.loads(file.read_text())
    if status:
        assert "FAILED: loss 1.0%: lost: none, so the case shows nothing" in out
        assert not report["ok"] and not report["skipped"]
    else:
        assert ("skipped: loss 1.0%: in so short a run there was nothing of: lost, repeated; more "
                "--tlps show it") in out and "FAILED" not in out
        assert report["ok"] and report["skipped"] == {"loss 1.0%": ["lost", "repeated"]}


def test_tlps_without_credits():
    assert score(CASE, clean() | {"to_host_excess": 2}).problems == (
        "2 TLPs came to the host without credits",)


def incast_run():
    """What the bench counts if two hosts send 50 TLPs of 128 bytes each, the first until cycle
    20,000, and the switch drops one of 71 frames."""
    result = {**dict.fromkeys(IncastBench(hosts=2).signature.members, 0), "stuck": "",
              "started": 4000}
    return result | {
        "host0_made": 50, "host1_made": 50, "to_box_total_tlps": 100, "first_done": 20_000,
        "share0": 50, "share1": 30, "host_tx_frames": 71, "host_port_rx_frames": 71,
        "box_port_tx_frames": 70, "box_port_tx_overflow": 1, "box_rx_frames": 68,
        "box_rx_refused": 2, "box_tx_frames": 20, "box_port_rx_frames": 20,
        "host_port_tx_frames": 20, "host_rx_frames": 20, "host_tx_repeated": 3}


INCAST = cases.Case("two", "", hosts=2, fixed=32, least_goodput=0.6, least_share=0.7, drops=True,
                    shows=("lost", "repeated"))


def test_an_incast_run():
    judged = score(INCAST, incast_run())
    assert judged.problems == () and judged.tlps == 100 and not any(judged.errors.values())
    assert judged.happened["lost"] == 1 and judged.happened["repeated"] == 3
    part = shares(INCAST, incast_run())
    assert (part.goodput, part.least, part.most, part.dropped) == (0.64, 0.75, 1.25, 1)


@pytest.mark.parametrize("change, problem", [
    ({"stuck": "nothing arrived"}, "nothing arrived"),
    ({"to_box_total_tlps": 99}, "1 TLPs lost"),
    ({"to_box_total_doubled": 1, "to_box_total_tlps": 101}, "1 TLPs duplicated"),
    ({"to_box_excess": 1}, "1 TLPs came to the box without credits"),
    ({"host_tx_frames": 72}, "frames to the box sent and taken by the switch: 72, 71"),
    ({"box_port_tx_frames": 69}, "frames to the box taken by the switch and delivered or dropped"),
    ({"box_rx_frames": 67}, "frames to the box delivered and counted by cause: 70, 69"),
    ({"host_rx_frames": 21}, "frames to the host delivered and counted by cause: 20, 21"),
    ({"host_port_rx_bad": 1}, "the switch saw bad frames"),
    ({"first_done": 24_000}, "goodput 51.2%, least share 75.0%, not 60% and 70%"),
    ({"share0": 60, "share1": 20}, "goodput 64.0%, least share 50.0%, not 60% and 70%"),
], ids=str)
def test_what_is_wrong_with_an_incast_run(change, problem):
    assert problem in "\n".join(score(INCAST, incast_run() | change).problems)


def test_an_incast_run_that_shows_nothing():
    change = {"box_port_tx_overflow": 0, "box_port_tx_frames": 71, "box_rx_frames": 69}
    judged = score(INCAST, incast_run() | change)
    assert judged.problems == () and judged.silent == ("lost",)


def test_a_switch_that_drops_without_leave():
    case = replace(INCAST, drops=False)
    assert score(case, incast_run()).problems == ("1 frames dropped by the switch",)


def test_goodput():
    # 1,000 dwords in 4,000 cycles of 8 ns: a byte per cycle.
    assert goodput({"to_box_total_payload": 1000, "to_box_total_cycle": 4000}) == 125e6
    kept = [goodput_in_theory(loss, frame=1500, delay=125) for loss in (0, 0.01, 0.1)]
    assert kept[0] == 1 and 0.96 < kept[1] < 0.98 and kept[2] < kept[1]


def test_cases_have_names_of_their_own_and_what_they_show_exists():
    from dxpu_sim.fabric.score import HAPPENED
    every = [case for mode in cases.ARQ for case in cases.every(mode)]
    assert len({case.name for case in every}) == len(every)
    assert {name for case in every for name in case.shows} <= set(HAPPENED)


@pytest.mark.parametrize("argv, message", [
    (["--tlps", "many"], "--tlps must be a whole number from 1 to 1000000000, not 'many'"),
    (["--tlps", "0"], "--tlps must be a whole number from 1 to 1000000000, not '0'"),
    (["--seed", "-1"], "--seed must be a whole number from 0 to 4294967295, not '-1'"),
    (["--jobs", "0"], "--jobs must be a whole number from 1 to 64, not '0'"),
    (["--case", "rain"], "--case must be one of --list, not 'rain'"),
    (["--json", "/nowhere/x.json"],
     "--json must be a file in a folder that is there, not '/nowhere/x.json'"),
    (["--out", __file__], f"--out must be a folder, but {__file__!r} is a file"),
])
def test_mistakes(argv, message, capsys):
    assert main(["faults", *argv]) == 2
    assert capsys.readouterr().err == f"dxpu faults: error: {message}\n"


def test_list(capsys):
    assert main(["faults", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        c.name for c in cases.every(cases.ARQ[0])]


@pytest.fixture
def campaign(tmp_path, monkeypatch):
    """``dxpu faults`` with simulations of which these are the results, or errors."""
    def run(change, *names):
        def simulate(design, bench, *, folder, **others):
            folder.mkdir(parents=True)
            (folder / "run.log").write_text("log")
            if isinstance(change, str):
                raise SimulationFailed(f"{change}; see {folder / 'run.log'}\nmore")
            (folder / "result.json").write_text(json.dumps(
                clean() | {"cycle": 1000, "seconds": 1, "to_box_total_payload": 1000,
                           "to_box_total_cycle": 4000} | change))

        monkeypatch.setattr("dxpu_sim.run.runner.simulate", simulate)
        monkeypatch.setattr("dxpu_cli.prepare.prepare", lambda *_: None)
        return main(["faults", "--out", str(tmp_path / "out"), "--tlps", "1000",
                     *(word for name in names for word in ("--case", name))])
    return run


def test_a_campaign_that_fails_leaves_the_last_good_one(campaign, tmp_path, capsys):
    out = tmp_path / "out"
    names = "goodput 0.0%", "goodput 0.1%"
    assert campaign({}, *names) == 0
    good = {path.name: path.read_bytes() for path in out.iterdir()}
    assert set(good) == {"goodput.svg", "goodput.png"}
    assert campaign({"to_box_total_lost": 1, "to_box_total_tlps": 99}, *names) == 1
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == good
    assert {path.name for path in (out / "failed" / "runs").iterdir()} == {
        name.replace(" ", "-").replace("%", "") for name in names}
    assert f"cases that failed: {out / 'failed' / 'runs'}" in capsys.readouterr().out
    assert campaign({}, *names) == 0 and not (out / "failed").exists()


def test_a_simulation_that_ends_badly_is_one_line(campaign, tmp_path, capsys):
    assert campaign("the disk is full", "loss 3.0%", "everything") == 1
    said = capsys.readouterr().err
    log, = (tmp_path / "out" / "failed" / "runs").glob("loss*/run.log")
    assert said == ("dxpu faults: error: the simulation of 'loss 3.0%' failed: the disk is full; "
                    f"see {log}\n")
