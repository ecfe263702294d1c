"""What a proxy measures while it works: round trips of requests."""

from .round_trips import BINS, RoundTrips, connect_memory, round_trip_rows

__all__ = ["BINS", "RoundTrips", "connect_memory", "round_trip_rows"]
