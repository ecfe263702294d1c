"""Predictions: figures by hand, ranges, limits, and what changes bring."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dxpu_performance import published
from dxpu_performance.errors import ModelError
from dxpu_performance.fabric import Fabric
from dxpu_performance.kernels import share_kept
from dxpu_performance.measured import Measured
from dxpu_performance.prediction import Case, closed_form, longest_round_trip_us, predict
from dxpu_performance.program import Action, Do, Program, Step, of_step
from dxpu_performance.sample import of_workload
from dxpu_performance.what_if import effects, fused, gateware_changes, graphed
from dxpu_performance.workload import (
    Calls,
    Durations,
    Operations,
    Timeline,
    Workload,
)

from .test_measured import RATE

PAPER = Fabric.of_paper()


def case(step, fabric=PAPER, **options):
    program = of_step(step, to_gpu_gb_s=fabric.native_to_gpu_gb_s,
                      to_host_gb_s=fabric.native_to_host_gb_s)
    return Case.of(program, fabric, **options)


@pytest.mark.parametrize("run", published.RESNET50, ids=lambda run: run.name)
def test_every_row_of_table_9_is_in_the_range_of_a_prediction(run):
    """Means only, without a kind: the range is honest about what a mean cannot say."""
    found = predict(case(Step(run.mean_us)))
    assert found.low <= run.percent / 100 <= found.high
    assert found.kept == pytest.approx(1 / (1 + 5.6 / run.mean_us), abs=1e-4)
    assert found.low < found.kept < found.high


@pytest.mark.parametrize("like", ["training", "inference"])
def test_rows_of_a_kind_are_in_its_narrower_range(like):
    for run in published.RESNET50:
        if run.kind == like:
            found, any_kind = predict(case(Step(run.mean_us), like=like)), predict(
                case(Step(run.mean_us)))
            assert found.low <= run.percent / 100 <= found.high
            assert found.high - found.low < any_kind.high - any_kind.low


def test_a_limit_is_where_the_share_is_kept():
    """Kernels of 72 us keep 90 % at a delay of 8 us, so at a round trip of 9.2 us."""
    there = case(Step(72))
    longest = longest_round_trip_us(there, 0.9)
    assert longest == pytest.approx(9.2, abs=1e-3)
    kept = predict(replace(there, fabric=PAPER.at(longest))).kept
    assert kept == pytest.approx(0.9, abs=1e-4)
    assert longest_round_trip_us(case(Step(72, launches=1, synchronisations=0)), 1e-6) > 1e4
    assert longest_round_trip_us(case(Step(1, copies=1, copy_bytes=1, launches=1)), 0.999999) == 0


@given(st.floats(5, 500), st.floats(1.2, 60), st.floats(1.2, 60), st.integers(1, 4),
       st.integers(0, 20), st.integers(0, 4), st.integers(1, 16))
@settings(max_examples=30, deadline=None)
def test_a_share_falls_with_the_round_trip_and_rises_with_tags(
        mean, one, other, streams, waits, copies, gpus):
    base = case(Step(mean, 40, streams, waits, copies, 1 << 20, 1), gpus=gpus)
    near, far = sorted((one, other))

    def kept(fabric):
        return share_kept(closed_form(replace(base, fabric=fabric)).total)

    assert 0 < kept(PAPER.at(far)) <= kept(PAPER.at(near)) <= 1
    assert kept(replace(PAPER, tags=280)) >= kept(PAPER)


def test_causes_add_up_to_what_is_lost():
    there = case(Step(50, 200, 1, 20, 4, 1 << 20, 10), gpus=4)
    causes = closed_form(there)
    assert share_kept(causes.total) == predict(there).kept
    assert sum(causes.shares().values()) == pytest.approx(1, abs=0.02)
    assert min(causes.kernels, causes.waits, causes.copies, causes.further_gpus) > 0
    shares = list(causes.shares().values())
    assert shares == sorted(shares, reverse=True)


def test_further_gpus_cost_what_the_paper_measured():
    """ResNet-50, batch 64: 90.3 % with two GPUs, 87.5 % with four."""
    for gpus, percent in ((2, 90.3), (4, 87.5)):
        found = predict(case(Step(102.3), gpus=gpus, like="training"))
        assert found.kept == pytest.approx(percent / 100, abs=0.01)


def test_streams_that_run_at_once_wait_at_once():
    """Two streams with kernels of 50 us keep what one keeps: 1 / (1 + 5.6 / 50)."""
    for streams in (1, 2, 4):
        found = predict(case(Step(50, 400, streams)))
        assert found.kept == pytest.approx(1 / (1 + 5.6 / 50), abs=1e-4)
        assert found.serial == pytest.approx(found.kept, abs=2e-3)


def test_distance_and_loss_lengthen_the_round_trip():
    """A kilometre is 5 us each way; two frames of a read, one of 1000 lost, 100 us to repeat."""
    assert replace(PAPER, distance_km=1).far_round_trip_us == pytest.approx(16.8)
    lossy = replace(PAPER, loss=0.001, repeat_us=100)
    assert lossy.far_round_trip_us == pytest.approx(6.8 + 2 * 0.001 / 0.999 * 100)


def test_a_loaded_line_has_the_round_trips_that_were_measured_there():
    """1.5005 us idle, 2 us at 90 %: 1.8004 us at 54 %, three fifths of the way."""
    gateware = Measured("", {"100G": RATE}, ())
    assert Fabric.of_measured(gateware, "100G").round_trip_us == 1.5005
    assert Fabric.of_measured(gateware, "100G", 0.9).round_trip_us == 2
    there = Fabric.of_measured(gateware, "100G", 0.54)
    assert there.round_trip_us == pytest.approx(1.8002)
    assert there.source == "gateware, 100G, load 0.54"
    with pytest.raises(ModelError, match="load must be from 0 to 0.9, the highest that was "):
        Fabric.of_measured(gateware, "100G", 0.95)
    with pytest.raises(ModelError, match="there are no figures of 1G; there are: 100G"):
        Fabric.of_measured(gateware, "1G")


def test_gpus_of_a_proxy_share_its_cable():
    written = replace(PAPER, written=True)
    assert written.to_gpu_gb_s(1) == pytest.approx(9.44)
    assert written.to_gpu_gb_s(4) < 13.8 / 4
    assert replace(written, proxy_gb_s=None).to_gpu_gb_s(4) < 9.44 / 4
    assert replace(written, proxies=2).to_gpu_gb_s(2) == pytest.approx(9.44)
    assert PAPER.to_gpu_gb_s(1) == pytest.approx(2.635, abs=1e-3)


def test_short_kernels_are_fused_and_others_stay():
    """1 1 1 1 1 50 1: four become one, then one, then 50, then one."""
    thread = tuple(Action(Do.RUN, 0, 2.0, us) for us in (1, 1, 1, 1, 1, 50, 1))
    program = fused(Program((thread,), 1))
    runs = [action.busy_us for action in program.threads[0] if action.do is Do.RUN]
    assert runs == [4, 1, 50, 1] and len(program.threads[0]) == 7
    assert sum(action.gap_us for action in program.threads[0]) == 14


def test_a_graph_is_fetched_once():
    thread = (*(Action(Do.RUN, 0, 0.0, 5.0),) * 5, Action(Do.WAIT, -1, 0, 0),
              Action(Do.RUN, 0, 0.0, 5.0))
    found = graphed(Program((thread,), 1), 3).threads[0]
    assert [action.fetched for action in found] == [True, False, False, True, False, True, True]


def test_changes_that_help_and_changes_that_harm():
    there = case(Step(8, 400, 1, 20, 10, 4 << 20))
    found = {effect.name: effect.gain for effect in effects(there)}
    assert found["a kilometre more"] < -0.05
    for name in ("conversion of 250 ns", "PCIe generation 4, twice the tags",
                 "reads of 256 B", "copies as writes of the CPU", "graphs of 100 operations",
                 "short kernels fused, 4 into one", "copies that kernels hide"):
        assert found[name] > 0.005, name
    assert "one frame of 1000 lost" not in found, "nothing is known of the time to repeat"
    assert found["PCIe generation 4, twice the tags"] == pytest.approx(found["reads of 256 B"])


def test_the_round_trip_of_the_gateware_is_a_change():
    """1.5 us at 100G, 6 us at 1G, in place of 6.8: 1 / (1 + 0.3 / 56) and 1 / (1 + 4.8 / 56)."""
    slow = replace(RATE, round_trip=replace(RATE.round_trip, p50_ns=6000.0))
    there = gateware_changes(Measured("", {"100G": RATE, "1G": slow}, ()))
    found = [effect.kept for effect in effects(case(Step(56)), there)]
    assert found == pytest.approx([1 / (1 + 0.3005 / 56), 1 / (1 + 4.8 / 56)], abs=1e-6)


def test_without_a_fabric_everything_is_kept():
    found = predict(case(Step(10, 50, 1, 5), PAPER.at(1.2)))
    assert (found.kept, found.serial, found.prefetch, found.causes.shares()) == (1, 1, 1, {})


def traced(kernels, device=0):
    """Kernels of 10 us, each 1 ns longer than the one before, one each 20 us, with calls."""
    start = [20_000 * number for number in range(kernels)]
    operations = Operations.of(
        start=[5000 + each for each in start],
        duration=[10_000 + number for number in range(kernels)],
        device=[device if number % 10 else 1 for number in range(kernels)],
        correlation=list(range(kernels)))
    calls = Calls.of(start=start, duration=[3000] * kernels, correlation=list(range(kernels)),
                     kind=[1] * kernels, thread=[1] * kernels)
    return Workload.of("trace", Timeline.of(operations, calls=calls))


def test_the_middle_of_a_trace_stands_for_the_whole():
    found = of_workload(traced(1000), most=100)
    assert found.program.kernels == 100
    assert found.notes == ("GPU 0 of 2: the others are left out",
                           "100 of 900 kernels, from the middle of the trace")
    durations = [action.busy_us for action in found.program.threads[0]]
    assert sum(durations) / 100 == pytest.approx(10.5, abs=0.002), "those of kernels 445 to 555"
    gaps = [action.gap_us for action in found.program.threads[0][1:]]
    assert min(gaps) == pytest.approx(20) and len(gaps) == 99
    assert of_workload(traced(50).select(device=1), most=100).program.kernels == 5


def test_a_histogram_or_a_trace_without_calls_gives_kernels_alone():
    durations = Workload("list", Durations.of([5000, 10_000]))
    assert of_workload(durations).program.kernels == 2
    bare = Workload.of("bare", Timeline.of(Operations.of(start=[0, 100], duration=[50, 50])))
    found = of_workload(bare)
    assert found.program.kernels == 2 and "no calls" in found.notes[0]


@pytest.mark.parametrize("call, text", [
    (lambda: Fabric.of_paper(-1), "the round trip must be above 0, not -1"),
    (lambda: Fabric.of_paper(1), "the round trip of 1 us is shorter than that of a GPU in the "
     "host, 1.2 us"),
    (lambda: replace(PAPER, loss=1), "loss must be below 1: nothing would arrive"),
    (lambda: replace(PAPER, tags=0), "tags must be a whole number from 1 to 1048576, not 0"),
    (lambda: case(Step(1), gpus=0), "gpus must be a whole number from 1 to 4096, not 0"),
    (lambda: case(Step(1), like="play"), "a workload is like training or inference, not 'play'"),
    (lambda: longest_round_trip_us(case(Step(1)), 1), "the share to keep must be between 0 and 1, "
     "not 1"),
    (lambda: Case.of(Program(((),), 1), PAPER), "the native time of the workload must be above 0, "
     "not 0")])
def test_what_makes_no_sense_is_one_line(call, text):
    with pytest.raises(ModelError) as error:
        call()
    assert str(error.value) == text
