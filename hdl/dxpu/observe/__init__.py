"""What a proxy measures while it works: round trips, stages, queues; and what has happened."""

from .log import EventKind, EventLog, Pulses
from .marks import Mark, mark_registers
from .round_trips import BINS, RoundTrips, round_trip_rows, stage_rows
from .sights import CLOCK_BITS, HeadTap
from .stages import ReceiveTimer, SendTimer
from .times import Times, access_of

__all__ = ["BINS", "CLOCK_BITS", "EventKind", "EventLog", "HeadTap", "Mark", "Pulses",
           "ReceiveTimer", "RoundTrips", "SendTimer", "Times", "access_of", "mark_registers",
           "round_trip_rows", "stage_rows"]
