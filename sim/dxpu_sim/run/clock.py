"""Clocks generated inside the simulation, so that no Python runs per cycle."""

from amaranth import *

__all__ = ["SimClock", "VERILOG"]

#: Module instantiated by :class:`SimClock`; the runner passes it to Verilator, with
#: ``cpp/clock.cpp``, which drives ``clk``.
VERILOG = """\
module dxpu_sim_clock #(parameter PERIOD_PS = 8000, PHASE_PS = 0, HIGH_PS = 4000,
                        RESET_CYCLES = 8)
    (output reg clk /* verilator public_flat_rw */ = 0, output reg rst = 1);
  import "DPI-C" context function void dxpu_clock(
      input int period_ps, input int phase_ps, input int high_ps);
  integer n = 0;
  initial dxpu_clock(PERIOD_PS, PHASE_PS, HIGH_PS);
  always @(posedge clk) if (rst) begin
    n <= n + 1;
    if (n == RESET_CYCLES) rst <= 0;
  end
endmodule
"""


class SimClock(Elaboratable):
    """Drives clock domain ``domain`` with a free-running clock and a reset at power-up.

    Parameters
    ----------
    domain : str
        Domain to create and drive, in the whole design below the parent.
    period_ps, phase_ps : int
        Period, and delay of the first edge, in picoseconds.
    high_ps : int
        Time for which the clock is high, by default half a period. The simulator works at each edge
        of each clock, so it has less to do if the falling edges of one clock and the rising edges
        of another come together.
    reset : bool
        Reset the domain for the first cycles. Without it the registers still begin with their
        initial values, as in an FPGA, and the simulator has a tenth less to compute.
    """

    def __init__(self, domain="sync", *, period_ps=8000, phase_ps=0, high_ps=None,
                 reset=True):
        self._domain = domain
        self._period_ps = period_ps
        self._phase_ps = phase_ps
        self._high_ps = period_ps // 2 if high_ps is None else high_ps
        self._reset = reset

    def elaborate(self, platform):
        m = Module()
        domain = ClockDomain(self._domain)
        m.domains += domain
        m.submodules.clock = Instance(
            "dxpu_sim_clock",
            p_PERIOD_PS=self._period_ps,
            p_PHASE_PS=self._phase_ps,
            p_HIGH_PS=self._high_ps,
            o_clk=domain.clk,
            **({"o_rst": domain.rst} if self._reset else {}),
        )
        return m
