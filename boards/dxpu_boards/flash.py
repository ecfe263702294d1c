"""Writes a bitstream or a factory record into a board, by openFPGALoader.

Ref: openFPGALoader, doc/guide/advanced.rst ("Writing to an arbitrary address in flash memory")
"""

import shutil
import subprocess
from pathlib import Path

from .board import Board

__all__ = ["LOADER", "FlashFailed", "command", "flash"]

#: Name of the program; no Python package contains it.
LOADER = "openFPGALoader"


class FlashFailed(RuntimeError):
    """The file could not be written into the board; the message is one line."""


def command(board: Board, file: Path, *, cable: str | None = None, volatile: bool = False,
            overwrite: bool = False, record: bool = False):
    """Command line of openFPGALoader, as a list.

    Parameters
    ----------
    cable : str
        openFPGALoader's name of a cable, instead of the board's own.
    volatile : bool
        Write into the part itself instead of its flash.
    overwrite : bool
        Write into the flash even if it begins with a boot loader.
    record : bool
        The file is a factory record, for its place in the flash; other blocks stay unchanged.

    Raises
    ------
    FlashFailed
        If the board has no cable of its own and none is given, or its boot loader would be lost, or
        it reads no record.
    """
    if record and board.record is None:
        raise FlashFailed(f"{board.name} has no place for a factory record")
    options = ("--cable", cable) if cable else board.loader
    if not options:
        raise FlashFailed(f"{board.name} has no cable of its own; name yours, as {LOADER} calls it")
    if not board.is_open:
        # openFPGALoader writes their flash through the part, so it must know the part.
        platform = board.platform
        options = (*options, "--fpga-part", f"{platform.device}{platform.package}")
    if record:
        return [LOADER, *options, "--write-flash", "--file-type", "raw", "--offset",
                f"{board.record:#x}", str(file)]
    if board.boot_loader and not (volatile or overwrite):
        raise FlashFailed(f"the flash of {board.name} begins with its boot loader, which this "
                          "would overwrite; give --volatile, use the boot loader "
                          "(docs/reference/boards.md), or give --overwrite-boot-loader")
    return [LOADER, *options, *([] if volatile else ["--write-flash"]), str(file)]


def flash(board: Board, file: Path, **options) -> None:
    """Run openFPGALoader; its output goes to the terminal.

    Raises
    ------
    FlashFailed
    """
    arguments = command(board, file, **options)
    if shutil.which(LOADER) is None:
        raise FlashFailed(f"{LOADER} is not installed; Debian has it as openfpgaloader, others: "
                          "https://trabucayre.github.io/openFPGALoader")
    done = subprocess.run(arguments)
    if done.returncode:
        raise FlashFailed(f"{LOADER} failed with status {done.returncode}")
