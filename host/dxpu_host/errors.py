"""Exceptions of this package. Every message is one line."""

__all__ = ["Aborted", "HostError", "PortError", "SessionLost", "SlotLost", "Timeout",
           "Unsupported"]


class HostError(Exception):
    """Base of all errors of this package."""


class PortError(HostError):
    """The Ethernet interface cannot be used; the message gives reason and remedy."""


class SessionLost(HostError):
    """The session with the box is not open, or ended during the operation.

    It opens again by itself; slots behind it must be bound again.
    """


class SlotLost(HostError):
    """The slot is not bound, or its device was reset or went away during the operation."""


class Timeout(HostError, TimeoutError):
    """No answer in time."""


class Unsupported(HostError):
    """The request ended in Unsupported Request (PCIe Base 5.0, 2.2.9)."""


class Aborted(HostError):
    """The request ended in Completer Abort, or its data came poisoned."""
