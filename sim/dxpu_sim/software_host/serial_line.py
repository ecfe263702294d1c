"""The serial line of a simulated board: a pseudo-terminal with a proxy's registers behind it.

``dxpu console FILE`` talks to it as to a board.
"""

import os
import tty
from collections.abc import MutableMapping
from pathlib import Path

from dxpu_model.console import answer
from dxpu_sim.system.setup import Proxy, RegisterError

__all__ = ["SerialLine"]


class _Asked(MutableMapping[int, int]):
    """Registers at every address; notes what a line asks for."""

    def __init__(self):
        self.address: int | None = None
        self.written: int | None = None

    def __contains__(self, address):
        return True

    def __getitem__(self, address):
        self.address = address
        return 0

    def __setitem__(self, address, value):
        self.address, self.written = address, value

    def __delitem__(self, address):
        raise KeyError(address)

    def __iter__(self):
        return iter(())

    def __len__(self):
        return 0


class SerialLine:
    """Answers lines as the console of a board does (:class:`dxpu.console.Console`).

    Parameters
    ----------
    proxy : :class:`~dxpu_sim.system.setup.Proxy`
    file : path
        Becomes a symbolic link to the pseudo-terminal.
    """

    def __init__(self, proxy: Proxy, file: str | Path):
        self._proxy, self._received = proxy, b""
        # The far end stays open, so that one program after the other can use the line.
        self._near, self._far = os.openpty()
        tty.setraw(self._far)
        os.set_blocking(self._near, False)
        self._file = Path(file)
        self._file.symlink_to(os.ttyname(self._far))

    async def serve(self) -> bool:
        """Do what has been asked for since the last call; returns whether something was."""
        try:
            self._received += os.read(self._near, 4096)
        except BlockingIOError:
            return False
        *lines, self._received = self._received.split(b"\n")
        for line in lines:
            said = await self._answer(line.decode("latin-1").rstrip("\r"))
            if said is not None:
                os.write(self._near, said.encode("latin-1") + b"\r\n")
        return True

    async def _answer(self, line):
        asked = _Asked()
        refused = answer(line, asked)
        if asked.address is None:
            return refused
        try:
            value = await self._proxy.access(asked.address, asked.written)
        except RegisterError:
            return answer(line, {})
        return answer(line, {asked.address: value})

    def close(self) -> None:
        """Take the line away."""
        self._file.unlink()
        os.close(self._near)
        os.close(self._far)
