"""``dxpu manager``: runs the manager of a pool, and looks after its store."""

import argparse
import asyncio
import getpass
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dxpu_cli.main import require
from dxpu_cli.options import whole_number
from dxpu_host.errors import PortError
from dxpu_tools.errors import Failed, UserError
from dxpu_tools.files import write_text

__all__ = ["add_arguments", "run", "write_settings"]

#: Settings of a manager that somebody tries.
_TRIED = """\
# Settings of a manager before light nodes; see docs/reference/manager-service.md.
[store]
path = "pool.db"

[nodes]
records = "records"

[fabric]
socket = "fabric.sock"

[http]
listen = "127.0.0.1:7080"

[limits]
admits = true
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    jobs = parser.add_subparsers(dest="job", metavar="JOB", required=True)

    def job(name: str, text: str) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = jobs.add_parser(name, help=text)
        made.add_argument("settings", metavar="SETTINGS", help="TOML file")
        return made

    job("run", "manage a pool until Ctrl-C or SIGTERM")
    job("check", "check settings, factory records and store, and do nothing")
    one = job("account", "list, make, change or remove accounts, while no manager runs")
    one.add_argument("name", nargs="?", help="without it, all accounts are listed")
    one.add_argument("--role", choices=("Administrator", "Operator", "ReadOnly", "HostAgent"),
                     default=None, help="make an account with this role, or give another role")
    one.add_argument("--password", action="store_true",
                     help="ask for another password, or read it from standard input")
    one.add_argument("--remove", action="store_true", help="remove the account")
    one = job("backup", "copy the store, as it is at one instant; a manager may run")
    one.add_argument("file", metavar="FILE")
    one = job("restore", "put a backup in place of the store, while no manager runs")
    one.add_argument("file", metavar="FILE")
    one.add_argument("--damaged", action="store_true", help="also in place of a store in etcd that "
                     "no manager can use any more; a file is replaced however it is")
    one = jobs.add_parser("try", help="be hosts, boxes and GPUs for a manager that somebody tries, "
                          "until Ctrl-C")
    one.add_argument("folder", metavar="FOLDER",
                     help="gets factory records, a socket, and settings for `dxpu manager run`")
    for name, number, text in (("hosts", "3", "hosts"), ("boxes", "2", "boxes"),
                               ("cards", "4", "GPUs of each box"),
                               ("paths", "1", "paths from each host to each box")):
        one.add_argument(f"--{name}", metavar="N", default=number, help=text)


def run(arguments: argparse.Namespace) -> int:
    """Do the job; errors of the manager are one line."""
    if arguments.job == "try":
        return _try(arguments)
    require("manager")
    from dxpu_manager import PoolError
    from dxpu_manager.service import read_settings

    does: dict[str, Callable[[Any, argparse.Namespace], int]] = {
        "run": _run, "check": _check, "account": _account, "backup": _backup,
        "restore": _restore}
    try:
        return does[arguments.job](read_settings(Path(arguments.settings)), arguments)
    except (PoolError, PortError) as error:
        raise UserError(str(error)) from None


def _run(settings: Any, arguments: argparse.Namespace) -> int:
    from dxpu_manager.service import run as manage

    status: int = manage(settings, lambda address: print(
        f"manages {settings.records_at}; commands: --manager {address}", flush=True))
    return status


def _check(settings: Any, arguments: argparse.Namespace) -> int:
    from dxpu_manager import Node, Pool
    from dxpu_manager.service.settings import read_keys
    from dxpu_manager.store import VERSION

    keys = read_keys(settings.records)
    print(f"{len(keys)} factory records in {settings.records}")
    version = asyncio.run(_version(settings))
    if 0 < version < VERSION:
        print(f"the store has version {version}: the manager keeps it, and brings it to version "
              f"{VERSION}")
    elif settings.etcd or settings.store.exists():
        async def nodes() -> list[Node]:
            store = await _opened(settings)
            try:
                return list((await Pool.of(store)).all(Node))
            finally:
                await store.close()

        known = asyncio.run(nodes())
        print(f"{len(known)} nodes in {settings.records_at}")
        for node in known:
            if (node.serial, bytes.fromhex(node.mac)) not in keys:
                raise Failed(f"no factory record of the {node.role} {node.name} at "
                             f"{bytes.fromhex(node.mac).hex(':')}")
    else:
        print(f"no store at {settings.store} yet; the manager makes it")
    print(f"commands: --manager {settings.address}")
    return 0


async def _version(settings: Any) -> int:
    """Version of the store; 0: there is none yet."""
    if settings.etcd:
        from dxpu_manager.etcd import version_of

        etcd = _etcd(settings)
        try:
            return await version_of(etcd)
        finally:
            await etcd.close()
    from dxpu_manager.store import version_of as version_of_file

    return version_of_file(settings.store)


async def _opened(settings: Any) -> Any:
    """The store, which no manager has at present."""
    from dxpu_manager.service.program import open_store

    if settings.etcd:
        from dxpu_manager.etcd import leader_of

        etcd = _etcd(settings)
        leader = await leader_of(etcd)
        await etcd.close()
        if leader is not None:
            raise UserError(f"a manager leads, at {leader}: stop all managers first, or ask that "
                            "one")
    return await open_store(settings)


# Accounts ---------------------------------------------------------------------------------------


def _account(settings: Any, arguments: argparse.Namespace) -> int:
    from dxpu_manager import Pool
    from dxpu_manager.service.accounts import Accounts

    if arguments.name is None and (arguments.role or arguments.password or arguments.remove):
        raise UserError("name an account")
    if arguments.remove and (arguments.role or arguments.password):
        raise UserError("--remove is alone")

    async def change() -> None:
        store = await _opened(settings)
        try:
            pool = await Pool.of(store)
            accounts = Accounts(pool)
            there = {one.user for one in accounts.all()}
            name = arguments.name
            if arguments.remove:
                accounts.remove(name)
            elif name is not None and name not in there:
                if arguments.role is None:
                    raise UserError(f"there is no account {name}; --role makes one")
                accounts.make(name, _password(name), arguments.role)
            elif name is not None:
                accounts.change(name, role=arguments.role,
                                password=_password(name) if arguments.password else None)
            await pool.durable()
            for one in accounts.all():
                if name in (None, one.user):
                    print(f"{one.user}  {one.role}" + "  disabled" * (not one.enabled))
        finally:
            await store.close()

    asyncio.run(change())
    return 0


def _password(name: str) -> str:
    if sys.stdin.isatty():
        first = getpass.getpass(f"password of {name}: ")
        if getpass.getpass("again: ") != first:
            raise UserError("these were two different passwords")
        return first
    return sys.stdin.readline().rstrip("\n")


# Store ------------------------------------------------------------------------------------------


def _backup(settings: Any, arguments: argparse.Namespace) -> int:
    from dxpu_manager.backups import backup

    if settings.etcd:
        from dxpu_manager.etcd.backups import backup as backup_etcd

        async def copies() -> None:
            etcd = _etcd(settings)
            try:
                await backup_etcd(etcd, Path(arguments.file))
            finally:
                await etcd.close()

        asyncio.run(copies())
    else:
        backup(settings.store, Path(arguments.file))
    print(f"{arguments.file}: the store as it is now, with the keys of pairs")
    return 0


def _restore(settings: Any, arguments: argparse.Namespace) -> int:
    from dxpu_manager.backups import restore

    if settings.etcd:
        from dxpu_manager.etcd.backups import restore as restore_etcd

        async def restores() -> None:
            await restore_etcd(Path(arguments.file), _etcd(settings),
                               is_damaged=arguments.damaged)

        asyncio.run(restores())
        kept = None
    else:
        kept = restore(Path(arguments.file), settings.store)
    print(f"{settings.records_at}: as in {arguments.file}"
          + (f"; the former store is {kept}" if kept else ""))
    return 0


def _etcd(settings: Any) -> Any:
    """The etcd of the settings, in the running loop."""
    from dxpu_manager.service.program import etcd_of

    return etcd_of(settings)


# Light nodes ------------------------------------------------------------------------------------


def write_settings(folder: Path) -> Path:
    """Settings for a manager before light nodes, unless there are some already."""
    settings = folder / "manager.toml"
    if not settings.exists():
        write_text(settings, _TRIED)
    return settings


def _try(arguments: argparse.Namespace) -> int:
    numbers = [whole_number(f"--{name}", getattr(arguments, name), least, most)
               for name, least, most in (("hosts", 1, 256), ("boxes", 1, 256), ("cards", 0, 8),
                                         ("paths", 1, 4))]
    from dxpu_sim.system.agents.program import NodesProgram, make_agents

    folder = Path(arguments.folder)
    try:
        program = NodesProgram(folder, make_agents(*numbers[:3], paths=numbers[3]))
        settings = write_settings(folder)
    except OSError as error:
        raise UserError(f"cannot write to {arguments.folder!r}: {error.strerror}") from None
    try:
        asyncio.run(program.serve(lambda: print(
            f"{numbers[0]} hosts and {numbers[1]} boxes with {numbers[2]} GPUs each; in another "
            f"terminal: dxpu manager run {settings}", flush=True)))
    except PortError as error:
        raise UserError(str(error)) from None
    return 0
