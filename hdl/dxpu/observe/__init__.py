"""What a proxy measures while it works: round trips, stages, queues; and what has happened."""

from .log import EventKind, EventLog, Pulses
from .marks import Mark, mark_registers
from .round_trips import BINS, RoundTrips, connect_memory, round_trip_rows, stage_rows
from .sights import CLOCK_BITS, HeadTap
from .stages import ReceiveTimer, SendTimer

__all__ = ["BINS", "CLOCK_BITS", "EventKind", "EventLog", "HeadTap", "Mark", "Pulses",
           "ReceiveTimer", "RoundTrips", "SendTimer", "connect_memory", "mark_registers",
           "round_trip_rows", "stage_rows"]
