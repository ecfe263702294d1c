"""Registers of the mapping tables, as data.

Both tables begin with the same registers, and their rows with the same three, so that one program
commits and reads back bindings of both kinds.
"""

from dxpu.csr import Block, Field, Register, Rows, word

from .types import CommitCode

__all__ = ["box_block", "host_block"]

_PROTOCOL = """

To change a row, write `epoch`, `operation_id`, `target` and `paths`, then `commit`. The next access
waits until the command is checked; `result` then has its code. A row changes as a whole or not at
all. A command that is repeated with the same operation id and generation has the same result and no
further effect."""


def _common(kind, rows, peer):
    return (
        Register("shape", (
            Field("rows", 8, "const", reset=rows, doc="Rows of this table."),
            Field("kind", 4, "const", reset=kind, doc="0 host table, 1 box table.")),
            "Kind and size of the table."),
        word("fence_epoch", "hw", "Commands of a lower epoch are refused. Only a higher value can "
             "be written; a lower one changes nothing and is counted as fenced."),
        word("epoch", "rw", "Epoch of the commands that follow."),
        word("operation_id", "rw", "Operation of the command that follows; not 0."),
        Register("target", (
            Field("slot", 8, "rw", doc="Slot of the box, from 1. Not used in a box table."),
            Field("node", 12, "rw", doc=f"Node of the {peer}, 0x001 to 0xFFE."),
            Field("stream", 4, "rw", doc="Stream of the binding.")),
            "Peer of the command that follows."),
        Register("paths", (Field("mask", 16, "rw", doc="Bit n set: path n may be used."),),
                 "Paths of the command that follows."),
        Register("commit", (
            Field("generation", 16, "rw", doc="Generation that the row gets."),
            Field("row", 6, "rw", doc="Row to change."),
            Field("used", 1, "rw", offset=31, doc="1 binds the row, 0 releases it.")),
            "Writing this register gives the command."),
        Register("result", (
            Field("code", 4, "ro", values=CommitCode, doc="Result of the last command."),
            Field("row", 6, "ro", offset=8, doc="Row of that command.")),
            "Completion code of the last command."),
        word("result_operation_id", "ro", "Operation of the last command."),
    )


def _binding(peer, *fields):
    return (
        Register("state", (
            Field("used", 1, "mem", doc="The row is bound."),
            *fields,
            Field("stream", 4, "mem", offset=4, doc="Stream of the binding."),
            Field("slot", 8, "mem", doc="Slot of the box, from 1."),
            Field("node", 12, "mem", doc=f"Node of the {peer}.")),
            "Peer that the row is bound to; a released row keeps the last one."),
        Register("binding", (
            Field("paths", 16, "mem", doc="Bit n set: path n may be used."),
            Field("generation", 16, "mem", doc="Generation of the row.")),
            "Paths and generation of the row."),
        word("operation_id", "mem", "Operation that wrote the row last; 0: none since reset."),
    )


def host_block(ports=8):
    """Registers of :class:`~dxpu.mapping.HostTable`."""
    rows = (
        *_binding("box"),
        Register("bus", (
            Field("secondary", 8, "mem", doc="First bus behind the port; 0 if none."),
            Field("subordinate", 8, "mem", doc="Last bus behind the port."),
            Field("device", 5, "mem", doc="Device number of the port inside the switch."),
            Field("io_enable", 1, "mem", offset=30, doc="I/O space enable of the port."),
            Field("memory_enable", 1, "mem", doc="Memory space enable of the port.")),
            "Set by the operating system, as all registers below."),
        word("memory_base", "mem", "First byte of the 32-bit memory window."),
        word("memory_limit", "mem", "Last byte of the 32-bit memory window; below the base if "
             "there is none."),
        word("prefetch_base_low", "mem", "First byte of the prefetchable window, bits 31:0."),
        word("prefetch_base_high", "mem", "Bits 63:32."),
        word("prefetch_limit_low", "mem", "Last byte of the prefetchable window, bits 31:0."),
        word("prefetch_limit_high", "mem", "Bits 63:32."),
        word("io_base", "mem", "First byte of the I/O window."),
        word("io_limit", "mem", "Last byte of the I/O window."),
    )
    return Block("host_table", (
        *_common(0, ports, "box"),
        Rows("row", ports, rows, "One for each downstream port.", stride=64, address=0x800),
    ), "Host mapping table: a row for each downstream port." + _PROTOCOL, size=0x1000)


def box_block(slots=8):
    """Registers of :class:`~dxpu.mapping.BoxTable`."""
    valid = Field("valid", 1, "mem", doc="A GPU is in the slot.")
    return Block("box_table", (
        *_common(1, slots, "host"),
        Rows("row", slots, _binding("host", valid), "Row n is slot n + 1.", stride=64,
             address=0x800),
    ), "Box mapping table: a row for each slot." + _PROTOCOL, size=0x1000)
