"""GPUs of a box between two hosts.

Ref: docs/explanation/security.md, "The memory of a GPU"
"""

from .errors import ManageError
from .proxy import Proxy

__all__ = ["dirty_slots", "let_maintain", "mark_wiped"]


def _must_be_box(box: Proxy) -> None:
    if box.is_host:
        raise ManageError(f"{box.name}: a box has GPUs, a host has none")


async def dirty_slots(box: Proxy) -> list[int]:
    """Slots, from 1, whose GPU may keep something of a former binding. GPUs that forget all in a
    reset are never dirty."""
    _must_be_box(box)
    bits = (await box.read("control.dirty"))["slots"]
    return [n + 1 for n in range(box.rows) if bits >> n & 1]


async def let_maintain(box: Proxy, node: int | None) -> None:
    """Let bindings of a node use dirty GPUs, to wipe these; ``None``: of no node. A binding that
    is open keeps what it had when it opened.

    Raises
    ------
    ManageError
        For a proxy that is no box, or an impossible node.
    """
    _must_be_box(box)
    if node is not None and not 1 <= node < 0xFFF:
        raise ManageError(f"{box.name}: a maintainer is a node, 0x001 to 0xffe, not {node:#05x}")
    held = await box.read("control.scrub")
    await box.do(box.writing("control.scrub", hold=held["hold"], maintainer=node or 0))


async def mark_wiped(box: Proxy, slot: int) -> None:
    """Say that the GPU in a slot, from 1, keeps nothing: the next binding may open the slot.

    Raises
    ------
    ManageError
        For a proxy that is no box, a slot that is not there, or a GPU that is in use by somebody
        other than the maintainer and so is dirty at once.
    """
    _must_be_box(box)
    if not 1 <= slot <= box.rows:
        raise ManageError(f"{box.name}: it has slots 1 to {box.rows}, not {slot}")
    await box.do(box.writing("control.dirty", slots=1 << slot - 1))
    if slot in await dirty_slots(box):
        raise ManageError(f"{box.name}: the GPU in slot {slot} is in use, so it stays dirty; first "
                          "release its binding, or let its host maintain it")
