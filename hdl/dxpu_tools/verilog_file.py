"""Text around the modules of a generated Verilog file: origin, and waivers for lint tools."""

from .identity import Identity, of_source, release

__all__ = ["KEYWORDS", "file_text", "identity_text", "options_text", "without_header"]

#: Parts of the source tree that determine the Verilog; changes elsewhere do not count.
SOURCES = ("hdl", "sim", "requirements.txt", "pyproject.toml")
#: Warnings that Verilator shall not give for the file, with reasons.
WAIVERS = {
    "WIDTH": "operands and conditions of unequal widths are meant",
    "CASEOVERLAP": "the cases of a function are bits of which one is set",
    "CMPCONST": "a comparison may come out one way only, at some widths",
    "UNSIGNED": "so may one with 0",
    "UNOPTFLAT": "bits of a vector may depend on others of it; that is no loop",
    "TIMESCALEMOD": "there is no delay, so any timescale will do",
}


def identity_text(identity: Identity | None = None) -> str:
    """Version and commit of the sources; an installed package has no commit."""
    if identity is None:
        identity = of_source("unknown", 0, sources=SOURCES)
    return str(identity) if identity.commit else f"DXPU {'.'.join(map(str, release()))}, release"


def options_text(arguments) -> str:
    """Options of a command with an effect on its result, including defaults, as text."""
    words = []
    for name, value in vars(arguments).items():
        if name in ("role", "output", "run") or value is None or value is False:
            continue
        words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return " ".join(words)


def file_text(text: str, *, title: str, command: str, identity: str) -> str:
    """Text of the file, from the text of its modules.

    The header is the lines that begin with ``//``; no other lines begin so. Verilator's waivers are
    limited to the file. The file has a timescale because most benches have one, and simulators
    warn, or refuse, if some modules have a timescale and others none; Verilator gets none, as many
    sources written for Verilator have none.
    """
    header = [
        f"// {title}; generated, do not edit", f"// {identity}", f"// {command}",
        "// SPDX-License-Identifier: Apache-2.0", "// Its ports: docs/reference/ports.md"]
    waivers = [f"/* {why}: */\n/* verilator lint_off {name} */" for name, why in WAIVERS.items()]
    return "\n".join([
        *header, "", "/* verilator lint_save */", *waivers,
        "`ifndef VERILATOR", "`timescale 1ns/1ps", "`endif", "", text.rstrip("\n"), "",
        "/* verilator lint_restore */", ""])


def without_header(text: str) -> str:
    """The text without its header, to compare two files."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("//"))


#: Reserved words of Verilog and SystemVerilog. Ref: IEEE 1800-2017, annex B
_RESERVED = """
accept_on alias always always_comb always_ff always_latch and assert assign assume automatic before
begin bind bins binsof bit break buf bufif0 bufif1 byte case casex casez cell chandle checker class
clocking cmos config const constraint context continue cover covergroup coverpoint cross deassign
default defparam design disable dist do edge else end endcase endchecker endclass endclocking
endconfig endfunction endgenerate endgroup endinterface endmodule endpackage endprimitive endprogram
endproperty endsequence endspecify endtable endtask enum event eventually expect export extends
extern final first_match for force foreach forever fork forkjoin function generate genvar global
highz0 highz1 if iff ifnone ignore_bins illegal_bins implements implies import incdir include
initial inout input inside instance int integer interconnect interface intersect join join_any
join_none large let liblist library local localparam logic longint macromodule matches medium
modport module nand negedge nettype new nexttime nmos nor noshowcancelled not notif0 notif1 null or
output package packed parameter pmos posedge primitive priority program property protected pull0
pull1 pulldown pullup pulsestyle_ondetect pulsestyle_onevent pure rand randc randcase randsequence
rcmos real realtime ref reg reject_on release repeat restrict return rnmos rpmos rtran rtranif0
rtranif1 s_always s_eventually s_nexttime s_until s_until_with scalared sequence shortint shortreal
showcancelled signed small soft solve specify specparam static string strong strong0 strong1 struct
super supply0 supply1 sync_accept_on sync_reject_on table tagged task this throughout time
timeprecision timeunit tran tranif0 tranif1 tri tri0 tri1 triand trior trireg type typedef union
unique unique0 unsigned until until_with untyped use uwire var vectored virtual void wait wait_order
wand weak weak0 weak1 while wildcard wire with within wor xnor xor
"""
KEYWORDS = frozenset(_RESERVED.split())
