"""Exceptions of the manager. Every message has a single line."""

__all__ = ["Conflict", "Deposed", "Impossible", "NotFound", "PoolError", "StoreError"]


class PoolError(Exception):
    """Base of all errors of this package."""


class NotFound(PoolError):
    """There is no such GPU, host, box or task."""


class Conflict(PoolError):
    """It cannot be done in the present state."""


class Impossible(PoolError):
    """It can never be done: the wish itself is wrong, or the pool too small."""


class StoreError(PoolError):
    """The store cannot be read or written."""


class Deposed(PoolError):
    """Another manager has taken over; this one changes nothing any more."""
