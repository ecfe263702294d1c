"""``dxpu factory``: a record is made whole or not at all, and its key is nobody's business."""

import pytest

from dxpu.factory import FactoryRecord
from dxpu_cli import main as cli
from dxpu_cli.options import key_in
from dxpu_tools import files

MAC = "00:11:22:aa:bb:cc"
BYTES = bytes.fromhex("001122aabbcc")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "x.bin"


def run(capsys, *argv):
    """Status, and what it said."""
    status = cli.main(["factory", *map(str, argv)])
    said = capsys.readouterr()
    return status, said.out + said.err


@pytest.mark.parametrize("written", [MAC, MAC.upper(), "00-11-22-AA-BB-CC"])
def test_without_a_key(capsys, file, written):
    text = f"address  {MAC}\nserial   none\nkey      none\n"
    assert run(capsys, file, "--mac", written) == (0, text)
    assert file.read_bytes() == FactoryRecord(BYTES).to_bytes()
    assert file.stat().st_mode & 0o777 == 0o644
    assert run(capsys, file) == (0, text)


def test_with_a_key(capsys, file, tmp_path):
    key, record = bytes(range(60, 92)), FactoryRecord(BYTES, 0xFFFFFFFF, bytes(range(60, 92)))
    (tmp_path / "key").write_bytes(key)
    status, said = run(capsys, file, "--mac", MAC, "--serial", "0xFFFFFFFF", "--key",
                       tmp_path / "key")
    assert (status, said) == (0, f"address  {MAC}\nserial   4294967295\n"
                                 f"key      fingerprint {record.fingerprint:08x}\n")
    assert file.read_bytes() == record.to_bytes()
    assert file.stat().st_mode & 0o777 == 0o600
    assert run(capsys, file) == (0, said)


def test_the_key_of_the_pair_is_given_out(capsys, file, tmp_path):
    """The second half, as a file for `dxpu slots --key`; the first one, which managers have, is not
    in it."""
    key, pair = bytes(range(60, 92)), tmp_path / "pair"
    (tmp_path / "key").write_bytes(key)
    made = run(capsys, file, "--mac", MAC, "--key", tmp_path / "key", "--pair-key", pair)
    assert made == run(capsys, file) and made[0] == 0
    assert pair.stat().st_mode & 0o777 == 0o600
    assert key_in("--key", str(pair)) == key[16:]
    pair.write_text("mine")
    assert run(capsys, file, "--pair-key", pair) == (2, (
        f"dxpu factory: error: {str(pair)!r} is there already; give --force to replace it\n"))
    assert pair.read_text() == "mine"
    assert run(capsys, file, "--pair-key", pair, "--force") == made
    assert key_in("--key", str(pair)) == key[16:]


def test_without_a_key_none_is_given_out(capsys, file, tmp_path):
    assert run(capsys, file, "--mac", MAC)[0] == 0
    assert run(capsys, file, "--pair-key", tmp_path / "pair") == (
        2, "dxpu factory: error: --pair-key: the record has no key\n")
    assert not (tmp_path / "pair").exists()


def test_new_keys(capsys, file, tmp_path):
    assert run(capsys, file, "--mac", MAC, "--new-key")[0] == 0
    assert run(capsys, tmp_path / "y.bin", "--mac", MAC, "--new-key")[0] == 0
    keys = {FactoryRecord.from_bytes(f.read_bytes()).key for f in tmp_path.iterdir()}
    assert len(keys) == 2 and None not in keys
    assert {f.name for f in tmp_path.iterdir()} == {"x.bin", "y.bin"}


def test_nothing_is_replaced_but_by_force(capsys, file):
    assert run(capsys, file, "--mac", MAC)[0] == 0
    before = file.read_bytes()
    assert run(capsys, file, "--mac", MAC, "--serial", 5) == (2, (
        f"dxpu factory: error: {str(file)!r} is there already; give --force to replace it\n"))
    assert file.read_bytes() == before and len(list(file.parent.iterdir())) == 1
    assert run(capsys, file, "--mac", MAC, "--serial", 5, "--force", "--new-key")[0] == 0
    assert FactoryRecord.from_bytes(file.read_bytes()).serial == 5
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_failure_leaves_what_was_there(capsys, file, monkeypatch, force):
    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace" if force else "link", fails)
    if force:
        file.write_text("old")
    assert run(capsys, file, "--mac", MAC, "--new-key", *force) == (2, (
        f"dxpu factory: error: cannot write {str(file)!r}: No space left on device\n"))
    assert [f.read_text() for f in file.parent.iterdir()] == ["old"] * len(force)


@pytest.mark.parametrize("argv, message", [
    (("--mac", "00:11:22:33:44"), "--mac must be like 00:11:22:33:44:55, not '00:11:22:33:44'"),
    (("--mac", "0:1:2:3:4:5"), "--mac must be like 00:11:22:33:44:55, not '0:1:2:3:4:5'"),
    (("--mac", "01:00:5e:00:00:01"),
     "--mac must be of one device, but 01:00:5e:00:00:01 is of a group"),
    (("--mac", "ff:ff:ff:ff:ff:ff"),
     "--mac must be of one device, but ff:ff:ff:ff:ff:ff is of a group"),
    (("--mac", "00:00:00:00:00:00"), "--mac must not be zero"),
    (("--mac", "02:44:58:00:01:01"),
     "--mac must not begin with 02:44:58: those are of nodes that have a number"),
    (("--mac", MAC, "--serial", "4294967296"),
     "--serial must be a whole number from 0 to 4294967295, not '4294967296'"),
    (("--mac", MAC, "--serial", "A1"),
     "--serial must be a whole number from 0 to 4294967295, not 'A1'"),
    (("--mac", MAC, "--key", "no-such-key"),
     "cannot read 'no-such-key': No such file or directory"),
    (("--serial", "5"), "--serial is for making a record: give --mac as well"),
    (("--new-key",), "--new-key is for making a record: give --mac as well"),
    (("--force",), "--force is for making a record: give --mac as well")])
def test_wrong_values_get_one_line(capsys, file, argv, message):
    assert run(capsys, file, *argv) == (2, f"dxpu factory: error: {message}\n")
    assert not file.exists()


@pytest.mark.parametrize("size, said", [(0, "0"), (31, "31"), (33, "more"), (4096, "more")])
def test_a_key_of_the_wrong_length(capsys, file, tmp_path, size, said):
    key = tmp_path / "key"
    key.write_bytes(bytes(size))
    assert run(capsys, file, "--mac", MAC, "--key", key) == (2, (
        f"dxpu factory: error: --key must be a file of 32 bytes, but {str(key)!r} has {said}\n"))
    assert not file.exists()


def test_where_no_file_can_be(capsys, tmp_path):
    for name in (tmp_path, tmp_path / "no" / "x.bin", ""):
        status, said = run(capsys, name, "--mac", MAC)
        assert status == 2 and said.count("\n") == 1
        assert "RECORD must be a file in a folder that is there" in said
    assert run(capsys, tmp_path / "x.bin") == (2, (
        f"dxpu factory: error: cannot read {str(tmp_path / 'x.bin')!r}: "
        "No such file or directory\n"))


@pytest.mark.parametrize("data, message", [
    (b"", "there is no record"), (b"PNG", "it is no factory record"),
    (b"DXPF\3", "it is of version 3, not 1"), (b"DXPF\1", "the record is damaged")])
def test_no_record_is_shown(capsys, file, data, message):
    file.write_bytes(data)
    assert run(capsys, file) == (2, f"dxpu factory: error: {str(file)!r}: {message}\n")
