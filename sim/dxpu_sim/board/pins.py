"""A board's platform in a simulation: pins for the bench, models of buffers and PLL."""

from types import SimpleNamespace

from amaranth.build import DiffPairs, Subsignal
from amaranth.lib import io

from dxpu_sim.ethernet.ddr import DdrModel

__all__ = ["INPUT", "PAD", "PLL", "simulated"]

#: The PLL of ECP5: frequencies and phases follow from its parameters and the measured period of the
#: input. Locks after some cycles; the clocks run before that. Ref: Lattice FPGA-TN-02200
PLL = """\
module EHXPLLL #(
    parameter CLKI_DIV = 1, CLKFB_DIV = 1, FEEDBK_PATH = "CLKOP",
    CLKOP_ENABLE = "DISABLED", CLKOS_ENABLE = "DISABLED", CLKOS2_ENABLE = "DISABLED",
    CLKOS3_ENABLE = "DISABLED", CLKOP_DIV = 8, CLKOS_DIV = 8, CLKOS2_DIV = 8, CLKOS3_DIV = 8,
    CLKOP_CPHASE = 0, CLKOS_CPHASE = 0, CLKOS2_CPHASE = 0, CLKOS3_CPHASE = 0,
    CLKOP_FPHASE = 0, CLKOS_FPHASE = 0, CLKOS2_FPHASE = 0, CLKOS3_FPHASE = 0,
    OUTDIVIDER_MUXA = "DIVA", OUTDIVIDER_MUXB = "DIVB", OUTDIVIDER_MUXC = "DIVC",
    OUTDIVIDER_MUXD = "DIVD", PLLRST_ENA = "DISABLED", INTFB_WAKE = "DISABLED",
    STDBY_ENABLE = "DISABLED", DPHASE_SOURCE = "DISABLED")
    (input CLKI, CLKFB, RST, STDBY, PHASESEL0, PHASESEL1, PHASEDIR, PHASESTEP, PHASELOADREG,
     PLLWAKESYNC, ENCLKOP, ENCLKOS, ENCLKOS2, ENCLKOS3,
     output reg CLKOP = 0, CLKOS = 0, CLKOS2 = 0, CLKOS3 = 0, LOCK = 0);
  localparam FEEDBACK = FEEDBK_PATH == "CLKOP" ? CLKOP_DIV : FEEDBK_PATH == "CLKOS" ? CLKOS_DIV :
                        FEEDBK_PATH == "CLKOS2" ? CLKOS2_DIV : CLKOS3_DIV;
  realtime first, vco;
  reg known = 0;
  initial begin
    @(posedge CLKI) first = $realtime;
    @(posedge CLKI) vco = ($realtime - first) * CLKI_DIV / (CLKFB_DIV * FEEDBACK);
    known = 1;
    repeat (20) @(posedge CLKI);
    LOCK = 1;
  end
`define OUTPUT(NAME) \\
  initial if (NAME``_ENABLE == "ENABLED") begin \\
    @(posedge known); \\
    #((NAME``_CPHASE + 1 + NAME``_FPHASE / 8.0) * vco); \\
    forever #(NAME``_DIV * vco / 2) NAME = ~NAME; \\
  end
  `OUTPUT(CLKOP)
  `OUTPUT(CLKOS)
  `OUTPUT(CLKOS2)
  `OUTPUT(CLKOS3)
endmodule
"""


#: Inputs at both clock edges, with a delay of zero, as the clock tree has none here either. Both
#: bits appear at the next rising edge. Ref: Lattice FPGA-TN-02035
INPUT = """\
module DELAYG #(parameter DEL_MODE = "USER_DEFINED", DEL_VALUE = 0) (input A, output Z);
  assign Z = A;
endmodule

module IDDRX1F (input SCLK, RST, D, output reg Q0 = 0, Q1 = 0);
  reg high = 0, low = 0;
  always @(negedge SCLK) low <= D;
  always @(posedge SCLK) begin
    high <= D;
    Q0 <= high;
    Q1 <= low;
  end
endmodule
"""


#: The clock of the flash has no pin here: a bench takes the clock from the driver of this cell.
PAD = """\
module USRMCLK (input USRMCLKI, USRMCLKTS);
endmodule
"""


class _Port(io.SimulationPort):
    #: Constraints name this attribute; a simulation has no constraints.
    io = None


def simulated(platform):
    """A platform of a class for simulation; all other properties stay.

    ``platform.pins`` holds the requested pins, by name and number: ``io.SimulationPort``, or a
    namespace of such ports. Their ``i`` and ``o`` are the levels at the pins, so inverted for
    inverted pins. Buffers at both clock edges are :class:`~dxpu_sim.ethernet.ddr.DdrModel`, except
    delayed buffers, for whose cells :data:`INPUT` has models. The PLL stays an instance of
    ``EHXPLLL``, with the model :data:`PLL`, and the pad of the flash's clock an instance of
    ``USRMCLK``, with the model :data:`PAD`.
    """
    class Simulated(platform):
        def __init__(self):
            super().__init__()
            self.pins = {}

        def request(self, name, number=0, *, dir=None, xdr=None):
            resource = self.lookup(name, number)
            assert dir == "-" and (name, number) not in self.pins
            self.pins[name, number] = ports = _ports(resource, f"{name}_{number}")
            return ports

        def add_clock_constraint(self, *args, **kwargs):
            pass

        def get_io_buffer(self, buffer):
            if isinstance(buffer, io.DDRBuffer):
                return DdrModel(buffer)
            return buffer.elaborate(None)

    return Simulated()


def _ports(resource, name):
    """Ports returned by a request of a resource, or of a part of a resource."""
    pins = resource.ios[0]
    if isinstance(pins, Subsignal):
        return SimpleNamespace(**{part.name: _ports(part, f"{name}_{part.name}")
                                  for part in resource.ios})
    assert not isinstance(pins, DiffPairs) or pins.dir == "i"
    return _Port("o" if pins.dir == "oe" else pins.dir, len(pins), invert=pins.invert,
                 name=name)
