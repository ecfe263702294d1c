"""dxpu_tools.conversion: Verilog that means the same in every simulator and in both languages."""

import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from amaranth import *
from amaranth.back import verilog
from amaranth.lib import data, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu_sim.waves import nets
from dxpu_tools.conversion import to_verilog
from dxpu_tools.statenames import StateNames

#: Versions of the language as Icarus Verilog calls them.
LANGUAGES = ("2005", "2012")


class Part(wiring.Component):
    """What is X for ever, or for too long, where a block waits for something to change."""

    go: In(1)
    gray: Out(4)
    done: Out(1)
    constant: Out(8)
    choice: Out(8)
    swapped: Out(4)
    read: Out(8)

    def elaborate(self, platform):
        m = Module()
        # Registers that no reset, and so no change of one, ever reaches.
        tick = Signal(reset_less=True)
        left, right = Signal(2, init=1, reset_less=True), Signal(2, init=2, reset_less=True)
        m.d.sync += tick.eq(~tick)
        with m.If(tick):
            m.d.sync += [left.eq(right), right.eq(left)]
        m.d.comb += self.swapped.eq(Cat(right, left))
        m.submodules.memory = memory = Memory(shape=8, depth=4, init=[1, 2, 3, 4])
        port = memory.read_port()
        m.d.comb += [port.en.eq(self.done), port.addr.eq(1), self.read.eq(port.data)]
        count, nothing = Signal(4), Signal(data.StructLayout({"some": 0, "none": 0}))
        m.d.sync += [count.eq(count + 1), self.gray.eq(count ^ count >> 1)]
        m.d.comb += [self.constant[:4].eq(9), self.constant[4:].eq(nothing.some)]
        with m.FSM():
            with m.State("Idle"):
                with m.If(self.go):
                    m.next = "Busy"
            with m.State("Busy"):
                m.next = "Done"
            with m.State("Done"):
                m.d.comb += self.done.eq(1)
        with m.Switch(count):
            for n in range(5):
                with m.Case(n):
                    m.d.comb += self.choice.eq(16 + n)
            with m.Default():
                m.d.comb += self.choice.eq(self.gray)
        return m


#: Prints all outputs, from the end of the reset on.
BENCH = """
module bench;
  reg clk = 0, rst = 1, go = 0;
  wire [3:0] gray;
  wire done;
  wire [7:0] constant, choice, read;
  wire [3:0] swapped;
  part part(.clk(clk), .rst(rst), .go(go), .gray(gray), .done(done), .constant(constant),
            .choice(choice), .swapped(swapped), .read(read));
  integer n;
  initial begin
    for (n = 0; n < 24; n = n + 1) begin
      #4 clk = 1;
      #1 if (!rst) $display("%b %b %b %b %b %b", gray, done, constant, choice, swapped, read);
      rst = n < 2;
      go = n == 8;
      #3 clk = 0;
    end
    $finish;
  end
endmodule
"""


def run_icarus(folder, text, language):
    """What the bench prints, in one version of the language."""
    if not shutil.which("iverilog"):
        pytest.skip("Icarus: no iverilog (Debian: iverilog)")
    (folder / "part.v").write_text(text + BENCH)
    said = subprocess.run(["iverilog", f"-g{language}", "-Wall", "-o", "part", "part.v", "-s",
                           "bench"], cwd=folder, capture_output=True, text=True, check=True)
    assert not re.sub(r".*bench.*timescale.*\n", "", said.stderr)
    return subprocess.run(["vvp", "-n", "part"], cwd=folder, capture_output=True, text=True,
                          check=True).stdout.splitlines()


@pytest.mark.parametrize("language", LANGUAGES)
def test_logic_runs_from_the_first_reset_on(tmp_path, language):
    """In an event-driven simulator; what is to come is written out here."""
    expected = []
    for n in range(21):
        # The reset ends behind the third edge, `go` is seen at the tenth.
        count, gray = (n + 1) % 16, n % 16 ^ n % 16 >> 1
        choice = 16 + count if count < 5 else gray
        expected.append(f"{gray:04b} {int(n >= 7)} {9:08b} {choice:08b} "
                        f"{(6, 9)[n // 2 % 2]:04b} {2 * (n >= 8):08b}")
    assert run_icarus(tmp_path, to_verilog(Part(), name="part"), language) == expected


def test_the_run_sees_a_block_that_never_runs(tmp_path):
    """As Amaranth converts it, SystemVerilog leaves a counter in X."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = verilog.convert(Part(), name="part", strip_internal_attrs=True)
    assert all("x" in line for line in run_icarus(tmp_path, text, "2012"))


def test_nothing_waits_for_a_change():
    text = to_verilog(Part(), name="part")
    assert set(re.findall(r"always +(.*\))", text)) == {"@(posedge clk)"}
    assert text.count("always") == text.count("always @(posedge clk)")
    assert "[-1:0]" not in text and "full_case" not in text.split("function")[0]
    assert not re.search(r" function [^;]*\\\$", text)


def test_functions_are_no_signals_of_a_wave():
    text = to_verilog(StateNames(Part()), name="top")
    assert "function" in text
    names = {net.path for net in nets.nets(nets.parse(text))}
    assert {"fsm_state", "choice"} <= names and not {"a", "b", "s"} & names
    assert not [name for name in names if "procmux" in name]


class Clocked(wiring.Component):
    """A crossing through many domains, all of which come from outside."""

    i: In(1)
    o: Out(1)

    def elaborate(self, platform):
        m = Module()
        last = self.i
        for n in range(8):
            step = Signal()
            m.submodules += FFSynchronizer(last, step, o_domain=f"d{n}")
            last = step
        m.d.comb += self.o.eq(last)
        return m


def test_text_does_not_depend_on_the_hash_seed():
    code = ("from test_conversion import Clocked, to_verilog\n"
            "print(to_verilog(Clocked(), name='clocked'))")
    texts = {subprocess.run([sys.executable, "-c", code], check=True, text=True,
                            capture_output=True, cwd=Path(__file__).parent,
                            env={**os.environ, "PYTHONHASHSEED": str(seed)}).stdout
             for seed in range(3)}
    assert len(texts) == 1
    header = re.search(r"module clocked\((.*?)\);", texts.pop(), re.DOTALL)[1]
    assert re.findall(r"d\d_\w+", header) == [f"d{n}_{what}" for n in range(8)
                                              for what in ("clk", "rst")]
