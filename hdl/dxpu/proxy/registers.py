"""Register map of a proxy, host or box: one description for RTL, software and documentation."""

from ..csr import AddressMap, Block, Field, Register, Rows, counter_block
from ..mapping import box_block, host_block

__all__ = ["CONTROL_BASE", "COUNTERS_BASE", "IDENTITY", "TABLE_BASE", "address_map",
           "control_block"]

#: Value of the register ``control.identity``: "DXPU".
IDENTITY = 0x44585055

CONTROL_BASE = 0x0000
COUNTERS_BASE = 0x1000
TABLE_BASE = 0x4000

_ROLES = {"host": 1, "box": 2}


def control_block(role, *, rows, paths, sessions, width):
    """Registers of the proxy itself and of its link."""
    if role == "host":
        own = (
            Register("present", (Field("ports", rows, "rw", doc="Bit n: downstream port n shows a "
                     "card in its slot and an active link, while its row is bound."),),
                     "Presence towards the host."),
            Register("reset", (Field("ports", rows, "pulse", doc="Bit n: send RESET to the slot "
                     "that row n is bound to."),), "Hot reset of slots."),
        )
    else:
        own = (
            Register("present", (Field("slots", rows, "rw", doc="Bit n: a GPU is in slot n + 1."),),
                     "GPUs in place; shown in the box table as `valid`."),
            Register("reset", (Field("slots", rows, "pulse", doc="Bit n: hot reset of the GPU in "
                     "slot n + 1."),), "Hot reset of slots."),
        )
    session = Rows("session", sessions, (
        Register("peer", (
            Field("node", 12, "rw", doc="Node of the peer."),
            Field("stream", 4, "rw", doc="Stream of the session."),
            Field("valid", 1, "rw", offset=31, doc="The session exists.")),
            "Who the session is with; at most one valid session per node and stream."),
        Register("tags", (
            Field("tx", 16, "rw", doc="Session tag of frames sent, chosen by the peer; 0: none."),
            Field("rx", 16, "rw", doc="Session tag of frames received, chosen here; 0: none.")),
            "Session tags."),
        Register("open", (Field("strobe", 1, "pulse", doc="Start at frame 0 in both "
                 "directions."),), "Opens the session anew."),
        Register("seq", (Field("value", 24, "ro", doc="Number of the next frame to send."),),
                 "Sequence number."),
        Register("next", (Field("value", 24, "ro", doc="Number of the next frame expected."),),
                 "What is acknowledged."),
        Register("acked", (Field("value", 24, "ro", doc="Newest acknowledgement received."),),
                 "What the peer acknowledged."),
    ), "Sessions of the link. Until the peers open sessions themselves, both sides are set up "
       "here with each other's tags.")
    return Block("control", (
        Register("identity", (Field("value", 32, "const", reset=IDENTITY, doc='"DXPU".'),),
                 "Tells a proxy from other hardware."),
        Register("shape", (
            Field("role", 4, "const", reset=_ROLES[role], doc="1 host proxy, 2 box proxy."),
            Field("paths", 4, "const", reset=paths - 1, doc="Ethernet ports, minus one."),
            Field("rows", 8, "const", reset=rows, doc="Downstream ports or slots."),
            Field("sessions", 8, "const", reset=sessions, doc="Sessions."),
            Field("lanes", 8, "const", reset=width // 32, doc="Dwords per beat.")),
            "What this proxy was built with."),
        Register("node", (Field("number", 12, "rw", reset=0xFFF,
                 doc="Node number; 0xFFF: none assigned."),), "Who we are."),
        Register("fabric", (
            Field("packing_limit", 14, "rw", reset=512,
                  doc="Largest Ethernet payload, in bytes, up to which TLPs share a frame."),
            Field("ack_delay", 16, "rw", offset=16, reset=125,
                  doc="Core clock cycles that a received frame may wait for a frame that carries "
                      "its acknowledgement.")),
            "Fabric engine."),
        *own,
        session,
    ), "The proxy and its link.")


def address_map(role, *, rows, paths, sessions, width, counters):
    """Whole register map; ``counters`` as for :func:`dxpu.csr.counter_block`."""
    table = host_block(rows) if role == "host" else box_block(rows)
    return AddressMap(f"{role}_proxy", {
        "control": (CONTROL_BASE, control_block(role, rows=rows, paths=paths, sessions=sessions,
                                                width=width)),
        "counters": (COUNTERS_BASE, counter_block("counters", counters,
                                                  "Totals since reset; they wrap.")),
        "table": (TABLE_BASE, table),
    }, f"Registers of the {role} proxy. Every register is 32 bits wide.")
