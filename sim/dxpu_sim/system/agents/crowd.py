"""Many light nodes behind a port of a manager."""

import heapq
import itertools
import random
import select
import time
from contextlib import suppress
from functools import partial

__all__ = ["Crowd", "serve"]


class Crowd:
    """Light nodes that a manager reaches by their factory addresses; what they say by themselves,
    announcements and events, comes when it is due.

    Parameters
    ----------
    agents : list of Agent
    loss : float
        Frames that are lost, and as many that come twice.
    rng : random.Random
    """

    def __init__(self, agents, *, loss=0.0, rng=None):
        self.loss, self._rng = loss, rng or random.Random(0)
        self._at = {agent.mac: agent for agent in agents}
        self._counts = itertools.count()
        #: Times in microseconds at which agents have something to say, perhaps.
        self._queue, self._planned = [], {}
        for agent in agents:
            agent.spoken = partial(self._plan, agent, 0.0)
            self._plan(agent, 0.0)

    def _plan(self, agent, when):
        if when < self._planned.get(agent, float("inf")):
            self._planned[agent] = when
            heapq.heappush(self._queue, (when, next(self._counts), agent))

    def _copies(self):
        return 0 if self._rng.random() < self.loss else 1 + (self._rng.random() < self.loss)

    def take(self, frame, now):
        """Answers to a frame of the manager; ``now`` in microseconds."""
        agent, frames = self._at.get(frame[:6]), []
        if agent is None:
            return frames
        for _ in range(self._copies()):
            if answer := agent.model.take(frame, now):
                frames += [answer] * self._copies()
        self._plan(agent, agent.model.tells())
        return frames

    def speak(self, now):
        """What agents say by themselves by now."""
        frames = []
        while self._queue and self._queue[0][0] <= now:
            when, _, agent = heapq.heappop(self._queue)
            if self._planned.get(agent) != when:
                continue
            del self._planned[agent]
            announcement, due = agent.model.announce(now)
            for frame in (announcement, agent.model.tell(now)):
                if frame:
                    frames += [frame] * self._copies()
            due = min(due, agent.model.tells())
            if due < float("inf"):
                self._plan(agent, due)
        return frames

    def due(self):
        """When somebody has something to say again, at the earliest."""
        return self._queue[0][0] if self._queue else float("inf")


def serve(crowd, line, command):
    """Let a crowd answer on a socket that keeps frames apart, in real time, until ``command``, a
    connection of :mod:`multiprocessing`, is closed at the other end; what comes there is called
    with the crowd, and its result sent back."""
    line.setblocking(False)

    def send(frames):
        for frame in frames:
            try:
                line.send(frame)
            except (BlockingIOError, ConnectionError):
                return  # lost, as in a full queue of a switch

    while True:
        now = 1e6 * time.monotonic()
        send(crowd.speak(now))
        wait = min(max(crowd.due() - now, 0.0) / 1e6, 1.0)
        ready, _, _ = select.select([line, command], [], [], wait)
        if line in ready:
            with suppress(BlockingIOError, ConnectionError):
                for _ in range(50):
                    send(crowd.take(line.recv(2000), 1e6 * time.monotonic()))
        if command in ready:
            try:
                command.send(command.recv()(crowd))
            except EOFError:
                return
