"""Types of the mapping tables: rows, lookups, commands, events.

Ref: DxPU paper, Tables 2 and 3; PCI-to-PCI Bridge Architecture 1.2, 3.2.5; PCIe Base 5.0, 7.5.1.3
"""

from amaranth import *
from amaranth.lib import data, enum

__all__ = ["Binding", "BoxRow", "CommitCode", "CommitCommand", "ConfigUpdate", "FenceUpdate",
           "HostRow", "LookupKind", "LookupRequest", "LookupResult", "PortWindows", "RowChange",
           "RowEvent"]


class LookupKind(enum.Enum, shape=2):
    """Kind of a value that is looked up."""

    #: A memory address; compared with the memory window and the prefetchable window.
    MEMORY = 0
    #: An I/O address of 32 bits; compared with the I/O window.
    IO = 1
    #: A bus number; compared with the range from secondary to subordinate bus number.
    BUS = 2


class LookupRequest(data.Struct):
    """An address or a bus number to look up in the host table: that of ``kind``.

    Whoever asks need not choose between them, as that is what is known last of a TLP.
    """

    kind: LookupKind
    #: Byte address. Bits above an I/O address are ignored.
    address: 64
    bus: 8


class LookupResult(data.Struct):
    """The lowest downstream port that claims a value."""

    #: A port claims the value.
    hit: 1
    #: Number of the downstream port; 0 without a hit.
    port: 5
    #: The value is in a window, or in the bus range, of the upstream port. With a hit or without.
    upstream: 1


class ConfigUpdate(data.Struct):
    """New value of a configuration register of the virtual switch."""

    #: High for one cycle: the other fields are valid.
    strobe: 1
    #: 0 is the upstream port, 1 and up the downstream ports 0 and up.
    function: 6
    #: Configuration dword number: byte offset divided by 4.
    register: 10
    #: The whole register after the write.
    value: 32


class PortWindows(data.Struct):
    """Windows and bus numbers of a port, in units of each window's granularity.

    A window whose base is above its limit claims nothing. Byte addresses of a memory window run
    from ``base << 20`` to ``limit << 20 | 0xfffff``, those of the I/O window from ``base << 12`` to
    ``limit << 12 | 0xfff``. Bus number 0 is never claimed: an unconfigured bridge has it.
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
    """Part of a row that belongs to the manager.

    A release changes ``used``, ``generation`` and ``operation_id`` only, so that events of the old
    binding still find its peer.
    """

    #: The row is bound.
    used: 1
    #: The peer: the box's node in a host table, the host's node in a box table.
    node: 12
    #: Slot of the box, counted from 1 (host table only).
    slot: 8
    #: Stream of the session with the peer.
    stream: 4
    #: Bit n: path n may be used.
    paths: 16
    #: Serial number of the binding, modulo 2^16.
    generation: 16
    #: Operation that wrote the row last; 0: none since reset.
    operation_id: 32


class HostRow(data.Struct):
    """Row of the host table: a downstream port. Addresses are byte addresses."""

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
    """Row of the box table: a slot."""

    #: A GPU is present.
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
    """Result of a command."""

    #: No command since reset.
    NONE = 0
    #: The row is as commanded, by this command or an earlier one with the same operation id.
    DONE = 1
    #: The command's epoch is lower than ``fence_epoch``.
    FENCED = 2
    #: There is no such row.
    BAD_ROW = 3
    #: The operation id is 0, which means "none".
    BAD_OPERATION = 4
    #: The target of a binding is invalid. Valid are a node from 0x001 to 0xFFE, a slot from 1 on
    #: (host table), one existing path at least, an existing stream.
    BAD_TARGET = 5
    #: The generation is older than the row's, or that of an earlier binding.
    STALE = 6
    #: The row is bound to something else; release it first.
    IN_USE = 7
    #: The last binding of the row still drains; the command may be sent again.
    DRAINING = 8


class RowChange(enum.Enum, shape=2):
    """Change of a row by a command."""

    #: ``used`` is as before: new paths of a binding, or the release of a free row.
    UPDATED = 0
    #: The row was free and is used.
    BOUND = 1
    #: The row was used and is free.
    RELEASED = 2


class CommitCommand(data.Struct):
    """Command to a row. All but ``strobe`` must hold until the table is not busy."""

    strobe: 1
    row: 6
    epoch: 32
    #: New content of the row.
    binding: Binding


class FenceUpdate(data.Struct):
    """Request to raise the fence epoch."""

    strobe: 1
    epoch: 32


class RowEvent(data.Struct):
    """Change of a row, for one cycle; ``rows`` has the new row in the same cycle."""

    strobe: 1
    row: 6
    change: RowChange
    #: Generation before the change.
    previous: 16
