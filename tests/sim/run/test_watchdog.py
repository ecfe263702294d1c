"""dxpu_sim.run.watchdog: a simulation that makes no progress is ended, one that does is left
alone."""

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from dxpu_sim.run import watchdog
from dxpu_sim.run.watchdog import PULSE, NoProgress, Watchdog
from dxpu_tools import children


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def watch(tmp_path):
    """A watchdog, the clock that it looks at, and a function that lets a second pass."""
    clock = Clock()
    dog = Watchdog(tmp_path, stuck=10, longest=100, clock=clock)

    def passes(group, seconds=1.0):
        clock.now += seconds
        dog.look(group)

    yield SimpleNamespace(dog=dog, passes=passes)
    dog.close()


@pytest.fixture
def idle():
    """Number of a process that takes no processor time."""
    with pytest.raises(ZeroDivisionError), children.child(["sleep", "300"]) as process:
        yield process.pid
        raise ZeroDivisionError


@pytest.fixture
def busy():
    """Number of a process that computes."""
    with pytest.raises(ZeroDivisionError), children.child(
            [sys.executable, "-c", "while True: pass"]) as process:
        yield process.pid
        raise ZeroDivisionError


def pulse(dog, reached):
    os.write(dog.descriptors[0], PULSE.pack(reached))


def test_time_that_goes_on_is_progress(watch, idle):
    for n in range(50):
        pulse(watch.dog, n + 1)
        watch.passes(idle)


def test_who_does_nothing_is_stuck(watch, idle):
    pulse(watch.dog, 4_000)
    with pytest.raises(NoProgress, match=r"does nothing any more.*stood at 4000 steps.* 1\d s"):
        for _ in range(20):
            watch.passes(idle)


def test_who_computes_has_more_patience(watch, busy, monkeypatch):
    monkeypatch.setattr(watchdog, "_computes", lambda group: True)
    for _ in range(90):
        watch.passes(busy)
    with pytest.raises(NoProgress, match="makes no progress"):
        for _ in range(20):
            watch.passes(busy)


#: The main thread waits for ever, as in a full trace file; another one has something to do.
WAITS = """
import sys, threading
from dxpu_sim.run.pulse import take_name
def works():
    if sys.argv[1] == "pulses":
        take_name()
    print("ready", flush=True)
    while True:
        sum(range(10_000))
threading.Thread(target=works).start()
lock = threading.Lock()
lock.acquire()
lock.acquire()
"""


@pytest.mark.parametrize("what, computes", [("pulses", False), ("work", True)])
def test_a_process_computes_if_a_thread_does_but_for_that_of_the_pulses(what, computes, idle):
    def seen(group, count=50):
        for _ in range(count):
            time.sleep(0.02)
            yield watchdog._computes(group)

    assert not any(seen(idle))
    with pytest.raises(ZeroDivisionError), children.child(
            [sys.executable, "-c", WAITS, what], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        time.sleep(1)  # the other thread has its lock by then
        assert any(seen(process.pid)) == computes
        raise ZeroDivisionError


def test_time_in_which_dxpu_was_stopped_does_not_count(watch, idle):
    for _ in range(4):
        watch.passes(idle, 3600)


def test_the_disk_fills(watch, idle, monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=2047, f_frsize=4096))
    with pytest.raises(NoProgress, match="the disk is full: less than 8 MiB are left in"):
        watch.passes(idle)
