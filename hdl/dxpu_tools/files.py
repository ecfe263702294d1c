"""Files that are written whole or not at all."""

import errno
import os
import tempfile
from pathlib import Path

__all__ = ["try_to_write", "write_bytes", "write_text"]


def try_to_write(path: Path) -> None:
    """Test whether :func:`write_text` can write ``path``; raises the :exc:`OSError` if not.

    Leaves nothing behind.
    """
    with _beside(path, delete=True):
        pass


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path``; on any error ``path`` stays unchanged."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes, *, mode=0o644, replace=True) -> None:
    """Write ``data`` to ``path`` as :func:`write_text` does, with permissions ``mode``.

    The data is never readable with wider permissions, not even during the write.

    Raises
    ------
    FileExistsError
        If ``path`` exists and ``replace`` is false.
    """
    with _beside(path, delete=False) as file:
        try:
            file.write(data)
            file.flush()
            os.chmod(file.name, mode)
            if replace:
                os.replace(file.name, path)
            else:
                _move_if_free(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def _move_if_free(source, path):
    """Like ``os.replace``, but raises :exc:`FileExistsError` if ``path`` exists."""
    try:
        os.link(source, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            raise
        # A file system without links, such as a memory stick: reserve the name, then fill the file.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        try:
            os.replace(source, path)
        except BaseException:
            os.unlink(path)
            raise
    else:
        os.unlink(source)


def _beside(path, *, delete):
    """A temporary file in the same folder, so that it can replace ``path``."""
    return tempfile.NamedTemporaryFile("wb", dir=path.parent, prefix=f".{path.name}-",
                                       delete=delete)
