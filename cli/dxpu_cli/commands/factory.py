"""``dxpu factory``: the factory record with a board's MAC address, serial number and key."""

import argparse
import re
import secrets
from pathlib import Path

from dxpu.fabric.wire.format import MAC_PREFIX
from dxpu.factory import NODE_KEY_BYTES, RECORD_BYTES, FactoryRecord, RecordError, mac_text
from dxpu.factory.record import KEY_BYTES
from dxpu_cli.options import file_to_write, whole_number
from dxpu_tools.errors import UserError
from dxpu_tools.files import write_bytes

__all__ = ["add_arguments", "run"]


def add_arguments(parser):
    """Options of the command."""
    def option(name, text, **others):
        parser.add_argument(name, help=text, default=argparse.SUPPRESS, **others)

    parser.add_argument("record", help="file of the record (.bin); shown, if --mac is not given")
    option("--mac", "make a record with this address, such as 00:11:22:33:44:55")
    option("--serial", "serial number, to 4294967295; 0 is none")
    keys = parser.add_mutually_exclusive_group()
    keys.add_argument("--key", default=argparse.SUPPRESS, metavar="FILE",
                      help=f"file with the key, {KEY_BYTES} bytes")
    keys.add_argument("--new-key", action="store_true", help="with a new key, which is then in the "
                      "record alone")
    option("--pair-key", "write the key that a stand-alone box and its host have in common, for "
           "`dxpu slots --key`", metavar="FILE")
    parser.add_argument("--force", action="store_true", help="replace a file that is there")


def run(arguments) -> int:
    """Make or show a record, and give the key of the pair out."""
    given = vars(arguments)
    making = [name for name in ("mac", "serial", "key") if name in given]
    making += ["new-key"] * arguments.new_key
    making += ["force"] * (arguments.force and "pair_key" not in given)
    if making and "mac" not in given:
        raise UserError(f"--{making[0]} is for making a record: give --mac as well")
    if "mac" in given:
        record = FactoryRecord(_mac(arguments.mac), whole_number(
            "--serial", given.get("serial", "0"), 0, (1 << 32) - 1), _key(given))
        _write_file("RECORD", arguments.record, record.to_bytes(), 0o600 if record.key else 0o644,
                    arguments.force)
    else:
        record = _read(arguments.record)
    if "pair_key" in given:
        if record.key is None:
            raise UserError("--pair-key: the record has no key")
        text = f"{record.key[NODE_KEY_BYTES:].hex()}\n"
        _write_file("--pair-key", arguments.pair_key, text.encode(), 0o600, arguments.force)
    print(f"address  {mac_text(record.mac)}")
    print(f"serial   {record.serial or 'none'}")
    print(f"key      {f'fingerprint {record.fingerprint:08x}' if record.key else 'none'}")
    return 0


def _mac(text):
    if not re.fullmatch(r"([0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}", text):
        raise UserError(f"--mac must be like 00:11:22:33:44:55, not {text!r}")
    mac = bytes.fromhex(re.sub("[:-]", "", text))
    if mac[0] & 1:
        raise UserError(f"--mac must be of one device, but {text} is of a group")
    if not any(mac):
        raise UserError("--mac must not be zero")
    if mac.startswith(MAC_PREFIX):
        raise UserError(f"--mac must not begin with {mac_text(MAC_PREFIX)}: those are of nodes "
                        "that have a number")
    return mac


def _key(given):
    if given["new_key"]:
        return secrets.token_bytes(KEY_BYTES)
    if "key" not in given:
        return None
    key = _bytes(given["key"], KEY_BYTES)
    if len(key) != KEY_BYTES:
        size = f"{len(key)}" if len(key) < KEY_BYTES else "more"
        raise UserError(f"--key must be a file of {KEY_BYTES} bytes, but {given['key']!r} has "
                        f"{size}")
    return key


def _bytes(name, most):
    """The first bytes of a file, up to ``most`` + 1."""
    try:
        with Path(name).open("rb") as file:
            return file.read(most + 1)
    except OSError as error:
        raise UserError(f"cannot read {name!r}: {error.strerror}") from None


def _read(name):
    data = _bytes(name, RECORD_BYTES)
    try:
        return FactoryRecord.from_bytes(data)
    except RecordError as error:
        raise UserError(f"{name!r}: {error}") from None


def _write_file(option, name, data, mode, force):
    path = file_to_write(option, name or ".")
    try:
        write_bytes(path, data, mode=mode, replace=force)
    except FileExistsError:
        raise UserError(f"{name!r} is there already; give --force to replace it") from None
    except OSError as error:
        raise UserError(f"cannot write {name!r}: {error.strerror}") from None
