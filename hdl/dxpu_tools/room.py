"""Free room on disks."""

import shutil
from pathlib import Path

from .errors import UserError

__all__ = ["check_room", "size_text"]


def check_room(path: Path, room: int, what: str, remedy: str) -> None:
    """Raise :exc:`UserError` unless ``room`` bytes are free at ``path``, which need not exist
    yet."""
    while not path.exists():
        path = path.absolute().parent
    free = shutil.disk_usage(path).free
    if free < room:
        raise UserError(f"{what} has {size_text(free)} free, and up to {size_text(room)} are "
                        f"needed: {remedy}")


def size_text(size: int) -> str:
    """Size in bytes, as text with a unit."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
