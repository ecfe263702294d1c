"""Sweeps: tasks, and the same numbers on one core, on several processes, and on a cluster."""

from dataclasses import replace
from pathlib import Path

import pytest

from dxpu_performance import pool
from dxpu_performance.errors import ModelError
from dxpu_performance.fabric import Fabric
from dxpu_performance.prediction import Case, longest_round_trip_us, predict
from dxpu_performance.program import Step, of_step
from dxpu_performance.readers import read
from dxpu_performance.sample import of_workload
from dxpu_performance.sweep import CHUNK, Trace, chunks, evaluate, load, sources

SAMPLES = Path(__file__).parent / "samples"
PAPER = Fabric.of_paper()


def cases(programs=2, trips=20, launches=40):
    """Two programs at some round trips."""
    found = []
    for number in range(programs):
        first = Case.of(of_step(Step(20.0 + 30 * number, launches, 1, 4, 2, 1 << 20),
                                to_gpu_gb_s=11.2, to_host_gb_s=12.5), PAPER)
        found += [replace(first, fabric=PAPER.at(2.0 + trip)) for trip in range(trips)]
    return found


def flat(results):
    return sorted((each for some in results for each in some), key=lambda each: each.number)


def test_chunks_have_each_case_once_and_one_program_each():
    every = cases(3, CHUNK + 3)
    found = chunks(every, 0.9, simulated=False)
    assert [number for chunk in found for number in chunk.numbers] == list(range(len(every)))
    assert [len(chunk.cases) for chunk in found] == [CHUNK, 3] * 3
    assert all(len({id(case.program) for case in chunk.cases}) == 1 for chunk in found)
    assert chunks([], 0.9, simulated=True) == []


def test_a_sweep_says_what_single_predictions_say():
    every = cases(1, 3)
    found = flat(map(evaluate, chunks(every, 0.8, simulated=True)))
    for case, result in zip(every, found, strict=True):
        single = predict(case)
        assert (result.kept, result.low, result.high) == (single.kept, single.low, single.high)
        assert result.longest_round_trip_us == longest_round_trip_us(case, 0.8)
    closed = flat(map(evaluate, chunks(every, 0.8, simulated=False)))
    assert [each.kept for each in closed] == [each.kept for each in found]
    assert {each.low for each in closed} == {None}


def test_processes_say_the_same_as_one():
    work = chunks(cases(), 0.9, simulated=True)
    assert flat(pool.run(evaluate, work, 2)) == flat(map(evaluate, work))


def test_a_trace_is_loaded_as_it_is_predicted():
    path = str(SAMPLES / "kineto.json")
    loaded = load(Trace(path, 1000))
    assert loaded.program == of_workload(read(path), most=1000).program
    assert loaded.native_us == Case.of(loaded.program, PAPER).native.time_us
    assert (loaded.notes, loaded.error) == ((), "")
    assert load(Trace(path, 1000, begin_ns=46_000)).program.kernels == 2
    assert load(Trace(str(SAMPLES / "cuda_gpu_trace.csv"), 3)).notes[0].startswith(
        "the trace has no calls that launch kernels")


@pytest.mark.parametrize("trace, message", [
    (Trace("/no.json", 10), "/no.json: no such file or directory"),
    (Trace(str(SAMPLES / "kineto.json"), 10, device=1),
     f"{SAMPLES}/kineto.json: no GPU 1 is in the trace; there are: 0"),
    (Trace(str(SAMPLES / "kineto.json"), 10, begin_ns=1 << 40), f"{SAMPLES}/kineto.json: no kernel "
     "is in the chosen part; the trace lasts 0.051 ms"),
])
def test_a_trace_that_cannot_be_read_is_a_result(trace, message):
    loaded = load(trace)
    assert (loaded.error, loaded.program) == (message, None)


def test_kernels_that_take_no_time_are_left_out(tmp_path):
    (tmp_path / "d").write_text("duration_us\n0\n")
    assert load(Trace(str(tmp_path / "d"), 10)).error == (
        f"{tmp_path}/d: its kernels take no time")


def test_other_sources_are_noticed():
    """Of a worker with another version, whose figures may differ."""
    with pytest.raises(ModelError, match="a worker has other sources of dxpu"):
        load(Trace("/no.json", 10, made_by=sources()[::-1]))
    chunk, = chunks(cases(1, 1), 0.9, simulated=False)
    with pytest.raises(ModelError, match="a worker has other sources of dxpu"):
        evaluate(replace(chunk, made_by=""))
