"""``dxpu wireshark``: dissector and profile for Wireshark and tshark."""

import argparse
import contextlib
import sys
from pathlib import Path

from dxpu_cli.wireshark import profile
from dxpu_cli.wireshark.folders import folders
from dxpu_cli.wireshark.plugin import MARK, plugin
from dxpu_tools.errors import UserError

__all__ = ["add_arguments", "run"]

#: Name of the plugin's file.
FILE = "dxpu.lua"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    jobs = parser.add_subparsers(dest="job", metavar="JOB", required=True)
    jobs.add_parser("install", help="put dissector and profile where Wireshark finds them, in "
                    "place of older ones")
    jobs.add_parser("remove", help="take them away again")
    jobs.add_parser("show", help="print the dissector, for `tshark -X lua_script:FILE`")


def run(arguments: argparse.Namespace) -> int:
    """Install, remove or print."""
    if arguments.job == "show":
        sys.stdout.write(plugin())
        return 0
    places = folders()
    script, settings = places.plugins / FILE, places.profiles / profile.NAME
    _check(script)
    if arguments.job == "remove":
        return _remove(script, settings)
    _write(script, plugin())
    for name, text in profile.files().items():
        _write(settings / name, text)
    print(f"dissector: {script}\nprofile:   {settings}")
    print(f"In Wireshark choose the profile {profile.NAME} (Edit, Configuration Profiles); "
          f"tshark takes -C {profile.NAME}.")
    return 0


def _check(script: Path) -> None:
    """Leave a file of somebody else alone."""
    try:
        text = script.read_text("utf-8")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise UserError(f"cannot read {script}: {why}") from None
    if not text.startswith(MARK):
        raise UserError(f"{script} is none of ours, and stays: move it away first")


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    new = path.with_name(path.name + ".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(text, "utf-8")
        new.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink()
        raise UserError(f"cannot write {path}: {error.strerror}") from None


def _remove(script: Path, settings: Path) -> int:
    gone = []
    try:
        for path in (script, *(settings / name for name in profile.files())):
            if path.exists():
                path.unlink()
                gone.append(path)
        # What Wireshark itself has put there meanwhile stays.
        with contextlib.suppress(OSError):
            settings.rmdir()
    except OSError as error:
        raise UserError(f"cannot remove {error.filename}: {error.strerror}") from None
    for path in gone:
        print(f"removed {path}")
    if not gone:
        print("nothing was installed")
    return 0
