"""Errors that end a command with a single line of text."""

__all__ = ["Failed", "UserError"]


class UserError(Exception):
    """A mistake of the user; the message is a line with mistake and remedy."""


class Failed(Exception):
    """A correct request could not be carried out; the message is a line, ``status`` the command's
    exit status."""

    def __init__(self, message: str = "", status: int = 1) -> None:
        super().__init__(message)
        self.status = status
