"""A guest's shell, for whoever lets the guest go on."""

import time
from collections.abc import Awaitable, Callable

from .guest import Guest, GuestFailed, busy

__all__ = ["Console"]

#: Factor by which a wait may be longer on a busy machine.
_LONGEST = 5.0


class Console:
    """Shell lines in a guest, and waits for their ends.

    Parameters
    ----------
    guest : :class:`~dxpu_sim.linux.carrier.guest.Guest`
    pause : coroutine function
        Lets the guest go on for a while.
    """

    def __init__(self, guest: Guest, pause: Callable[[], Awaitable[None]]):
        self.guest = guest
        self._pause = pause
        self._answers: list[list[tuple[str, int]]] = []

    def read(self) -> None:
        """Read the guest's output, which may be the end of lines under way."""
        self.guest.poll()
        while self._answers and (answer := self.guest.ended()) is not None:
            self._answers.pop(0).append(answer)
        self.guest.check()

    async def boot(self, *, timeout_s: float = 120.0) -> None:
        """Wait for the guest's shell."""
        await self._until(lambda: self.guest.ready, "the guest's shell", timeout_s)

    async def _until(self, condition, what, timeout_s):
        begin = time.monotonic()
        while not condition():
            if time.monotonic() > begin + timeout_s * min(busy(), _LONGEST):
                raise self.guest.late(f"no {what} after {time.monotonic() - begin:.0f} s")
            await self._pause()

    async def run(self, line: str, *, timeout_s: float = 120.0) -> tuple[str, int]:
        """Output and exit status of a shell line in the guest."""
        box: list[tuple[str, int]] = []
        self._answers.append(box)
        self.guest.begin(line)
        await self._until(lambda: bool(box), f"end of `{line}`", timeout_s)
        return box[0]

    async def say(self, line: str, **options) -> str:
        """Output of a shell line that must succeed."""
        said, status = await self.run(line, **options)
        if status:
            raise GuestFailed(f"`{line}` ended with status {status}: {said}")
        return said

    async def wait_for(self, line: str, what: str, *, timeout_s: float = 60.0) -> str:
        """Repeat a shell line until it succeeds; returns its output."""
        begin = time.monotonic()
        while True:
            said, status = await self.run(line)
            if not status:
                return said
            if time.monotonic() > begin + timeout_s * min(busy(), _LONGEST):
                raise self.guest.late(f"not after {time.monotonic() - begin:.0f} s: {what} "
                                      f"(`{line}`: {said})")
            await self.run("sleep 0.2")
