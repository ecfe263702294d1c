"""Simulated time for :mod:`asyncio`, and a learning Ethernet switch in it."""

import asyncio
import os
import selectors
from collections import Counter, deque

__all__ = ["LearningSwitch", "SwitchPort", "run"]

#: Bytes on the line besides a frame: FCS, preamble, gap.
_OVERHEAD, _FCS = 24, 4


class _Selector(selectors.DefaultSelector):
    """Looks at files without a wait; then time goes on."""

    now = 0.0

    def select(self, timeout=None):
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "nothing will ever happen"
            self.now += max(timeout, 0.0)
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self):
        self._simulated = _Selector()
        super().__init__(self._simulated)

    def time(self):
        return self._simulated.now


def run(main):
    """Run a coroutine; its loop's time begins at 0 and jumps whenever all tasks wait."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(main)


class LearningSwitch:
    """A store-and-forward Ethernet switch that learns addresses, with a queue before each port.

    A frame to an address that was not seen as a source goes to all other ports, as does one to a
    group. A frame without room in a queue is lost there.

    Parameters
    ----------
    ends : list of callables
        What is at each port: called with a frame when it has arrived, after the line.
    ignores : list of callables
        Tells for each port whether its end does nothing with a frame; then it is not called.
    room : int
        Bytes of a queue.
    bits : float
        Bits per second of all lines.
    delay : float
        Seconds from the end of a frame to the earliest begin at another port.

    Attributes
    ----------
    counts : Counter
        ``in``, ``out``, ``lost`` frames.
    deepest : int
        Most bytes that were in a queue.
    """

    def __init__(self, ends, ignores, *, room=16384, bits=1e9, delay=1e-6):
        self._ends, self._ignores = ends, ignores
        self._room, self._second, self._delay = room, 8 / bits, delay
        self._learned = {}
        self._in_free, self._out_free = [0.0] * len(ends), [0.0] * len(ends)
        self.counts, self.deepest = Counter(), 0

    def send(self, port, frame):
        """The end at a port sends a frame."""
        loop = asyncio.get_running_loop()
        begin = max(loop.time(), self._in_free[port])
        self._in_free[port] = end = begin + (len(frame) + _OVERHEAD) * self._second
        loop.call_at(end + self._delay, self._forward, port, frame)

    def _forward(self, port, frame):
        self.counts["in"] += 1
        self._learned[frame[6:12]] = port
        known = None if frame[0] & 1 else self._learned.get(frame[:6])
        for out in range(len(self._ends)) if known is None else (known,):
            if out != port:
                self._queue(out, frame)

    def _queue(self, out, frame):
        loop = asyncio.get_running_loop()
        now, size = loop.time(), len(frame) + _FCS
        begin = max(now, self._out_free[out])
        waits = (begin - now) / self._second * size / (len(frame) + _OVERHEAD) + size
        if waits > self._room:
            self.counts["lost"] += 1
            return
        self.deepest = max(self.deepest, round(waits))
        self.counts["out"] += 1
        self._out_free[out] = end = begin + (len(frame) + _OVERHEAD) * self._second
        if not self._ignores[out](frame):
            loop.call_at(end, self._ends[out], frame)


class SwitchPort:
    """A port for :class:`dxpu_manage.Manager` at a port of a switch."""

    def __init__(self, switch, number):
        self._switch, self._number = switch, number
        self._frames = deque()
        self._read, self._write = os.pipe()

    def fileno(self):
        return self._read

    def send(self, frame):
        self._switch.send(self._number, frame)

    def came(self, frame):
        """A frame has arrived."""
        if not self._frames:
            os.write(self._write, b"x")
        self._frames.append(frame)

    def receive(self):
        if not self._frames:
            return None
        frame = self._frames.popleft()
        if not self._frames:
            os.read(self._read, 1)
        return frame

    def close(self):
        os.close(self._read)
        os.close(self._write)
