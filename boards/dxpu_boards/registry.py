"""All boards, by name."""

from zlib import crc32

from . import (
    alinx_ax7325b, butterstick, colorlight_5a_75b, ecpix_5, genesys_2, logicbone, versa_ecp5_5g,
)

__all__ = ["BOARDS", "named"]

#: Boards in the order of lists.
BOARDS = {board.name: board for board in (
    versa_ecp5_5g.BOARD,
    *ecpix_5.BOARDS,
    butterstick.BOARD,
    logicbone.BOARD,
    *colorlight_5a_75b.BOARDS,
    genesys_2.BOARD,
    alinx_ax7325b.BOARD,
)}


def named(crc: int):
    """The :class:`~.board.Board` whose name has the CRC-32 ``crc``; ``None`` if there is none."""
    return next((board for name, board in BOARDS.items() if crc32(name.encode()) == crc), None)
