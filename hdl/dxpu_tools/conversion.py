"""From an Amaranth component to Verilog that every simulator understands alike.

Amaranth's own conversion leaves combinational logic in blocks ``always @*``. Such a block runs only
when a signal that it reads changes. At time 0 nothing changes, so Yosys adds a register ``reg t =
0`` that each block reads, and relies on the initial assignment happening while the block already
waits. Verilog-2005 more or less guarantees this order. SystemVerilog initialises variables before
any block begins (IEEE 1800-2017, 6.8), so the block never runs, and a state machine whose next
state comes from the block stays X for ever. Blocks that read only constants do not even have the
register.

This conversion turns all blocks into continuous assignments, which both standards evaluate at time
0 (IEEE 1364-2005, 6.1; IEEE 1800-2017, 10.3). Verilator also simulates continuous assignments a
quarter faster.

A memory's read port shows 0 until its first read, as in Amaranth's own simulator, and not X. The
output registers of block RAM start with 0, so this costs no logic.
"""

import re
import warnings

from amaranth._toolchain.yosys import find_yosys
from amaranth.back import rtlil
from amaranth.hdl import ClockDomain, Fragment, Value, ValueCastable
from amaranth.hdl._ir import PortDirection
from amaranth.hdl._xfrm import DomainCollector
from amaranth.lib.wiring import Flow

from .children import leave_interrupts_to_us

__all__ = ["to_verilog"]

#: As the script of ``amaranth.back.verilog``, with two differences: `proc` converts all processes,
#: and no attributes of cases are handled, as no cases are left.
SCRIPT = """\
proc -norom
memory_collect
attrmap {attributes}
attrmap -modattr {attributes}
write_verilog -norename
"""
ATTRIBUTES = ("generator", "top", "src", "amaranth.hierarchy", "amaranth.decoding", "full_case",
              "parallel_case")
#: Oldest Yosys that Amaranth accepts; the Yosys that comes with Amaranth is newer.
YOSYS = (0, 40)


def to_verilog(component, *, name: str) -> str:
    """Verilog text of a component, with top module ``name``.

    The text is both Verilog-2005 and SystemVerilog, with the same meaning. The text depends on the
    component only, not on the folder of the sources (it names no source lines) or on the order in
    which Python hashes strings.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        netlist = rtlil.convert_fragment(*_fragment(component), name, emit_src=False)[0]
    netlist = re.sub(r"(?<=parameter \\INIT_VALUE )(\d+)'x+$",
                     lambda match: f"{match[1]}'{'0' * int(match[1])}", netlist,
                     flags=re.MULTILINE)
    script = SCRIPT.format(attributes=" ".join(f"-remove {name}" for name in ATTRIBUTES))
    with leave_interrupts_to_us():
        text = find_yosys(lambda version: version >= YOSYS).run(
            ["-q", "-"], f"read_rtlil <<rtlil\n{netlist}\nrtlil\n{script}", ignore_warnings=True)
    return _tidy(text)


def _fragment(component):
    """The component and its ports; clocks and resets from outside are the last ports.

    Amaranth would add these clocks and resets itself, in the order of a set of names.
    """
    ports = []
    for path, member, value in component.signature.flatten(component):
        if isinstance(value, ValueCastable):
            value = value.as_value()
        if isinstance(value, Value):
            way = PortDirection.Input if member.flow is Flow.In else PortDirection.Output
            ports.append(("__".join(map(str, path)), value, way))
    fragment = Fragment.get(component, None)
    domains = DomainCollector()
    domains(fragment)
    for domain in sorted(domains.used_domains - domains.defined_domains):
        made = ClockDomain(domain)
        fragment.add_domains(made)
        ports += [(None, made.clk, PortDirection.Input), (None, made.rst, PortDirection.Input)]
    return fragment, ports


def _tidy(text):
    """Corrections for which Yosys has no option.

    Yosys declares zero-width vectors, which nothing reads, with bits 0 and -1. Icarus Verilog takes
    a function whose name begins with a dollar sign for a system function.
    """
    text = re.sub(r"^(?: *\(\*.*\*\)\n)*  (?:wire|reg) \[-1:0\] \S+ ?;\n", "", text,
                  flags=re.MULTILINE)
    return re.sub(r"\\\$(procmux\$\d+ )", r"\\\1", text)
