"""Rows of a :class:`~dxpu_sim.system.design.System` in a wave viewer: the way of one read."""

from collections.abc import Iterator, Sequence

from dxpu.fabric.wire.format import CreditClass, EventCode
from dxpu.fabric.wire.frame_types import FrameType
from dxpu.tlp.types import CompletionStatus, Fmt, Type

from .gtkwave import Group, Row

__all__ = ["NAMES", "WAY", "system_groups"]

#: Enums for values that are plain numbers in the Verilog.
NAMES = {
    r".*\.(header(__payload)?|note)\.type": FrameType,
    r".*\.credit\.cls": CreditClass,
    r".*(event|control)__payload\.code": EventCode,
    r".*(\.meta|_info__payload)\.(info\.)?fmt": Fmt,
    r".*(\.meta|_info__payload)\.(info\.)?type": Type,
    r".*(\.meta|_info__payload)\.(info\.)?status": CompletionStatus,
}

#: A read by the host of the GPU in slot 1 of box 0, and its completion: for each step of the way a
#: signal that is high at that step. The host's frames leave by path 0 while that path works.
WAY = (
    Row(r"host\.upstream__rx__valid", "host: TLP from PCIe"),
    Row(r"host\.core\.switch\.upstream_info__valid", "host: parsed"),
    Row(r"host\.core\.switch\.lookup0__valid", "host: address for the mapping table"),
    Row(r"host\.core\.switch\.result0__valid", "host: port from the mapping table"),
    Row(r"host\.core\.switch\.downstream_o__valid", "host: routed to the port"),
    Row(r"host\.core\.tracking\.down_o__valid", "host: request tracked"),
    Row(r"host\.core\.engine\.link\.route__valid", "host: link gave sequence and path"),
    Row(r"host\.core\.engine\.frame_o__0__valid", "host: frame packed"),
    Row(r"host\.gmii__0__tx__tx_en", "host: GMII out"),
    Row(r"box0\.gmii__0__rx__rx_dv", "box0: GMII in"),
    Row(r"box0\.core\.engine\.frame_i__0__valid", "box0: frame from the MAC"),
    Row(r"box0\.core\.engine\.link\.committed__valid", "box0: frame accepted by the link"),
    Row(r"box0\.core\.engine\.tlp_o__valid", "box0: TLP unpacked"),
    Row(r"box0\.core\.alive\.o__valid", "box0: parsed, slot alive"),
    Row(r"box0\.slot__0__tx_np__valid", "box0: request to the GPU"),
    Row(r"box0\.slot__0__rx__valid", "box0: TLP from the GPU"),
    Row(r"box0\.core\.from_slots\.o__valid", "box0: its TLP parsed"),
    Row(r"box0\.core\.engine\.link\.route__valid", "box0: link gave sequence and path"),
    Row(r"box0\.core\.engine\.frame_o__0__valid", "box0: frame packed"),
    Row(r"box0\.gmii__0__tx__tx_en", "box0: GMII out"),
    Row(r"host\.gmii__0__rx__rx_dv", "host: GMII in"),
    Row(r"host\.core\.engine\.frame_i__0__valid", "host: frame from the MAC"),
    Row(r"host\.core\.engine\.link\.committed__valid", "host: frame accepted by the link"),
    Row(r"host\.core\.engine\.tlp_o__valid", "host: TLP unpacked"),
    Row(r"host\.core\.tracking\.up_i__valid", "host: its TLP parsed"),
    Row(r"host\.core\.tracking\.up_info__valid", "host: request found"),
    Row(r"host\.upstream__tx_cpl__valid", "host: completion to PCIe"),
)

#: Fields of a packet's beats.
_PACKET = ("first", "last", "dwords", "data")
#: Fields of a parsed TLP.
_TLP = ("cls", "fmt", "type", "length", "address", "target_id", "requester_id", "tag", "first_be",
        "last_be", "status", "byte_count", "lower_address")
#: Fields of a frame's header.
_HEADER = ("type", "count", "src_node", "src_slot", "dst_node", "dst_slot", "path", "stream", "tag",
           "seq", "ack", "crx")
#: Fields of a credit extension.
_CREDIT = (r"credit\.cls", r"credit\.header_limit", r"credit\.data_limit")


def _stream(path: str, *fields: str) -> Iterator[Row]:
    """Handshake and ``fields`` of the payload of a stream."""
    yield Row(rf"{path}__valid")
    yield Row(rf"{path}__ready")
    for name in fields:
        yield Row(rf"{path}__payload\.{name}")


def _fields(prefix: str, fields: Sequence[str]) -> list[str]:
    return [rf"{prefix}\.{name}" for name in fields]


def _engine(proxy: str) -> list[Group]:
    """Blocks between TLP and Ethernet, common to both kinds of proxies."""
    e = rf"{proxy}\.core\.engine"
    return [
        Group(f"{proxy}: TLPs to be sent, and their credits", (
            *_stream(rf"{e}\.tlp_i", *_PACKET, r"meta\.row", r"meta\.life"),
            *_stream(rf"{e}\.tx_queues\.i", *_PACKET, *_fields("meta", ("row", "cls", "units"))),
            Row(rf"{e}\.tx_queues\.ok"), Row(rf"{e}\.tx_queues\.consumed"),
            *_stream(rf"{e}\.tx_queues\.o", *_PACKET, *_fields("meta", ("row", "cls", "units"))),
            Row(rf"{e}\.waiting"), Row(rf"{e}\.np_waits"),
        ), closed=True),
        Group(f"{proxy}: packetizer", (
            *_stream(rf"{e}\.tx\.preamble", "first", "last", "data",
                     *_fields(r"info\.note", ("type", "count", "seq")),
                     *_fields("info", ("path", "session", "resend"))),
            Row(rf"{e}\.tx\.plan_valid"), Row(rf"{e}\.tx\.plan_take"),
            Row(rf"{e}\.tx\.(assembler|scheduler|header)\.\w+_state"),
        ), closed=True),
        Group(f"{proxy}: link, sending", (
            *_stream(rf"{e}\.link\.request", "row", "session", "consumes", "again"),
            *_stream(rf"{e}\.link\.route", "ok", "session", "dst_node", "dst_slot", "path", "tag",
                     "seq", "ack", "crx", *_CREDIT),
            Row(rf"{e}\.link\.unacked"),
            Row(rf"{e}\.link\.routes\.\w+_state"), Row(rf"{e}\.retry\.\w+_state"),
        ), closed=True),
        Group(f"{proxy}: Ethernet out", (
            *(row for path in range(2) for row in (
                *_stream(rf"{e}\.frame_o__{path}", *_PACKET),
                Row(rf"{proxy}\.gmii__{path}__tx__\w+"))),
            Row(rf"{proxy}\.mac\d\.transmitter\.\w+_state"),
        ), closed=True),
        Group(f"{proxy}: Ethernet in", (
            *(row for path in range(2) for row in (
                Row(rf"{proxy}\.gmii__{path}__rx__\w+"),
                *_stream(rf"{e}\.frame_i__{path}", *_PACKET, "discard"))),
            Row(rf"{proxy}\.mac\d\.receiver\.\w+_state"),
        ), closed=True),
        Group(f"{proxy}: depacketizer and link, receiving", (
            Row(rf"{e}\.rx\.(walker|judge)\.\w+_state"),
            *_stream(rf"{e}\.link\.header", *_HEADER, *_CREDIT),
            *_stream(rf"{e}\.link\.verdict", "accept", "hold", "row"),
            Row(rf"{e}\.link\.arrivals\.\w+_state"),
            *_stream(rf"{e}\.link\.committed", "row", *_fields("header", ("type", "seq", "ack"))),
            *_stream(rf"{e}\.tlp_o", *_PACKET, r"meta\.row", r"meta\.life"),
        ), closed=True),
    ]


def _host() -> list[Group]:
    down = Group("host: from PCIe, parser", (
        *_stream(r"host\.upstream__rx", *_PACKET),
        *_stream(r"host\.core\.switch\.upstream_info", *_TLP),
        *_stream(r"host\.core\.switch\.upstream_beats", *_PACKET),
        Row(r"host\.core\.ingress\.stat_malformed"), Row(r"host\.core\.ingress\.malformed_cause"),
    ), closed=True)
    table = Group("host: mapping table", (
        *(row for n in range(2) for row in (
            *_stream(rf"host\.core\.switch\.lookup{n}", "kind", "address", "bus"),
            *_stream(rf"host\.core\.switch\.result{n}", "hit", "port"))),
    ), closed=True)
    switch = Group("host: switch and requests, down", (
        Row(r"host\.core\.switch\.verdict__valid"),
        Row(r"host\.core\.switch\.verdict__payload\.target"),
        *_stream(r"host\.core\.switch\.downstream_o", *_PACKET, *_fields("meta", ("port", "cls")),
                 *_fields(r"meta\.request", ("slot", "requester_id", "tag", "byte_count"))),
        *_stream(r"host\.core\.tracking\.down_o", *_PACKET),
    ), closed=True)
    up = Group("host: parser, requests and switch, up", (
        *_stream(r"host\.core\.parser\.o", *_PACKET, r"meta\.row"),
        *_stream(r"host\.core\.tracking\.up_info", "port", *_fields("info", _TLP)),
        *_stream(r"host\.core\.tracking\.up_beats", *_PACKET),
        *_stream(r"host\.core\.switch\.upstream_o", *_PACKET, "meta"),
        *(row for cls in ("p", "np", "cpl")
          for row in _stream(rf"host\.upstream__tx_{cls}", *_PACKET)),
    ), closed=True)
    return [down, table, switch, *_engine("host"), up]


def _box(proxy: str, slots: int) -> list[Group]:
    down = Group(f"{proxy}: parser, to PCIe", (
        *_stream(rf"{proxy}\.core\.alive\.o", *_PACKET, *_fields("meta", ("row", "cls", "units"))),
        *(row for n in range(slots) for cls in ("p", "np", "cpl")
          for row in _stream(rf"{proxy}\.slot__{n}__tx_{cls}", *_PACKET)),
    ), closed=True)
    up = Group(f"{proxy}: from PCIe, parser", (
        *(row for n in range(slots)
          for row in _stream(rf"{proxy}\.slot__{n}__rx", *_PACKET)),
        *_stream(rf"{proxy}\.core\.from_slots\.o", *_PACKET, r"meta\.row"),
    ), closed=True)
    return [*_engine(proxy), down, up]


def system_groups(boxes: Sequence[int]) -> list[Group]:
    """Groups for a system with ``boxes`` (GPUs in each).

    The way of a read, step by step; then, folded, the blocks on the way, in order, and all states.
    """
    proxies = ["host", *(f"box{n}" for n in range(len(boxes)))]
    return [
        Group("The way of a read", WAY),
        Group("Clock", (Row(r"clk"), Row(r"cycle")), closed=True),
        *_host(),
        *(group for n, slots in enumerate(boxes) for group in _box(f"box{n}", slots)),
        *(Group(f"{proxy}: all states", (Row(rf"{proxy}\..+\.[a-z]+_state"),), closed=True)
          for proxy in proxies),
        Group("Newest events (cycle)", (Row(r"probe_\w+"),), closed=True),
    ]
