"""Discrete events: threads, queues, the GPU's front end, streams.

A call rings a doorbell: a posted write, arriving half a round trip later. The front end then
reads the command from the host's memory, a round trip, and the operation runs when the stream is
free. A thread waiting for a stream is told by a posted write, half a round trip after the end.
"""

import enum
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import simpy

from .errors import not_negative, positive
from .program import Action, Do, Program

__all__ = ["NATIVE", "Link", "Mode", "Run", "simulate"]


class Mode(enum.Enum):
    """When the front end of the GPU fetches the command of the next operation of a stream."""

    #: After the operation before has ended: each operation waits for a round trip, as in the rule
    #: of the paper.
    SERIAL = "serial"
    #: While the operation before runs: only short operations wait.
    PREFETCH = "prefetch"


@dataclass(frozen=True)
class Link:
    """The difference between a GPU in the host and behind a fabric.

    Parameters
    ----------
    delay_us : float
        Time added to each round trip.
    to_gpu_ratio, to_host_ratio : float
        Native bandwidth of copies divided by the bandwidth behind the fabric.
    round_trips : float
        Round trips of a command.
    sync_delay_us : float, optional
        Time added to the round trip of a wait, if not ``delay_us``.
    """

    delay_us: float
    to_gpu_ratio: float = 1.0
    to_host_ratio: float = 1.0
    round_trips: float = 1.0
    sync_delay_us: float | None = None

    def __post_init__(self) -> None:
        not_negative("delay_us", self.delay_us)
        not_negative("round_trips", self.round_trips)
        positive("to_gpu_ratio", self.to_gpu_ratio)
        positive("to_host_ratio", self.to_host_ratio)

    def duration_us(self, action: Action) -> float:
        """Duration of an operation on the stream."""
        if action.do is Do.TO_GPU:
            return action.busy_us * self.to_gpu_ratio
        if action.do is Do.TO_HOST:
            return action.busy_us * self.to_host_ratio
        return action.busy_us

    @property
    def told_us(self) -> float:
        """Time until a waiting thread is told."""
        return (self.delay_us if self.sync_delay_us is None else self.sync_delay_us) / 2


#: A GPU in the host.
NATIVE = Link(0.0)


@dataclass(frozen=True)
class Run:
    """A simulated run: length, and time of the operations on streams, in us."""

    time_us: float
    busy_us: float


def simulate(program: Program, link: Link, mode: Mode = Mode.SERIAL) -> Run:
    """Run a program; ends when all threads and all streams have ended."""
    return _Machine(program, link, mode).run()


class _Stream:
    """A queue with a front end: fetches commands in order, and runs the operations."""

    def __init__(self, env: simpy.Environment, link: Link, mode: Mode) -> None:
        self._env, self._link, self._mode = env, link, mode
        self._called: simpy.Store = simpy.Store(env)
        self._fetched: simpy.Store = simpy.Store(env)
        self._room = simpy.Resource(env, 1)
        self.busy_us = 0.0
        self.ended = 0.0
        #: Event of the last operation's end; a stream that was never used is empty.
        self.empty: simpy.Event | None = None
        env.process(self._fetch())
        env.process(self._execute())

    def put(self, action: Action, arrives: float) -> None:
        """Add an operation whose doorbell arrives at some time."""
        self.empty = self._env.event()
        self._called.put((action, arrives, self.empty))

    def _fetch(self) -> Generator[simpy.Event, Any, None]:
        env, cost = self._env, self._link.delay_us * self._link.round_trips
        while True:
            action, arrives, done = yield self._called.get()
            room = self._room.request()
            yield room
            if arrives > env.now:
                yield env.timeout(arrives - env.now)
            if cost and action.fetched:
                yield env.timeout(cost)
            self._fetched.put((action, done, room))

    def _execute(self) -> Generator[simpy.Event, Any, None]:
        env = self._env
        while True:
            action, done, room = yield self._fetched.get()
            if self._mode is Mode.PREFETCH:
                self._room.release(room)
            duration = self._link.duration_us(action)
            yield env.timeout(duration)
            self.busy_us += duration
            self.ended = env.now
            if self._mode is Mode.SERIAL:
                self._room.release(room)
            done.succeed()


class _Machine:
    """Threads and streams of a run."""

    def __init__(self, program: Program, link: Link, mode: Mode) -> None:
        self._env = simpy.Environment()
        self._program, self._link = program, link
        self._streams = [_Stream(self._env, link, mode) for _ in range(program.streams)]
        awaited = {action.after for thread in program.threads for action in thread}
        self._called = {number: self._env.event() for number in awaited if number >= 0}

    def run(self) -> Run:
        number, threads = 0, []
        for thread in self._program.threads:
            threads.append(self._env.process(self._call(thread, number)))
            number += len(thread)
        self._env.run(self._env.all_of(threads))
        called = float(self._env.now)
        self._env.run()
        ended = max((stream.ended for stream in self._streams), default=0.0)
        return Run(max(called, ended), sum(stream.busy_us for stream in self._streams))

    def _call(self, actions: tuple[Action, ...],
              number: int) -> Generator[simpy.Event, Any, None]:
        env, link = self._env, self._link
        rings_us = self._program.launch_us + link.delay_us / 2
        for action in actions:
            if action.after >= 0:
                yield self._called[action.after]
            if action.gap_us:
                yield env.timeout(action.gap_us)
            if action.do is Do.WAIT:
                yield from self._wait(action.stream)
            elif action.do is not Do.GO_ON:
                self._streams[action.stream].put(action, env.now + rings_us)
            if number in self._called:
                self._called[number].succeed()
            number += 1

    def _wait(self, stream: int) -> Generator[simpy.Event, Any, None]:
        streams = self._streams if stream < 0 else [self._streams[stream]]
        ends = [each.empty for each in streams if each.empty is not None and not
                each.empty.processed]
        if ends:
            yield self._env.all_of(ends)
            if self._link.told_us:
                yield self._env.timeout(self._link.told_us)
