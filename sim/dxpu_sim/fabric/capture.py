"""Captures of the frames of ``dxpu faults``, on lines and in a switch, and what happens to them."""

import cocotb
from amaranth.lib import data
from cocotb.triggers import ValueChange
from cocotb.utils import get_sim_time

from dxpu_sim.ethernet.capture import DROPPED, TAPS as SWITCH_TAPS, Capture
from dxpu_sim.ethernet.pcap import PcapWriter

from .bad_line import Tap
from .fault_design import ENDS

__all__ = ["LineCapture", "capture_lines", "capture_switch", "public"]

#: Signals of a line that captures read.
_LINE_TAPS = "rows,tap,tap_toggle"
#: A frame of 1,500 bytes is known 12 us after its first byte.
WINDOW_NS = 20_000
#: Preamble and start delimiter, in byte times.
_PREAMBLE = 8


def public(*, switch: bool, paths: int = 2) -> tuple[str, ...]:
    """What a build of a bench must make public for captures: of
    :class:`~.incast_design.IncastBench`, which has a switch, or of
    :class:`~.fault_design.FaultBench`."""
    if switch:
        return (f"top.switch:{SWITCH_TAPS}",)
    return tuple(f"top.to_{end}_line{path}:{_LINE_TAPS}" for end in ENDS for path in range(paths))


def capture_lines(dut, path: str) -> PcapWriter:
    """Write every frame of a :class:`~.fault_design.FaultBench` from now on into a file; returns
    its context."""
    writer = PcapWriter(path, fcs=False, window_ns=WINDOW_NS)
    for end, peer in zip(ENDS, reversed(ENDS), strict=True):
        for number in range(len(dut.dead)):
            LineCapture(getattr(dut, f"to_{peer}_line{number}"), writer, f"{end} path {number}")
    return writer


def capture_switch(dut, path: str, hosts: int) -> PcapWriter:
    """Write every frame that enters the switch of an :class:`~.incast_design.IncastBench` from now
    on into a file; returns its context."""
    writer = PcapWriter(path, window_ns=WINDOW_NS)
    Capture(dut.switch, writer, ports=hosts + 1, name=["box", *(f"host{n}" for n in range(hosts))])
    return writer


class LineCapture:
    """Writes every frame that enters a line, as it was sent: one wake-up of Python per frame.

    The time is that of the first byte. A comment says what a fault does to the frame.

    Parameters
    ----------
    line : handle
        The line in a design that was built with :func:`public`.
    writer : PcapWriter
        Capture file; gets an interface.
    name : str
        Name of the interface.
    width : int
        Data bits per beat.
    period_ns : int
        Clock period.
    """

    def __init__(self, line, writer: PcapWriter, name: str, *, width: int = 64,
                 period_ns: int = 8):
        self._line, self._writer, self._bytes = line, writer, width // 8
        self._period, self._interface = period_ns, writer.interface(name)
        self._layout = Tap(width // 32)
        self._task = cocotb.start_soon(self._run())

    async def _run(self):
        while True:
            await ValueChange(self._line.tap_toggle)
            tap = self._layout.from_bits(self._line.tap.value.to_unsigned())
            beats, rows = tap.flight.beats, len(self._line.rows)
            frame = b"".join(
                self._beat(int(tap.flight.start + n) % rows) for n in range(beats))[:tap.size]
            # A beat per eight byte times; the tap is a cycle behind the last one.
            begin = (beats - 1) * self._bytes + 1 - _PREAMBLE
            self._writer.write(self._interface, round(get_sim_time("ns")) - begin * self._period,
                               frame, ", ".join(self._comments(tap)))

    def _beat(self, row):
        value = self._line.rows[row].value.to_unsigned()
        return (value & (1 << 8 * self._bytes) - 1).to_bytes(self._bytes, "little")

    def _comments(self, tap: data.Const):
        if tap.lost:
            yield DROPPED
            return
        if tap.twice:
            yield "comes twice by an injected fault"
        if tap.late:
            yield "comes late by an injected fault"
        if tap.flight.change:
            pattern = tap.flight.pattern.to_bytes(self._bytes, "little")
            byte = next(n for n, bits in enumerate(pattern) if bits)
            yield (f"byte {tap.flight.beat * self._bytes + byte} changed by an injected fault: "
                   f"xor {pattern[byte]:02x}h")
