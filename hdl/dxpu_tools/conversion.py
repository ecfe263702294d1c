"""From an Amaranth component to Verilog that every simulator understands alike.

Amaranth's own conversion leaves combinational logic in blocks ``always @*``. Such a block runs when
a signal that it reads changes, and not before. At time 0 nothing changes, so Yosys gives each a
register to read, ``reg t = 0``, and counts on that value to come while the block already waits for
it. Verilog-2005 has it so, more or less; SystemVerilog gives a variable its value before any block
begins (IEEE 1800-2017, 6.8), so the block is never run, and a state machine whose next state it
makes stays X for ever. Blocks that read constants only have not even that register.

Here all blocks become continuous assignments, which are evaluated at time 0 by either standard
(IEEE 1364-2005, 6.1; IEEE 1800-2017, 10.3). Verilator simulates that a quarter faster, too.

A memory's read port shows 0 until its first read, as in Amaranth's own simulator, and not X. The
output registers of block RAM begin with that, so it costs no logic.
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

#: As Amaranth's (``amaranth.back.verilog``), but for ``proc``, which there is told to leave
#: processes as they are, and for attributes of cases, of which none are left.
SCRIPT = """\
proc -norom
memory_collect
attrmap {attributes}
attrmap -modattr {attributes}
write_verilog -norename
"""
ATTRIBUTES = ("generator", "top", "src", "amaranth.hierarchy", "amaranth.decoding", "full_case",
              "parallel_case")
#: The Yosys that comes with Amaranth is newer; this is what Amaranth asks of others.
YOSYS = (0, 40)


def to_verilog(component, *, name: str) -> str:
    """Verilog text of a component, top module ``name``.

    It is Verilog-2005 and SystemVerilog, and means the same in both. It depends on the component
    only: neither on where the sources are, so it names no lines of theirs, nor on the order in
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
    """The component and its ports, clocks and resets that it does not make itself the last.

    Amaranth adds those of its own accord, in the order of a set of their names.
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
    """What Yosys has no option for.

    Vectors of no bits, which nothing reads, would be declared as of the bits 0 and -1. A function
    whose name begins with a dollar sign is one of the simulator, in the eyes of Icarus Verilog.
    """
    text = re.sub(r"^(?: *\(\*.*\*\)\n)*  (?:wire|reg) \[-1:0\] \S+ ?;\n", "", text,
                  flags=re.MULTILINE)
    return re.sub(r"\\\$(procmux\$\d+ )", r"\\\1", text)
