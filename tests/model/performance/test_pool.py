"""Tasks on processes and on a real Dask cluster, some of which are killed in the middle of a task.
"""

import os
import signal
from pathlib import Path

import pytest

from dxpu_performance import cluster as of_dask
from dxpu_performance import pool
from dxpu_performance.cluster import Cluster
from dxpu_performance.errors import ModelError
from dxpu_performance.sweep import chunks, evaluate

from .test_sweep import cases, flat


def deadly(task):
    """Does a task, but kills its process at the task in the file, as often as the file says."""
    number, folder = task
    left = Path(folder, str(number))
    if left.exists():
        times = int(left.read_text())
        if times:
            left.write_text(str(times - 1))
            os.kill(os.getpid(), signal.SIGKILL)
    return number, os.getpid()


def failing(number):
    if number == 3:
        raise ModelError("three")
    return number


def test_processes_that_are_lost_are_replaced(tmp_path):
    (tmp_path / "2").write_text("2")
    (tmp_path / "5").write_text("1")
    done = list(pool.run(deadly, [(n, str(tmp_path)) for n in range(8)], 2))
    assert sorted(number for number, _ in done) == list(range(8))
    assert os.getpid() not in {process for _, process in done}
    assert [(tmp_path / name).read_text() for name in "25"] == ["0", "0"]


def test_a_task_that_kills_every_process_is_given_up(tmp_path):
    (tmp_path / "1").write_text("99")
    with pytest.raises(ModelError, match="^3 processes ended while they did one task"):
        list(pool.run(deadly, [(n, str(tmp_path)) for n in range(3)], 2))
    assert (tmp_path / "1").read_text() == "96"


def test_processes_end_with_an_error_and_an_iterator_that_is_left():
    with pytest.raises(ModelError, match="^three$"):
        list(pool.run(failing, range(6), 2))
    results = pool.run(deadly, [(n, "/") for n in range(9)], 2)
    process = next(results)[1]
    results.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_one_worker_is_this_process():
    assert list(pool.run(deadly, [(n, "/") for n in range(3)], 1)) == [
        (n, os.getpid()) for n in range(3)]


def test_a_cluster_gives_the_same_figures_though_a_worker_is_lost(tmp_path):
    """A real cluster of two processes; one kills itself in the middle of a task."""
    distributed = pytest.importorskip("distributed")
    work = chunks(cases(), 0.9, simulated=True)
    with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
            silence_logs=50) as local, Cluster(local.scheduler_address) as cluster:
        assert cluster.cores() == 2
        assert flat(cluster.run(evaluate, work)) == flat(map(evaluate, work))
        (tmp_path / "3").write_text("1")
        done = list(cluster.run(deadly, [(n, str(tmp_path)) for n in range(9)]))
        assert sorted(number for number, _ in done) == list(range(9))
        assert (tmp_path / "3").read_text() == "0"
        with pytest.raises(ModelError, match="^three$"):
            list(cluster.run(failing, range(6)))


def test_no_scheduler_is_one_line(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(of_dask, "CONNECT", 0.5)
    for address in ("tcp://127.0.0.1:1", "nowhere"):
        with pytest.raises(ModelError) as error:
            Cluster(address)
        assert str(error.value).startswith(f"no scheduler of Dask answers at {address}: ")
        assert "\n" not in str(error.value)
