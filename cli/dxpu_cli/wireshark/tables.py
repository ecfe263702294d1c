"""Tables of the dissector in Lua, made from the definitions that gateware and models have.

Frames come from :mod:`dxpu.fabric.wire`, management from :mod:`dxpu.management.format`, names of
TLPs from :mod:`dxpu.tlp.types`. Only words for people, and values of fields that no part of the
design looks into, stand here.
"""

from collections.abc import Iterable
from typing import Any

from dxpu.fabric.wire import format as fmt
from dxpu.fabric.wire.frame_types import Body, FrameType
from dxpu.management import format as management
from dxpu.tlp.types import (
    AddressType, CompletionStatus, Malformed, MessageCode, PrefixType, Routing,
)
from dxpu_model.management import Identity
from dxpu_model.text import message_name, tlp_name
from dxpu_model.tlp import KINDS, LTR, TC0_MESSAGES

__all__ = ["TLP_USER", "lua_tables"]

#: Captures of PCIe ports have link type USER0 (147) and this.
TLP_USER = 0

_WORDS = {
    "MRd": "Memory Read", "MRdLk": "Memory Read, locked", "MWr": "Memory Write",
    "IORd": "I/O Read", "IOWr": "I/O Write", "CfgRd0": "Configuration Read, type 0",
    "CfgWr0": "Configuration Write, type 0", "CfgRd1": "Configuration Read, type 1",
    "CfgWr1": "Configuration Write, type 1", "Msg": "Message", "MsgD": "Message with data",
    "Cpl": "Completion", "CplD": "Completion with data", "CplLk": "Completion, locked",
    "CplDLk": "Completion with data, locked", "FetchAdd": "Fetch and Add",
    "Swap": "Unconditional Swap", "CAS": "Compare and Swap",
}
#: Fields of DXF whose values have names.
_NAMED: dict[str, Any] = {
    "type": FrameType, "class": fmt.CreditClass, "code": fmt.EventCode,
    "reason": fmt.FenceReason, "role": fmt.Role, "arq mode": fmt.ArqMode,
    "security mode": fmt.SecurityMode, "kind": management.Kind,
}
#: Fields of DXF that are read more easily as hexadecimal numbers.
_HEX = {"EtherType", "session tag", "HCRC", "nonce", "tag offered", "tag echoed", "capabilities",
        "opener nonce", "answerer nonce", "serial", "links", "present", "build", "node nonce",
        "manager nonce", "destination node", "source node", "number"}
#: Beginnings of the names of a body's fields.
_PREFIXES = {Body.EVENT: "event.", Body.FENCE: "fence.", Body.SACK: "sack.", Body.HELLO: "hello.",
             Body.KEYED: "hello.", Body.DATA: "data."}


class _Raw(str):
    """Text that is Lua already."""


def _lua(value: Any) -> str:
    """The literal of a value in Lua."""
    if isinstance(value, _Raw):
        return str(value)
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        return f'"{escaped}"'
    if isinstance(value, dict):
        return "{" + ", ".join(
            (f"[{_lua(key)}]" if not isinstance(key, str) or not key.isidentifier()
             else key if key != "end" else '["end"]') + f" = {_lua(item)}"
            for key, item in value.items() if item is not None) + "}"
    return "{" + ", ".join(_lua(item) for item in value) + "}"


def _names(kinds: Iterable[Any]) -> dict[int, str]:
    return {int(kind.value): kind.name for kind in kinds}


def _row(name: str, offset: int, size: int, *, lsb: int | None = None,
         width: int | None = None, **more: Any) -> dict[str, Any]:
    kind = _NAMED.get(name)
    return {"name": name, "offset": offset, "size": size, "lsb": lsb, "width": width,
            "values": _names(kind) if kind else None, "is_hex": name in _HEX or None, **more}


def _rows(fields: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    classes, rows, offset = {kind.name: int(kind) for kind in fmt.CreditClass}, [], 0
    for name, size in fields:
        rows.append(_row(name, offset, size, **{"class": classes.get(name)}))
        offset += size
    return rows


def _wire_fields(fields: Iterable[fmt.Field]) -> list[dict[str, Any]]:
    return [_row(field.name, field.offset, field.size, lsb=field.lsb,
                 width=field.msb - field.lsb + 1) for field in fields]


def _bodies() -> dict[str, Any]:
    return {body.name: {"name": body.name, "ending": body.end.name, "sealed": body.sealed,
                        "size": body.size, "prefix": _PREFIXES.get(body, ""),
                        "fields": _rows(body.fields)} for body in Body}


def _kind(name: str) -> str:
    return tlp_name(*KINDS[name])


_TLP: dict[str, Any] = {
    "tlp_kinds": {fmt_code << 5 | type_code: _kind(name)
                  for name, (fmt_code, type_code) in KINDS.items() if not name.startswith("Msg")},
    "tlp_names": {
        **{fmt_code << 5 | type_code: f"{_kind(name)}: {_WORDS[_kind(name)]}"
           for name, (fmt_code, type_code) in KINDS.items()},
        **{fmt_code << 5 | 0b10000 | routing: f"{name}: {_WORDS[name]}"
           for name, fmt_code in (("Msg", 1), ("MsgD", 3)) for routing in range(8)}},
    "tlp_messages": {int(code): message_name(code) for code in MessageCode},
    "tlp_statuses": _names(CompletionStatus),
    "tlp_address_types": {0: "untranslated", 1: "translation request", 2: "translated",
                          3: "reserved"},
    "tlp_prefixes": {
        int(PrefixType.MR_IOV): "MR-IOV", int(PrefixType.VENDOR_LOCAL_0): "VendPrefixL0",
        int(PrefixType.VENDOR_LOCAL_1): "VendPrefixL1", int(PrefixType.TPH): "TPH",
        int(PrefixType.PASID): "PASID", int(PrefixType.VENDOR_END_END_0): "VendPrefixE0",
        int(PrefixType.VENDOR_END_END_1): "VendPrefixE1"},
    "tlp_routings": {
        int(Routing.TO_ROOT.value): "to the root complex", int(Routing.ADDRESS.value): "by address",
        int(Routing.ID.value): "by ID", int(Routing.BROADCAST.value): "broadcast from the root",
        int(Routing.LOCAL.value): "local, ends at the receiver",
        int(Routing.GATHER.value): "gathered, to the root complex", 6: "reserved, ends at the "
        "receiver", 7: "reserved, ends at the receiver"},
    # 2.2.7.1.1, table of the PH field.
    "tlp_hints": {0: "bidirectional", 1: "requester", 2: "target", 3: "target with priority"},
    # Vendor-defined messages of the PCI-SIG: 2.2.8.6.1 and after.
    "tlp_subtypes": {0: "LN", 1: "Hierarchy ID", 8: "Device Readiness Status",
                     9: "Function Readiness Status"},
    # 6.18: the latency of an LTR message.
    "tlp_latency_scales": {0: "x 1 ns", 1: "x 32 ns", 2: "x 1024 ns", 3: "x 32768 ns",
                           4: "x 1048576 ns", 5: "x 33554432 ns", 6: "reserved", 7: "reserved"},
    # 2.2.8.9.
    "tlp_obff": {0x0: "Idle", 0x1: "OBFF", 0xF: "CPU Active"},
    # 10.4.2.1, response codes of a PRG Response.
    "tlp_page_answers": {0: "success", 1: "invalid request", 15: "response failure"},
    # 7.5.3.9, scale of the slot power limit.
    "tlp_power_scales": {0: "x 1 W", 1: "x 0.1 W", 2: "x 0.01 W", 3: "x 0.001 W"},
    "tc0_messages": {int(code): True for code in (*sorted(TC0_MESSAGES), LTR)},
}
assert set(_TLP["tlp_address_types"]) >= set(_names(AddressType))

#: What a receiver says of a malformed TLP, by the names of :class:`dxpu.tlp.types.Malformed`.
_MALFORMED = {
    Malformed.TRUNCATED: "TLP ends within prefixes or header",
    Malformed.PREFIX: "TLP has a local prefix, or more than four prefixes",
    Malformed.FORMAT: "Fmt or Type is reserved",
    Malformed.FIXED: "I/O or configuration request has Length other than 1, or TC, Attr or AT "
                     "other than 0",
    Malformed.ATOMIC: "AtomicOp has too much data",
    Malformed.BYTE_ENABLE: "Byte enables are not allowed",
    Malformed.BOUNDARY: "Request crosses a multiple of 4 KiB",
    Malformed.TRAFFIC_CLASS: "Message must have traffic class 0",
    Malformed.LENGTH: "Size is not what Fmt, Length and TD say",
}
_DROPPED = {
    fmt.DropCause.FCS: "FCS is wrong",
    fmt.DropCause.RUNT: "Frame is shorter than 60 bytes",
    fmt.DropCause.VERSION: "Version is not 1",
    fmt.DropCause.HCRC: "CRC of the header is wrong",
    fmt.DropCause.TYPE: "Type of the frame is not defined",
    fmt.DropCause.FIELD: "Field of the header does not fit the type",
    fmt.DropCause.LENGTH: "Length is not that of the body",
    fmt.DropCause.PADDING: "Padding is not 0",
    fmt.DropCause.RECORD: "CRC of a record is wrong",
    fmt.DropCause.BODY: "CRC of the body is wrong, or a field in it",
}


def lua_tables() -> str:
    """The chunk of Lua that returns all tables."""
    identity = [("MAC address", 6), *((name, size) for name, size in Identity._SIZES)]
    head = [("kind", 1), ("manager", 1), ("length", 2), ("counter", 4),
            ("node nonce", management.NONCE_BYTES), ("manager nonce", management.NONCE_BYTES)]
    tables = {
        "ethertype": fmt.ETHERTYPE, "version": fmt.VERSION,
        "ethernet_bytes": fmt.ETHERNET_BYTES, "min_frame_bytes": fmt.MIN_FRAME_BYTES,
        "header_bytes": fmt.HEADER_BYTES, "credit_bytes": fmt.CREDIT_BYTES,
        "hcrc_start": fmt.HCRC_START, "hcrc_offset": fmt.HCRC_OFFSET,
        "record_crc_bytes": fmt.RECORD_CRC_BYTES, "record_align": fmt.RECORD_ALIGN,
        "body_crc_bytes": fmt.BODY_CRC_BYTES, "data_bytes_max": fmt.DATA_BYTES_MAX,
        "sack_word_bytes": fmt.SACK_WORD_BYTES, "tlp_user": TLP_USER,
        "header_fields": _wire_fields(fmt.HEADER_FIELDS),
        "credit_fields": _wire_fields(fmt.CREDIT_FIELDS),
        "frame_types": {int(kind): {"name": kind.name, "body": kind.body.name,
                                    "numbering": kind.numbering.name} for kind in FrameType},
        "bodies": _bodies(),
        "event_codes": _names(fmt.EventCode), "error_codes": _names(fmt.ErrorCode),
        "fence_reasons": _names(fmt.FenceReason),
        "capabilities": [{"name": bit.name, "value": int(bit)} for bit in fmt.Capability],
        "drop_causes": [{"name": cause.name, "text": text} for cause, text in _DROPPED.items()],
        "malformed": [{"name": cause.name, "text": text} for cause, text in _MALFORMED.items()],
        "management_head": _rows(head), "management_head_bytes": management.HEAD_BYTES,
        "management_identity": _rows(identity),
        "management_identity_bytes": management.IDENTITY_BYTES,
        "management_knock_bytes": management.KNOCK_BYTES,
        "management_tag_bytes": management.TAG_BYTES,
        "management_kinds": {int(kind): {"name": kind.name,
                                         "is_sealed": kind in management.SEALED}
                             for kind in management.Kind},
        **_TLP,
    }
    lines = [f"  {name} = {_lua(value)}," for name, value in tables.items()]
    return "return {\n" + "\n".join(lines) + "\n}\n"
