"""Register map of a proxy, host or box: one description for RTL, software and documentation."""

from amaranth.utils import exact_log2

from dxpu.csr import AddressMap, Block, Field, Register, Rows, counter_block, word
from dxpu.mapping import box_block, host_block
from dxpu.observe import mark_registers, round_trip_rows, stage_rows
from dxpu.observe.log import event_rows, log_registers
from dxpu.switch.tracking.types import TIME_UNIT

from .detach import Detach

__all__ = ["CONTROL_BASE", "COUNTERS_BASE", "IDENTITY", "OBSERVE_BASE", "RECEIVE", "STAGES_BASE",
           "TABLE_BASE", "address_map", "control_block"]

#: Value of the register ``control.identity``: "DXPU".
IDENTITY = 0x44585055

CONTROL_BASE = 0x0000
COUNTERS_BASE = 0x1000
OBSERVE_BASE = 0x2000
TABLE_BASE = 0x4000
STAGES_BASE = 0x6000

#: Byte address of the sessions in the control block, 32 bytes each.
SESSIONS = 0x800
#: Byte addresses behind the most slots and peers: a key, who is held off a GPU, trust, the serial
#: number.
KEY, SCRUB, SECURITY, SERIAL = 0x7E0, 0x7F0, 0x7F8, 0x7FC

#: Byte addresses in the block `observe`, behind the most slots: unit of round trips, log, rows
#: that wait, marks, events; in the block `stages`: what is received.
UNIT, LOG, WAITS, MARKS, EVENTS = 0x1000, 0x1010, 0x1020, 0x1100, 0x1800
RECEIVE = 0x1000

_ROLES = {"host": 1, "box": 2}


def control_block(role, *, rows, paths, peers, streams, width, serial=0, keys=False,
                  managed=False, observed=False):
    """Registers of the proxy and of its link.

    ``serial`` is the lower half of a host's serial number after reset. With ``keys`` sessions can
    be opened under keys; if ``managed``, managers reach the registers by frames; if ``observed``,
    there is a block of measurements.
    """
    late = _security(keys, managed, observed)
    if role == "host":
        own = (
            Register("reset", (Field("ports", rows, "pulse", doc="Bit n: hot reset of the slot "
                     "that row n is bound to. Its link is down until the box reports the end of "
                     "the reset."),), "Hot reset of slots."),
            Register("press", (Field("ports", rows, "pulse", doc="Bit n: press the attention "
                     "button of downstream port n."),), "Attention buttons."),
            Register("detach", (Field("ports", rows, "pulse", doc="Bit n: press the attention "
                     "button, wait until the power indicator is off (is turned off, if the port is "
                     "in use), then remove the card and complete outstanding requests with UR; "
                     "`slot[n].state.detach` is the progress. The row stays bound until it is "
                     "released."),), "Managed unbinding."),
            Register("detach_deadline", (Field("units", 20, "rw", reset=305176,
                     doc=f"Time within which the operating system must turn the power indicator "
                     f"off, in units of {Detach.UNIT} core clock cycles."),),
                     "Managed unbinding."),
            Register("request_deadline", (Field("cycles", 24, "rw", reset=1_125_000,
                     doc="Core clock cycles within which the last completion of a request must "
                     "come, or the card is removed; at most 16,773,120, which is 67 ms at 250 MHz. "
                     "9 ms at 125 MHz."),),
                     "Completion tracking."),
            Register("slot_stall", (Field("interval", 20, "rw", reset=78_125, doc="Length of an "
                     "interval in core clock cycles, at least 65,536; 0: no limit. The card of a "
                     "slot is removed if posted TLPs or completions to it wait for credits for "
                     "eight whole intervals, while frames of its box come in each. 5 ms at "
                     "125 MHz."),), "Stalled slots."),
            Rows("slot", rows, (
                Register("state", (
                    Field("present", 1, "ro", doc="The host sees a card in the slot."),
                    Field("link", 1, "ro", doc="The link is active."),
                    Field("lost", 1, "ro", doc="The card was removed since the row was bound, "
                          "such as after a deadline or a detach. Bind the row again."),
                    Field("drained", 1, "ro", doc="No request to the slot is outstanding."),
                    Field("detach", 3, "ro", offset=4, doc="0 no detach; 1 button pressed; 2 "
                          "outstanding requests are being completed; 3 done; 4 the operating "
                          "system did not release the card in time."),
                    Field("attention", 2, "ro", offset=8, doc="Attention indicator: 1 on, 2 "
                          "blinks, 3 off."),
                    Field("power", 2, "ro", offset=10, doc="Power indicator: 1 on, 2 blinks, 3 "
                          "off."),
                    Field("power_off", 1, "ro", offset=12, doc="Software has switched the slot "
                          "off; only with a power controller."),
                    Field("placeholder", 1, "ro", offset=13, doc="The host sees a placeholder in "
                          "the slot; `present` and `link` are those of a GPU only.")),
                    "State of the slot, and of the controls of its port."),
            ), "One for each downstream port."),
        )
        late += (Register("serial", (
            Field("number", 32, "rw", reset=serial, doc="Lower half of the serial number in all "
                  "functions of the switch (capability Device Serial Number). It must differ "
                  "between the proxies of a host; write it before the host reads it. The serial "
                  "number of the board's factory record replaces it."),),
            "Serial number.", address=SERIAL),)
    else:
        own = (
            Register("present", (Field("slots", rows, "rw", doc="Bit n: a GPU is in slot n + 1."),),
                     "GPUs that are present; `valid` in the box table."),
            Register("reset", (Field("slots", rows, "pulse", doc="Bit n: hot reset of the GPU in "
                     "slot n + 1."),), "Hot reset of slots."),
        )
        late = (
            Register("scrub", (
                Field("hold", rows, "rw", reset=(1 << rows) - 1, doc="Bit n: while the GPU in slot "
                      "n + 1 is `dirty`, only the binding that has opened the slot already, and "
                      "the maintainer, may use the GPU. Others wait."),
                Field("maintainer", 12, "rw", offset=16, doc="Node of a host that may use dirty "
                      "GPUs, to wipe them, and leaves them as it says; 0: none.")),
                "Between two hosts.", address=SCRUB),
            Register("dirty", (
                Field("slots", rows, "hw", doc="Read: bit n, a host has used the GPU in slot n + "
                      "1, or may have before the last reset, and nobody has said that it was "
                      "wiped; 0 for a GPU that wipes itself in each hot reset. Written: 1, it was "
                      "wiped."),), "GPUs that keep what a host has left in them."),
            *late)
    peer = Rows("peer", peers, (
        Register("node", (
            Field("number", 12, "rw", doc="Node of the peer."),
            *((Field("clear", 1, "rw", offset=30, doc="Sessions with the peer are opened without "
                     "a key: whoever reaches the fabric may take its place. It counts at the "
                     "moment in which the peer becomes valid; the modes of its sessions must be 0 "
                     "then."),) if keys else ()),
            Field("valid", 1, "rw", offset=31, doc="The peer exists.")),
            "Node of the peer; no two valid peers may have the same. Sessions with a peer that is "
            "not valid end."),
        *((Register("key", (
            Field("next", 1, "hw", doc="Written: 1, the key is the next one, and takes the place "
                  "of the current one when a session was opened under it; 0, it is the only one. "
                  "Read: there is a next key."),
            Field("valid", 1, "ro", offset=31, doc="There is a key. Without one no session with "
                  "the peer opens, but if it is `clear`.")),
            "A write gives the peer the key whose words were written to `control.key`. The number "
            "of this node and of the peer must be as they stay. Open sessions stay open."),)
          if keys else ()),
    ), "Peers: nodes that sessions are with.")
    session = Rows("session", peers * streams, (
        Register("mode", (
            Field("opener", 2, "mem_hw", doc="Opener of the session: 0 software, by `tags` and "
                  "`open` at both ends; 1 this end, by HELLO; 2 the peer, and this end answers. A "
                  "host opens, a box answers. Writing another value ends the session."),),
            "Side that opens the session."),
        Register("tags", (
            Field("tx", 16, "mem_hw", doc="Session tag of frames sent, chosen by the peer; 0: "
                  "none."),
            Field("rx", 16, "mem_hw", doc="Session tag of frames received, chosen here; 0: none.")),
            "Session tags. Writes have an effect in mode 0 only, and not with a peer whose "
            "sessions need a key."),
        Register("open", (Field("strobe", 1, "mem_hw", doc="A write in mode 0 starts the session "
                 "at frame 0 in both directions; in other modes it ends the session, which opens "
                 "again after the quiet time. Frames that are not acknowledged are dropped. Reads "
                 "as 0."),),
                 "Any write restarts the session."),
        Register("hello", (
            Field("phase", 3, "mem", doc="0 off (mode 0, peer not valid, or `control.boot` not "
                  "written); 1 quiet; 2 waits for a HELLO; 3 waits for a fresh tag; 4 sends "
                  "HELLO; 5 waits for the peer's first frame; 6 open."),
            Field("boot", 16, "mem", offset=16, doc="Boot counter of the peer in its last session; "
                  "0: there was none.")),
            "Sessions that are opened by HELLO."),
        Register("state", (
            Field("unacked", 12, "mem", doc="Frames sent that are not acknowledged."),
            Field("path", 4, "mem", offset=16, doc="Path on which frames are sent, if their row "
                  "allows it."),
            Field("failed", 1, "mem", offset=31, doc="No acknowledgement came on any path. Nothing "
                  "is sent or accepted until the session opens again; its slots are down.")),
            "State of the session."),
        Register("seq", (Field("value", 24, "mem", doc="Number of the next frame to send."),),
                 "Sequence number."),
        Register("next", (Field("value", 24, "mem", doc="Number of the next frame expected."),),
                 "Next frame expected."),
        Register("acked", (Field("value", 24, "mem", doc="Newest acknowledgement received."),),
                 "Newest acknowledgement of the peer."),
    ), "Sessions of the link, one for each stream of each peer: that of stream s of peer p is p "
       "times the number of streams, plus s. Opened by HELLO, or by software, which writes the "
       "tags of both ends.", address=SESSIONS)
    return Block("control", (
        Register("identity", (Field("value", 32, "const", reset=IDENTITY, doc='"DXPU".'),),
                 "Identifies a proxy."),
        Register("shape", (
            Field("role", 4, "const", reset=_ROLES[role], doc="1 host proxy, 2 box proxy."),
            Field("paths", 4, "const", reset=paths - 1, doc="Ethernet ports, minus one."),
            Field("rows", 8, "const", reset=rows, doc="Downstream ports or slots."),
            Field("peers", 7, "const", reset=peers, doc="Peers."),
            Field("streams", 3, "const", reset=exact_log2(streams), doc="Streams of each peer, as "
                  "a power of two."),
            Field("lanes", 6, "const", reset=width // 32, doc="Dwords per beat.")),
            "Build parameters."),
        Register("node", (Field("number", 12, "rw", reset=0xFFF,
                 doc="Node number; 0xFFF: none assigned."),), "Number of this node."),
        Register("fabric", (
            Field("packing_limit", 14, "rw", reset=512,
                  doc="Largest Ethernet payload, in bytes, up to which TLPs share a frame. No "
                      "session opens with a peer that cannot receive that much."),
            Field("ack_delay", 16, "rw", offset=16, reset=125,
                  doc="Core clock cycles that a received frame may wait for a frame that carries "
                      "its acknowledgement.")),
            "Fabric engine."),
        Register("retry", (
            Field("wait", 16, "rw", reset=488, doc="First wait for an acknowledgement, in units "
                  "of 64 core clock cycles; it doubles three times on each path, then the session "
                  "fails. 250 us at 125 MHz. 0: no limit."),),
            "Retransmission."),
        Register("boot", (Field("counter", 16, "rw", doc="Number that differs after each "
                 "reset, such as a count of resets. Tags and nonces of sessions begin with it, so "
                 "that frames of older sessions do not match. Write it before the modes of "
                 "sessions; only the first value after a reset has an effect. While it is 0 no "
                 "session is opened by HELLO."),),
                 "Boot counter."),
        Register("hello", (Field("wait", 16, "rw", reset=488, doc="First wait for an answer to "
                 "HELLO or to a poll, in units of 64 core clock cycles; it doubles up to four "
                 "times. 250 us at 125 MHz. A session without frames from the peer is polled after "
                 "8 times that, and ends after 15 times that more. 0: no limit."),),
                 "Sessions opened by HELLO."),
        Register("quiet", (Field("time", 20, "rw", reset=195_313, doc="Time after a reset or the "
                 "end of a session in which nothing but a FENCE is sent, in units of 64 cycles. "
                 "100 ms at 125 MHz, twice the longest lifetime of a frame."),),
                 "Quiet time."),
        Register("links", (Field("up", paths, "ro", doc="Bit n: path n has a link, as its PHY "
                 "says. Frames leave by the others only if they may take no path that has one."),),
                 "Ethernet links."),
        *own,
        peer,
        *late,
        session,
    ), "The proxy and its link.")


def _security(keys, managed, observed):
    """Registers about trust, and build options."""
    about = Register("security", (
        Field("keys", 1, "const", reset=int(keys), doc="Sessions can be opened under keys (a build "
              "option)."),
        *((Field("clear", 1, "ro", doc="There is a valid peer whose sessions are opened without a "
                 "key."),
           Field("random", 1, "ro", doc="Random words are there. Without them no session opens."),
           Field("noise_failed", 1, "ro", doc="A test of the noise source has failed: there are no "
                 "random words until the next reset."),
           Field("whole", 1, "ro", doc="All words of `control.key` were written, and no peer has "
                 "got that key yet."))
          if keys else (
              Field("clear", 1, "const", reset=1, doc="All sessions are opened without a key."),)),
        Field("observed", 1, "const", offset=30, reset=int(observed), doc="What happens "
              "is measured, in the blocks `observe` and `stages` (a build option)."),
        Field("managed", 1, "const", offset=31, reset=int(managed), doc="Managers reach these "
              "registers by frames (a build option)."),
    ), "Trust in sessions, and management.", address=SECURITY)
    if not keys:
        return (about,)
    return (Rows("key", 4, (
        Register("word", (Field("bytes", 32, "wo", doc="Bytes 4n to 4n + 3, the first one in the "
                                "lowest bits."),), "A quarter of a key. Nobody can read it."),
    ), "Key for `control.peer[n].key`: four writes, in any order. When a peer has got it, all four "
       "must be written anew.", address=KEY), about)


def observe_block(role, rows, fills):
    """Description of what an observed proxy has measured: of a host the round trips of each slot,
    how full its queues were (``fills``, :class:`~dxpu.stage.Fill` by name), the last events."""
    return Block("observe", (
        *((round_trip_rows(rows, TIME_UNIT),
           word("unit", "const", "Core clock cycles of a unit of time of round trips.",
                reset=TIME_UNIT, address=UNIT)) if role == "host" else ()),
        *log_registers(LOG),
        Register("waits", (Field("rows", rows, "ro", doc="Bit n: a posted TLP or a completion of "
                 "row n waits for credits of its peer."),), "Rows without credits.", address=WAITS),
        Register("request_waits", (Field("rows", rows, "ro", doc="Bit n: a non-posted TLP of row n "
                 "waits for credits of its peer."),), "Rows without credits for requests."),
        *mark_registers(fills, MARKS),
        event_rows(EVENTS),
    ), "Round trips, queues, events (a build option).")


def stages_block(role, rows):
    """Description of how long TLPs took through an observed proxy."""
    return Block("stages", stage_rows(rows, role=role, receive=RECEIVE),
                 "Times of TLPs through the proxy, row by row (a build option).")


def address_map(role, *, rows, paths, peers, streams, width, counters, serial=0, keys=False,
                managed=False, observed=None):
    """Whole register map; ``counters`` as for :func:`dxpu.csr.counter_block`, ``observed`` the
    ``fills`` of :func:`observe_block`, or ``None``."""
    table = host_block(rows) if role == "host" else box_block(rows)
    return AddressMap(f"{role}_proxy", {
        "control": (CONTROL_BASE, control_block(role, rows=rows, paths=paths, peers=peers,
                                                streams=streams, width=width, serial=serial,
                                                keys=keys, managed=managed,
                                                observed=observed is not None)),
        "counters": (COUNTERS_BASE, counter_block("counters", counters,
                                                  "Totals since reset; they wrap.")),
        **({"observe": (OBSERVE_BASE, observe_block(role, rows, observed)),
            "stages": (STAGES_BASE, stages_block(role, rows))} if observed is not None else {}),
        "table": (TABLE_BASE, table),
    }, f"Registers of the {role} proxy. Every register is 32 bits wide.")
