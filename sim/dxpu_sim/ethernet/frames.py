"""Python end of :mod:`dxpu_sim.ethernet.frame_port`."""

import cocotb
from cocotb.queue import Queue
from cocotb.triggers import ValueChange

from .frame_port import ROW_BYTES

__all__ = ["FramePort", "read_rows", "write_rows"]


def write_rows(rows, frame: bytes) -> None:
    """Write ``frame`` to the memory ``rows``, from row 0 on."""
    for n in range(0, len(frame), ROW_BYTES):
        rows[n // ROW_BYTES].value = int.from_bytes(frame[n:n + ROW_BYTES], "little")


def read_rows(rows, length: int, first: int = 0) -> bytes:
    """The first ``length`` bytes of the memory ``rows``, from row ``first`` on."""
    count = -(-length // ROW_BYTES)
    return b"".join(rows[first + n].value.to_unsigned().to_bytes(ROW_BYTES, "little")
                    for n in range(count))[:length]


class FramePort:
    """Sends and collects whole packets through a ``FrameSource`` and a ``FrameSink``.

    ``tx`` and ``rx`` are prefixes of port names in ``dut``; ``source`` and ``sink`` are the
    memories. ``received`` is a queue of (bytes, discard) pairs.
    """

    def __init__(self, dut, source, sink, *, tx="tx", rx="rx"):
        self._tx = {name: getattr(dut, f"{tx}_{name}")
                    for name in ("length", "discard", "send", "done")}
        self._rx = {name: getattr(dut, f"{rx}_{name}")
                    for name in ("length", "discard", "toggle", "violations")}
        self._source, self._sink = source, sink
        # The state left by an earlier port is the idle state.
        self._send = int(self._tx["done"].value)
        self._tx["send"].value = self._send
        self.received: Queue = Queue()
        self._task = cocotb.start_soon(self._collect())

    async def send(self, frame: bytes, *, discard: bool = False) -> None:
        """Send a packet; returns when the last beat was taken."""
        write_rows(self._source, frame)
        self._tx["length"].value = len(frame)
        self._tx["discard"].value = discard
        self._send ^= 1
        self._tx["send"].value = self._send
        while int(self._tx["done"].value) != self._send:
            await ValueChange(self._tx["done"])

    async def _collect(self):
        while True:
            await ValueChange(self._rx["toggle"])
            frame = read_rows(self._sink, int(self._rx["length"].value))
            self.received.put_nowait((frame, bool(int(self._rx["discard"].value))))

    def check(self):
        """Check that no beat of a received packet broke the framing rules."""
        assert int(self._rx["violations"].value) == 0

    def take(self):
        """All packets received so far, as a list."""
        return [self.received.get_nowait() for _ in range(self.received.qsize())]
