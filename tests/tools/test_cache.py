"""dxpu_tools.cache: an entry that counts as complete is complete."""

import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from dxpu_tools import cache


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("DXPU_CACHE", str(tmp_path))
    return tmp_path


def fill(text):
    with cache.entry("test", "key") as (path, done):
        if not done:
            (path / "file").write_text(text)
        return done, (path / "file").read_text()


def test_an_entry_is_filled_once():
    assert fill("one") == (False, "one") and fill("two") == (True, "one")


def test_a_failure_leaves_nothing(root):
    with pytest.raises(ZeroDivisionError), cache.entry("test", "key") as (path, _):
        (path / "file").write_text("half")
        raise ZeroDivisionError
    assert fill("one") == (False, "one")


def test_who_dies_while_he_fills_an_entry_that_was_deleted_leaves_none(root):
    """By a kill, that is: what he left counts before anything is done about it."""
    fill("one")
    shutil.rmtree(root / "test" / "key")
    filling = cache.entry("test", "key")
    path, done = filling.__enter__()
    assert not done
    (path / "file").write_text("half")
    assert not list((root / "test").glob("*.done"))
    filling.gen.close()  # gives the lock back
    assert fill("two") == (False, "two")


#: Fills an entry, and is killed in the middle of it.
KILLED = """
import os, signal
from dxpu_tools import cache
with cache.entry("test", "killed") as (path, done):
    (path / "file").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_interrupted_goes_when_something_else_is_built(root, monkeypatch):
    subprocess.run([sys.executable, "-c", KILLED], check=False)
    assert (root / "test" / "killed").exists()
    monkeypatch.setattr(cache, "_swept", False)
    with cache.entry("other", "key") as (path, _):
        # What is being filled now, by whomever, stays.
        cache._swept = False
        with cache.entry("test", "key"):
            assert path.exists()
    assert sorted(p.name for p in (root / "test").iterdir()) == ["key", "key.done", "key.lock"]


def test_what_is_there(root):
    fill("one")
    subprocess.run([sys.executable, "-c", KILLED], check=False)
    (root / "passed").mkdir()
    (root / "passed" / "x.json").write_text("{}")
    found = {(e.kind, e.key): e for e in cache.entries()}
    assert {place: e.complete for place, e in found.items()} == {
        ("test", "key"): True, ("test", "killed"): False, ("passed", "x.json"): True}
    assert all(0 < e.size < 100_000 for e in found.values())
    assert cache.holds("test", "key") and not cache.holds("test", "killed")


def test_what_is_in_use_is_not_removed(root):
    fill("one")
    entry, = cache.entries()
    with cache.entry("test", "key"):
        assert not cache.remove(entry)
    assert cache.holds("test", "key") and cache.remove(entry)
    assert not cache.holds("test", "key") and not list((root / "test").iterdir())
    assert fill("two") == (False, "two")


def test_who_waits_for_an_entry_that_is_removed_meanwhile_fills_it(root):
    fill("one")
    entry, = cache.entries()
    with ThreadPoolExecutor() as pool:
        with cache.entry("test", "key"):
            waiting = pool.submit(fill, "two")
            time.sleep(0.5)
            shutil.rmtree(root / "test")  # as a user does it
        assert waiting.result() == (False, "two")
    assert cache.holds("test", "key")


def test_who_waits_for_another_says_so():
    waits = threading.Event()

    def second():
        with cache.entry("test", "key", waits.set) as (_, done):
            return done

    with ThreadPoolExecutor() as pool:
        with cache.entry("test", "key", waits.set):
            assert not waits.is_set()
            running = pool.submit(second)
            assert waits.wait(20) and not running.done()
        assert running.result()
