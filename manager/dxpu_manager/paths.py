"""Paths between hosts and boxes: each pair takes the path with the fewest GPUs.

All frames of a host and a box are in one order, so all GPUs of a host in a box take the same path;
on two paths, frames that overtake each other would be taken for lost frames (docs/explanation/
retransmission.md). Pairs are spread over paths instead.
"""

from collections import Counter

from .allocation import Paths
from .errors import Conflict
from .pool import Pool
from .records import Gpu, Node

__all__ = ["Routing", "loads", "paths_of"]


def loads(pool: Pool, node: Node) -> Counter[int]:
    """Number of GPUs on each path of a host or a box."""
    bindings = [gpu.binding for gpu, _ in pool.bound_to(node.serial).values()]
    bindings += [gpu.binding for gpu in pool.gpus_of(node.serial)]
    return Counter(binding.path for binding in bindings if binding is not None)


def paths_of(pool: Pool) -> Paths:
    """All paths of a pool, and the paths of pairs."""
    return Paths({node.serial: node.paths for node in pool.all(Node)},
                 {(gpu.binding.host, gpu.box): gpu.binding.path for gpu in pool.all(Gpu)
                  if gpu.binding is not None})


class Routing:
    """Paths of GPUs for a host, at a time.

    Parameters
    ----------
    pool : Pool
    host : Node
    path : int or None
        The path to take; ``None``: the best one.
    """

    def __init__(self, pool: Pool, host: Node, path: int | None = None) -> None:
        self.pool, self.host, self.path = pool, host, path
        self._here = loads(pool, host)
        #: Path to each box.
        self._taken = {gpu.box: binding.path
                       for gpu, binding in pool.bound_to(host.serial).values()}

    def take(self, box: Node) -> int:
        """The path to another GPU of a box: as of the host's other GPUs there; or else the path
        with the fewest GPUs of the box, then of the host.

        Raises
        ------
        Conflict
            The wanted path leads not there, or the host takes another path to the box.
        """
        path = self._taken.get(box.serial)
        if path is None:
            count = min(self.host.paths, box.paths)
            if self.path is not None and self.path >= count:
                raise Conflict(f"path {self.path} does not lead from host {self.host.name} to box "
                               f"{box.name}: there are paths 0 to {count - 1}")
            there = loads(self.pool, box)
            path = self.path if self.path is not None else min(
                range(count), key=lambda n: (there[n], self._here[n], n))
        elif self.path not in (None, path):
            raise Conflict(f"host {self.host.name} takes path {path} to all its GPUs of box "
                           f"{box.name}")
        self._taken[box.serial] = path
        self._here[path] += 1
        return path
