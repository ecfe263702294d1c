"""``dxpu build``: a proxy for a board, as a bitstream with a timing report."""

import argparse
import difflib
import sys
from dataclasses import asdict, replace

from dxpu_cli.main import require
from dxpu_cli.options import NO_KEYS, whole_number
from dxpu_cli.output import OutputFolder
from dxpu_cli.progress import Progress
from dxpu_tools.errors import UserError

__all__ = ["add_arguments", "find_board", "run"]

#: Room needed by a build, in bytes; mostly netlists.
ROOM = 512 << 20
#: Rate of the core in Mb/s (width times clock) at which the MACs never starve. Ref:
#: dxpu.ethernet.Mac
LEAST_RATE = 1250


def add_arguments(parser):
    """Options of the command."""
    def option(name, text, **others):
        # Options left out take the value of the board, so there is no default to show.
        parser.add_argument(name, help=text, default=argparse.SUPPRESS, **others)

    parser.add_argument("board", nargs="?", default=argparse.SUPPRESS, help="name of a board")
    parser.add_argument("--list", action="store_true",
                        help="list the boards and what they lack, and end")
    option("--role", "which proxy", choices=("host", "box"))
    option("--out", "folder for all that is made (default: build/BOARD-ROLE)", metavar="DIR")
    option("--goal", "what synthesis is to save: time, or LUTs (default: speed)",
           choices=("speed", "area"))
    option("--seed", "seed of placing (default: 1)")
    option("--tries", "placings, with this seed and the next ones, until all clocks are met "
           "(default: 3)")
    option("--width", "data bits per beat (default here and below: the board's)", type=int)
    option("--slots", "downstream ports of a host, GPU slots of a box", type=int)
    option("--gpus", "soft GPUs of a box, in its first slots (default: one in each slot)", type=int)
    option("--peers", "other nodes it has sessions with", type=int)
    option("--streams", "sessions with each of them", type=int)
    option("--stand-alone", "a box binds its soft GPUs to the first host that it hears "
           "(default: on boards without a UART)", action=argparse.BooleanOptionalAction)
    option("--node", "node number of such a box, such as 0x101 (default: that of the "
           "first HELLO)")
    option("--keys", "sessions can be opened under keys; without this option whoever reaches the "
           "fabric can take sessions over", action="store_true")
    option("--managed", "managers reach the registers of the proxy by frames, under the key in the "
           "board's factory record; needs --keys", action="store_true")
    option("--observed", "the proxy measures what happens, for `dxpu top`", action="store_true")
    option("--serial", "64 bits: serial number of a host's switch, whose lower half a factory "
           "record replaces, or of a box's first soft GPU; the others count on from it",
           metavar="NUMBER")


def find_board(name):
    """The board of a name; raises :exc:`UserError`."""
    from dxpu_boards.registry import BOARDS
    if name not in BOARDS:
        alike = difflib.get_close_matches(name, BOARDS, n=1) or [
            known for known in BOARDS if known.startswith(name)][:1]
        raise UserError(f"no board {name!r}; " + "".join(f"did you mean {known!r}? " for known
                                                         in alike)
                        + "`dxpu build --list` names all")
    return BOARDS[name]


def _board_and_role(given):
    """The board and the role chosen; raises :exc:`UserError` with the missing option."""
    if "board" not in given:
        raise UserError("name a board: `dxpu build --list` names all" if "role" in given else
                        "name a board (`dxpu build --list` names all) and its --role, host or box")
    board = find_board(given["board"])
    roles = list(board.roles)
    if "role" not in given:
        raise UserError(f"{board.name} " + (
            f"is for a {roles[0]} only: give --role {roles[0]}" if len(roles) == 1 else
            f"can be a {' or a '.join(roles)}: give " + " or ".join(f"--role {r}" for r in roles)))
    if given["role"] not in roles:
        raise UserError(f"{board.name} is for a {' or a '.join(roles)} only")
    return board, given["role"]


def run(arguments) -> int:
    """Build; returns 1 if a tool fails or the design does not work on the board."""
    if arguments.list:
        _list()
        return 0
    given = vars(arguments)
    board, role = _board_and_role(given)
    changes = {name: given[name] for name in asdict(board.roles[role]) if name in given}
    shape = replace(board.roles[role], **changes)
    _check(role, board, shape)
    options = (_stand_alone(role, board, given) | _serial(role, shape, given)
               | _keys(board, given) | ({"observed": True} if "observed" in given else {}))
    placing = _placing(board, given)
    if board.is_open:
        require("boards", "formal")
    with OutputFolder("--out", given.get("out", f"build/{board.name}-{role}"), room=ROOM) as out:
        try:
            return _build(board, role, shape, options, out, **placing)
        except OSError as error:
            raise UserError(f"cannot build in {str(out.path)!r}: {error}") from None


def _check(role, board, shape):
    from .generate import check_shape
    numbers = shape.numbers(role)
    gpus = numbers.pop("gpus", None)
    check_shape(role, paths=board.path_count, **numbers)
    if role == "host" and shape.gpus is not None:
        raise UserError("--gpus is for a box only; a host has none")
    if gpus is not None and gpus not in range(1, shape.slots + 1):
        raise UserError(f"--gpus must be 1 to {shape.slots}, the number of slots, not {gpus}")
    mhz = board.core_mhz(role)
    if shape.width * mhz < LEAST_RATE:
        raise UserError(f"--width {shape.width} is too small for {board.name}: at {mhz:g} MHz its "
                        f"MACs need {LEAST_RATE / mhz:g} bits or more to feed a frame that they "
                        "have begun")


def _placing(board, given):
    """Options for placement by the open tools."""
    for name in ("goal", "seed", "tries"):
        if name in given and not board.is_open:
            raise UserError(f"--{name} is for the open tools; {board.name} is built with the "
                            "vendor's: set it there")
    return {"goal": given.get("goal", "speed"),
            "seed": whole_number("--seed", given.get("seed", "1"), 0, (1 << 30) - 1),
            "tries": whole_number("--tries", given.get("tries", "3"), 1, 1000)}


def _stand_alone(role, board, given):
    """Options of the top for the stand-alone mode."""
    options = {"stand_alone": given["stand_alone"]} if "stand_alone" in given else {}
    if options.get("stand_alone") and role == "host":
        raise UserError("--stand-alone is for a box only; a host is set up by its console")
    if "node" in given:
        if role == "host" or not options.get("stand_alone", not board.has_console):
            raise UserError("--node is for a box with --stand-alone only; write control.node by "
                            "the console")
        options["node"] = whole_number("--node", given["node"], 1, 0xFFE)
    return options


def _keys(board, given):
    """Options of the top for keys and managers; says what it means to have no key."""
    if "keys" not in given:
        if "managed" in given:
            raise UserError("--managed needs --keys: management has the cipher of the sessions")
        print(NO_KEYS, flush=True)
        return {}
    if "managed" in given and board.record is None:
        raise UserError(f"--managed needs a factory record with the node's key, and {board.name} "
                        "reads none: set it up by its console")
    return {"keys": True, "managed": "managed" in given}


def _serial(role, shape, given):
    """Option of the top for the serial number."""
    if "serial" not in given:
        return {}
    most = (1 << 64) - (1 if role == "host" else shape.numbers(role)["gpus"])
    return {"serial": whole_number("--serial", given["serial"], 0, most)}


def _list():
    from dxpu_boards.registry import BOARDS
    print(f"{'board':<22} {'part':<22} {'paths':>7}  {'roles':<10} {'tools':<7} PCIe")
    for board in BOARDS.values():
        print(f"{board.name:<22} {board.part:<22} {board.path_count} {board.medium:<5}  "
              f"{', '.join(board.roles):<10} {'open' if board.is_open else 'vendor':<7} "
              f"{board.pcie or 'none'}")
    print()
    for board in BOARDS.values():
        for note in board.notes:
            print(f"{board.name}: {note}")


def _build(board, role, shape, options, out, *, goal, seed, tries):
    from dxpu_boards.build import BuildFailed, build, write_sources
    from dxpu_boards.crossings import CrossingError
    from dxpu_boards.ecp5 import ToolFailed
    from dxpu_boards.top import top
    from dxpu_tools.identity import of_source

    # The vendor's tools have goals and seeds of their own.
    identity = of_source(goal, seed) if board.is_open else of_source("unknown", 0)
    progress = Progress()
    design = top(board, role, shape, identity=identity, **options)
    if not board.is_open:
        progress.step("elaboration")
        written = progress.run(lambda: write_sources(board, design, out.work))
        progress.done()
        out.good(file.name for file in written)
        for file in written:
            print(out.path / file.name)
        print(f"The vendor's tools make the bitstream: vivado -mode batch -source top.tcl in "
              f"{out.path}")
        return 0
    try:
        report = progress.run(lambda: build(
            board, design, out.work, role=role, shape=shape, seed=seed, tries=tries, goal=goal,
            identity=identity, progress=progress))
    except (BuildFailed, CrossingError, ToolFailed) as error:
        kept = any(out.work.iterdir())
        print(f"dxpu build: {board.name}, {role}: {error}"
              + f" (logs and reports: {out.bad()})" * kept, file=sys.stderr)
        return 1
    out.good(sorted(file.name for file in out.work.iterdir()))
    print(report.as_text())
    print(f"{out.path}/{board.name}-{role}.bit, .svf; report.txt, report.json, netlist.json")
    return 0
