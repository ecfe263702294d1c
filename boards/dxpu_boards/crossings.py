"""All clock domain crossings of signals in an ECP5 netlist, each with the reason why it is safe.

``KINDS`` lists the safe crossings; all others are errors of the design. The netlist comes from
Yosys, flat, with all registers and memories as placed; the logic between them may be LUTs or still
gates. The clocks of a PLL count as unrelated.

The check sees registers and memories, but not protocols. Reviews must show that a memory belongs to
a queue, that several bits crossing side by side are a Gray code, and that logic before an
asynchronous reset changes by one input at a time.
"""

import re
from collections import Counter
from dataclasses import dataclass

__all__ = ["KINDS", "Crossing", "CrossingError", "Netlist", "find", "unexplained"]

#: Kinds of safe crossings.
KINDS = {
    "synchroniser": "the first register of an `FFSynchronizer`, fed by one register",
    "reset": "the asynchronous input of a `ResetSynchronizer` or `AsyncFFSynchronizer`",
    "queue": "memory of an asynchronous queue, whose counts cross by synchronisers",
}
#: Registers: clock, inputs and outputs by the beginning of their pin names. A memory has two sides;
#: data read asynchronously comes from the writer's side.
CELLS = {
    "TRELLIS_FF": [("CLK", ("DI", "M", "CE", "LSR"), ("Q",))],
    "TRELLIS_DPR16X4": [("WCK", ("DI", "WAD", "WRE"), ("DO",))],
    "IDDRX1F": [("SCLK", ("RST",), ("Q",))],
    "ODDRX1F": [("SCLK", ("D", "RST"), ("Q",))],
    "DP16KD": [(f"CLK{s}", tuple(f"{pin}{s}" for pin in (
        "DI", "AD", "CE", "OCE", "WE", "CS", "RST")), (f"DO{s}",)) for s in "AB"],
}
#: A block RAM of 36 bits: side A writes with the data pins of both sides, B reads. Ref:
#: FPGA-TN-02204
WIDE = [("CLKA", ("DIA", "DIB", "ADA", "CEA", "WEA", "CSA"), ()),
        ("CLKB", ("ADB", "CEB", "OCEB", "CSB", "RSTB"), ("DOA", "DOB"))]
#: Read address of a memory that is read without a clock.
ASYNCHRONOUS = {"TRELLIS_DPR16X4": ("RAD",)}
MEMORIES = {"TRELLIS_DPR16X4", "DP16KD"}
#: Logic. Yosys uses multipliers without registers, so without clocks.
LOGIC = {"LUT4", "CCU2C", "PFUMX", "L6MUX21", "MULT18X18D", "DELAYG", "DELAYF", "$lut",
         *(f"$_{gate}_" for gate in ("BUF", "NOT", "AND", "NAND", "OR", "NOR", "XOR", "XNOR",
                                     "ANDNOT", "ORNOT", "MUX", "NMUX"))}
#: Cells without crossings: pads, clocks, notes. USRMCLK is the pad of the flash's clock.
OTHER = {"TRELLIS_IO", "USRMCLK", "EHXPLLL", "DCCA", "$scopeinfo"}
#: Registers of Amaranth's synchronisers.
STAGE = re.compile(r"(?:^|\.)stage\d+(?:\[\d+\])?$")
FIRST_STAGE = re.compile(r"(?:^|\.)stage0(?:\[\d+\])?$")


class CrossingError(RuntimeError):
    """The netlist has an unknown cell; the message is one line."""


@dataclass(frozen=True)
class Crossing:
    """``count`` bits that cross from clock to clock in the same way.

    ``kind`` is empty for unsafe crossings. ``example`` is one of the bits, from register to
    register.
    """

    source: str
    target: str
    kind: str
    count: int
    example: str


class Netlist:
    """A flat netlist, prepared for queries.

    Parameters
    ----------
    module : dict
        ``modules.top`` of Yosys' JSON.

    Raises
    ------
    CrossingError
        If the netlist has unknown cells.
    """

    def __init__(self, module):
        self.module = module
        self._names, self._inputs = {}, {}
        #: Registers with a clock: cell name, type, clock bit, input pins, output pins.
        self.registers = []
        for name, net in module["netnames"].items():
            for index, bit in enumerate(net["bits"]):
                self._names.setdefault(bit, []).append(
                    f"{name}[{index}]" if len(net["bits"]) > 1 else name)
        for name, cell in module["cells"].items():
            self._add(name, cell)
        #: For each bit driven by a register: clock bit, and type of the cell.
        self.launch = {bit: (clock, kind) for _, kind, clock, _, outputs in self.registers
                       for bit in outputs.values()}
        # The clocks that reach a bit, as a bit set in an integer: cheap to keep for all bits.
        order = sorted({clock for _, _, clock, _, _ in self.registers})
        self._own = {bit: 1 << order.index(clock) for bit, (clock, _) in self.launch.items()}
        self._alone = {clock: 1 << n for n, clock in enumerate(order)}
        self._reached = {}

    def _add(self, name, cell):
        kind, pins = cell["type"], _pins(cell)
        clocked = kind in LOGIC and any(pin.startswith("CLK") for pin in pins)
        if clocked or kind not in CELLS and kind not in LOGIC | OTHER:
            raise CrossingError(f"the clocks of a {kind} are not known ({name})")
        wide = kind == "DP16KD" and int(cell["parameters"]["DATA_WIDTH_A"], 2) == 36
        for clock, inputs, outputs in WIDE if wide else CELLS.get(kind, ()):
            if isinstance(pins.get(clock), int):
                self.registers.append((name, kind, pins[clock], _those(pins, inputs),
                                       _those(pins, outputs)))
        if kind in LOGIC or kind in ASYNCHRONOUS:
            behind = [bit for pin, bit in pins.items() if isinstance(bit, int) and (
                _port(pin) in ASYNCHRONOUS[kind] if kind in ASYNCHRONOUS
                else cell["port_directions"][pin.partition("[")[0]] == "input")]
            for pin, bit in pins.items():
                if cell["port_directions"][pin.partition("[")[0]] == "output":
                    self._inputs[bit] = behind

    def names(self, bit) -> list[str]:
        """All names of a net, with an index for bits of vectors."""
        return self._names.get(bit, [f"net {bit}"])

    def name(self, bit) -> str:
        """The shortest name of a net."""
        return min(self.names(bit), key=lambda name: (len(name), name))

    def clock_name(self, bit) -> str:
        """The shortest name of a clock's net that ends with "clk"."""
        return min((name for name in self.names(bit) if name.endswith("clk")), key=len,
                   default=self.name(bit))

    def through_pad(self, port: str) -> int:
        """The net inside the pad of an input."""
        bit = self.module["ports"][port]["bits"][0]
        return next((cell["connections"]["O"][0] for cell in self.module["cells"].values()
                     if cell["type"] == "TRELLIS_IO" and cell["connections"].get("B") == [bit]),
                    bit)

    def foreign(self, bit, clock) -> bool:
        """Whether a register of another clock reaches this bit through logic."""
        todo = [bit]
        while todo:
            now = todo.pop()
            waiting = [i for i in self._inputs.get(now, ()) if i not in self._reached]
            if waiting and now not in self._reached:
                # Does not wait for loops of logic, if any.
                self._reached[now] = 0
                todo += [now, *waiting]
            else:
                self._reached[now] = self._own.get(now, 0)
                for i in self._inputs.get(now, ()):
                    self._reached[now] |= self._reached[i]
        return bool(self._reached[bit] & ~self._alone[clock])

    def sources(self, bit) -> list[int]:
        """Outputs of the registers that reach this bit through logic, including the bit itself."""
        seen, todo = set(), [bit]
        while todo:
            now = todo.pop()
            if now not in seen:
                seen.add(now)
                todo += self._inputs.get(now, ())
        return sorted(seen & self.launch.keys())


def _pins(cell):
    """Bit of each pin; pins of a vector with an index."""
    return {f"{port}[{index}]" if len(bits) > 1 else port: bit
            for port, bits in cell["connections"].items() for index, bit in enumerate(bits)}


def _port(pin):
    """``DIA`` of ``DIA0``, ``WAD`` of ``WAD[3]``."""
    return re.sub(r"\[?\d+\]?$", "", pin)


def _those(pins, ports):
    """Pins of the given ports that are not constant."""
    return {pin: bit for pin, bit in pins.items() if _port(pin) in ports and isinstance(bit, int)}


def find(netlist: Netlist, clocks: dict) -> list[Crossing]:
    """All crossings of a netlist, by clocks and kind.

    Parameters
    ----------
    clocks : dict
        Name of each clock by its net; other clocks get the name of their net.

    Raises
    ------
    CrossingError
    """
    counts, examples = Counter(), {}

    def note(source, target, kind, example):
        key = *(clocks.get(clock, netlist.clock_name(clock)) for clock in (source, target)), kind
        counts[key] += 1
        examples.setdefault(key, example)

    for name, kind, clock, inputs, outputs in netlist.registers:
        stages = [n for bit in outputs.values() for n in netlist.names(bit)]
        for pin, bit in inputs.items():
            if netlist.foreign(bit, clock):
                sources = netlist.sources(bit)
                for source in sources:
                    launch, origin = netlist.launch[source]
                    if launch != clock:
                        why = _kind(netlist, name, kind, pin, len(sources), stages, origin)
                        note(launch, clock, why, f"{netlist.name(source)} to "
                                                 f"{_register(netlist, name, outputs)}")
    _inside_memories(netlist, note)
    return [Crossing(*key, count, examples[key]) for key, count in sorted(counts.items())]


def _kind(netlist, name, kind, pin, sources, stages, origin):
    """Kind of the crossing from these source registers to a pin of a register whose outputs are
    named ``stages``; empty if unsafe.
    """
    if kind == "TRELLIS_FF":
        parameters = netlist.module["cells"][name]["parameters"]
        if pin == "LSR" and parameters.get("SRMODE") == "ASYNC" and any(map(STAGE.search, stages)):
            return "reset"
        if pin in ("DI", "M") and sources == 1 and any(map(FIRST_STAGE.search, stages)):
            return "synchroniser"
    return "queue" if origin in MEMORIES else ""


def _inside_memories(netlist, note):
    """Crossings inside block RAMs whose sides have different clocks."""
    sides = {}
    for name, kind, *side in netlist.registers:
        if kind in MEMORIES:
            sides.setdefault(name, []).append(side)
    for name, (first, *second) in sides.items():
        for here, there in ((first, *second), (*second, first)) if second else ():
            writes = any(_port(pin).startswith("DI") for pin in here[1])
            if writes and here[0] != there[0]:
                note(here[0], there[0], "queue",
                     f"{name} to {_register(netlist, name, there[2])}")


def _register(netlist, name, outputs):
    """Name of a register: its net, rather than its cell."""
    return netlist.name(next(iter(outputs.values()))) if outputs else name


def unexplained(crossings) -> list[Crossing]:
    """Unsafe crossings."""
    return [crossing for crossing in crossings if not crossing.kind]
