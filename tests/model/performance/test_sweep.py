"""Sweeps: the same numbers on one core, on several processes, and on a cluster that loses a
worker."""

import importlib.util
import os
import signal
from dataclasses import replace

import pytest

from dxpu_performance.errors import ModelError
from dxpu_performance.fabric import Fabric
from dxpu_performance.prediction import Case, longest_round_trip_us, predict
from dxpu_performance.program import Step, of_step
from dxpu_performance.sweep import CHUNK, chunks, evaluate, on_cluster, on_cores

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
    assert flat(on_cores(work, 2)) == flat(on_cores(work, 1)) == flat(map(evaluate, work))
    with pytest.raises(ModelError, match="jobs must be a whole number from 1 to 1024, not 0"):
        list(on_cores(work, 0))


def _dies(chunk):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_is_one_line(monkeypatch):
    monkeypatch.setattr("dxpu_performance.sweep.evaluate", _dies)
    with pytest.raises(ModelError, match="a process of the sweep was killed: is memory short?"):
        list(on_cores(chunks(cases(), 0.9, simulated=False), 2))


needs_dask = pytest.mark.skipif(importlib.util.find_spec("distributed") is None,
                                reason="dask: distributed is not installed")


@needs_dask
def test_a_cluster_that_loses_a_worker_says_the_same():
    from distributed import LocalCluster
    work = chunks(cases(4, 32, 60), 0.9, simulated=True)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        done = on_cluster(work, cluster.scheduler_address)
        found = [next(done)]
        victim = cluster.workers[0].pid
        os.kill(victim, signal.SIGKILL)
        found += done
        assert victim not in {worker.pid for worker in cluster.workers.values()}
    assert flat(found) == flat(map(evaluate, work))


@needs_dask
def test_no_scheduler_is_one_line(monkeypatch):
    monkeypatch.setattr("dxpu_performance.sweep._PATIENCE_S", 0.5)
    with pytest.raises(ModelError) as error:
        list(on_cluster(chunks(cases(1, 1), 0.9, simulated=False), "tcp://127.0.0.1:1"))
    assert str(error.value).startswith("no Dask scheduler answers at tcp://127.0.0.1:1: ")
    assert "\n" not in str(error.value)
