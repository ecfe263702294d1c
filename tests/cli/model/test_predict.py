"""``dxpu model predict`` and ``dxpu model what-if``."""

import json

import pytest

from dxpu_cli.main import main
from dxpu_performance import measured
from tests.model.performance.test_measured import ALL


def out(capsys, *argv):
    assert main(["model", *argv]) == 0
    return capsys.readouterr().out


def test_the_answer_is_a_sentence(capsys):
    """1 / (1 + 5.6 / 102.3 x 1.439) = 0.927, the row of table 9 that the kind was fitted on; 90 %
    are kept up to 1.2 + 102.3 / 1.439 / 9 = 9.1 us."""
    text = out(capsys, "predict", "--paper", "--kernel-us", "102.3", "--like", "training")
    assert text.startswith(
        "92.7 % (90 to 95); keeps 90 %: yes, up to 9.1 us; cause: latency of kernels 100 %; what "
        "would help: graphs of 100 operations +7.2, conversion of 250 ns +4.4")
    assert "simulated: 92.7 % if commands are fetched one by one, 100.0 % if ahead" in text


def test_each_round_trip_has_an_answer(capsys):
    text = out(capsys, "predict", "--paper", "--kernel-us", "56", "--rtt", "4.9,6.8", "--json")
    near, far = json.loads(text)["answers"]
    assert near["kept"] == pytest.approx(1 / (1 + 3.7 / 56), abs=1e-4)
    assert far["kept"] == pytest.approx(1 / (1 + 5.6 / 56), abs=1e-4)
    assert near["keeps"] and far["keeps"]
    assert near["longest_round_trip_us"] == pytest.approx(1.2 + 56 / 9, abs=1e-3)


def test_all_of_a_step_and_of_a_fabric_counts(capsys):
    step = ("--kernel-us", "50", "--launches", "200", "--copies", "4", "--copy-mb", "5", "--syncs",
            "20", "--copies-back", "2")
    base = json.loads(out(capsys, "predict", "--paper", *step, "--json"))["answers"][0]
    assert all(base["causes"][name] > 0 for name in ("kernels", "waits", "copies"))
    for better, options in ((True, ("--tags", "280")), (True, ("--read-bytes", "256")),
                            (True, ("--written",)), (False, ("--km", "1")),
                            (False, ("--gpus", "8")), (False, ("--line-gbit", "10"))):
        there = json.loads(out(capsys, "predict", "--paper", *step, *options, "--json"))
        assert (there["answers"][0]["kept"] > base["kept"]) is better, options


def test_what_changes_would_bring(capsys):
    text = out(capsys, "what-if", "--paper", "--kernel-us", "8", "--copies", "4", "--copy-mb", "1")
    kept, = (line for line in text.splitlines() if line.startswith("short kernels fused"))
    assert float(kept.split()[-5]) > 10
    found = json.loads(out(capsys, "what-if", "--paper", "--kernel-us", "8", "--json"))
    answer, = found["answers"]
    assert {change["name"] for change in answer["changes"]} >= {"a kilometre more"}
    assert all(change["gain"] == pytest.approx(change["kept"] - answer["kept"])
               for change in answer["changes"])


@pytest.mark.parametrize("argv, text", [
    (("--paper",), "there is no workload: give a trace, or --kernel-us"),
    (("--paper", "--kernel-us", "0"),
     "--kernel-us must be a number from 0.001 to 1000000000, not '0'"),
    (("--paper", "--kernel-us", "5", "--rtt", "-1"),
     "--rtt must be a number from 0.01 to 1000000, not '-1'"),
    (("--paper", "--kernel-us", "5", "--rtt", "1"),
     "the round trip of 1 us is shorter than that of a GPU in the host, 1.2 us"),
    (("--kernel-us", "5", "--rtl", "{tmp}/none.json"),
     "{tmp}/none.json: No such file or directory"),
    (("--kernel-us", "5", "--rtl", "x", "--paper"), "--paper and --rtl are two fabrics: give one"),
    (("--paper", "--kernel-us", "5", "--loss", "0.1"), "--loss needs the time until a lost frame "
     "is repeated: figures of the gateware with losses (--rtl)"),
    (("--paper", "--kernel-us", "5", "--load", "0.5"),
     "--load is for round trips measured on the gateware, not for --paper"),
    (("--paper", "t.json", "--copies", "2"), "a trace and --copies are two workloads: give one"),
    (("--paper", "--kernel-us", "5", "--syncs", "2000"),
     "--syncs must be a whole number from 0 to 1000, not '2000'"),
    (("--paper", "--kernel-us", "5", "--keep", "100"),
     "--keep must be a number from 0.1 to 99.9, not '100'")])
def test_a_mistake_is_one_line(argv, text, capsys, tmp_path):
    assert main(["model", "predict", *(each.format(tmp=tmp_path) for each in argv)]) == 2
    assert capsys.readouterr().err == f"dxpu model: error: {text.format(tmp=tmp_path)}\n"


def test_figures_of_the_gateware_are_the_fabric(capsys, tmp_path):
    """1.5005 us, 0.3005 us more than natively; 2 us at 90 % of the line; losses of 1 % are
    repeated after 90 - 1.5005 us."""
    measured.write(tmp_path / "rtl.json", ALL)
    ask = ("predict", "--rtl", str(tmp_path / "rtl.json"), "--kernel-us", "56", "--json")
    idle, = json.loads(out(capsys, *ask))["answers"]
    assert idle["round_trip_us"] == 1.5005 and idle["fabric"] == "gateware, 100G"
    assert idle["kept"] == pytest.approx(1 / (1 + 0.3005 / 56), abs=1e-6)
    loaded, = json.loads(out(capsys, *ask, "--load", "0.9"))["answers"]
    assert loaded["round_trip_us"] == 2
    lossy, = json.loads(out(capsys, *ask, "--loss", "0.01"))["answers"]
    assert lossy["round_trip_us"] == pytest.approx(1.5005 + 2 * 0.01 / 0.99 * 88.4995)
    other, = json.loads(out(capsys, *ask, "--rate", "1G", "--rtt", "5"))["answers"]
    assert (other["round_trip_us"], other["fabric"]) == (5, "gateware, 1G")


def test_without_figures_of_the_gateware_the_line_says_how_to_make_them(
        capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(measured, "STORED", tmp_path / "rtl.json")
    assert main(["model", "predict", "--kernel-us", "5"]) == 2
    assert "make them by `dxpu bench paper --out rtl.json`" in capsys.readouterr().err
    assert "fabric: the paper; round trip 5.00 us" in out(
        capsys, "predict", "--kernel-us", "5", "--rtt", "5")
