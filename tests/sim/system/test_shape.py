"""The shape of a system, kept in the cache."""

import pytest

from dxpu_sim.system import shape as shapes
from dxpu_sim.system.design import System

OPTIONS = {"boxes": (1,), "ports": 4, "paths": 1}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DXPU_CACHE", str(tmp_path))


def same(shape, system):
    for name in ("names", "nodes", "hosts", "boxes", "ports", "placeholders"):
        assert getattr(shape, name) == getattr(system, name), name
    assert [repr(m) for m in shape.maps] == [repr(m) for m in system.maps]


def test_kept_for_the_same_sources_and_options(monkeypatch):
    monkeypatch.setenv("DXPU_DESIGN", "sources")
    system, made = System(**OPTIONS), []

    def make(options):
        made.append(options)
        return shapes.Shape.of(System(**options))

    monkeypatch.setattr(shapes, "_make", make)
    for _ in range(2):
        same(shapes.shape(OPTIONS), system)
    assert made == [OPTIONS]
    assert shapes.shape({**OPTIONS, "ports": 2}).ports == 2
    monkeypatch.setenv("DXPU_DESIGN", "other sources")
    shapes.shape(OPTIONS)
    assert len(made) == 3


def test_made_without_known_sources(tmp_path, monkeypatch):
    monkeypatch.delenv("DXPU_DESIGN", raising=False)
    same(shapes.shape(OPTIONS), System(**OPTIONS))
    assert not list(tmp_path.glob("shapes/*"))
