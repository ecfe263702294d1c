"""Frames between a simulated box and programs of this machine."""

import select

from cocotb.triggers import Timer

from dxpu_host import Port

from .box_system import BoxSystem

__all__ = ["POLL_NS", "Carrier"]

#: Interval at which the simulation looks for frames.
POLL_NS = 2000
#: A box with which nobody has spoken for so long, in simulated time, has nothing left to say soon:
#: longer than its waits for an answer.
_REST_NS = 4_000_000
#: Longest rest at a time, in seconds.
_REST_S = 0.01


class Carrier:
    """Carries frames between a port and the Ethernet of a box.

    Parameters
    ----------
    system : :class:`~.box_system.BoxSystem`
    port : :class:`dxpu_host.Port`
        Selectable; closed by whoever has opened it.

    Attributes
    ----------
    came, went : int
        Frames to the box, and from the box.
    """

    def __init__(self, system: BoxSystem, port: Port):
        self._system, self._port = system, port
        self.came = self.went = 0
        self._quiet_ns = 0
        system.ethernet.received.append(self._send)

    def _send(self, record):
        if not record.discard:
            self.went += 1
            self._quiet_ns = 0
            self._port.send(record.raw)

    async def step(self, *, rest: bool = False) -> None:
        """Let :data:`POLL_NS` pass, and give the box all frames that have come.

        ``rest``: while nobody speaks the simulation takes only a small part of a processor.
        """
        if rest and self._quiet_ns >= _REST_NS:
            select.select([self._port], [], [], _REST_S)
        await Timer(POLL_NS, "ns")
        self._quiet_ns += POLL_NS
        while (frame := self._port.receive()) is not None:
            self.came += 1
            self._quiet_ns = 0
            await self._system.ethernet.send(frame)
