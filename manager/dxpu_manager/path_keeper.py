"""Paths of nodes: links that come and go, and rows that take other paths.

Ref: docs/reference/manager.md ("Paths"); docs/explanation/retransmission.md
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any

from .background import Background
from .limits import Limits
from .nodes import Nodes, Row
from .paths import alive, leave_dead, rebalance, take_path
from .pool import Pool
from .records import Gpu, Node, Role

__all__ = ["PathKeeper"]


class PathKeeper:
    """Notes paths with a link, leads GPUs to such paths, and changes the rows of nodes.

    Parameters
    ----------
    pool : Pool
    nodes : Nodes
    limits : Limits
    background : Background
        Where the return to a path goes on.
    look : function
        Looks at a node, by serial number.
    """

    def __init__(self, pool: Pool, nodes: Nodes, limits: Limits, background: Background,
                 look: Callable[[int], Coroutine[Any, Any, None]]) -> None:
        self.pool, self.nodes, self.limits = pool, nodes, limits
        self._background, self._look = background, look
        #: GPUs whose rows are to take another path, by node.
        self._moving: defaultdict[int, set[str]] = defaultdict(set)

    async def look(self, node: Node) -> Node:
        """Note the paths of a node, with and without a link; returns the newest record.

        GPUs leave a path without a link at once, and return when the link is there again and has
        lasted for a while (``Limits.calm``).
        """
        paths, dead = await self.nodes.paths(node), await self.nodes.dead(node)
        known = self.pool.node(node.serial)
        if dead == (1 << paths) - 1:
            dead = known.dead  # of a node that answers: nobody tells the proxy of links
        if (known.paths, known.dead) == (paths, dead):
            return known
        new, back = replace(known, paths=paths, dead=dead), known.dead & ~dead
        said = [f"has {paths} path{'s' * (paths > 1)}"] * (paths != known.paths)
        said += [f"path {path} has {'no link' if dead >> path & 1 else 'a link again'}"
                 for path in range(paths) if (dead ^ known.dead) >> path & 1]
        with self.pool.change() as change:
            change.put(new, f"{node.role} {node.name}: {', '.join(said)}")
            moved = leave_dead(change, self.pool, new)
        self._moves(moved, here=node.serial)
        if back:
            self._background.begin(self._returns(new))
        await self.pool.durable()
        return new

    async def _returns(self, node: Node) -> None:
        """Balance the paths of a node when a link has come and stays."""
        await asyncio.sleep(self.limits.calm)
        if self.pool.node(node.serial).dead == node.dead:
            self.rebalance([node] if node.role is Role.BOX else self.pool.partners(node))

    def rebalance(self, boxes: Iterable[Node]) -> list[str]:
        """Spread pairs over the paths of boxes that have a link; returns the GPUs that take another
        path from now on."""
        with self.pool.change() as change:
            moved = rebalance(change, self.pool, boxes)
        self._moves(moved)
        return [gpu.name for gpu in moved]

    def _moves(self, gpus: Iterable[Gpu], here: int = 0) -> None:
        """Have the rows of both nodes changed, by looks; a look ``here`` goes on already."""
        nodes = set()
        for gpu in gpus:
            for serial in (gpu.box, gpu.binding.host if gpu.binding else gpu.box):
                self._moving[serial].add(gpu.name)
                nodes.add(serial)
        for serial in sorted(nodes - {here}):
            self._background.begin(self._looks(serial))

    async def _looks(self, serial: int) -> None:
        await self.pool.durable()
        await self._look(serial)

    async def mend(self, node: Node, peer: Node, gpu: Gpu, row: Row) -> None:
        """Lead a bound row to the path of the records; or the records to the path of the node, if
        the node has left another path without an answer."""
        binding = gpu.binding
        if binding is None or min(node.paths, peer.paths) == 1:
            return
        way = await self.nodes.way(node, peer, row)
        host, box = (node, peer) if node.role is Role.HOST else (peer, node)
        if self.pool.gpu(gpu.name) is not gpu:
            return
        moving = self._moving[node.serial]
        if way == binding.path:
            moving.discard(gpu.name)
        elif gpu.name in moving or way not in alive(host, box):
            await self.nodes.bind(node, row.row, peer, gpu, binding)
            moving.discard(gpu.name)
        else:
            with self.pool.change() as change:
                moved = take_path(change, self.pool, (host.serial, box.serial), way,
                                  f"as {node.role} {node.name} has left path {binding.path}")
            self._moves(moved, here=node.serial)
