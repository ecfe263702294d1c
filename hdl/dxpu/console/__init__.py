"""Console: access to registers over a serial line, for bring-up without a manager, a host or
PCIe."""

from .console import Console
from .events import EventRing
from .tlp_mailbox import TlpMailbox
from .uart import UartReceiver, UartTransmitter

__all__ = ["Console", "EventRing", "TlpMailbox", "UartReceiver", "UartTransmitter"]
