"""Nodes: access, and operations at each."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

from dxpu.fabric.wire.format import Capability
from dxpu_manage import Binding as Row, ManageError, Manager, Proxy, buses, is_newer, windows
from dxpu_manage.scrub import dirty_slots
from dxpu_model.management import Event

from .evidence import Evidence
from .paths import mask, taken
from .records import Binding, Gpu, Node, Pair, Role

__all__ = ["Nodes", "Row", "accepts", "is_bound"]

#: States of a detach by agreement, as the host shows them.
_DONE, _REFUSED = 3, 4
#: Slot Control: the power indicator is on.
_ON = 1


def accepts(row: Row, generation: int) -> bool:
    """Whether a free row takes a generation."""
    return not row.operation or is_newer(generation, row.generation)


def is_bound(row: Row, peer: Node, gpu: Gpu, binding: Binding) -> bool:
    """Whether a row has the binding of a GPU."""
    return row.used and row.generation == binding.generation and row.target == (
        peer.number, gpu.slot, 0)


class Nodes:
    """The nodes of a pool, before a manager on the fabric.

    Every method may raise :exc:`~dxpu_manage.NoAnswer`, then the node is asked under its factory
    address the next time; :exc:`~dxpu_manage.Stale`, if another manager has taken over; and other
    :exc:`~dxpu_manage.ManageError`.

    Parameters
    ----------
    manager : dxpu_manage.Manager
        With the epoch of the pool's store.
    keys : mapping
        Key of a node for managers, by serial number and factory address.
    """

    def __init__(self, manager: Manager, keys: Mapping[tuple[int, bytes], bytes]) -> None:
        self.manager, self.keys = manager, keys
        self._there: dict[int, Proxy] = {}
        self._known: dict[int, Proxy] = {}
        self._pairing: dict[int, asyncio.Lock] = {}
        #: Called when a node has had an epoch above that of the manager, before it was told
        #: anything; without it the node refuses.
        self.outranked: Callable[[Node, int], Awaitable[None]] | None = None

    async def reach(self, node: Node) -> Proxy:
        """A node under the number in the records; gives number and epoch if need be."""
        if node.serial in self._there:
            return self._there[node.serial]
        proxy = self._known.get(node.serial)
        if proxy is None:
            mac = bytes.fromhex(node.mac)
            key = self.keys.get((node.serial, mac))
            if key is None:
                raise ManageError(f"no key of the {node.role} {node.name} at {mac.hex(':')}: give "
                                  "its factory record to the manager")
            proxy = await Proxy.of(self.manager.node(mac, key))
            if proxy.is_host != (node.role is Role.HOST):
                raise ManageError(f"{proxy.name} with serial number {node.name} was a {node.role}")
            if proxy.node.epoch > self.manager.epoch and self.outranked is not None:
                await self.outranked(node, proxy.node.epoch)
            self._known[node.serial] = proxy
        await proxy.set_number(node.number)
        await proxy.set_boot()
        self._there[node.serial] = proxy
        return proxy

    def is_numbered(self, node: Node) -> bool:
        """Whether a node is asked under the number, which a reset takes away."""
        return node.serial in self._there

    def told(self) -> Iterator[tuple[int, Event]]:
        """What nodes have told since the last call: serial numbers, and events in order."""
        for serial, proxy in list(self._known.items()):
            events = proxy.node.events
            while not events.empty():
                yield serial, events.get_nowait()

    def drop_events(self, node: Node) -> None:
        """Forget what a node has told so far; a look finds out all of it."""
        if node.serial in self._known:
            events = self._known[node.serial].node.events
            while not events.empty():
                events.get_nowait()

    def forget(self, serial: int) -> None:
        """Reach a node under the factory address the next time."""
        self._there.pop(serial, None)

    # Pairs --------------------------------------------------------------------------------------

    async def pair(self, host: Node, box: Node, pair: Pair,
                   partners: Callable[[Node], Iterable[Node]]) -> None:
        """Let the sessions of a host and a box open, the answering box first; nothing twice.

        A node whose peers are all taken forgets one that is none of its ``partners``.
        """
        secret = bytes.fromhex(pair.secret) or None
        for node, other in ((box, host), (host, box)):
            async with self._pairing.setdefault(node.serial, asyncio.Lock()):
                proxy = await self.reach(node)
                peers = {peer.node: peer for peer in await proxy.peers()}
                held = peers.get(other.number)
                if held is None and len(peers) == proxy.peer_count:
                    idle = set(peers) - {partner.number for partner in partners(node)}
                    if idle:
                        await proxy.remove_peer(min(idle))
                if held is None or held.clear != (secret is None):
                    await proxy.add_peer(other.number, clear=secret is None)
                if secret is not None and (held is None or not held.keyed):
                    await proxy.give_key(other.number, secret)
                await proxy.let_open(other.number)

    # Rows ---------------------------------------------------------------------------------------

    async def rows(self, node: Node) -> list[Row]:
        """The mapping table of a node."""
        return await (await self.reach(node)).bindings()

    async def bind(self, node: Node, row: int, peer: Node, gpu: Gpu, binding: Binding) -> None:
        """Bind a row to a GPU's binding; whatever else is bound there is released first."""
        proxy = await self.reach(node)
        held = await proxy.binding(row)
        slot = gpu.slot if node.role is Role.HOST else row + 1
        if held.used and (held.target, held.generation) != (
                (peer.number, slot, 0), binding.generation):
            await proxy.unbind(row)
        paths = mask(binding.path, await self.begins(node, peer), min(node.paths, peer.paths))
        await proxy.bind(row, peer.number, slot=gpu.slot, paths=paths,
                         generation=binding.generation)

    async def release(self, node: Node, row: int) -> None:
        """Release a bound row."""
        proxy = await self.reach(node)
        if (await proxy.binding(row)).used:
            await proxy.unbind(row)

    async def dirty(self, box: Node) -> list[int]:
        """Slots whose GPU keeps something of a former binding."""
        return await dirty_slots(await self.reach(box))

    async def present(self, box: Node) -> list[int]:
        """Slots with a GPU, from 1."""
        bits = (await (await self.reach(box)).read("control.present"))["slots"]
        return [n + 1 for n in range(box.rows) if bits >> n & 1]

    async def paths(self, node: Node) -> int:
        """Ports of a node to the fabric."""
        return (await self.reach(node)).paths

    async def dead(self, node: Node) -> int:
        """Paths of a node without a link: bit n is path n."""
        proxy = await self.reach(node)
        return ~(await proxy.read("control.links"))["up"] & (1 << proxy.paths) - 1

    async def begins(self, node: Node, peer: Node) -> int | None:
        """The path from which on the session of a node with a peer looks for a permitted path;
        ``None``: the session sends by all permitted paths at a time, or there is one path only."""
        proxy = await self.reach(node)
        identity = proxy.node.identity
        if proxy.paths == 1 or identity and identity.capabilities & Capability.STRIPE.value:
            return None
        index = next((held.index for held in await proxy.peers() if held.node == peer.number), None)
        if index is None:
            return 0
        state = await proxy.read(f"control.session[{proxy.session(index)}].state")
        return int(state["path"])

    async def way(self, node: Node, peer: Node, row: Row) -> int:
        """The path by which a node sends the frames of a bound row."""
        begins = await self.begins(node, peer)
        linked = row.paths & ~node.dead or row.paths
        return taken(linked, begins or 0, node.paths)

    # Ports of hosts -----------------------------------------------------------------------------

    async def evidence(self, host: Node, port: int, box: Node) -> Evidence:
        """State of a host's port, bound to a box."""
        proxy = await self.reach(host)
        state = await proxy.read(f"control.slot[{port}].state")
        given = await windows(proxy, port)
        return Evidence(
            present=bool(state["present"]), link=bool(state["link"]), lost=bool(state["lost"]),
            session=await proxy.is_open(box.number),
            runs=bool(given.buses) or any(await buses(proxy)), windows=given.is_open,
            in_use=state["power"] == _ON)

    async def is_idle(self, host: Node, port: int) -> bool:
        """Whether the power indicator of a port is not on."""
        state = await (await self.reach(host)).read(f"control.slot[{port}].state")
        return bool(state["power"] != _ON)

    async def buses(self, host: Node) -> list[range]:
        """Buses behind each port of a host."""
        return await buses(await self.reach(host))

    async def ask_to_let_go(self, host: Node, port: int) -> None:
        """Press the attention button of a port."""
        await (await self.reach(host)).change("control.detach", ports=1 << port)

    async def has_let_go(self, host: Node, port: int) -> bool | None:
        """Whether the operating system has let go of a card; ``None``: not known yet."""
        state = await (await self.reach(host)).read(f"control.slot[{port}].state")
        return {_DONE: True, _REFUSED: False}.get(state["detach"])
