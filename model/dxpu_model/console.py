"""Golden model of :class:`dxpu.console.Console`: the answer to a line."""

import re
from collections.abc import MutableMapping

from .crc import crc16_ccitt_false

__all__ = ["answer", "summed"]

_LINE = re.compile(r" *(?:r +([0-9a-f]{1,4})|w +([0-9a-f]{1,4}) +([0-9a-f]{1,8})) *"
                   r"(?:\*([0-9a-f]{4}))?", re.IGNORECASE)


def summed(text: str) -> str:
    """``text`` with its CRC."""
    return f"{text}*{crc16_ccitt_false(text.encode('latin-1')):04x}"


def answer(line: str, registers: MutableMapping[int, int]) -> str | None:
    """The answer to a line, without the line end; ``None`` if there is no answer.

    A write changes ``registers``, a mapping of byte addresses to values.
    """
    if not line.strip(" "):
        return None
    match = _LINE.fullmatch(line)
    checked = match is not None and match[4] is not None
    if not match or not checked and re.match(" *[RW]", line):
        return summed("?")
    if checked and summed(line[:-5])[-4:] != match[4].lower():
        return summed("?")
    address = int(match[1] or match[2], 16)
    if address not in registers:
        return summed(f"! {address:04x}")
    if match[3]:
        registers[address] = int(match[3], 16)
    return summed(f"= {address:04x} {registers[address]:08x}")
