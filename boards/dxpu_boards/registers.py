"""Registers of a board besides its proxy's registers: identity, Ethernet ports, events."""

from zlib import crc32

from dxpu.bringup import StandAloneState, Takes
from dxpu.console import EventRing
from dxpu.csr import AddressMap, Block, Field, Register, Rows, word
from dxpu.ethernet.phy import PhyState
from dxpu.fabric.wire.format import NODE_UNASSIGNED
from dxpu.factory import FactoryState
from dxpu_tools.identity import Goal, Identity, release

from .pcie import upstream_blocks

__all__ = ["BASES", "IDENTITY", "PULSES", "board_block", "event_kinds", "gpu_count",
           "map_of", "stand_alone"]

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
        Field("enable", 1, "rw", reset=int(enable), doc="The first host that sends a HELLO, "
              "or proves its key, gets all slots with a soft GPU, unless `control.node` is set. "
              "Any write to this register first releases the slots; then the next host may come. "
              "Each new set-up raises the generation of the rows by one."),
        Field("takes", 2, "ro", values=Takes, doc="Whom the box takes. Without keys in the build "
              "it is anyone."),
        Field("state", 3, "ro", offset=4, values=StandAloneState, doc="Progress of the set-up."),
        Field("node", 12, "rw", offset=8, reset=node, doc="Node number to which HELLOs must be "
              "addressed. 0xFFF: any; the first HELLO's destination becomes the box's node "
              "number."),
        Field("host", 12, "ro", doc="Node of the last host; 0: no host since reset.")),
        "Stand-alone mode of a box.", address=0x3C)


def gpu_count(gpus=0):
    """The register with the number of soft GPUs of a box."""
    return Register("gpus", (
        Field("count", 8, "const", reset=gpus, doc="Soft GPUs; they are in the first slots. The "
              "other slots are empty."),),
        "Soft GPUs in the slots of a box.", address=0x38)


def board_block(name, *, paths, identity=Identity(), extra=()):
    """Registers of the board itself, and registers that only some roles have (``extra``)."""
    major, minor, patch = release()
    return Block("board", (
        Register("identity", (Field("value", 32, "const", reset=IDENTITY, doc='"DXPB".'),),
                 "Identifies the registers of a board."),
        Register("name", (Field("crc", 32, "const", reset=crc32(name.encode()),
                 doc="CRC-32 of the board's name in `dxpu build`."),), "Type of the board."),
        Register("release", (
            Field("patch", 8, "const", reset=patch), Field("minor", 8, "const", reset=minor),
            Field("major", 8, "const", reset=major)), "Version of DXPU in the bitstream."),
        Register("uptime", (Field("seconds", 32, "ro", doc="Seconds since reset."),),
                 "Time since reset."),
        Register("restart", (Field("phys", paths, "pulse", doc="Bit n: reset the PHY of path n, "
                 "and bring the PHY up again."),), "Restart of PHYs."),
        Register("commit", (Field("value", 32, "const", reset=identity.commit, doc="First 32 bits "
                 "of the git commit; 0: unknown."),), "Sources of the bitstream."),
        Register("build", (
            Field("dirty", 1, "const", reset=int(identity.dirty), doc="The sources differed from "
                  "the commit."),
            Field("goal", 2, "const", offset=4, reset=int(identity.goal), values=Goal, doc="Goal "
                  "of synthesis.")), "Build of the bitstream."),
        Register("seed", (Field("value", 32, "const", reset=identity.seed, doc="Seed of the first "
                                 "placement that was tried."),),
                 "Seed of the placement."),
        Register("watchdog", (
            Field("enable", 1, "rw", reset=1, doc="Reset the board after 2 s without an answer "
                  "from the core."),
            Field("last", 1, "ro", doc="The last reset was the watchdog's."),
            Field("count", 8, "ro", offset=8, doc="Resets by the watchdog since power-on; stays at "
                  "255.")), "Watchdog: resets the board if the core is dead."),
        Register("factory", (
            Field("state", 3, "ro", values=FactoryState, doc="Result of the last reading of the "
                  "record."),
            Field("key", 1, "ro", offset=4, doc="The record has a key."),
            Field("again", 1, "pulse", offset=8, doc="Read the record again; ignored during a "
                  "reading.")),
            "Factory record. If the record is not valid, the next four registers have defaults."),
        word("mac_low", "ro", "Last four bytes of the factory address."),
        Register("mac_high", (Field("value", 16, "ro"),),
                 "First two bytes of the factory address."),
        word("serial", "ro", "Serial number; 0: none."),
        word("fingerprint", "ro", "First 32 bits of the SHA-256 of the key; 0: no key."),
        Rows("path", paths, (
            Register("state", (
                Field("link", 1, "ro", doc="The MAC may use the link: 1 Gb/s, full duplex."),
                Field("clock", 1, "ro", doc="The receive clock runs."),
                Field("missing", 1, "ro", doc="No PHY answers by MDIO."),
                Field("unknown", 1, "ro", doc="The type of the PHY is unknown: its delays were "
                      "not set."),
                Field("refused", 1, "ro", doc="The PHY does not keep the settings written."),
                Field("step", 3, "ro", offset=8, doc="Step of the bring-up.", values=PhyState),
                Field("address", 5, "ro", offset=16, doc="MDIO address of the PHY.")),
                "State of the port."),
            Register("phy", (Field("identifier", 32, "ro", doc="Registers 2 (upper half) and 3 of "
                     "the PHY."),), "Identifier of the PHY."),
        ), "Ethernet ports.", address=0x40),
        *extra,
    ), "Identity and state of the board.")


def map_of(proxy, board, *, width):
    """Register map of a proxy (host or box, or a box with its GPUs) on a board: all blocks of the
    proxy, and the board's.

    Returns
    -------
    :class:`dxpu.csr.AddressMap`
    """
    _, counters = proxy.registers.blocks["counters"]
    paths = board.path_count
    ring = EventRing(event_kinds(paths, [p.path for p in counters.placed]), unit=1,
                     unit_name="milliseconds")
    extra = () if proxy.registers.name == "host_proxy" else (gpu_count(), stand_alone())
    blocks = {"board": board_block(board.name, paths=paths, extra=extra), "events": ring.block}
    if proxy.registers.name == "host_proxy":
        blocks |= upstream_blocks(board, width)
    return AddressMap("board", {**proxy.registers.blocks,
                                **{name: (BASES[name], block) for name, block in blocks.items()}},
                      f"Registers of {board.title}.")
