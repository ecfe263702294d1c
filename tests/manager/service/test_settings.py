"""Settings of a manager, and all that may be wrong with them."""

import re

import pytest

from dxpu.factory import FactoryRecord
from dxpu_cli import main as cli
from dxpu_manager import Limits
from dxpu_manager.service.settings import SettingsError, read_keys, read_settings

GOOD = """
[store]
path = "pool.db"
[nodes]
records = "records"
[fabric]
interface = "eth1"
"""


def read(tmp_path, text):
    path = tmp_path / "manager.toml"
    path.write_text(text)
    return read_settings(path)


def test_settings_are_read_relative_to_their_file(tmp_path):
    settings = read(tmp_path, GOOD + """
number = 2
slower = 1.5
[http]
listen = "[::1]:99"
[log]
json = true
[limits]
attach = 3
admits = true
""")
    assert (settings.store, settings.records) == (tmp_path / "pool.db", tmp_path / "records")
    assert (settings.iface, settings.number, settings.slower) == ("eth1", 2, 1.5)
    assert (settings.host, settings.port, settings.address) == ("::1", 99, "http://[::1]:99")
    assert settings.json_log and settings.limits == Limits(attach=3, admits=True)
    assert settings.is_local
    bare = read(tmp_path, GOOD)
    assert (bare.address, bare.is_local) == ("http://127.0.0.1:7080", True)
    there = read(tmp_path, GOOD + '[http]\nlisten = "unix:m.sock"\n')
    assert there.address == f"unix:{tmp_path / 'm.sock'}" and there.is_local


@pytest.mark.parametrize("text, says", [
    ("a = ", "is no TOML: "), ("[colour]\n", "there is no table [colour]; there are [store], "),
    ("[store]\nname = 1\n", "[store] has no name; it has path"),
    ("[store]\npath = 5\n", "[store] path cannot be 5"),
    ("[log]\njson = 1\n", "[log] json cannot be 1"),
    ("[fabric]\nnumber = true\n", "[fabric] number cannot be True"),
    ("[store]\npath = \"a\"\n", "lacks [nodes] records"),
    ("[nodes]\nrecords = \"a\"\n", "[store] needs path, or else etcd"),
    (GOOD.replace('path = "pool.db"', 'path = "a"\netcd = "b:1"'), "[store] needs path, or else "),
    (GOOD.replace('path = "pool.db"', 'etcd = "b:1"\nkey = "k"'), "[store] needs ca beside "),
    (GOOD.replace('path = "pool.db"', 'etcd = "b:1"\nlease = 1'),
     "[store] lease is 2 to 3600 seconds, not 1"),
    (GOOD.replace('interface = "eth1"', ""), "[fabric] needs interface, or else socket"),
    (GOOD + 'socket = "x"\n', "[fabric] needs interface, or else socket"),
    (GOOD.replace('interface = "eth1"', f'socket = "{"x" * 200}"'),
     "[fabric] socket: the name of a UNIX socket has 107 bytes at most, not "),
    (GOOD + f'[http]\nlisten = "unix:{"x" * 200}"\n',
     "[http] listen: the name of a UNIX socket has 107 bytes at most, not "),
    (GOOD + "number = 5\n", "[fabric] number is 1 to 4, not 5"),
    (GOOD + "slower = 0\n", "[fabric] slower must be above 0, not 0"),
    (GOOD + "slower = nan\n", "[fabric] slower must be above 0, not nan"),
    (GOOD + "[limits]\nattach = -1\n", "[limits] attach must be above 0, not -1"),
    (GOOD + '[http]\nlisten = "80"\n', "[http] listen must be like \"127.0.0.1:7080\" or "),
    (GOOD + '[http]\nlisten = "a:99999"\n', "[http] listen must be like "),
    (GOOD + '[http]\ncertificate = "c"\n', "[http] needs certificate and key, or none of both"),
    (GOOD + '[http]\ncertificate = "c"\nkey = "k"\n', "there is no file "),
    (GOOD + '[http]\nlisten = "0.0.0.0:80"\n', "[http] listen is 0.0.0.0, which others reach: give "
     "certificate and key for TLS, or listen at 127.0.0.1")])
def test_wrong_settings_are_one_line(tmp_path, text, says):
    with pytest.raises(SettingsError) as error:
        read(tmp_path, text)
    assert says in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("settings, says", [
    ('socket = "none.sock"', "no fabric listens at .*none.sock': No such file or directory"),
    ('socket = "records"', "no fabric listens at .*records': Connection refused"),
    ('interface = "no-such-one"', "no interface 'no-such-one'; there are lo.*")])
def test_a_fabric_that_is_not_there_is_one_line(tmp_path, settings, says, capsys):
    (tmp_path / "records").mkdir()
    path = tmp_path / "manager.toml"
    path.write_text(GOOD.replace('interface = "eth1"', settings))
    assert cli.main(["manager", "run", str(path)]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert re.fullmatch(f"dxpu manager: error: {says}", error)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(SettingsError, match="^cannot read .*: No such file or directory$"):
        read_settings(tmp_path / "none.toml")


def test_keys_come_from_factory_records(tmp_path):
    mac, key = bytes.fromhex("020000000001"), bytes(range(32))
    (tmp_path / "one.bin").write_bytes(FactoryRecord(mac, 7, key).to_bytes())
    (tmp_path / "note.txt").write_text("no record")
    assert read_keys(tmp_path) == {(7, mac): key[:16]}
    (tmp_path / "two.bin").write_bytes(FactoryRecord(mac, 8, None).to_bytes())
    with pytest.raises(SettingsError, match="two.bin': this record has no key$"):
        read_keys(tmp_path)
    (tmp_path / "two.bin").write_bytes(b"short")
    with pytest.raises(SettingsError, match="two.bin'"):
        read_keys(tmp_path)
    with pytest.raises(SettingsError, match="there is no folder"):
        read_keys(tmp_path / "none")
