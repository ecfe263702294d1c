"""Captures of the frames in an :class:`~dxpu_sim.ethernet.ethernet_switch.EthernetSwitch`."""

from collections.abc import Callable

import cocotb
from amaranth.lib import data
from cocotb.triggers import ValueChange
from cocotb.utils import get_sim_time

from .ethernet_switch import ROW, Arrival
from .pcap import PcapWriter

__all__ = ["BAD", "DROPPED", "TAPS", "Capture", "no_room"]

#: Signals of a switch that captures read, for ``public``: ``f"{module}:{TAPS}"``.
TAPS = "frames,tap,tap_age,tap_dropped,tap_full,tap_port,tap_row,tap_toggle"

#: Comment of a frame that a fault of the simulation has dropped.
DROPPED = "dropped by an injected fault"
#: Comment of a frame that came with a wrong FCS, with TX_ER, or too short.
BAD = "bad: dropped by the switch"


def no_room(names: list[str]) -> str:
    """Comment of a frame that did not get into the full queues to the ports of these names."""
    if len(names) == 1:
        return f"dropped: the queue to {names[0]} is full"
    return f"dropped: the queues to {', '.join(names)} are full"


class Capture:
    """Passes every frame that enters a switch to Python: one wake-up per frame.

    The switch's module must be among the ``public`` modules of the build, or its :data:`TAPS`.

    Parameters
    ----------
    switch : handle
        The switch in the design.
    ports : int
        Number of ports of the switch.
    writer : PcapWriter, optional
        Capture file; gets one interface per port. Frames that go no farther have a comment, as do
        those that do not get into the queue to each port of their destination.
    name : str or list of str
        Names of the interfaces; one name is followed by the port's number.
    call : function, optional
        Called with (port, time in ns of the first byte after the delimiter, frame with FCS, whether
        the frame is bad).
    period_ns : int
        Clock period of the switch.
    """

    def __init__(self, switch, writer: PcapWriter | None = None, *, ports: int,
                 name: str | list[str] = "port", call: Callable | None = None, period_ns: int = 8):
        self._switch, self._writer, self._call = switch, writer, call
        self._period = period_ns
        names = [f"{name}{n}" for n in range(ports)] if isinstance(name, str) else name
        self._names = names
        self._interfaces = [writer.interface(text) for text in names] if writer else []
        layout = data.Layout.cast(Arrival)
        self._fields = {name: (layout[name].offset, (1 << layout[name].width) - 1)
                        for name in ("length", "bad")}
        self._rows = len(switch.frames) // ports
        self._task = cocotb.start_soon(self._run())

    async def _run(self):
        switch = self._switch
        while True:
            await ValueChange(switch.tap_toggle)
            value = switch.tap.value.to_unsigned()
            length, bad = ((value >> offset) & mask for offset, mask in self._fields.values())
            port = int(switch.tap_port.value)
            frame = self._read(int(switch.tap_row.value), port, length)
            now = round(get_sim_time("ns"))
            time = now - int(switch.tap_age.value) * self._period
            if self._writer:
                self._writer.write(self._interfaces[port], time, frame, self._comment(bool(bad)),
                                   damaged=bool(bad))
            if self._call:
                self._call(port, time, frame, bool(bad))

    def _comment(self, bad):
        if bad:
            return BAD
        if int(self._switch.tap_dropped.value):
            return DROPPED
        full = self._switch.tap_full.value.to_unsigned()
        names = [name for port, name in enumerate(self._names) if full >> port & 1]
        return no_room(names) if names else ""

    def _read(self, row, port, length):
        count = -(-length // ROW)
        rows, memory = self._rows, self._switch.frames
        numbers = (port * rows + (row + n) % rows for n in range(count))
        return b"".join(memory[n].value.to_unsigned().to_bytes(ROW, "little")
                        for n in numbers)[:length]
