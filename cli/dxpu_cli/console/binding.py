"""Subcommands of ``dxpu console`` for the mapping table: ``bind``, ``unbind``, ``bindings``."""

from dxpu.fabric.session.session import Mode, Phase
from dxpu_boards.operate import Proxy, Row
from dxpu_cli.options import whole_number
from dxpu_tools.errors import UserError

__all__ = ["JOBS", "add_jobs", "add_way", "mask_of"]

#: Names of session modes.
MODES = {Mode.REGISTERS.value: "registers", Mode.OPENS.value: "asks",
         Mode.ANSWERS.value: "answers"}
#: Names of session phases.
PHASES = {phase.value: phase.name.lower() for phase in Phase}


def add_jobs(jobs):
    """Add the subcommands."""
    job = jobs.add_parser("bind", help="bind a row of the mapping table")
    job.add_argument("row", metavar="ROW", help="of a host: its downstream port; of a box: slot n "
                     "is row n - 1")
    job.add_argument("--node", required=True, help="a host's peer: the box; a box's peer: the host")
    job.add_argument("--slot", metavar="N", help="slot of the box, from 1; a host must be told")
    add_way(job)
    job.add_argument("--generation", metavar="N",
                     help="of the binding, the same at both ends (default: the row's plus 1)")
    job = jobs.add_parser("unbind", help="release a row at once, whatever goes on behind it")
    job.add_argument("row", metavar="ROW")
    job.add_argument("--generation", metavar="N", help="of the binding (default: the row's)")
    jobs.add_parser("bindings", help="show the mapping table and the sessions")


def add_way(job):
    """Options for the way to a peer."""
    job.add_argument("--stream", default="0", metavar="N", help="stream (default: 0)")
    job.add_argument("--path", nargs="+", default=["0"], metavar="N",
                     help="paths that may be used (default: 0)")


def mask_of(texts: list[str]) -> int:
    """Paths as a mask; raises :exc:`UserError`."""
    return sum({1 << whole_number("--path", text, 0, 15) for text in texts})


def _generation(arguments, default):
    if arguments.generation is None:
        return default & 0xFFFF
    return whole_number("--generation", arguments.generation, 0, 0xFFFF)


def _row(proxy, text):
    """The row of a number; without such a row an empty row, so that the table refuses the
    commit."""
    number = whole_number("ROW", text, 0, 63)
    return proxy.row(number) if number < proxy.rows else Row(number, False, 0, 0, 0, 0, 0, 0)


def _bind(line, map, arguments):
    proxy = Proxy(line, map)
    row = _row(proxy, arguments.row)
    slot = row.number + 1
    if proxy.is_host and arguments.slot is None:
        raise UserError("--slot is missing: which slot of the box?")
    if arguments.slot is not None:
        slot = whole_number("--slot", arguments.slot, 0, 255)
        if not proxy.is_host and slot != row.number + 1:
            raise UserError(f"row {row.number} of a box is slot {row.number + 1}, not {slot}")
    node = whole_number("--node", arguments.node, 0, 0xFFF)
    stream = whole_number("--stream", arguments.stream, 0, 15)
    # A binding whose paths alone change keeps its generation.
    kept = row.used and row.target == (node, slot, stream)
    generation = _generation(arguments, row.generation + (not kept))
    proxy.commit(row.number, used=1, generation=generation, node=node, slot=slot, stream=stream,
                 mask=mask_of(arguments.path))


def _unbind(line, map, arguments):
    proxy = Proxy(line, map)
    row = _row(proxy, arguments.row)
    proxy.commit(row.number, used=0, generation=_generation(arguments, row.generation))


def _bindings(line, map, arguments):
    proxy = Proxy(line, map)
    _table(["row", "used", "node", "slot", "stream", "paths", "generation", "operation"], [
        (row.number, "yes" if row.used else "no", f"{row.node:#05x}", row.slot, row.stream,
         ",".join(str(n) for n in row.paths) or "-", row.generation, f"{row.operation:#010x}")
        for row in (proxy.row(n) for n in range(proxy.rows))])
    print()
    nodes = proxy.peer_nodes()
    sessions = []
    for n in range(proxy.peers * proxy.streams):
        peer, stream = divmod(n, proxy.streams)
        mode = proxy.read(f"control.session[{n}].mode")["opener"]
        if peer in nodes or mode:
            phase = proxy.read(f"control.session[{n}].hello")["phase"]
            sessions.append((n, f"{nodes[peer]:#05x}" if peer in nodes else "none", stream,
                             MODES.get(mode, mode), PHASES.get(phase, phase)))
    _table(["session", "peer", "stream", "mode", "phase"], sessions)


def _table(heads, rows):
    """Print columns of minimal width."""
    lines = [heads, *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


#: Function of each subcommand, with arguments line, register map, options.
JOBS = {"bind": _bind, "unbind": _unbind, "bindings": _bindings}
