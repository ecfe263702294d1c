"""dxpu_sim.cache: an entry that counts as complete is complete."""

import shutil

import pytest

from dxpu_sim import cache


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
