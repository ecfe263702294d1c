"""From a board and a design to a bitstream and a report, or to files for the vendor's tools.

The platform supplies pins, constraints and Verilog only. :mod:`dxpu_boards.ecp5` runs the tools, as
crossings are examined between their steps.
"""

import time
import warnings
from pathlib import Path

from dxpu_tools import children
from dxpu_tools.identity import Identity

from . import ecp5, report, sfp
from .board import RECEIVE_CLOCK, Board, Shape

__all__ = ["BuildFailed", "build", "prepare", "write_sources"]


class BuildFailed(RuntimeError):
    """The design does not work on this board; the message is one line with the place."""


#: Lines of nextpnr's log at the beginning of a stage.
STAGES = {"Info: Creating initial": "placement", "Info: Routing globals": "routing"}
#: Largest shortfall of a clock, as a share of its frequency, for which another placement is tried:
#: one netlist came out at 61.8 and 70.9 MHz.
LUCK = 0.15


def build(board: Board, design, folder: Path, *, role: str, shape: Shape, progress,
          seed: int = 1, tries: int = 1, goal: str = "speed",
          identity: Identity = Identity()) -> report.BuildReport:
    """Build ``design`` for a board with open tools; takes minutes for a proxy.

    Leaves in ``folder``: ``BOARD-ROLE.bit`` (for flash and part), ``.svf`` (JTAG vectors), the
    netlist (``netlist.json``), ``report.json``, ``report.txt``, logs and input files of the tools.
    If a clock is too slow, there is a report but no bitstream.

    Parameters
    ----------
    design : Elaboratable
        Design for the board's platform, with all its clocks.
    seed, tries : int
        If a clock is too slow, but by less than :data:`LUCK`, the design is placed and routed again
        with the next seed, up to ``tries`` times. The report is of the last try.
    goal : str
        Goal of :func:`~dxpu_boards.ecp5.synthesize`.
    identity : Identity
        Identity of ``design``, for the reports.
    progress
        Object with ``step(name)``, ``update(detail)``, ``refresh()`` and ``done(failed=False)``.

    Raises
    ------
    BuildFailed
        The design does not fit; a clock is too slow or has no constraint; a signal crosses clocks
        unsafely.
    ~dxpu_boards.ecp5.ToolFailed
        A tool failed.
    ~dxpu_boards.crossings.CrossingError
        The design has cells whose clocks are unknown.
    """
    name, began = f"{board.name}-{role}", time.monotonic()
    margins = {clock.domain: clock.margin for clock in board.clocks_of(role)}
    part = ecp5.part_options(board.platform.device, board.platform.package, board.platform.speed)
    for old in (f"{name}.bit", f"{name}.svf", "report.json", "report.txt"):
        (folder / old).unlink(missing_ok=True)
    try:
        progress.step("elaboration")
        files = prepare(board, design)
        (folder / ecp5.CONSTRAINTS).write_text(files["top.lpf"])
        progress.step("synthesis")
        ecp5.synthesize(files["top.v"], folder, goal)
        if goal == "speed":
            used, there = ecp5.pack(folder, part, pins=True)["LUT4"]
            if used > ecp5.CROWDED * there:
                progress.update(f"{used:,} of {there:,} LUT4")
                progress.step("mapping for less room")
                wanted = board.core_mhz(role) * (1 + margins["sync"])
                _map_again(folder, part, used, wanted, progress)
        progress.step("clocks and crossings")
        registers = report.netlist_of(folder, ecp5.REGISTERS)
        crossings, wrong = report.crossings_of(registers, report.constraints(folder, registers))
        netlist = report.netlist_of(folder)
        clocks = report.constraints(folder, netlist)
        if wrong:
            raise BuildFailed(wrong[0])
        progress.update(f"{len(clocks)} clocks, {sum(c.count for c in crossings)} crossings")

        for placing in range(seed, seed + tries):
            progress.step("packing")
            ecp5.place_and_route(folder, part, seed=placing,
                                 heard=lambda line: _follow(line, board, progress))
            result = report.BuildReport(board.name, role, board.part, placing, goal,
                                        shape.numbers(role), identity,
                                        round(time.monotonic() - began), crossings=crossings)
            report.read(result, folder, netlist, clocks, margins)
            result.write(folder)
            if not 0 < (lacks := max(clock.lacks for clock in result.clocks)) <= LUCK:
                break
            progress.update(f"seed {placing}: a clock lacks {lacks:.1%}")
        if result.failures:
            raise BuildFailed(result.failures[0])
        progress.step("bitstream")
        ecp5.bitstream(folder, name)
    except BaseException:
        progress.done(failed=True)
        raise
    progress.done()
    return result


def write_sources(board: Board, design, folder: Path) -> list[Path]:
    """Write Verilog, constraints and a Tcl script for the vendor's tools; runs no tool.

    Raises
    ------
    ~dxpu_boards.pll.PllError
    """
    files = prepare(board, design, constraints=_asynchronous(board) + _arrival(board))
    written = []
    for name, text in files.items():
        if name in ("top.v", "top.xdc", "top.tcl", "clocks.xdc", "rings.xdc"):
            (folder / name).write_text(text)
            written.append(folder / name)
    return written


def prepare(board: Board, design, constraints: str | None = None) -> dict[str, str]:
    """Files made by the platform for a design, by name.

    ``top.v``, and ``top.lpf`` or ``top.xdc``, ``top.tcl``; with ``constraints`` also
    ``clocks.xdc``.
    """
    class Platform(board.platform):
        # Lattice's platform makes no Verilog for the open tools.
        file_templates = property(lambda self: {
            **super().file_templates, "{{name}}.v": "{{emit_verilog()}}"})

    platform = Platform()
    if constraints:
        platform.add_file("clocks.xdc", constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with children.leave_interrupts_to_us():
            return platform.prepare(
                design, "top", **{"script_after_read": sfp.TCL} if board.sfp else {}).files


def _map_again(folder, part, used, mhz, progress):
    """Take fewer than ``used`` LUTs for a netlist, if it saves enough for slower paths."""
    netlist = folder / ecp5.NETLIST
    fast = netlist.read_bytes()
    ecp5.map_again(folder, mhz)
    less, _ = ecp5.pack(folder, part, pins=True)["LUT4"]
    if less > (1 - ecp5.WORTH) * used:
        netlist.write_bytes(fast)
        progress.update(f"{used:,} LUT4 stay, as there would be {less:,}")
    else:
        progress.update(f"{less:,} LUT4")


def _asynchronous(board):
    """Constraint for the vendor's tool: unrelated clocks, as every crossing is a queue or a
    synchroniser.

    The clocks are those of the PLL, without phase-shifted copies, and those of the PHYs.
    """
    groups = []
    for n, clock in enumerate(board.clocks):
        if not clock.phase:
            groups.append([])
        groups[-1].append(f"NAME =~ *clocks/pll/CLKOUT{n}")
    wanted = ["-of_objects [get_pins -hierarchical -filter {" + " || ".join(pins) + "}]"
              for pins in groups]
    wanted += [f"eth_rgmii_{number}__rx_clk__io" for number in board.paths]
    wanted += [f"-of_objects [get_pins -hierarchical -filter {{NAME =~ {sfp.CLOCK}}}]"
               for _ in board.sfp]
    return "set_clock_groups -asynchronous" + "".join(
        f" \\\n  -group [get_clocks {what}]" for what in wanted) + "\n"


def _arrival(board):
    """Constraint for the vendor's tool: arrival of RXD and RX_CTL.

    The PHY centres the edges of RXC in the data, 1.0 ns or more from both ends. Ref: RGMII 2.0,
    table 2
    """
    half = 1e9 / RECEIVE_CLOCK / 2
    text = ""
    for number in board.paths:
        clock = f"eth_rgmii_{number}__rx_clk__io"
        for edge in ("", " -clock_fall -add_delay"):
            for limit, ns in (("max", half - 1), ("min", 1)):
                text += (f"set_input_delay -{limit} {ns:.3f}{edge} -clock [get_clocks {clock}] "
                         f"[get_ports {{eth_rgmii_{number}__rx_data__io[*] "
                         f"eth_rgmii_{number}__rx_ctl__io}}]\n")
    return text


def _follow(line, board, progress):
    for name, (used, there) in ecp5.utilisation(line).items():
        if used > there:
            raise BuildFailed(f"does not fit: it takes {used:,} {name}, and the {board.part} has "
                              f"{there:,}; give fewer slots, peers, streams or soft GPUs of a box "
                              "(1 is the least), or take a board with a larger part")
    for beginning, stage in STAGES.items():
        if line.startswith(beginning):
            progress.step(stage)
    progress.refresh()
