"""TLPs and frames in one line each, as waves, traces and the dissector write them.

``MRd 4 B @0xf000_0060 tag 3``; ``TLP seq 12 ack 7 x3``. Names are those of PCIe Base 5.0, 2.2.1 and
2.2.8, and of the wire format.
"""

from dxpu.fabric.wire.frame_types import Numbering
from dxpu.tlp.types import Malformed, MessageCode, TlpClass

from .tlp import COMPLETION, CONFIG, KINDS, Info, byte_count, classify, malformed
from .wire import Frame

__all__ = ["frame_text", "id_text", "message_name", "tlp_name", "tlp_text"]

_NAMES: dict[tuple[int, int], str] = {
    pair: name.removesuffix("32").removesuffix("64")
    for name, pair in KINDS.items()}
_STATUSES = {0: "SC", 1: "UR", 2: "CRS", 4: "CA"}


def tlp_name(fmt: int, type: int) -> str:
    """Name of Fmt and Type, such as ``MRd``; raises :exc:`KeyError` if they are reserved."""
    return ("MsgD" if fmt == 3 else "Msg") if type >> 3 == 0b10 else _NAMES[fmt, type]


def message_name(code: int) -> str:
    """Name of a message in the specification: ``Assert_INTA``, ``PM_PME``, ``ERR_COR``."""
    if code not in list(MessageCode):
        return f"code {code:02x}h"
    name: str = MessageCode(code).name
    if name.startswith(("PM_", "ERR_", "LTR", "OBFF")) and "NAK" not in name:
        return name
    return "_".join(word if word in ("PM", "PME", "TO", "INTA", "INTB", "INTC", "INTD", "PTM")
                    else word.capitalize() for word in name.split("_"))


def id_text(value: int) -> str:
    """An ID as ``bus:device.function``."""
    return f"{value >> 8:02x}:{value >> 3 & 31:02x}.{value & 7}"


def _grouped(address: int) -> str:
    digits = f"{address:08x}"
    head = len(digits) % 4
    return "_".join(([digits[:head]] if head else [])
                    + [digits[n:n + 4] for n in range(head, len(digits), 4)])


def _completed(info: Info) -> int:
    """Bytes of the request's data in a completion (2.3.1.1)."""
    assert info.byte_count is not None and info.lower_address is not None
    return min(info.byte_count or 4096, 4 * info.payload_dwords - info.lower_address % 4)


def _bytes(info: Info) -> int:
    """Bytes that a request is for, by its enables; without enables, its data."""
    if info.first_be is None or info.last_be is None:
        return 4 * info.payload_dwords
    length = info.length or 1024
    if not info.first_be and (length == 1 or length == 2 and not info.last_be):
        return 0
    return byte_count(info.first_be, info.last_be, length)


def tlp_text(raw: bytes) -> str:
    """A TLP in one line, any bytes: what cannot be read is ``malformed TLP (cause)``, what breaks
    another rule ends in ``malformed (cause)``. The rules are those of a switch's port, without
    Max_Payload_Size."""
    cause = malformed(raw)
    if cause in (Malformed.TRUNCATED, Malformed.PREFIX, Malformed.FORMAT):
        return f"malformed TLP ({cause.name})"
    info = classify(raw)
    words = [tlp_name(info.fmt, info.type)]
    if info.message_code is not None:
        words.append(message_name(info.message_code))
        if info.payload_dwords:
            words.append(f"{4 * info.payload_dwords} B")
    elif info.type in COMPLETION:
        assert info.status is not None
        words.append(_STATUSES.get(info.status, f"reserved status {info.status}"))
        if info.payload_dwords:
            words.append(f"{_completed(info)} B")
            if _completed(info) < (info.byte_count or 4096):
                words.append(f"of {info.byte_count or 4096}")
    elif info.type in CONFIG:
        assert info.target_id is not None and info.register is not None
        words.append(f"{id_text(info.target_id)} +{4 * info.register:03x}")
    else:
        assert info.address is not None
        words.append(f"{_bytes(info)} B @0x{_grouped(info.address)}")
    if info.cls is not TlpClass.P:
        words.append(f"tag {info.tag}")
    if info.ep:
        words.append("poisoned")
    if cause != Malformed.NONE:
        words.append(f"malformed ({cause.name})")
    return " ".join(words)


def frame_text(frame: Frame) -> str:
    """Type, numbers and count of TLPs of a frame."""
    words = [frame.type.name]
    if frame.type.numbering != Numbering.NONE:
        words.append(f"seq {frame.seq} ack {frame.ack}")
        if frame.count > 1:
            words.append(f"x{frame.count}")
    return " ".join(words)
