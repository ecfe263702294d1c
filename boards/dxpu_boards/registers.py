"""Registers of a board, beside those of its proxy: who it is, its Ethernet ports, its events."""

from importlib.metadata import PackageNotFoundError, version
from zlib import crc32

from dxpu.console import EventRing
from dxpu.console.tlp_mailbox import mailbox_block
from dxpu.csr import AddressMap, Block, Field, Register, Rows
from dxpu.ethernet.phy import PhyState

__all__ = ["BASES", "IDENTITY", "PULSES", "board_block", "event_kinds", "map_of"]

#: Value of the register ``board.identity``: "DXPB".
IDENTITY = 0x44585042
#: Where the blocks of a board are; its proxy's begin at 0.
BASES = {"board": 0x8000, "events": 0x9000, "tlp": 0xA000}
#: Counters of a proxy whose pulses are events.
PULSES = ("fabric_session_opened", "fabric_session_lost", "fabric_retry_failed",
          "binding_refused", "table_committed")


def event_kinds(paths, counters):
    """Names of what a board's event ring keeps, in order; ``counters`` are the proxy's."""
    return [*(f"path{n}_{what}" for n in range(paths) for what in ("up", "down")),
            *(name for name in PULSES if name in counters), "line_refused"]


def release():
    """Version of this package as three numbers; zeros if it is not installed."""
    try:
        return tuple(int(n) for n in version("dxpu").split(".")[:3])
    except (PackageNotFoundError, ValueError):
        return 0, 0, 0


def board_block(name, *, paths):
    """Registers of the board of that name itself."""
    major, minor, patch = release()
    return Block("board", (
        Register("identity", (Field("value", 32, "const", reset=IDENTITY, doc='"DXPB".'),),
                 "Tells that a board's registers are here."),
        Register("name", (Field("crc", 32, "const", reset=crc32(name.encode()),
                 doc="CRC-32 of the board's name, as `dxpu build` has it."),), "Which board."),
        Register("release", (
            Field("patch", 8, "const", reset=patch), Field("minor", 8, "const", reset=minor),
            Field("major", 8, "const", reset=major)), "Version of DXPU that made the bitstream."),
        Register("uptime", (Field("seconds", 32, "ro", doc="Seconds since reset."),), "Time."),
        Register("restart", (Field("phys", paths, "pulse", doc="Bit n: bring up the PHY of path n "
                 "again, from its reset."),), "PHYs."),
        Rows("path", paths, (
            Register("state", (
                Field("link", 1, "ro", doc="The MAC may use the link: 1 Gb/s, full duplex."),
                Field("clock", 1, "ro", doc="The receive clock runs."),
                Field("missing", 1, "ro", doc="No PHY answers by MDIO."),
                Field("unknown", 1, "ro", doc="The PHY is none that is known: its delays were not "
                      "set."),
                Field("refused", 1, "ro", doc="The PHY does not keep what is written."),
                Field("step", 3, "ro", offset=8, doc="Of the bring-up.", values=PhyState),
                Field("address", 5, "ro", offset=16, doc="MDIO address of the PHY.")),
                "How the port is."),
            Register("phy", (Field("identifier", 32, "ro", doc="Its registers 2 (upper half) and "
                     "3."),), "Which PHY."),
        ), "Ethernet ports.", address=0x40),
    ), "The board.")


def map_of(proxy, board, *, width):
    """Register map of a proxy (host or box) on a board: all blocks of the proxy, and the board's.

    Returns
    -------
    :class:`dxpu.csr.AddressMap`
    """
    _, counters = proxy.registers.blocks["counters"]
    paths = len(board.paths)
    ring = EventRing(event_kinds(paths, [p.path for p in counters.placed]), unit=1,
                     unit_name="milliseconds")
    blocks = {"board": board_block(board.name, paths=paths), "events": ring.block}
    if proxy.registers.name == "host_proxy":
        blocks["tlp"] = mailbox_block(width)
    return AddressMap("board", {**proxy.registers.blocks,
                                **{name: (BASES[name], block) for name, block in blocks.items()}},
                      f"Registers of {board.title}.")
