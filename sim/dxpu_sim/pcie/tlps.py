"""TLPs as bytes and as objects of cocotbext-pcie, and what a request asks for.

Pack and unpack of the library do not know messages; :func:`pack` and :func:`unpack` do. This module
needs no design and no simulator.
"""

from cocotbext.pcie.core.tlp import Tlp, TlpType
from cocotbext.pcie.core.utils import PcieId

from .tlp_types import quicken

__all__ = ["CompletionTimeout", "completion_length", "describe", "enabled_bytes", "is_message",
           "pack", "request_bytes", "unpack"]

quicken()


class CompletionTimeout(Exception):
    """A request was not completed in time; the message names the request."""


def is_message(tlp: Tlp) -> bool:
    """Whether ``tlp`` is a message request."""
    return tlp.type & 0x18 == 0x10


def pack(tlp: Tlp) -> bytes:
    """Bytes of ``tlp`` in wire order, also for messages.

    A message has its code in place of the byte enables of other requests, and eight free bytes in
    place of a 64-bit address. Here ``last_be``, ``first_be`` hold the code and ``address``, ``ph``
    the free bytes.
    """
    if not is_message(tlp):
        return bytes(tlp.pack())
    shadow = Tlp(tlp)
    shadow.fmt_type = TlpType.MEM_WRITE_64 if tlp.has_data() else TlpType.MEM_READ_64
    raw = shadow.pack()
    raw[0] = tlp.fmt << 5 | tlp.type
    return bytes(raw)


def unpack(raw: bytes) -> Tlp:
    """The library's TLP for ``raw``; the inverse of :func:`pack`."""
    if raw[0] & 0x18 != 0x10:
        return Tlp.unpack(bytearray(raw))
    shadow = Tlp.unpack(bytearray([raw[0] & 0x60, *raw[1:]]))
    shadow.fmt, shadow.type = raw[0] >> 5, raw[0] & 0x1f
    if not shadow.has_data():
        shadow.length = int.from_bytes(raw[2:4], "big") & 0x3ff
    if shadow.type == 0x12:
        shadow.completer_id = PcieId.from_int(shadow.address >> 48)
    return shadow


def describe(tlp: Tlp) -> str:
    """Description of ``tlp`` in one short line."""
    what = tlp.fmt_type.name.lower().replace("_", " ")
    if tlp.is_completion():
        return (f"{what} {tlp.status.name} to {tlp.requester_id} tag {tlp.tag} from "
                f"{tlp.completer_id}, {tlp.byte_count} bytes left")
    if tlp.type in {0x04, 0x05}:
        where = f"{tlp.completer_id} register {tlp.address:#05x}"
    elif is_message(tlp):
        where = f"code {tlp.last_be << 4 | tlp.first_be:#04x}"
    else:
        where = f"{tlp.address:#x}, {tlp.length} DW"
    return f"{what} {where} by {tlp.requester_id} tag {tlp.tag}"


def completion_length(tlp: Tlp) -> int:
    """Bytes of the request's data in completion ``tlp``."""
    return min(tlp.byte_count, tlp.length * 4 - (tlp.lower_address & 3)) if tlp.has_data() else 0


def request_bytes(tlp: Tlp) -> tuple[int, int]:
    """Byte count and lower address of the completion of memory read ``tlp`` (2.3.1.1)."""
    if tlp.length == 1 and tlp.first_be == 0:
        return 1, tlp.address & 0x7c
    first = (tlp.first_be & -tlp.first_be).bit_length() - 1
    last = (tlp.last_be if tlp.length > 1 else tlp.first_be).bit_length()
    return (tlp.length - 1) * 4 + last - first, (tlp.address & 0x7c) + first


def enabled_bytes(tlp: Tlp) -> list[tuple[int, bytes]]:
    """Runs of enabled bytes of memory write ``tlp``: address and data of each."""
    enables = ([bool(tlp.first_be >> n & 1) for n in range(4)] + [True] * (tlp.length - 2) * 4
               + [bool(tlp.last_be >> n & 1) for n in range(4)] * (tlp.length > 1))
    runs, start = [], None
    for n, enabled in enumerate([*enables, False]):
        if enabled and start is None:
            start = n
        elif not enabled and start is not None:
            runs.append((tlp.address + start, bytes(tlp.data[start:n])))
            start = None
    return runs
