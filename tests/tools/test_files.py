"""dxpu_tools.files: files are written whole or not at all, and what cannot be written is known."""

import errno

import pytest

from dxpu_cli.options import file_to_write, folder_to_write
from dxpu_tools import files
from dxpu_tools.errors import UserError


def test_a_file_is_whole_or_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "report.json"
    files.write_text(path, "old ä\n")
    assert path.read_text(encoding="utf-8") == "old ä\n"
    assert path.stat().st_mode & 0o777 == 0o644

    def full(source, destination):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_text(path, "new")
    assert path.read_text(encoding="utf-8") == "old ä\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_try_leaves_everything_as_it_is(tmp_path):
    path = tmp_path / "report.json"
    assert file_to_write("--json", str(path)) == path
    assert not list(tmp_path.iterdir())
    path.write_text("old")
    assert file_to_write("--json", str(path)) == path
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    assert file_to_write("--json", None) is None


def test_a_file_that_is_not_to_be_replaced(tmp_path, monkeypatch):
    """With links and without, as on a memory stick."""
    def no_links(source, destination):
        raise OSError(errno.EPERM, "Operation not permitted")

    for n in range(2):
        path = tmp_path / f"record{n}.bin"
        files.write_bytes(path, b"new", mode=0o600, replace=False)
        assert path.read_bytes() == b"new" and path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(FileExistsError):
            files.write_bytes(path, b"other", replace=False)
        assert path.read_bytes() == b"new" and len(list(tmp_path.iterdir())) == n + 1
        monkeypatch.setattr(files.os, "link", no_links)


def test_names_that_no_folder_can_have():
    with pytest.raises(UserError, match="--out: cannot use 'x+': File name too long"):
        folder_to_write("--out", "x" * 300)
