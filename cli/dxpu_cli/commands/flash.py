"""``dxpu flash``: writes a bitstream or a factory record into a board, by openFPGALoader."""

import argparse
import sys
from pathlib import Path

from dxpu_tools.errors import UserError

from .build import find_board

__all__ = ["add_arguments", "run"]


def add_arguments(parser):
    """Options of the command."""
    parser.add_argument("board", help="name of a board (dxpu build --list)")
    parser.add_argument("file", help="bitstream (.bit) that `dxpu build` made, or "
                        "record that `dxpu factory` made")
    parser.add_argument("--factory", action="store_true",
                        help="it must be a factory record; one is also known by its first bytes")
    parser.add_argument("--cable", default=argparse.SUPPRESS,
                        help="cable as openFPGALoader calls it, instead of the board's own")
    parser.add_argument("--volatile", action="store_true",
                        help="into the FPGA itself: gone when the power is")
    parser.add_argument("--overwrite-boot-loader", action="store_true",
                        help="into flash, though a boot loader is there that will be gone")


def run(arguments) -> int:
    """Write the file; returns 1 on failure."""
    from dxpu_boards.flash import FlashFailed, flash
    board, file = find_board(arguments.board), Path(arguments.file)
    record = _is_record(file, arguments.factory)
    if record and arguments.volatile:
        raise UserError("a factory record is for the flash, so not with --volatile")
    try:
        flash(board, file, cable=vars(arguments).get("cable"), volatile=arguments.volatile,
              overwrite=arguments.overwrite_boot_loader, record=record)
    except FlashFailed as error:
        print(f"dxpu flash: {error}", file=sys.stderr)
        return 1
    return 0


def _is_record(file, must):
    """Whether a file is a factory record; raises :exc:`UserError` for a bad record."""
    from dxpu.factory import RECORD_BYTES, FactoryRecord, RecordError, is_record
    try:
        with file.open("rb") as opened:
            data = opened.read(RECORD_BYTES + 1)
    except OSError as error:
        raise UserError(f"cannot read {str(file)!r}: {error.strerror}") from None
    if not must and not is_record(data):
        return False
    try:
        FactoryRecord.from_bytes(data)
    except RecordError as error:
        raise UserError(f"{str(file)!r}: {error}") from None
    if len(data) > RECORD_BYTES:
        raise UserError(f"{str(file)!r}: there is more than a factory record in it")
    return True
