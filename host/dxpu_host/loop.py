"""Main loop of a host: the port, turns of sessions, slots and timers, an optional thread,
waiting."""

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable

from dxpu_model.receiver import judge
from dxpu_model.wire import Frame

from .box import Box, BoxEvent, SlotDown, SlotReady
from .errors import HostError, SessionLost, SlotLost, Timeout
from .port import Port
from .scan import Windows
from .slots import Function, HostSlot
from .timers import Timers

__all__ = ["Loop"]

log = logging.getLogger("dxpu.host")


class Loop:
    """Turns of boxes and slots, over a port.

    Parameters
    ----------
    port : :class:`~.port.Port`
    node : int
    timers : :class:`~.timers.Timers`
    now : function
        Returns seconds.

    Attributes
    ----------
    counters : Counter
        Counts of the TLPs of slots (see :class:`~.slots.HostSlot`), and of dropped frames: by the
        name of the cause, ``other_node``, ``no_session``.
    """

    #: Largest number of frames taken in one turn.
    FRAMES = 256
    #: Delay in seconds after which the thread of :meth:`start` notices work begun by other threads.
    PAUSE = 0.01

    def __init__(self, port: Port, *, node: int, timers: Timers,
                 now: Callable[[], float]) -> None:
        self.node, self.timers = node, timers
        self._port, self._now = port, now
        self.counters: Counter[str] = Counter()
        self._boxes: dict[tuple[int, int], Box] = {}
        self._slots: dict[tuple[Box, int], HostSlot] = {}
        self._windows = Windows()
        self._interrupts: deque[tuple[Function, int]] = deque()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._stop = self._in_turn = False
        self._broken: HostError | None = None

    def start(self) -> None:
        """Serve in a thread of its own from now on."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="dxpu-host", daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        while not self._stop:
            try:
                self.poll(self.PAUSE)
            except Exception as error:
                if not isinstance(error, HostError):
                    log.exception("the thread that serves has ended")
                    error = HostError(f"the thread that serves has ended: {error!r}")
                with self._changed:
                    self._broken = error
                    self._changed.notify_all()
                return

    def end(self) -> None:
        """Stop the thread, if any, and close the port."""
        self._stop = True
        if self._thread not in (None, threading.current_thread()):
            self._thread.join()
        self._port.close()

    def poll(self, timeout: float = 0.0) -> None:
        """Take frames for ``timeout`` seconds, or until the next timer; send due frames; deliver
        interrupts.

        Raises
        ------
        PortError
        """
        with self._lock:
            wait = min(timeout, self._turn())
        if wait > 0:
            self._port.wait(wait)
            with self._lock:
                self._turn()
        while True:
            try:
                device, vector = self._interrupts.popleft()
            except IndexError:
                return  # all delivered, some perhaps by another thread
            try:
                device.interrupted(vector)
            except Exception:
                log.exception("interrupt %d of %s", vector, device.address)
            with self._changed:
                self._changed.notify_all()

    def _turn(self) -> float:
        """Do one turn of everything; returns the seconds until the next timer."""
        if self._in_turn:
            raise RuntimeError("a DMA handler must not wait for the host")
        self._in_turn = True
        try:
            return self._do_turn(self._now())
        finally:
            self._in_turn = False

    def _do_turn(self, now: float) -> float:
        for _ in range(self.FRAMES):
            data = self._port.receive()
            if data is None:
                break
            self._frame(data, now)
        for box in self._boxes.values():
            self._happened(box, box.turn(now))
        for slot in self._slots.values():
            slot.requests.expire(now)
        deadlines = [now + 3600.0]
        for box in self._boxes.values():
            for frame in box.take():
                self._port.send(frame)
            deadlines.append(box.deadline())
        deadlines += [when for slot in self._slots.values()
                      if (when := slot.requests.deadline()) is not None]
        self._changed.notify_all()
        return min(deadlines) - now

    def _frame(self, data: bytes, now: float) -> None:
        frame = judge(data)
        if not isinstance(frame, Frame):
            self.counters[frame.name.lower()] += 1
        elif frame.dst_node != self.node:
            self.counters["other_node"] += 1
        elif (box := self._boxes.get((frame.src_node, frame.stream))) is None:
            self.counters["no_session"] += 1
        else:
            self._happened(box, box.receive(frame, now))

    def _happened(self, box: Box, events: list[BoxEvent]) -> None:
        for event in events:
            slot = self._slots[box, event.slot]
            if isinstance(event, SlotReady):
                slot.ready()
            elif isinstance(event, SlotDown):
                self._windows.give_back(slot)
                slot.down((SessionLost if event.lost else SlotLost)(event.reason))
            else:
                slot.came(event)

    def wait_until(self, done: Callable[[], bool], what: str,
                   timeout: float | None = None) -> None:
        """Let everything go on until ``done()``.

        Raises
        ------
        Timeout
            With the text ``what``, after ``timeout`` seconds; default the completion timeout.
        PortError
        """
        timeout = self.timers.completion if timeout is None else timeout
        deadline = self._now() + timeout
        with self._lock:
            self._turn()
        while True:
            with self._changed:
                if self._broken is not None:
                    raise self._broken
                if done():
                    return
                left = deadline - self._now()
                if left <= 0:
                    raise Timeout(f"{what} within {timeout:g} s")
                if self._thread not in (None, threading.current_thread()):
                    self._changed.wait(left)
                    continue
            self.poll(left)
