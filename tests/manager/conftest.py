"""Stores of the manager: a file, and an etcd."""

import itertools
from functools import partial

import pytest

from dxpu_cli.bench.etcd_members import Cluster
from dxpu_manager import SqliteStore
from tests.support.etcd_bench import need_etcd
from tests.support.shelves import EtcdShelf, FileShelf

_PREFIXES = (f"/pool{n}/" for n in itertools.count())


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """An etcd with one member, for all tests, each with a prefix of its own."""
    need_etcd()
    with Cluster(tmp_path_factory.mktemp("etcd")) as made:
        yield made


@pytest.fixture
def lead(cluster):
    """A function that makes the store in etcd of a manager that leads, at another prefix in each
    test."""
    from dxpu_manager.etcd import Etcd, EtcdStore
    prefix = next(_PREFIXES)

    def lead(name="", *, endpoints=cluster.endpoints, prefix=prefix, ttl=20, **words):
        return EtcdStore.lead(Etcd(endpoints, prefix=prefix), name, ttl=ttl, **words)

    lead.prefix = prefix
    return lead


class _Files:
    def __init__(self, path):
        self._path = path

    async def open(self):
        return SqliteStore(self._path)


class _Etcd:
    def __init__(self, lead):
        self.open = partial(lead)


@pytest.fixture(params=["file", "etcd"])
def stores(request, tmp_path):
    """Stores of either kind; ``open`` opens the one of this test."""
    if request.param == "file":
        return _Files(tmp_path / "pool.db")
    return _Etcd(request.getfixturevalue("lead"))


@pytest.fixture(params=["file", "etcd"])
def shelves(request, tmp_path):
    """A function that makes another place for the store of a simulated manager."""
    if request.param == "file":
        files = itertools.count()
        yield lambda: FileShelf(tmp_path / f"pool{next(files)}.db")
        return
    endpoints, made = request.getfixturevalue("cluster").endpoints, []

    def shelf():
        made.append(EtcdShelf(endpoints, next(_PREFIXES)))
        return made[-1]

    yield shelf
    for each in made:
        each.close()


@pytest.fixture
def shelf(shelves):
    """A place for the store of a simulated manager."""
    return shelves()
