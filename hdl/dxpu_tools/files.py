"""Files that are written whole or not at all."""

import errno
import os
import tempfile
from pathlib import Path

__all__ = ["try_to_write", "write_bytes", "write_text"]


def try_to_write(path: Path) -> None:
    """Raises the :exc:`OSError` of a folder in which :func:`write_text` could not write ``path``;
    leaves nothing behind."""
    with _beside(path, delete=True):
        pass


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path``; on any error ``path`` is as it was before."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes, *, mode=0o644, replace=True) -> None:
    """As :func:`write_text`, with such permissions; nobody without them sees any of it meanwhile.

    Raises
    ------
    FileExistsError
        If not to ``replace`` what is there.
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
    """As ``os.replace``, but for :exc:`FileExistsError` if there is a file already."""
    try:
        os.link(source, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            raise
        # A file system without links, as that of a memory stick: take the name, then fill it.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        try:
            os.replace(source, path)
        except BaseException:
            os.unlink(path)
            raise
    else:
        os.unlink(source)


def _beside(path, *, delete):
    """A file in the same folder, which can take the other's place."""
    return tempfile.NamedTemporaryFile("wb", dir=path.parent, prefix=f".{path.name}-",
                                       delete=delete)
