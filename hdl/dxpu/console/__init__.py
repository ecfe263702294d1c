"""Registers by a serial line: what a board is asked with before anything else works."""

from .console import Console
from .events import EventRing
from .tlp_mailbox import TlpMailbox
from .uart import UartReceiver, UartTransmitter

__all__ = ["Console", "EventRing", "TlpMailbox", "UartReceiver", "UartTransmitter"]
