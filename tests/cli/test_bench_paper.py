"""``dxpu bench paper`` without its simulations: what becomes of figures, files and exit status."""

import dataclasses

import pytest

from dxpu_cli.bench import paper
from dxpu_cli.main import main
from dxpu_performance import measured

NS = 24_000.0
NATIVE = [{"read_bytes": 100.0, "ns": 1.0, "trips_ns": [1200.0]},
          {"read_bytes": 11.4 * NS, "ns": NS}, {"written_bytes": 12.6 * NS, "ns": NS}]


def step(rate, **more):
    """A step in which GPU 0 reads so many GB/s."""
    found = {f"read_bytes{n}": 0.0 for n in range(16)} | {f"arrived_bytes{n}": 0.0
                                                           for n in range(16)}
    return found | {"read_bytes0": rate * NS, "ns": NS, "trips_ns": [2500.0] * 99 + [9000.0]} | more


def line(rate):
    """GB/s that the line allows."""
    from dxpu_sim.system.paper import plan
    return plan.line_limit(plan.SETUPS[rate], 64, 12)


def figures(rate, part):
    """Figures of a part as a simulation would give them, with the answers that follow."""
    from dxpu_sim.system.paper.plan import SETUPS, spread
    setup = SETUPS[rate]
    points = 1 + len(setup.slow_ns)
    return {
        "latency": lambda: [step(0.1, times=[0, 2, 22, 172, 192, 492, 512, 662, 682, 685])],
        "bandwidth": lambda: [step(6.5), step(0, written_bytes0=10.0 * NS, to_host0=11.5 * NS)],
        "trips": lambda: [step(0.1), step(min(7.1, line(rate)))] * points,
        "scaling": lambda: [step(n + 1.0) for n in range(len(spread(setup)))],
        "peers": lambda: [step(0, arrived_bytes1=8.0 * NS),
                          step(0, arrived_bytes8=6.0 * NS)][:setup.pairs],
        "load": lambda: [step(1.0, to_host0=load * setup.shape.gbit_s / 8 * NS, to_box0=0.0)
                         for load in setup.loads],
        "loss": lambda: [step(6.0 - n) for n in range(len(setup.losses))],
    }[part]()


@pytest.fixture
def simulated(monkeypatch, tmp_path):
    """No simulator is built, none runs; returns the figures of parts, to be changed."""
    changed = {}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dxpu_cli.prepare.prepare", lambda simulators, progress: None)
    monkeypatch.setattr(paper, "run_native", lambda folder: NATIVE)
    monkeypatch.setattr(paper, "run_part", lambda rate, part, folder: changed.get(
        (rate, part)) or figures(rate, part))
    return changed


def bench(*options):
    return main(["bench", "paper", *options])


def test_figures_go_into_the_file(simulated, tmp_path, capsys):
    file = tmp_path / "rtl.json"
    assert bench("--out", str(file)) == 0
    found = measured.read(file)
    assert list(found.rates) == ["100G", "10G", "1G"]
    rate = found.rates["100G"]
    assert (rate.clock_hz, rate.width_bits, rate.line_gbit_s) == (250e6, 512, 100.0)
    assert (rate.round_trip.p50_ns, rate.round_trip.p99_ns, rate.round_trip.longest_ns) == (
        2500, 2500, 9000)
    assert sum(count for _, count in rate.round_trip.histogram) == 100
    # 4 ns a cycle: conversions of 20 cycles, frames of 150, the rest.
    assert rate.split == measured.Split(4 * (685 - 80 - 300), 4 * 300.0, 4 * 80.0)
    assert rate.host_to_gpu == measured.Bandwidth(6.5, 11.4)
    assert rate.gpu_to_host == measured.Bandwidth(10.0, 12.6)
    assert rate.overhead_bytes == pytest.approx(128 * 0.15)
    assert rate.gpu_to_gpu == measured.PeerToPeer(8.0, 6.0)
    assert rate.trips[0].equation_gb_s == pytest.approx(140 * 128 / 2500, abs=1e-4)
    assert [(s.gpus, s.proxies) for s in rate.scaling] == [
        (1, 1), (2, 1), (4, 1), (8, 1), (2, 2), (4, 2), (8, 2)]
    assert [point.load for point in rate.load] == [0.1, 0.3, 0.5, 0.7, 0.8]
    assert [point.goodput_gb_s for point in rate.loss] == [6, 5, 4, 3, 2]
    assert rate.loss[0].p99_ns == 2500
    assert found.rates["1G"].gpu_to_gpu is None
    assert {a.name for a in found.assumptions} >= {"PCIe link", "network at 100G, one way"}
    assert all(a.source for a in found.assumptions)
    printed = capsys.readouterr().out
    assert "57.0%" in printed and "(Table 7)" in printed and "75.0% (Figure 7: 74 %)" in printed


def test_a_wrong_prediction_fails(simulated, tmp_path, capsys):
    """7 % is the paper's own; the figures are written all the same."""
    for factor, status in ((1.069, 0), (1.072, 1), (0.932, 0), (0.925, 1)):
        simulated["10G", "trips"] = [step(0), step(line("10G") / factor)]
        file = tmp_path / f"{factor}.json"
        assert bench("--rate", "10G", "--out", str(file)) == status, factor
        assert measured.read(file).rates["10G"].trips
        printed = capsys.readouterr().out
        assert ("more than 7%" in printed) == bool(status)


def test_a_part_updates_a_file(simulated, tmp_path, capsys):
    file = tmp_path / "rtl.json"
    assert bench("--part", "peers", "--out", str(file)) == 2
    assert "only a part is measured" in capsys.readouterr().err
    assert bench("--rate", "100G", "--out", str(file)) == 0
    assert bench("--rate", "10G", "--part", "load", "--out", str(file)) == 2
    assert "has nothing of 10G" in capsys.readouterr().err
    before = measured.read(file)
    simulated["100G", "peers"] = [step(0, arrived_bytes1=4.0 * NS),
                                  step(0, arrived_bytes8=3.0 * NS)]
    assert bench("--rate", "100G", "--part", "peers", "--out", str(file)) == 0
    after = measured.read(file)
    assert after.rates["100G"] == dataclasses.replace(
        before.rates["100G"], gpu_to_gpu=measured.PeerToPeer(4.0, 3.0))
    assert bench("--rate", "10G", "--out", str(file)) == 0
    assert list(measured.read(file).rates) == ["100G", "10G"]
    file.write_text("{}")
    assert bench("--rate", "10G", "--out", str(file)) == 2
    assert "version is missing" in capsys.readouterr().err


@pytest.mark.parametrize("options, text", [
    (["--rate", "40G"], "--rate must be of 100G, 10G, 1G, not '40G'"),
    (["--part", "all"], "--part must be of latency, bandwidth, trips, scaling, peers, load, loss")])
def test_options_that_are_wrong(simulated, capsys, options, text):
    assert bench(*options) == 2
    assert text in capsys.readouterr().err


def test_percentiles():
    assert paper.percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert paper.percentile(range(1, 101), 0.99) == 99
    assert paper.percentile([7.0], 0.01) == 7.0


def test_the_limit_of_the_line_is_the_least_of_line_and_switch():
    """By hand: at 100 Gb/s 18 records of 80 bytes share a frame of 32 + 1440 + 24 bytes, but a
    completion of 76 bytes takes three cycles of 4 ns in the switch; at 1 Gb/s the line is the
    limit."""
    from dxpu_sim.system.paper import plan
    assert plan.line_limit(plan.SETUPS["100G"], 64, 12) == pytest.approx(64 / 12)
    assert plan.line_limit(plan.SETUPS["1G"], 64, 12) == pytest.approx(
        0.125 * 18 * 64 / (32 + 18 * 80 + 24))
