"""Registers of a board besides its proxy's registers: identity, Ethernet ports, events."""

from zlib import crc32

from dxpu.bringup import StandAloneState
from dxpu.console import EventRing
from dxpu.csr import AddressMap, Block, Field, Register, Rows, word
from dxpu.ethernet.phy import PhyState
from dxpu.fabric.wire.format import NODE_UNASSIGNED
from dxpu.factory import FactoryState
from dxpu_tools.identity import Goal, Identity, release

from .pcie import upstream_blocks

__all__ = ["BASES", "IDENTITY", "PULSES", "board_block", "event_kinds", "map_of", "stand_alone"]

#: Value of the register ``board.identity``: "DXPB".
IDENTITY = 0x44585042
#: Base addresses of a board's blocks; the blocks of its proxy begin at 0.
BASES = {"board": 0x8000, "events": 0x9000, "tlp": 0xA000, "pcie": 0xB000}
#: Counters of a proxy whose pulses are recorded as events.
PULSES = ("fabric_session_opened", "fabric_session_lost", "fabric_retry_failed",
          "binding_refused", "table_committed")


def event_kinds(paths, counters):
    """Names of the events in a board's event ring, in order; ``counters`` are the proxy's."""
    return [*(f"path{n}_{what}" for n in range(paths) for what in ("up", "down")),
            *(name for name in PULSES if name in counters), "line_refused"]


def stand_alone(enable=False, node=NODE_UNASSIGNED):
    """The register of the stand-alone mode, with its values after a reset."""
    return Register("standalone", (
        Field("enable", 1, "rw", reset=int(enable), doc="The first host that says HELLO gets all "
              "slots, if nobody has set `control.node`. Any write of this register undoes that "
              "first, and then the next host may come; generations of rows go up by one."),
        Field("state", 3, "ro", offset=4, values=StandAloneState, doc="How far it is."),
        Field("node", 12, "rw", offset=8, reset=node, doc="Node number that HELLOs must be for; "
              "0xFFF: any, and the first one's becomes the box's."),
        Field("host", 12, "ro", doc="Node of the host that came last; 0: none since reset.")),
        "Stand-alone mode of a box.", address=0x3C)


def board_block(name, *, paths, identity=Identity(), extra=()):
    """Registers of the board itself, and registers that only some roles have (``extra``)."""
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
        Register("commit", (Field("value", 32, "const", reset=identity.commit, doc="First 32 bits "
                 "of the commit in git; 0: not known."),), "Sources of the bitstream."),
        Register("build", (
            Field("dirty", 1, "const", reset=int(identity.dirty), doc="The sources were not those "
                  "of the commit."),
            Field("goal", 2, "const", offset=4, reset=int(identity.goal), values=Goal, doc="What "
                  "synthesis was to save.")), "How the bitstream was made."),
        Register("seed", (Field("value", 32, "const", reset=identity.seed, doc="Of the first "
                                 "placing that was tried."),),
                 "How the bitstream was made."),
        Register("watchdog", (
            Field("enable", 1, "rw", reset=1, doc="Reset the board if its core does not answer for "
                  "2 s."),
            Field("last", 1, "ro", doc="The last reset was the watchdog's."),
            Field("count", 8, "ro", offset=8, doc="Resets by the watchdog since power-on; stays at "
                  "255.")), "What resets the board if its core is dead."),
        Register("factory", (
            Field("state", 3, "ro", values=FactoryState, doc="What became of the last reading of "
                  "the record."),
            Field("key", 1, "ro", offset=4, doc="There is a key."),
            Field("again", 1, "pulse", offset=8, doc="Read it again; nothing while it is read.")),
            "The factory record. If it is not valid, the next four have the default."),
        word("mac_low", "ro", "Factory address: its last four bytes."),
        Register("mac_high", (Field("value", 16, "ro"),), "Factory address: its first two bytes."),
        word("serial", "ro", "Serial number; 0: none."),
        word("fingerprint", "ro", "First 32 bits of the SHA-256 of the key; 0 if there is none."),
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
        *extra,
    ), "The board.")


def map_of(proxy, board, *, width):
    """Register map of a proxy (host or box) on a board: all blocks of the proxy, and the board's.

    Returns
    -------
    :class:`dxpu.csr.AddressMap`
    """
    _, counters = proxy.registers.blocks["counters"]
    paths = board.path_count
    ring = EventRing(event_kinds(paths, [p.path for p in counters.placed]), unit=1,
                     unit_name="milliseconds")
    extra = () if proxy.registers.name == "host_proxy" else (stand_alone(),)
    blocks = {"board": board_block(board.name, paths=paths, extra=extra), "events": ring.block}
    if proxy.registers.name == "host_proxy":
        blocks |= upstream_blocks(board, width)
    return AddressMap("board", {**proxy.registers.blocks,
                                **{name: (BASES[name], block) for name, block in blocks.items()}},
                      f"Registers of {board.title}.")
