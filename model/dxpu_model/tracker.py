"""Golden completion tracker, as a list: the reference for the gateware.

Written from the PCI Express Base Specification 5.0: the match of a completion and its request
(2.2.9: requester ID and tag), the completions of a request (2.3.1.1), and the fields of a
completion made in place of the completer (2.2.9). Other errors of a completion are for the
requester to judge (2.3.2), not for a switch on the way. The model keeps whole byte addresses and
packs nothing. Only the names of the causes come from :mod:`dxpu.switch.tracking.types`.
"""

from dataclasses import dataclass
from typing import Any

from dxpu.switch.tracking.types import DropCause
from dxpu.tlp.types import CompletionStatus

from .tlp import Tlp, complete

__all__ = ["Open", "Tracker", "key_of", "split"]

#: A member of an enumeration; mypy takes such members for integers.
Code = Any
SC: Code = CompletionStatus.SC
UR: Code = CompletionStatus.UR
CA: Code = CompletionStatus.CA
#: Slot, requester ID, tag.
Key = tuple[int, int, int]


@dataclass
class Open:
    """A request without final completion."""

    slot: int
    generation: int
    dead: bool
    request: Tlp
    since: int
    address: int   #: byte address of the next byte expected
    left: int      #: bytes still expected, counted like Byte Count
    splits: bool   #: the answer may consist of several completions
    data: bool     #: successful completions carry data

    @property
    def dwords(self) -> int:
        """Dwords needed for the bytes left."""
        return (self.address + self.left - 1) // 4 - self.address // 4 + 1 if self.data else 0


def key_of(slot: int, tlp: Tlp) -> Key:
    """Key that a request and its completions share."""
    return slot, tlp.requester_id, tlp.tag


class Tracker:
    """All open requests.

    Parameters
    ----------
    status
        Status of the completions made for fenced slots.
    bus
        Bus number of the downstream ports, the completers of such completions: device n is the port
        of slot n.
    """

    def __init__(self, *, status: Code = UR, bus: int = 0) -> None:
        self.open: dict[Key, Open] = {}
        self.irregular = 0              # irregular completions that passed
        self.status = status
        self.aborted: set[int] = set()  # slots whose answers say Completer Abort
        self.bus = bus

    def request(self, slot: int, generation: int, dead: bool, tlp: Tlp, now: int = 0) -> bool:
        """A request leaves for a slot; returns False if an older request has the same key.

        ``dead``: the request belongs to a former life of the slot.
        """
        key = key_of(slot, tlp)
        if key in self.open:
            return False
        first = complete(tlp, UR, 0)  # raises for TLPs without a completion
        splits = tlp.kind.startswith("MRd")
        # Only the low address bits are visible, in Lower Address.
        self.open[key] = Open(slot, generation, dead, tlp, now, first.lower_address,
                              first.byte_count, splits, "Wr" not in tlp.kind)
        return True

    def completion(self, slot: int, generation: int, tlp: Tlp, *, fenced: bool = False) -> Code:
        """Drop cause of a completion from a slot, or ``DropCause.NONE``."""
        if fenced:
            return DropCause.FENCED
        entry = self.open.get(key_of(slot, tlp))
        if entry is None or entry.dead:
            return DropCause.UNEXPECTED
        if entry.generation != generation:
            return DropCause.STALE
        self.irregular += not self.regular(entry, tlp)
        if self.ends(entry, tlp):
            del self.open[key_of(slot, tlp)]
        else:
            came = len(tlp.payload) - entry.address % 4
            entry.address += came
            entry.left -= came
        return DropCause.NONE

    @staticmethod
    def regular(entry: Open, tlp: Tlp) -> bool:
        """Whether a completion is the next completion that its request must get (2.2.9,
        2.3.1.1)."""
        if tlp.status != SC.value:
            return not tlp.payload
        if not entry.splits:
            return len(tlp.payload) == 4 * entry.dwords
        # A bridge to PCI-X sets BCM if Byte Count covers this completion only (2.2.9).
        return (0 < len(tlp.payload) <= 4 * entry.dwords
                and (bool(tlp.bcm) or tlp.byte_count == entry.left)
                and tlp.lower_address == entry.address % 128)

    @staticmethod
    def ends(entry: Open, tlp: Tlp) -> bool:
        """Whether a completion is the last of its request.

        Unsuccessful completions and completions without data are last, and so is any completion of
        a request other than a memory read. A completion with data of a memory read is last if Byte
        Count leaves nothing behind its data, or if all requested bytes have come.
        """
        if tlp.status != SC.value or not tlp.payload or not entry.splits:
            return True
        came = len(tlp.payload) - entry.address % 4
        return came >= entry.left or not tlp.bcm and tlp.byte_count <= came

    def answer(self, key: Key) -> Tlp:
        """The completion made in place of the completer for an open request; ends the request."""
        entry = self.open.pop(key)
        status = CA if entry.slot in self.aborted else self.status
        tlp = complete(entry.request, status, self.bus << 8 | entry.slot << 3)
        if entry.splits:
            tlp.byte_count, tlp.lower_address = entry.left, entry.address % 128
        return tlp

    def overdue(self, now: int, deadline: int) -> list[Key]:
        """Requests open for longer than the deadline."""
        return [key for key, entry in self.open.items() if now - entry.since > deadline]


def split(request: Tlp, completer_id: int, sizes: list[int], boundary: int = 64) -> list[Tlp]:
    """Successful completions of a memory read, cut at multiples of the read completion boundary.

    ``sizes`` gives the number of boundaries that each part crosses, in turn (2.3.1.1); after the
    last entry the rest comes whole.
    """
    whole = complete(request, SC, completer_id)
    address, left = request.address & ~127 | whole.lower_address, whole.byte_count
    parts = []
    while left:
        end = address + left
        if sizes:
            end = min(end, (address // boundary + sizes[0]) * boundary)
            sizes = sizes[1:]
        dwords = (end - 1) // 4 - address // 4 + 1
        data = bytes((address // 4 + n) & 0xFF for n in range(4 * dwords))
        part = complete(request, SC, completer_id, data)
        part.byte_count, part.lower_address = left, address % 128
        parts.append(part)
        left -= end - address
        address = end
    return parts
