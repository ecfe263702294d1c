"""Errors that end a command with one line."""

__all__ = ["Failed", "UserError"]


class UserError(Exception):
    """A mistake of the user; the message is one line that says what is wrong and what to do."""


class Failed(Exception):
    """What was asked for was right, and could not be done; the message is one line."""
