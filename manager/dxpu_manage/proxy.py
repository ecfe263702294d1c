"""Proxies under a manager: number, peers, keys, sessions, mapping table.

Ref: docs/reference/manage.md, docs/reference/mapping.md ("Commit")
"""

import asyncio
import secrets
from dataclasses import dataclass
from typing import Any

from dxpu.fabric.session.session import Mode, Phase
from dxpu.fabric.wire.format import NODE_UNASSIGNED
from dxpu.mapping import CommitCode

from .errors import ManageError, Refused
from .manager import Node
from .registers import Registers

__all__ = ["Binding", "Peer", "Proxy"]

#: Seconds between two looks at a register, and how many looks.
PAUSE, LOOKS = 0.005, 600


def _code(member: Any) -> int:
    """Number of a member of an enumeration of the gateware."""
    return int(member.value)


@dataclass(frozen=True)
class Peer:
    """A valid peer of a proxy.

    Attributes
    ----------
    index : int
        Number of the peer in the proxy.
    node : int
        Node number of the peer.
    clear : bool
        Sessions are opened without a key.
    keyed : bool
        There is a key.
    """

    index: int
    node: int
    clear: bool
    keyed: bool


@dataclass(frozen=True)
class Binding:
    """A row of a mapping table; an unused row keeps the last content.

    Attributes
    ----------
    row : int
        A host's downstream port, or a box's slot minus 1.
    node : int
        Node number of the peer.
    slot : int
        Slot of the box, from 1.
    paths : int
        Permitted paths: bit n is path n.
    operation : int
        Last operation on the row; 0: none since reset.
    """

    row: int
    used: bool
    node: int
    slot: int
    stream: int
    paths: int
    generation: int
    operation: int

    @property
    def target(self) -> tuple[int, int, int]:
        """Node, slot, stream."""
        return self.node, self.slot, self.stream


class Proxy(Registers):
    """A host or a box under a manager.

    All changes can be repeated: a change without an answer is made again, and the same command
    twice has the same result.

    Attributes
    ----------
    is_host, has_keys : bool
    rows, paths, peer_count, streams : int
        Numbers of each in the proxy.
    """

    def __init__(self, node: Node, map: Any) -> None:
        super().__init__(node, map)
        shape, trust = (register.unpack(register.reset) for _, register in (
            self.find("control.shape"), self.find("control.security")))
        self.is_host, self.has_keys = shape["role"] == 1, trust["keys"] == 1
        self.rows: int = shape["rows"]
        self.paths: int = shape["paths"] + 1
        self.peer_count: int = shape["peers"]
        self.streams: int = 1 << shape["streams"]

    @property
    def name(self) -> str:
        """Role and factory address."""
        return f"{'host' if self.is_host else 'box'} {self.node.name}"

    def _refuse(self, why: str) -> ManageError:
        return ManageError(f"{self.name}: {why}")

    # The node

    async def set_number(self, number: int) -> None:
        """Give the node a number, and reach the node under the number from now on.

        The request goes to FFFh and the factory address.

        Raises
        ------
        ManageError
            If the number is impossible or another node's, or if the node has another number and
            peers, whose keys belong to the old number.
        """
        if not 1 <= number < NODE_UNASSIGNED:
            raise self._refuse(f"a number is 0x001 to 0xffe, not {number:#05x}")
        other = self.node.manager.holder(number)
        if other is not None and other.mac != self.node.mac:
            raise self._refuse(f"{number:#05x} is the number of node {other.name}")
        await self.node.ask_under(NODE_UNASSIGNED)
        held = (await self.read("control.node"))["number"]
        if held not in (number, NODE_UNASSIGNED) and await self.peers():
            raise self._refuse(f"it is node {held:#05x} and has peers: first remove them")
        await self.do(self.writing("control.node", number=number))
        await self.node.ask_under(number)
        await self.read("control.node")

    async def number(self) -> int:
        """The node's number.

        Raises
        ------
        ManageError
            If the node has none.
        """
        number = (await self.read("control.node"))["number"]
        if number == NODE_UNASSIGNED:
            raise self._refuse("it has no number yet: first give it one")
        return number

    async def set_boot(self, counter: int | None = None) -> None:
        """Give the node a boot counter, a random number by default, unless there is a counter since
        the last reset."""
        if not (await self.read("control.boot"))["counter"]:
            value = 1 + secrets.randbelow(0xFFFF) if counter is None else counter
            await self.do(self.writing("control.boot", counter=value))

    # Peers

    async def peers(self) -> list[Peer]:
        """The valid peers."""
        nodes = await self.read_all(*(f"control.peer[{n}].node" for n in range(self.peer_count)))
        valid = [n for n, node in enumerate(nodes) if node["valid"]]
        keys = [{"valid": 0} for _ in valid]
        if self.has_keys:
            keys = await self.read_all(*(f"control.peer[{n}].key" for n in valid))
        return [Peer(n, nodes[n]["number"], bool(nodes[n].get("clear", 1)), bool(key["valid"]))
                for n, key in zip(valid, keys, strict=True)]

    async def peer(self, node: int) -> Peer:
        """The peer of a node number.

        Raises
        ------
        ManageError
            If there is none.
        """
        for peer in await self.peers():
            if peer.node == node:
                return peer
        raise self._refuse(f"node {node:#05x} is none of its peers")

    async def add_peer(self, node: int, *, clear: bool = False) -> int:
        """Let sessions with a node open; returns the number of the peer.

        Parameters
        ----------
        node : int
        clear : bool
            Without a key: whoever reaches the fabric may take the place of the peer. A change ends
            the sessions with the peer.

        Raises
        ------
        ManageError
            If no peer is free, or if the proxy was built without keys and ``clear`` is not said.
        """
        if not 1 <= node < NODE_UNASSIGNED or node == await self.number():
            raise self._refuse(f"a peer is another node, 0x001 to 0xffe, not {node:#05x}")
        if not (clear or self.has_keys):
            raise self._refuse("it was built without keys: its peers must be in clear")
        held = {peer.index: peer for peer in await self.peers()}
        for index, peer in held.items():
            if peer.node == node:
                if peer.clear == clear:
                    return index
                await self.remove_peer(node)
                break
        else:
            free = sorted(set(range(self.peer_count)) - set(held))
            if not free:
                raise self._refuse(f"all {self.peer_count} peers are taken: first remove one")
            index = free[0]
        extra = {"clear": int(clear)} if self.has_keys else {}
        await self.do(self.writing(f"control.peer[{index}].node", number=node, valid=1, **extra))
        return index

    async def remove_peer(self, node: int) -> None:
        """End the sessions with a peer, and forget the peer."""
        peer = await self.peer(node)
        await self.do(
            *(self.writing(f"control.session[{self.session(peer.index, stream)}].mode",
                           opener=_code(Mode.REGISTERS)) for stream in range(self.streams)),
            self.writing(f"control.peer[{peer.index}].node"))

    async def give_key(self, node: int, key: bytes, *, following: bool = False) -> None:
        """Give a peer a key, and wait until the key is in force. Nobody can read keys.

        Open sessions stay open. ``following``: the key replaces the present key with the next
        session under the new key.

        Raises
        ------
        ManageError
            If the key has not 16 bytes, the proxy no keys, or the peer is in clear or does not
            exist.
        """
        if len(key) != 16:
            raise self._refuse(f"a key has 16 bytes, not {len(key)}")
        if not self.has_keys:
            raise self._refuse("it was built without keys")
        peer = await self.peer(node)
        if peer.clear:
            raise self._refuse(f"sessions with node {node:#05x} are in clear: add it without that "
                               "first")
        register = f"control.peer[{peer.index}].key"
        await self.do(
            *(self.writing(f"control.key[{n}].word",
                           bytes=int.from_bytes(key[4 * n:4 * n + 4], "little")) for n in range(4)),
            self.writing(register, next=int(following)))
        if not await self._until(register, valid=1, next=int(following)):
            raise self._refuse(f"the key of node {node:#05x} is not in force; give it again")

    async def _until(self, path: str, **fields: int) -> bool:
        """Whether the register gets the values within some seconds."""
        for _ in range(LOOKS):
            held = await self.read(path)
            if fields.items() <= held.items():
                return True
            await asyncio.sleep(PAUSE * self.node.manager.slower)
        return False

    # Sessions

    def session(self, peer: int, stream: int = 0) -> int:
        """Number of the session of a peer's stream."""
        if not 0 <= stream < self.streams:
            raise self._refuse(f"it has streams 0 to {self.streams - 1}, not {stream}")
        return peer * self.streams + stream

    async def let_open(self, node: int, *, stream: int = 0) -> None:
        """Let a session with a peer open: a host asks, a box answers. The proxy must have a boot
        counter."""
        session = self.session((await self.peer(node)).index, stream)
        mode = Mode.OPENS if self.is_host else Mode.ANSWERS
        await self.do(self.writing(f"control.session[{session}].mode", opener=_code(mode)))

    async def is_open(self, node: int, *, stream: int = 0) -> bool:
        """Whether a session with a node is open; not with a node that is no peer."""
        for peer in await self.peers():
            if peer.node == node:
                session = self.session(peer.index, stream)
                hello = await self.read(f"control.session[{session}].hello")
                return bool(hello["phase"] == _code(Phase.OPEN))
        return False

    async def wait_open(self, node: int, *, stream: int = 0) -> None:
        """Wait until a session is open, for some seconds; raises :exc:`ManageError`."""
        session = self.session((await self.peer(node)).index, stream)
        path = f"control.session[{session}].hello"
        if not await self._until(path, phase=_code(Phase.OPEN)):
            phase = Phase((await self.read(path))["phase"])
            raise self._refuse(f"the session with node {node:#05x} does not open: it is "
                               f"{phase.name.lower()}")

    # The mapping table

    async def bindings(self) -> list[Binding]:
        """All rows of the mapping table."""
        names = ("state", "binding", "operation_id")
        words = await self.read_all(*(f"table.row[{n}].{name}" for n in range(self.rows)
                                      for name in names))
        return [Binding(n, bool(state["used"]), state["node"], state["slot"], state["stream"],
                        binding["paths"], binding["generation"], operation["value"])
                for n, (state, binding, operation) in enumerate(
                    zip(words[::3], words[1::3], words[2::3], strict=True))]

    async def binding(self, row: int) -> Binding:
        """A row of the mapping table."""
        if not 0 <= row < self.rows:
            raise self._refuse(f"it has rows 0 to {self.rows - 1}, not {row}")
        return (await self.bindings())[row]

    async def bind(self, row: int, node: int, *, slot: int | None = None, stream: int = 0,
                   paths: int = 1, generation: int | None = None) -> Binding:
        """Bind a row of the mapping table to a peer.

        Parameters
        ----------
        row : int
            A host's downstream port, or a box's slot minus 1.
        node : int
            A host's peer is the box, a box's is the host.
        slot : int
            Slot of the box, from 1; a host must be told.
        paths : int
            Permitted paths: bit n is path n.
        generation : int
            Of the binding, the same at both ends; by default the row's, plus 1 for another binding.

        Raises
        ------
        Refused
            By the table; the message has the reason.
        """
        held = await self.binding(row)
        if slot is None:
            if self.is_host:
                raise self._refuse("which slot of the box?")
            slot = row + 1
        elif not self.is_host and slot != row + 1:
            raise self._refuse(f"row {row} is slot {row + 1}, not {slot}")
        kept = held.used and held.target == (node, slot, stream)
        if generation is None:
            generation = held.generation + (not kept) & 0xFFFF
        await self._commit(row, used=1, generation=generation, node=node, slot=slot, stream=stream,
                           paths=paths)
        return await self.binding(row)

    async def unbind(self, row: int) -> None:
        """Release a row at once, whatever goes on behind it; raises :exc:`Refused`."""
        held = await self.binding(row)
        await self._commit(row, used=0, generation=held.generation)

    async def _commit(self, row: int, *, used: int, generation: int, node: int = 0, slot: int = 0,
                      stream: int = 0, paths: int = 0) -> None:
        """A command to the table, as a single request; repeated while the last binding ends."""
        command = [
            self.writing("table.epoch", value=self.node.manager.epoch),
            self.writing("table.operation_id", value=1 + secrets.randbelow(0xFFFF_FFFF)),
            self.writing("table.target", node=node, slot=slot, stream=stream),
            self.writing("table.paths", mask=paths),
            self.writing("table.commit", generation=generation, row=row, used=used)]
        for _ in range(LOOKS):
            code = CommitCode((await self.do(*command, result="table.result"))["code"])
            if code is not CommitCode.DRAINING:
                break
            await asyncio.sleep(PAUSE * self.node.manager.slower)
        if code is not CommitCode.DONE:
            raise Refused(f"{self.name}: row {row}: {code.name}: {await self._reason(code, row)}")

    async def _reason(self, code: CommitCode, row: int) -> str:
        held = await self.binding(row)
        match code:
            case CommitCode.BAD_TARGET:
                return (f"a node is 0x001 to 0xffe, a slot from 1, a stream 0 to "
                        f"{self.streams - 1}, a path 0 to {self.paths - 1}")
            case CommitCode.STALE:
                return f"generation {held.generation} or a newer one is there"
            case CommitCode.IN_USE:
                return (f"it is bound to node {held.node:#05x}, slot {held.slot}, stream "
                        f"{held.stream}: first release it")
            case CommitCode.DRAINING:
                return "its last binding is still ending; give the command again"
        return "another manager has taken over, or the node was reset"
