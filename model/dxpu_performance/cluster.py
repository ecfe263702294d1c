"""Tasks on a Dask cluster; a task whose worker is lost is done again by another one."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from .errors import ModelError

__all__ = ["Cluster"]

#: Seconds for the first connection, and seconds that a cluster may be without workers.
CONNECT, WITHOUT_WORKERS = 10.0, 60.0
_POLL = 0.02

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


class Cluster:
    """A connection to the scheduler of a cluster, for use in a ``with`` statement.

    Parameters
    ----------
    address : str
        Address such as ``tcp://10.0.0.1:8786``.

    Raises
    ------
    ModelError
        If there is no scheduler, or one of another version.
    """

    def __init__(self, address: str):
        import distributed

        connect: Any = distributed.Client
        try:
            self._client = connect(address, timeout=CONNECT, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            reason = (str(error).splitlines() or [""])[0]
            raise ModelError(f"no scheduler of Dask answers at {address}: {reason}") from None
        self._address = address

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close(timeout=CONNECT)

    def cores(self) -> int:
        """Tasks that all workers together do at once; at least 1."""
        return max(1, sum(map(int, self._client.nthreads().values())))

    def run(self, function: Callable[[_Task], _Result], tasks: Sequence[_Task]
            ) -> Iterator[_Result]:
        """Results of ``function`` for each task, in the order in which they are done.

        Dask repeats the tasks of a lost worker. Tasks that are not done are cancelled when the
        iterator ends, whatever ends it.

        Raises
        ------
        ModelError
            If the cluster has no worker for :data:`WITHOUT_WORKERS` seconds, the scheduler is
            gone, workers do not have dxpu, or a task has lost too many workers.
        """
        import distributed

        as_completed: Any = distributed.as_completed
        futures = self._client.map(function, tasks, pure=False)
        done = as_completed(futures, with_results=True, raise_errors=False,
                            loop=self._client.loop)
        try:
            alone = time.monotonic()
            left = len(futures)
            while left:
                for future, result in done.next_batch(block=False):
                    left -= 1
                    if future.status != "finished":
                        raise self._failed(future, result)
                    yield result
                if self._client.status != "running":
                    raise ModelError(f"the scheduler at {self._address} is gone")
                if self._client.nthreads():
                    alone = time.monotonic()
                elif time.monotonic() - alone > WITHOUT_WORKERS:
                    raise ModelError(f"the cluster at {self._address} has no workers")
                time.sleep(_POLL)
        finally:
            self._client.cancel(futures)

    def _failed(self, future: Any, result: Any) -> BaseException:
        error = result[1] if isinstance(result, tuple) else result
        if isinstance(error, ModuleNotFoundError):
            return ModelError(f"workers of the cluster have no {error.name}: install dxpu there, "
                              "with its extras performance and dask")
        if type(error).__name__ == "KilledWorker":
            return ModelError("several workers of the cluster ended while they did one task: "
                              "memory may be short")
        return error if isinstance(error, BaseException) else ModelError(
            f"a task on the cluster is {future.status}")
