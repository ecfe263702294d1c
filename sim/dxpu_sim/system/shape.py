"""Shape of a :class:`~dxpu_sim.system.design.System`: what its Python side needs of it.

To make a System takes half a second, longer than many a test. So its shape is kept in the cache.
"""

import os
import pickle
from dataclasses import dataclass

from dxpu.csr import AddressMap
from dxpu_tools import cache

__all__ = ["Shape", "node_names", "shape"]

#: Environment variable with the digest of the sources of the design that is simulated
#: (:attr:`dxpu_sim.run.runner.Design.key`).
_SOURCES = "DXPU_DESIGN"


@dataclass(frozen=True)
class Shape:
    """Attributes of a :class:`~dxpu_sim.system.design.System` with the same names."""

    names: list[str]
    nodes: list[int]
    maps: list[AddressMap]
    hosts: int
    boxes: tuple[int, ...]
    ports: int
    placeholders: bool

    @classmethod
    def of(cls, system) -> "Shape":
        """The shape of ``system``."""
        return cls(**{name: getattr(system, name) for name in cls.__dataclass_fields__})


def shape(options: dict) -> Shape:
    """The shape of ``System(**options)``."""
    sources = os.environ.get(_SOURCES)
    if sources is None:
        return _make(options)
    with cache.entry("shapes", cache.digest(sources, sorted(options.items()))) as (path, done):
        file = path / "shape.pickle"
        if not done:
            file.write_bytes(pickle.dumps(_make(options)))
        return pickle.loads(file.read_bytes())


def node_names(options: dict) -> dict[int, str]:
    """Names of the proxies of ``System(**options)``, by their nodes' numbers."""
    made = shape(options)
    return dict(zip(made.nodes, made.names, strict=True))


def _make(options):
    from .design import System
    return Shape.of(System(**options))
