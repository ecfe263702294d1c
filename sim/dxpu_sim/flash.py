"""``dxpu flash``: a bitstream into a board, by openFPGALoader."""

import argparse
import sys
from pathlib import Path

from .build import find_board
from .cli import UserError

__all__ = ["add_arguments", "run"]


def add_arguments(parser):
    """Options of the command."""
    parser.add_argument("board", help="name of a board (dxpu build --list)")
    parser.add_argument("file", help="bitstream (.bit) that `dxpu build` made")
    parser.add_argument("--cable", default=argparse.SUPPRESS,
                        help="cable as openFPGALoader calls it, instead of the board's own")
    parser.add_argument("--volatile", action="store_true",
                        help="into the FPGA itself: gone when the power is")
    parser.add_argument("--overwrite-boot-loader", action="store_true",
                        help="into flash, though a boot loader is there that will be gone")


def run(arguments) -> int:
    """Write it; returns 1 if that fails."""
    from dxpu_boards.flash import FlashFailed, flash
    board, file = find_board(arguments.board), Path(arguments.file)
    if not file.is_file():
        raise UserError(f"no file {arguments.file!r}")
    try:
        flash(board, file, cable=vars(arguments).get("cable"), volatile=arguments.volatile,
              overwrite=arguments.overwrite_boot_loader)
    except FlashFailed as error:
        print(f"dxpu flash: {error}", file=sys.stderr)
        return 1
    return 0
