"""What the mapping tables hold, and what is asked of them.

Ref: DxPU paper, Tables 2 and 3; PCI-to-PCI Bridge Architecture 1.2, 3.2.5; PCIe Base 5.0, 7.5.1.3
"""

from amaranth import *
from amaranth.lib import data, enum

__all__ = ["Binding", "BoxRow", "CommitCode", "CommitCommand", "ConfigUpdate", "FenceUpdate",
           "HostRow", "LookupKind", "LookupRequest", "LookupResult", "PortWindows", "RowChange",
           "RowEvent"]


class LookupKind(enum.Enum, shape=2):
    """What a lookup compares."""

    #: A memory address, with the memory window and the prefetchable window.
    MEMORY = 0
    #: An I/O address (32 bits), with the I/O window.
    IO = 1
    #: A bus number, with the range from secondary to subordinate bus number.
    BUS = 2


class LookupRequest(data.Struct):
    """A question to the host table."""

    kind: LookupKind
    #: Byte address, or bus number in the low 8 bits; bits above an I/O address or a bus number are
    #: ignored.
    value: 64


class LookupResult(data.Struct):
    """The answer: the lowest port that claims the value."""

    hit: 1
    #: 0 without a hit.
    port: 5


class ConfigUpdate(data.Struct):
    """A configuration register of the virtual switch has a new value."""

    strobe: 1
    #: 0 is the upstream port, 1 and up the downstream ports 0 and up.
    function: 6
    #: Configuration dword number: byte offset divided by 4.
    register: 10
    #: The whole register after the write.
    value: 32


class PortWindows(data.Struct):
    """What a downstream port claims, in units of each window's granularity.

    A window with its base above its limit claims nothing. Byte addresses of a memory window run
    from ``base << 20`` to ``limit << 20 | 0xfffff``, those of the I/O window from ``base << 12`` to
    ``limit << 12 | 0xfff``. Bus number 0 is never claimed: it is what an unconfigured bridge holds.
    """

    io_enable: 1
    memory_enable: 1
    secondary: 8
    subordinate: 8
    memory_base: 12
    memory_limit: 12
    prefetch_base: 44
    prefetch_limit: 44
    io_base: 20
    io_limit: 20


class Binding(data.Struct):
    """The part of a row that belongs to the manager.

    A released row keeps all but ``used``, ``generation`` and ``operation_id``, so that what is left
    to do for the old binding still finds its peer.
    """

    used: 1
    #: The peer: the box's node in a host table, the host's node in a box table.
    node: 12
    #: Slot of the box, counted from 1 (host table only).
    slot: 8
    stream: 4
    #: Bit n set: path n may be used.
    paths: 16
    generation: 16
    #: Operation that made the row what it is; 0 if none has since reset.
    operation_id: 32


class HostRow(data.Struct):
    """One entry of the host table: a downstream port. Addresses are whole byte addresses."""

    used: 1
    secondary: 8
    subordinate: 8
    #: Device number of the downstream port on the bus inside the switch: the row's number.
    device: 5
    memory_base: 32
    memory_limit: 32
    prefetch_base: 64
    prefetch_limit: 64
    io_base: 32
    io_limit: 32
    node: 12
    slot: 8
    paths: 16
    stream: 4
    generation: 16
    operation_id: 32


class BoxRow(data.Struct):
    """One entry of the box table: a slot."""

    #: A GPU is in place.
    valid: 1
    used: 1
    #: Slot number, counted from 1: the row's number plus 1.
    slot: 8
    #: Node of the host.
    node: 12
    paths: 16
    stream: 4
    generation: 16
    operation_id: 32


class CommitCode(enum.Enum, shape=4):
    """How a commit ended."""

    #: No command since reset.
    NONE = 0
    #: The row is as commanded, by this command or by an earlier one of the same operation.
    DONE = 1
    #: The command's epoch is lower than ``fence_epoch``.
    FENCED = 2
    #: There is no such row.
    BAD_ROW = 3
    #: Operation id 0 means "none" and cannot be used.
    BAD_OPERATION = 4
    #: To bind: node 0x001 to 0xFFE, slot 1 or more (host table), one of the paths that there
    #: are, a stream that there is.
    BAD_TARGET = 5
    #: The generation is older than the row's, or that of an earlier binding.
    STALE = 6
    #: The row is bound to something else; release it first.
    IN_USE = 7
    #: The end of the row's last binding is still under way; to be tried again.
    DRAINING = 8


class RowChange(enum.Enum, shape=2):
    """What a commit did to its row."""

    #: Neither of the others: new paths of a binding that stays, or a release of a free row.
    UPDATED = 0
    #: The row was free and is used.
    BOUND = 1
    #: The row was used and is free.
    RELEASED = 2


class CommitCommand(data.Struct):
    """A command to a row. All but ``strobe`` must hold until the table is not busy."""

    strobe: 1
    row: 6
    epoch: 32
    #: What the row is to become.
    binding: Binding


class FenceUpdate(data.Struct):
    """A request to raise the fence epoch."""

    strobe: 1
    epoch: 32


class RowEvent(data.Struct):
    """Event of one cycle: a row was written; ``rows`` shows the new row in the same cycle."""

    strobe: 1
    row: 6
    change: RowChange
    #: Generation of the row before.
    previous: 16
