"""An observed node of plain registers, whose traffic a test makes up."""

from typing import Any

from dxpu.observe import BINS
from dxpu.observe.log import DEPTH
from dxpu.proxy import BoxProxy, HostProxy
from dxpu_model.console import answer

__all__ = ["ObservedNode", "SerialPort"]

SHAPE = {"paths": 2, "peers": 2, "streams": 1}


class ObservedNode(dict[int, int]):
    """Registers of a host or a box by byte address, as after a reset, with an uncommon clock: each
    read takes 1,000 cycles.

    Parameters
    ----------
    role : str
    rows : int
    observed : bool
    """

    def __init__(self, role: str = "host", *, rows: int = 3, observed: bool = True):
        make: Any = HostProxy if role == "host" else BoxProxy
        self.map = make(64, **{"ports" if role == "host" else "slots": rows}, **SHAPE,
                        observed=observed).registers
        super().__init__({base + p.address: p.register.reset for base, block
                          in self.map.blocks.values() for p in block.placed})
        self.time = 0  #: in units of 16 cycles
        self.events = 0
        if observed:
            self.pace = 1000 // 16

    def __getitem__(self, address: int) -> int:
        if "observe" in self.map.blocks:
            self.time += self.pace
            super().__setitem__(self.map.address("observe.now_low"), self.time & 0xFFFF_FFFF)
            super().__setitem__(self.map.address("observe.now_high"), self.time >> 32 & 0xFF)
        return super().__getitem__(address)

    def set(self, path: str, **fields: int) -> None:
        """Fields of a register; the others are 0."""
        placed, base = self.map.find(path)
        self[base + placed.address] = placed.register.pack(**fields)

    def count(self, counter: str, more: int) -> None:
        """Raise a counter, which wraps."""
        address = self.map.address(f"counters.{counter}")
        self[address] = dict.__getitem__(self, address) + more & 0xFFFF_FFFF

    def bind(self, row: int, node: int, slot: int) -> None:
        """Bind a row."""
        self.set(f"table.row[{row}].state", used=1, node=node, slot=slot)
        self.set(f"table.row[{row}].binding", paths=1, generation=7)

    def pass_time(self, row: str, bin: int, cycles: int, times: int = 1) -> None:
        """Times of a row of histograms, such as ``observe.round_trip[0]``."""
        for name, more in ((f"bin{bin}", times), ("sum_low", cycles * times)):
            address = self.map.address(f"{row}.{name}")
            self[address] = dict.__getitem__(self, address) + more & 0xFFFF_FFFF
        assert bin < BINS

    def happens(self, kind: int, argument: int) -> None:
        """Note an event."""
        entry = f"observe.event[{self.events % DEPTH}]"
        self.set(f"{entry}.time", low=self.time & 0xFFFF_FFFF)
        self.set(f"{entry}.what", high=self.time >> 32, kind=kind, argument=argument)
        self.events += 1
        self.set("observe.recorded", count=self.events)


class SerialPort:
    """A serial port of a :class:`~dxpu_boards.register_line.RegisterLine`, with the node behind."""

    def __init__(self, node: ObservedNode, between=lambda: None):
        self._node, self._received, self._between = node, b"", between

    def reset_input_buffer(self) -> None:
        self._received = b""

    def write(self, data: bytes) -> None:
        for line in data.decode("latin-1").split("\n")[:-1]:
            said = answer(line, self._node)
            if said is not None:
                self._received += said.encode() + b"\r\n"

    def read_until(self, end: bytes) -> bytes:
        line, found, self._received = self._received.partition(end)
        return line + found

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass
