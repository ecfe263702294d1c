"""Exceptions of the manager. Every message has a single line."""

__all__ = ["Conflict", "Deposed", "Impossible", "NotFound", "PoolError", "StoreError"]


class PoolError(Exception):
    """Base of all errors of this package."""


class NotFound(PoolError):
    """There is no such GPU, host, box or task."""


class Conflict(PoolError):
    """The present state does not allow the wish."""


class Impossible(PoolError):
    """No state allows the wish: a wrong wish, or a pool that is too small."""


class StoreError(PoolError):
    """The store cannot be read or written."""


class Deposed(PoolError):
    """Another manager has taken over; nothing may be changed any more."""
