"""``dxpu wireshark``: what is installed and where, and that nothing of anybody else goes."""

import shutil

import pytest
from dxpu_cli import main as cli
from dxpu_cli.wireshark import folders, profile
from dxpu_cli.wireshark.plugin import MARK, plugin
from tests.support.tshark import Tshark


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home without settings, on a machine without tshark."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(folders.shutil, "which", lambda name: None)
    return tmp_path


def all_files(home):
    return {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}


def test_install_and_remove(home, capsys):
    script = ".local/lib/wireshark/plugins/dxpu.lua"
    settings = {f".config/wireshark/profiles/DXPU/{name}" for name in profile.files()}
    for _ in range(2):
        assert cli.main(["wireshark", "install"]) == 0
        assert all_files(home) == {script, *settings}
    assert (home / script).read_text() == plugin()
    assert str(home / script) in capsys.readouterr().out
    (home / ".config/wireshark/profiles/DXPU/recent_common").write_text("")
    assert cli.main(["wireshark", "remove"]) == 0
    assert all_files(home) == {".config/wireshark/profiles/DXPU/recent_common"}
    capsys.readouterr()
    assert cli.main(["wireshark", "remove"]) == 0
    assert capsys.readouterr().out == "nothing was installed\n"


def test_show(capsys):
    assert cli.main(["wireshark", "show"]) == 0
    assert capsys.readouterr().out == plugin()
    assert plugin().startswith(MARK)


@pytest.mark.parametrize("job", ["install", "remove"])
def test_a_plugin_of_somebody_else_stays(home, capsys, job):
    script = home / ".local/lib/wireshark/plugins/dxpu.lua"
    script.parent.mkdir(parents=True)
    script.write_text("-- mine\n")
    assert cli.main(["wireshark", job]) == 2
    assert capsys.readouterr().err == \
        f"dxpu wireshark: error: {script} is none of ours, and stays: move it away first\n"
    assert all_files(home) == {str(script.relative_to(home))}
    script.write_bytes(b"\xff\xfe")
    assert cli.main(["wireshark", job]) == 2
    assert f"cannot read {script}: it is no text" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_one_line(home, capsys):
    (home / ".local").write_text("")
    assert cli.main(["wireshark", "install"]) == 2
    line = capsys.readouterr().err
    assert line.startswith("dxpu wireshark: error: cannot ") and line.count("\n") == 1
    assert all_files(home) == {".local"}


@pytest.mark.skipif(not shutil.which("tshark"),
                    reason="tshark: no tshark (Debian's package of that name)")
def test_tshark_says_where(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    found = folders.folders()
    assert found.plugins == tmp_path / ".local/lib/wireshark/plugins"
    assert found.profiles == tmp_path / "settings/wireshark/profiles"


def test_filters_of_the_profile_are_known(tmp_path):
    """Columns and colours name fields that there are."""
    tshark = Tshark(tmp_path).frames([])
    for _, test, _, _ in profile.COLOURS:
        tshark.run("-Y", test)
    tshark.rows(*(content[5:].split(":")[0] for _, content, _ in profile.COLUMNS
                  if content.startswith("%Cus:")))
