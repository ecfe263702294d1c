"""Files that are written whole or not at all."""

import os
import tempfile
from pathlib import Path

__all__ = ["try_to_write", "write_text"]


def try_to_write(path: Path) -> None:
    """Raises the :exc:`OSError` of a folder in which :func:`write_text` could not write ``path``;
    leaves nothing behind."""
    with _beside(path, delete=True):
        pass


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path``; on any error ``path`` is as it was before."""
    with _beside(path, delete=False) as file:
        try:
            file.write(text)
            file.flush()
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def _beside(path, *, delete):
    """A file in the same folder, which can take the other's place."""
    return tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}-",
                                       delete=delete, encoding="utf-8")
