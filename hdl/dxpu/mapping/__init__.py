"""Mapping tables: the port that claims an address, and the peer at the other end of a row."""

from .commit import RowCommit
from .lookup import Lookup
from .registers import box_block, host_block
from .tables import BoxTable, HostTable
from .types import (
    Binding, BoxRow, CommitCode, CommitCommand, ConfigUpdate, FenceUpdate, HostRow, LookupKind,
    LookupRequest, LookupResult, PortWindows, RowChange, RowEvent,
)
from .windows import WindowFollower

__all__ = ["Binding", "BoxRow", "BoxTable", "CommitCode", "CommitCommand",
           "ConfigUpdate", "FenceUpdate", "HostRow", "HostTable", "Lookup", "LookupKind",
           "LookupRequest", "LookupResult", "PortWindows", "RowChange", "RowCommit", "RowEvent",
           "WindowFollower", "box_block", "host_block"]
