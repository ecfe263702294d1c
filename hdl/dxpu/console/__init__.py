"""Registers by a serial line: what a board is asked with before anything else works."""

from .console import Console
from .events import EventRing
from .uart import UartReceiver, UartTransmitter

__all__ = ["Console", "EventRing", "UartReceiver", "UartTransmitter"]
