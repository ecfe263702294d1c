"""dxpu_sim.files: files are written whole or not at all, and what cannot be written is known."""

import pytest

from dxpu_sim import files
from dxpu_sim.options import file_to_write


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
