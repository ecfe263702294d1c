"""Packs a root file system for the guest: a cpio archive in the kernel's format, compressed.

Format: "newc" of the kernel's ``Documentation/driver-api/early-userspace/buffer-format.rst``.
"""

import gzip
import stat
from pathlib import Path

__all__ = ["Initramfs"]


class Initramfs:
    """Files and folders to be packed."""

    def __init__(self):
        self._entries: dict[str, tuple[int, bytes]] = {}

    def _folders(self, path):
        for parent in reversed(Path(path).parents):
            name = str(parent)
            if name != ".":
                self._entries.setdefault(name, (stat.S_IFDIR | 0o755, b""))

    def add(self, path: str, data: bytes, mode: int = 0o755) -> None:
        """Add a file at ``path``, without a leading slash."""
        self._folders(path)
        self._entries[path] = (stat.S_IFREG | mode, data)

    def folder(self, path: str) -> None:
        """Add an empty folder."""
        self._folders(f"{path}/x")

    def pack(self) -> bytes:
        """The archive; the same content gives the same bytes."""
        parts = [_entry(n + 1, name, mode, data)
                 for n, (name, (mode, data)) in enumerate(self._entries.items())]
        return gzip.compress(b"".join([*parts, _entry(0, "TRAILER!!!", 0, b"")]), 1, mtime=0)


def _entry(inode, name, mode, data):
    links = 2 if stat.S_ISDIR(mode) else 1
    fields = (inode, mode, 0, 0, links, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    head = b"070701" + b"".join(b"%08X" % f for f in fields) + name.encode() + b"\0"
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)
