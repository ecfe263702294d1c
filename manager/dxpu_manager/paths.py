"""Paths between hosts and boxes: each pair takes the path with the fewest GPUs.

All frames of a host and a box are in one order, so all GPUs of a host in a box take the same path;
on two paths, frames that overtake each other would be taken for lost frames (docs/explanation/
retransmission.md). Pairs are spread over paths instead.

A pair leaves a path without a link for another path. If the rows of both nodes name another path
already, the session leaves before the manager knows.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from .allocation import Paths
from .errors import Conflict
from .pool import Change, Pool
from .records import Binding, Gpu, Node

__all__ = ["Routing", "alive", "leave_dead", "loads", "mask", "paths_of", "rebalance", "taken",
           "take_path"]


def taken(paths: int, begins: int, count: int) -> int:
    """The path of a mask that a session takes: the first from ``begins`` on, and round."""
    return next(path % count for path in range(begins, begins + count)
                if paths >> path % count & 1)


def mask(path: int, begins: int | None, count: int) -> int:
    """Paths of a row: ``path`` is taken, and as many others as possible are there if the path dies.

    Parameters
    ----------
    path : int
    begins : int or None
        Where the session begins to look (:func:`taken`); ``None``: the session would take all paths
        at a time.
    count : int
        Paths that both nodes have.
    """
    if begins is None:
        return 1 << path
    # Those from `begins` up to the path would be taken in its place.
    before = {(begins + n) % count for n in range((path - begins) % count)} if begins < count else {
        *range(path)}
    return sum(1 << n for n in range(count) if n not in before)


def alive(host: Node, box: Node) -> list[int]:
    """Paths from a host to a box that have a link at both."""
    return [path for path in range(min(host.paths, box.paths))
            if not (host.dead | box.dead) >> path & 1]


def loads(pool: Pool, node: Node) -> Counter[int]:
    """Number of GPUs on each path of a host or a box."""
    bindings = [gpu.binding for gpu, _ in pool.bound_to(node.serial).values()]
    bindings += [gpu.binding for gpu in pool.gpus_of(node.serial)]
    return Counter(binding.path for binding in bindings if binding is not None)


def paths_of(pool: Pool) -> Paths:
    """All paths of a pool, and the paths of pairs."""
    nodes = {node.serial: node for node in pool.all(Node)}
    return Paths({serial: node.paths for serial, node in nodes.items()},
                 {(gpu.binding.host, gpu.box): gpu.binding.path for gpu in pool.all(Gpu)
                  if gpu.binding is not None},
                 {serial: node.dead for serial, node in nodes.items() if node.dead})


def take_path(change: Change, pool: Pool, pair: tuple[int, int], path: int, why: str) -> list[Gpu]:
    """A host takes another path to all GPUs in a box; returns the former records of the GPUs."""
    moved = [gpu for gpu in pool.gpus_of(pair[1])
             if gpu.binding is not None and gpu.binding.host == pair[0]]
    for gpu in moved:
        held: Binding = change.gpu(gpu.name).binding or gpu.binding  # type: ignore[assignment]
        change.put(replace(change.gpu(gpu.name), binding=replace(held, paths=1 << path)),
                   f"GPU {gpu.name}: host {pair[0]:08x} takes path {path} to it, {why}")
    return moved


def _pairs(pool: Pool, node: Node) -> Counter[tuple[int, int]]:
    """Hosts and boxes of the GPUs of a node, with the number of GPUs of each."""
    mine = [gpu for gpu, _ in pool.bound_to(node.serial).values()] + pool.gpus_of(node.serial)
    return Counter((gpu.binding.host, gpu.box) for gpu in mine if gpu.binding is not None)


def _path(pool: Pool, pair: tuple[int, int]) -> int:
    """The path of a host to a box."""
    return next(gpu.binding.path for gpu in pool.gpus_of(pair[1])
                if gpu.binding is not None and gpu.binding.host == pair[0])


def leave_dead(change: Change, pool: Pool, node: Node) -> list[Gpu]:
    """All pairs of a node leave paths without a link, if there is another path; returns the former
    records of the GPUs. ``node`` is the record from now on."""
    moved: list[Gpu] = []
    carried = {node.serial: loads(pool, node)}
    for pair, count in sorted(_pairs(pool, node).items()):
        host, box = (node if serial == node.serial else pool.node(serial) for serial in pair)
        path, ways = _path(pool, pair), alive(host, box)
        if path in ways or not ways:
            continue
        at_box, at_host = (carried.setdefault(end.serial, loads(pool, end)) for end in (box, host))
        best = min(ways, key=lambda n: (at_box[n], at_host[n], n))
        moved += take_path(change, pool, pair, best, f"as path {path} has no link")
        for there in (at_box, at_host):
            there[best] += count
            there[path] -= count
    return moved


def rebalance(change: Change, pool: Pool, boxes: Iterable[Node]) -> list[Gpu]:
    """Spread the pairs of boxes over paths, with few changes; returns the former records of the
    GPUs on other paths.

    A pair moves if the two paths of the box then differ by less than before. No host notices: some
    frames take one path, and the next frames another path.
    """
    moved: list[Gpu] = []
    for box in boxes:
        pairs = _pairs(pool, box)
        where = {pair: _path(pool, pair) for pair in pairs}
        there = loads(pool, box)
        while True:
            gains = [(there[where[pair]] - there[path] - count, -count, pair, path)
                     for pair, count in pairs.items()
                     for path in alive(pool.node(pair[0]), box)
                     if there[where[pair]] - there[path] > count]
            if not gains:
                break
            _, _, pair, path = max(gains)
            there[path] += pairs[pair]
            there[where[pair]] -= pairs[pair]
            where[pair] = path
        for pair, path in sorted(where.items()):
            if path != _path(pool, pair):
                moved += take_path(change, pool, pair, path, "as its paths are balanced")
    return moved


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
        with a link that has the fewest GPUs of the box, then of the host.

        Raises
        ------
        Conflict
            The wanted path, or any, leads not there or has no link, or the host takes another path
            to the box.
        """
        path, ways = self._taken.get(box.serial), alive(self.host, box)
        if path is None:
            count = min(self.host.paths, box.paths)
            if self.path is not None and self.path >= count:
                raise Conflict(f"path {self.path} does not lead from host {self.host.name} to box "
                               f"{box.name}: there are paths 0 to {count - 1}")
            if not ways:
                raise Conflict(f"no path from host {self.host.name} to box {box.name} has a link")
            there = loads(self.pool, box)
            path = self.path if self.path is not None else min(
                ways, key=lambda n: (there[n], self._here[n], n))
        elif self.path not in (None, path):
            raise Conflict(f"host {self.host.name} takes path {path} to all its GPUs of box "
                           f"{box.name}")
        if path not in ways:
            raise Conflict(f"path {path} from host {self.host.name} to box {box.name} has no link")
        self._taken[box.serial] = path
        self._here[path] += 1
        return path
