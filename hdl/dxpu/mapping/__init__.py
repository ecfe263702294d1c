"""Mapping tables: which port claims an address, and who is on the other side of the fabric."""

from dxpu.mapping.commit import RowCommit
from dxpu.mapping.lookup import Lookup
from dxpu.mapping.registers import box_block, host_block
from dxpu.mapping.tables import BoxTable, HostTable
from dxpu.mapping.types import (
    Binding, BoxRow, CommitCode, CommitCommand, ConfigUpdate, FenceUpdate, HostRow, LookupKind,
    LookupRequest, LookupResult, PortWindows, RowChange, RowEvent,
)
from dxpu.mapping.windows import WindowFollower

__all__ = ["Binding", "BoxRow", "BoxTable", "CommitCode", "CommitCommand",
           "ConfigUpdate", "FenceUpdate", "HostRow", "HostTable", "Lookup", "LookupKind",
           "LookupRequest", "LookupResult", "PortWindows", "RowChange", "RowCommit", "RowEvent",
           "WindowFollower", "box_block", "host_block"]
