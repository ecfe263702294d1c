"""A cable to an etcd that can be cut, and the skip of a machine without one."""

import asyncio
import shutil
import threading

import pytest

from dxpu_cli.bench.etcd_members import PATIENCE

__all__ = ["Cable", "need_etcd"]


def need_etcd():
    """Skip the test without an etcd."""
    if shutil.which("etcd") is None:
        pytest.skip("etcd: no etcd (Debian: etcd-server; or `apt-get download etcd-server`, "
                    "`dpkg-deb -x`, and its usr/bin on PATH)")


class Cable:
    """A line of TCP from a port of its own to another one; a context.

    Parameters
    ----------
    to : int
    delay : float
        Seconds that data are on the way there.

    Attributes
    ----------
    port : int
        Of its own.
    """

    def __init__(self, to, delay=0.0):
        self._to, self._lines, self._delays = to, set(), {"there": delay, "back": 0.0}
        self._passes = {"there": True, "back": True}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self):
        self._thread.start()
        self._server = self._do(asyncio.start_server(self._line, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *exception):
        async def closed():
            self._server.close()

        self._do(closed())
        self.mend()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, does):
        return asyncio.run_coroutine_threadsafe(does, self._loop).result(PATIENCE)

    async def _line(self, reader, writer):
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.close()
            return
        ends = {writer.transport, far_writer.transport}
        self._lines |= ends
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass("there", reader, far_writer))
                both.create_task(self._pass("back", far_reader, writer))
        except* (OSError, EOFError):
            pass
        finally:
            for end in ends:
                end.abort()
            self._lines -= ends

    async def _pass(self, way, reader, writer):
        while data := await reader.read(65536):
            await asyncio.sleep(self._delays[way])
            if self._passes[way]:
                writer.write(data)
                await writer.drain()
        raise EOFError

    def cut(self, *ways):
        """Nothing passes any more, or nothing in one direction, and nobody is told: ``there``,
        ``back``."""
        self._passes |= dict.fromkeys(ways or self._passes, False)

    def mend(self):
        """All passes on new lines; the old ones are closed."""
        async def ended():
            # Nothing of the old lines passes, as both ends of each are gone before anything moves.
            self._passes |= {"there": True, "back": True}
            old = set(self._lines)
            for end in old:
                end.abort()
            while old & self._lines:
                await asyncio.sleep(0.01)

        self._do(ended())
