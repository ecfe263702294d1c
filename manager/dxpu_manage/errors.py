"""Exceptions of the package. Every message has a single line."""

__all__ = ["ManageError", "NoAnswer", "NoRegister", "Refused", "Stale"]


class ManageError(Exception):
    """Base of all errors of this package; by itself a wish that cannot be fulfilled."""


class NoAnswer(ManageError, TimeoutError):
    """A node does not answer. A write may have been done nevertheless, once."""


class Refused(ManageError):
    """The node did not do the request."""


class Stale(Refused):
    """Another manager has taken over: the node's epoch is higher."""


class NoRegister(Refused):
    """There is no such register, or no writing to it; nothing was done."""
