"""Noise of an FPGA: rings of inverters that run free, sampled.

No entropy is claimed: nobody has measured these bits in silicon. The tests of
:class:`~dxpu.crypto.health.HealthTests` find rings that stand still or run with the clock.
Ref: NIST SP 800-90B, 3.1; AMD UG912 (properties of Vivado)
"""

from dataclasses import dataclass

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import Out

__all__ = ["ECP5_CELLS", "LENGTHS", "SERIES7_CELLS", "Cells", "RingOscillators"]

#: Inverters of each ring. These numbers have no common divisor, so that rings that are coupled
#: through the supply lock to each other less easily.
LENGTHS = (3, 5, 7, 11, 13, 17, 19, 23)


@dataclass(frozen=True)
class Cells:
    """Cells of which a ring is made: a part's look-up tables, with parameter ``INIT``.

    Parameters
    ----------
    inverter, gate : str
        Types, which end in the number of inputs: an inverter of the first input, and one that the
        second input lets run (NAND).
    inputs : tuple of str
        Names of the inputs.
    output : str
        Name of the output.
    keep : dict
        Attributes of both cells, with which synthesis leaves them alone.
    constraints : str
        For the vendor's tool, empty if there is none: the loops are meant.
    """

    inverter: str
    gate: str
    inputs: tuple[str, ...]
    output: str
    keep: dict[str, int | str]
    constraints: str = ""

    def cell(self, kind: str, *inputs, output) -> Instance:
        """An inverting cell, whose output is low only if all ``inputs`` are high."""
        pins, ones = int(kind[-1]), (1 << len(inputs)) - 1
        table = sum(1 << row for row in range(1 << pins) if row & ones != ones)
        inputs += (C(0),) * (pins - len(inputs))
        return Instance(
            kind, p_INIT=Const(table, 1 << pins), **{f"o_{self.output}": output},
            **{f"i_{name}": value for name, value in zip(self.inputs, inputs, strict=False)},
            **{f"a_{name}": value for name, value in self.keep.items()})


ECP5_CELLS = Cells("LUT4", "LUT4", ("A", "B", "C", "D"), "Z", {"keep": 1})
#: The vendor's tool refuses combinational loops (rule LUTLP-1) where a net does not allow them.
#: Their way into the registers is none for timing: Amaranth says so of every synchroniser.
SERIES7_CELLS = Cells("LUT1", "LUT2", ("I0", "I1"), "O", {"keep": 1, "DONT_TOUCH": "TRUE"},
                      "set_property ALLOW_COMBINATORIAL_LOOPS TRUE [get_nets -of_objects \\\n"
                      "  [get_pins -hierarchical -filter {NAME =~ *rings/ring*_*/O}]]\n")


class RingOscillators(wiring.Component):
    """The parity of all rings, sampled now and then.

    A ring is an odd number of LUT cells, kept as they are. It is a combinational loop, so timing
    analysis must be told to ignore loops. Each ring is sampled by two registers in a row, and
    stands still during reset. In the design the component is called ``rings``, as the
    constraints find it by that name.

    Parameters
    ----------
    every : int
        Cycles between two bits, so that jitter adds up; 2 or more.
    lengths : sequence of int
        Inverters of each ring: odd, 3 or more.
    cells : Cells
        If there are constraints, ``rings.xdc`` with them is added to the platform.

    Members
    -------
    o : stream of 1
        A bit that is not taken is replaced by the next one.
    """

    def __init__(self, *, every=256, lengths=LENGTHS, cells=ECP5_CELLS):
        if not isinstance(every, int) or every < 2:
            raise ValueError(f"every must be an integer of at least 2, not {every!r}")
        if not lengths or any(length < 3 or length % 2 == 0 for length in lengths):
            raise ValueError(f"lengths must be odd numbers of at least 3, not {lengths!r}")
        self._every, self._lengths, self._cells = every, tuple(lengths), cells
        super().__init__({"o": Out(stream.Signature(1))})

    def elaborate(self, platform):
        m = Module()
        cells = self._cells
        if cells.constraints and platform is not None:
            platform.add_file("rings.xdc", cells.constraints)
        runs, rings = Signal(), Signal(len(self._lengths))
        sampled = Signal.like(rings)
        m.d.sync += runs.eq(1)
        for n, length in enumerate(self._lengths):
            nodes = Signal(length, name=f"ring{n}")
            for k in range(length):
                m.submodules[f"ring{n}_{k}"] = (
                    cells.cell(cells.inverter, nodes[k - 1], output=nodes[k]) if k else
                    cells.cell(cells.gate, nodes[k - 1], runs, output=nodes[k]))
            m.d.comb += rings[n].eq(nodes[0])
        m.submodules.sampled = FFSynchronizer(rings, sampled)
        count = Signal(range(self._every))
        m.d.sync += count.eq(Mux(count == self._every - 1, 0, count + 1))
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(count == self._every - 1):
            m.d.sync += [self.o.valid.eq(1), self.o.payload.eq(sampled.xor())]
        return m
