"""Tasks on all cores of this machine, by processes; a task whose process is lost is done again.

``concurrent.futures`` gives up all tasks if one process dies, and does not say whose it was, so
that each process has a pipe of its own here.
"""

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from .errors import ModelError

__all__ = ["LOSSES", "cores", "run"]

#: Processes that a task may lose before the task is given up.
LOSSES = 3

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def run(function: Callable[[_Task], _Result], tasks: Sequence[_Task], workers: int
        ) -> Iterator[_Result]:
    """Results of ``function`` for each task, in the order in which they are done.

    Function, tasks and results are pickled; the function is one of a module. With one worker
    everything happens in this process. All processes end with the iterator, whatever ends it.

    Raises
    ------
    ModelError
        If a task has lost :data:`LOSSES` processes.
    Exception
        Whatever ``function`` raises.
    """
    if workers == 1:
        yield from map(function, tasks)
        return
    waiting = list(reversed(tasks))
    losses: dict[int, int] = {}
    pool = [_Worker(function) for _ in range(min(workers, len(tasks)))]
    try:
        while True:
            for place, worker in enumerate(pool):
                if worker.lost:
                    worker.end()
                    pool[place] = _Worker(function)
            for worker in pool:
                if waiting and worker.task is None:
                    worker.give(waiting.pop())
            busy: dict[object, _Worker] = {
                worker.pipe: worker for worker in pool if worker.task is not None}
            if not busy:
                return
            for pipe in wait([worker.pipe for worker in busy.values()]):
                worker = busy[pipe]
                task, worker.task = worker.task, None
                try:
                    result, error = worker.pipe.recv()
                except (EOFError, ConnectionError):
                    worker.lost = True
                    losses[id(task)] = losses.get(id(task), 0) + 1
                    if losses[id(task)] >= LOSSES:
                        raise ModelError(
                            f"{LOSSES} processes ended while they did one task: memory may be "
                            "short; fewer jobs at once need less") from None
                    waiting.append(task)
                    continue
                if error is not None:
                    raise error
                yield result
    finally:
        for worker in pool:
            worker.end()


class _Worker:
    """A process with its pipe, and the task that it has."""

    def __init__(self, function: Callable[[Any], Any]):
        # Processes are forked from a fresh interpreter that has imported what the function needs:
        # they have no state of this process, and begin at once.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([function.__module__])
        self.pipe, other = context.Pipe()
        self.task: Any = None
        self.lost = False
        self._process: BaseProcess = context.Process(
            target=_serve, args=(function, other), daemon=True)
        self._process.start()
        other.close()

    def give(self, task: Any) -> None:
        self.task = task
        with contextlib.suppress(ConnectionError):  # the process has ended: seen when it answers
            self.pipe.send(task)

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _serve(function: Callable[[Any], Any], pipe: Connection) -> None:
    """Do tasks until the other end is gone. An interrupt is for the command, which ends this."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            task = pipe.recv()
            answer: tuple[Any, Exception | None]
            try:
                answer = (function(task), None)
            except Exception as error:
                answer = (None, error)
            pipe.send(answer)
