"""Checks of command line options; each mistake gives one line of text."""

import os
import re
from pathlib import Path

from dxpu_tools.errors import UserError
from dxpu_tools.files import try_to_write

__all__ = ["NO_KEYS", "add_seed", "decimal_number", "file_to_write", "folder_to_write",
           "given_seed", "key_in", "whole_number"]

#: What every command says that makes, sets up or uses sessions without keys.
NO_KEYS = ("keys: none; sessions are opened in clear, and whoever reaches the fabric can take them "
           "over")


def whole_number(option: str, text: str, least: int, most: int) -> int:
    """``text`` as a number of ``least`` to ``most``, decimal or with a prefix such as 0x."""
    try:
        value = int(text, 0)
    except ValueError:
        value = None
    if value is None or not least <= value <= most:
        raise UserError(f"{option} must be a whole number from {least} to {most}, not {text!r}")
    return value


def decimal_number(option: str, text: str, least: float, most: int) -> float:
    """``text`` as a number of ``least`` to ``most``, with a fraction or without."""
    try:
        value = float(text)
    except ValueError:
        value = None
    if value is None or not least <= value <= most:
        raise UserError(f"{option} must be a number from {least} to {most}, not {text!r}")
    return value


def add_seed(parser, text: str = "seed of all random choices; the same seed gives the same run"):
    """Add the option ``--seed`` to a command that simulates; the default is ``$DXPU_SEED``, else
    1."""
    parser.add_argument("--seed", default=os.environ.get("DXPU_SEED", "1"), help=text)


def given_seed(arguments) -> int:
    """Seed given by the option of :func:`add_seed`."""
    return whole_number("--seed", arguments.seed, 0, (1 << 32) - 1)


def key_in(option: str, name: str) -> bytes:
    """The key of 16 bytes in a file: 32 hexadecimal digits, that only its owner can read."""
    try:
        with open(name, encoding="ascii") as file:
            mode, text = os.fstat(file.fileno()).st_mode, file.read(100).strip()
    except OSError as error:
        raise UserError(f"{option}: cannot read {name!r}: {error.strerror}") from None
    except UnicodeDecodeError:
        text, mode = "", 0
    if mode & 0o077:
        raise UserError(f"{option}: others can read {name!r}; first: chmod 600 {name}")
    if not re.fullmatch(r"[0-9a-fA-F]{32}", text):
        raise UserError(f"{option}: {name!r} must have 32 hexadecimal digits, as "
                        "`openssl rand -hex 16` makes them")
    return bytes.fromhex(text)


def file_to_write(option: str, text: str | None) -> Path | None:
    """A file that can be written, in an existing folder; ``None`` without a name.

    Tests the write at once, so that no long run ends without a place for its results.
    """
    if not text:
        return None
    path = Path(text)
    try:
        if path.is_dir() or not path.parent.is_dir():
            raise UserError(f"{option} must be a file in a folder that is there, not {text!r}")
        try_to_write(path)
    except OSError as error:
        raise UserError(f"{option}: cannot write {text!r}: {error.strerror}") from None
    return path


def folder_to_write(option: str, text: str) -> Path:
    """A folder, existing or still to be made."""
    path = Path(text)
    try:
        if path.exists() and not path.is_dir():
            raise UserError(f"{option} must be a folder, but {text!r} is a file")
    except OSError as error:
        raise UserError(f"{option}: cannot use {text!r}: {error.strerror}") from None
    return path
