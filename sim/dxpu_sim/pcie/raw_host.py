"""Memory requests at a host, on golden TLPs: generates legal completions, and checks completions.

Ref: PCIe Base 5.0, 2.2.5 (byte enables), 2.3.1.1 (data return)
"""

import random
from collections.abc import Callable, Iterator, Sequence

from dxpu.tlp.types import CompletionStatus
from dxpu_model.tlp import Tlp, byte_count, complete

__all__ = ["answer", "check_answer", "enabled"]


def enabled(tlp: Tlp) -> list[bool]:
    """Whether each byte of a memory request is enabled."""
    first, last = ([bool(be >> n & 1) for n in range(4)] for be in (tlp.first_be, tlp.last_be))
    return first + ([True] * 4 * (tlp.length - 2) + last if tlp.length > 1 else [])


def answer(read: Tlp, held: Callable[[int, int], bytes], rng: random.Random, *,
           completer_id: int, max_payload: int, boundary: int = 64) -> Iterator[Tlp]:
    """Completions of a read of at least a byte, cut at random multiples of ``boundary`` bytes.

    ``held(address, length)`` returns the bytes of memory.
    """
    left = byte_count(read.first_be, read.last_be, read.length)
    here = read.address + enabled(read).index(True)
    while left:
        end = here + left
        cuts = [cut for cut in range((here // boundary + 1) * boundary, end, boundary)
                if cut - (here & ~3) <= max_payload]
        if cuts and (end - (here & ~3) > max_payload or rng.random() < 0.5):
            end = rng.choice(cuts)
        start = here & ~3
        tlp = complete(read, CompletionStatus.SC, completer_id, held(start, (end + 3 & ~3) - start))
        tlp.byte_count, tlp.lower_address = left, here & 0x7f
        yield tlp
        left -= end - here
        here = end


def check_answer(read: Tlp, pieces: Sequence[Tlp], data: bytes, *, max_payload: int) -> None:
    """Assert that ``pieces`` are legal completions of a read whose dwords are ``data``."""
    count = byte_count(read.first_be, read.last_be, read.length)
    skipped = next((n for n, on in enumerate(enabled(read)) if on), 0)
    here = read.address + skipped
    for piece in pieces:
        assert (piece.kind, piece.status) == ("CplD", 0), piece
        assert (piece.byte_count, piece.lower_address) == (count, here % 128), (read, piece)
        assert (piece.tag, piece.requester_id, piece.tc, piece.attr) == (
            read.tag, read.requester_id, read.tc, read.attr)
        start = (here & ~3) - read.address
        assert piece.payload == data[start:start + len(piece.payload)], (read, piece)
        assert len(piece.payload) <= max_payload
        moved = (here & ~3) + len(piece.payload) - here
        assert moved >= count or (here + moved) % 128 == 0, (read, piece)
        count, here = count - moved, here + moved
    assert -4 < count <= 0, (read, count)
