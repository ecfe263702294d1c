"""A manager of a simulated system as a program: it has a network interface and the keys, no more.

Usage: ``python -m dxpu_sim.system.manager_program INTERFACE SLOWER``. ``SLOWER`` multiplies the
time-outs, as a simulation is slower than hardware by some thousands. Commands come as lines on
standard input; each is answered by a line, ``done`` and a result or ``failed`` and the reason:

``pool COUNT``
    Wait until ``COUNT`` nodes have announced themselves, give numbers to all, and pair the host
    with every box under a new key; the result is the numbers of the boxes.
``attach PORT BOX SLOT``
    Bind a slot, from 1, of a box, by number, to a port of the host, and wait for the link.
``detach PORT``
    Release a port, and wait until nothing of its GPU is under way.
``wait PORT FIELD=VALUE ...``
    Wait until the state of a port has these values.
``bindings``
    The bindings of the host, as PORT:BOX.SLOT.
``stranger``
    Ask the host under a wrong key: the result is ``no answer``.
"""

import asyncio
import os
import secrets
import sys
import threading

from dxpu.fabric.wire.format import NODE_UNASSIGNED, node_mac
from dxpu_host import EthernetPort
from dxpu_manage import ManageError, Manager, NoAnswer, Proxy, attach, detach, pair

from .nodes import factory_of

__all__ = ["main"]

#: Intervals of HELLO and of quiet before an opening that a simulation can wait for.
_HELLO, _QUIET = 60, 100


class Pool:
    """The nodes of a system."""

    def __init__(self, manager: Manager):
        self._manager = manager
        self._boxes: dict[int, Proxy] = {}

    async def pool(self, count: str) -> str:
        """Set all nodes up."""
        while len(self._manager.announced) < int(count):
            await asyncio.sleep(0.1)
        proxies = [await self._own(mac, identity)
                   for mac, identity in sorted(self._manager.announced.items())]
        self._host, = (proxy for proxy in proxies if proxy.is_host)
        for box in (proxy for proxy in proxies if not proxy.is_host):
            self._boxes[await box.number()] = box
            await box.change("control.present", slots=(1 << box.rows) - 1)
            await pair(self._host, box, key=secrets.token_bytes(16))
            await self._host.wait_open(box.node.number)
            words = await box.read_all(*(f"control.key[{n}].word" for n in range(4)))
            if words != 4 * [{"bytes": 0}]:
                raise ManageError(f"{box.name}: words of a key can be read")
        return " ".join(map(str, self._boxes))

    async def _own(self, mac, identity):
        if identity.number != NODE_UNASSIGNED:
            raise ManageError(f"node {mac.hex(':')} has a number already: {identity.number:#05x}")
        number = identity.serial & 0xFFF
        proxy = await Proxy.of(self._manager.node(mac, factory_of(number)[0]))
        await proxy.set_number(number)
        await proxy.write("control.hello", wait=_HELLO)
        await proxy.write("control.quiet", time=_QUIET)
        return proxy

    async def attach(self, port: str, box: str, slot: str) -> str:
        """Bind a GPU to a port."""
        await attach(self._host, int(port), self._boxes[int(box)], int(slot))
        return await self.wait(port, "link=1")

    async def detach(self, port: str) -> str:
        """Release a port."""
        row = await self._host.binding(int(port))
        await detach(self._host, int(port), self._boxes[row.node])
        return await self.wait(port, "link=0", "drained=1")

    async def wait(self, port: str, *fields: str) -> str:
        """Wait for a port's state."""
        wanted = {name: int(value) for name, value in (field.split("=") for field in fields)}
        while True:
            state = await self._host.read(f"control.slot[{port}].state")
            if all(state[name] == value for name, value in wanted.items()):
                return ""

    async def bindings(self) -> str:
        """Bindings of the host."""
        return " ".join(f"{row.row}:{row.node}.{row.slot}"
                        for row in await self._host.bindings() if row.used)

    async def stranger(self) -> str:
        """Ask the host under a wrong key."""
        slower, self._manager.slower = self._manager.slower, self._manager.slower / 10
        node = self._manager.node(self._host.node.mac, bytes(16), number=self._host.node.number)
        try:
            await node.read(0)
        except NoAnswer:
            return "no answer"
        finally:
            self._manager.slower = slower
        raise ManageError("the host answers to a wrong key")


def _listen(loop, lines):
    for line in sys.stdin:
        loop.call_soon_threadsafe(lines.put_nowait, line)
    os._exit(0)


async def main(interface: str, slower: str) -> None:
    """Answer to lines; the process ends with its standard input, whatever goes on."""
    async with Manager(EthernetPort(interface, 0), node_mac(0, 0),
                       slower=float(slower)) as manager:
        pool, lines = Pool(manager), asyncio.Queue()
        threading.Thread(target=_listen, args=(asyncio.get_running_loop(), lines),
                         daemon=True).start()
        while True:
            name, *words = (await lines.get()).split()
            try:
                print("done", await getattr(pool, name)(*words), flush=True)
            except ManageError as error:
                print("failed", error, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
