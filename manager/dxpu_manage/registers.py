"""Registers of a node by name."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Self

from dxpu.csr import Access
from dxpu.management.format import OPERATIONS_MAX, PLAIN_BYTES_MAX, WORDS_MAX
from dxpu_model.management import Operation

from .errors import ManageError
from .manager import Node
from .shape import SHAPE_WORDS, proxy_of

__all__ = ["Fields", "Registers", "read_words"]

#: Value of each field of a register.
Fields = dict[str, int]

#: Words that the answer to a request can hold.
_ANSWER_WORDS = PLAIN_BYTES_MAX // 4 - 2


@lru_cache(maxsize=64)
def _map_of(*words: int) -> Any:
    """The register map of a proxy with some words at :data:`~.shape.SHAPE_WORDS`."""
    return proxy_of(*words).registers


async def read_words(node: Node, addresses: Sequence[int]) -> list[int]:
    """Values of registers at byte addresses, by few requests."""
    words: list[int] = []
    batch: list[Operation] = []
    for address in addresses:
        count = sum(operation.count for operation in batch)
        last = batch[-1] if batch else None
        follows = (last is not None and last.address + 4 * last.count == address
                   and last.count < WORDS_MAX)
        if count == _ANSWER_WORDS or len(batch) == OPERATIONS_MAX and not follows:
            words += await node.request(*batch)
            batch, follows = [], False
        if follows and last is not None:
            batch[-1] = Operation(last.address, last.count + 1)
        else:
            batch.append(Operation(address))
    if batch:
        words += await node.request(*batch)
    return words


class Registers:
    """Registers of a node by the names of ``dxpu console``, such as ``control.peer[0].node``.

    Parameters
    ----------
    node : Node
    map : dxpu.csr.AddressMap
        Map of the node; :meth:`of` finds the map.
    """

    def __init__(self, node: Node, map: Any) -> None:
        self.node, self.map = node, map

    @classmethod
    async def of(cls, node: Node) -> Self:
        """The registers of a node; a single request finds out the kind.

        Raises
        ------
        ManageError
            Also if the node is no proxy.
        """
        words = await node.request(*(Operation(address) for address in SHAPE_WORDS))
        try:
            return cls(node, _map_of(*words))
        except ValueError as error:
            raise ManageError(f"node {node.name}: {error}") from None

    def find(self, path: str) -> tuple[int, Any]:
        """Byte address and :class:`dxpu.csr.Register` of a name; raises :exc:`ManageError`."""
        try:
            placed, base = self.map.find(path)
        except KeyError:
            raise ManageError(f"node {self.node.name} has no register {path!r}") from None
        return base + placed.address, placed.register

    def writing(self, path: str, /, **fields: int) -> Operation:
        """An operation to write a register: the named fields, all others 0.

        Raises
        ------
        ManageError
            For a wrong name of a field, or a value out of range.
        """
        address, register = self.find(path)
        try:
            return Operation.write(address, register.pack(**fields))
        except ValueError as error:
            raise ManageError(f"node {self.node.name}: {error}") from None

    async def do(self, *writes: Operation, result: str | None = None) -> Fields:
        """Do writes in order, by a single request, so no other manager writes in between; then read
        the register ``result``.

        The writes must be absolute: twice is as good as once. So the request is made again if
        there is no answer.
        """
        if result is None:
            await self.node.request(*writes, repeat=True)
            return {}
        address, register = self.find(result)
        word, = await self.node.request(*writes, Operation(address), repeat=True)
        unpacked: Fields = register.unpack(word)
        return unpacked

    async def read(self, path: str) -> Fields:
        """Fields of a register."""
        return (await self.read_all(path))[0]

    async def read_all(self, *paths: str) -> list[Fields]:
        """Fields of several registers, by few requests."""
        found = [self.find(path) for path in paths]
        words = await read_words(self.node, [address for address, _ in found])
        return [register.unpack(word) for (_, register), word in zip(found, words, strict=True)]

    async def write(self, path: str, /, **fields: int) -> None:
        """Write a register once: the named fields, all others 0.

        Raises
        ------
        NoAnswer
            The write may have been done.
        """
        await self.node.request(self.writing(path, **fields))

    async def change(self, path: str, /, **fields: int) -> None:
        """Set fields of a register; other fields keep the old values, pulses are 0."""
        _, register = self.find(path)
        held = await self.read(path)
        kept = {field.name: held[field.name] for field in register.fields
                if field.access in (Access.RW, Access.MEM_HW)}
        await self.do(self.writing(path, **{**kept, **fields}))

    async def counters(self) -> dict[str, int]:
        """All counters, name to total."""
        names = [placed.path for placed in self.map.blocks["counters"][1].placed]
        totals = await self.read_all(*(f"counters.{name}" for name in names))
        return {name: total["count"] for name, total in zip(names, totals, strict=True)}
