"""The manager's part in simulations: nodes, sessions, bindings, presence, counters.

All operations use the register ports of the proxies, one access at a time.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from cocotb.triggers import Lock, Timer, ValueChange, with_timeout

__all__ = ["Proxy", "RegisterError", "bind", "give_key", "let_open", "open_session", "slot_state",
           "unbind", "wait_for_session", "wait_for_slot"]


class RegisterError(Exception):
    """A proxy refused an access or a command; the message gives the reason."""


@dataclass
class Proxy:
    """Register access to one proxy of a simulated system, shared by several tasks.

    Parameters
    ----------
    dut : cocotb handle of the top
    name : str
        Prefix of the register mailbox's ports, such as ``host_bus``.
    map : dxpu.csr.AddressMap
    node : int
        Node number for the proxy.
    """

    dut: object
    name: str
    map: object
    node: int
    #: Epoch of commands.
    epoch: int = 0
    #: Attempts of a command, a microsecond apart.
    TRIES: ClassVar[int] = 50
    #: Locks for an access, and for a command of several accesses.
    _bus: Lock = field(default_factory=Lock)
    _commands: Lock = field(default_factory=Lock)

    def _port(self, name):
        return getattr(self.dut, f"{self.name}__{name}")

    async def _access(self, address, write, data, path):
        async with self._bus:
            return await self._access_alone(address, write, data, path)

    async def _access_alone(self, address, write, data, path):
        self._port("address").value = address
        self._port("write").value = write
        self._port("data").value = data
        self._port("request").value = 1 - int(self._port("answer").value)
        await with_timeout(ValueChange(self._port("answer")), 100, "us")
        if int(self._port("error").value):
            raise RegisterError(f"{self.name}: no register {path} at {address:#06x}, or it cannot "
                                f"be {'written' if write else 'read'}")
        return int(self._port("read_data").value)

    async def access(self, address, value=None):
        """Value of the register at a byte address; ``value`` is written if there is one."""
        write = value is not None
        return await self._access(address, int(write), value if write else 0, "there")

    async def read(self, path):
        """Fields of a register, as a dict."""
        placed, base = self.map.find(path)
        value = await self._access(base + placed.address, 0, 0, path)
        return placed.register.unpack(value)

    async def write(self, path, **fields):
        """Write a register: the named fields, all others 0."""
        placed, base = self.map.find(path)
        await self._access(base + placed.address, 1, placed.register.pack(**fields), path)

    async def commit(self, row, *, used, generation, operation_id, node=0, slot=0, stream=0,
                     paths=0):
        """Give a command to a mapping table; raises :exc:`RegisterError` unless the result is DONE.

        While the end of the row's last binding is under way, the command is repeated.
        """
        from dxpu.mapping.types import CommitCode
        async with self._commands:
            await self.write("table.epoch", value=self.epoch)
            await self.write("table.operation_id", value=operation_id)
            await self.write("table.target", node=node, slot=slot, stream=stream)
            await self.write("table.paths", mask=paths)
            for _ in range(self.TRIES):
                await self.write("table.commit", generation=generation, row=row, used=used)
                code = CommitCode((await self.read("table.result"))["code"])
                if code is not CommitCode.DRAINING:
                    break
                await Timer(1, "us")
        if code is not CommitCode.DONE:
            raise RegisterError(f"{self.name}: commit of row {row} ended with {code.name}")

    @property
    def streams(self):
        """Number of streams of each peer."""
        placed, _ = self.map.find("control.shape")
        return 1 << placed.register.unpack(placed.register.reset)["streams"]

    async def add_peer(self, peer, node, *, clear):
        """Tell the proxy the node of a peer. ``clear``: its sessions are opened without a key, as
        all are of a proxy that has none."""
        placed, _ = self.map.find("control.security")
        extra = {"clear": int(clear)} if placed.register.unpack(placed.register.reset)[
            "keys"] else {}
        await self.write(f"control.peer[{peer}].node", number=node, valid=1, **extra)

    def session(self, peer, stream=0):
        """Number of the session of a peer's stream."""
        if stream >= self.streams:
            raise RegisterError(f"{self.name}: there is no stream {stream}, only {self.streams}")
        return peer * self.streams + stream

    async def counters(self):
        """All counters, name to total."""
        _, block = self.map.blocks["counters"]
        return {p.path: (await self.read(f"counters.{p.path}"))["count"] for p in block.placed}


async def open_session(a, b, *, peer_a, peer_b, tag_a, tag_b, stream=0):
    """Set up both ends of a session.

    ``a`` receives with ``tag_a`` and knows ``b`` as peer ``peer_a``; the other way round for ``b``.
    """
    for here, there, peer, rx, tx in ((a, b, peer_a, tag_a, tag_b), (b, a, peer_b, tag_b, tag_a)):
        index = here.session(peer, stream)
        await here.write("control.node", number=here.node)
        await here.add_peer(peer, there.node, clear=True)
        await here.write(f"control.session[{index}].tags", tx=tx, rx=rx)
        await here.write(f"control.session[{index}].open", strobe=1)


async def give_key(proxy, peer, key, *, following=False):
    """Give a proxy the key of a pair, 16 bytes: the only one of that peer, or its next one; wait
    until it is in force."""
    for n in range(4):
        await proxy.write(f"control.key[{n}].word",
                          bytes=int.from_bytes(key[4 * n:4 * n + 4], "little"))
    await proxy.write(f"control.peer[{peer}].key", next=int(following))
    for _ in range(proxy.TRIES):
        if await proxy.read(f"control.peer[{peer}].key") == {"valid": 1, "next": int(following)}:
            return
        await Timer(1, "us")
    raise RegisterError(f"{proxy.name}: the key of peer {peer} is not in force "
                        f"{proxy.TRIES} us after it was written")


async def let_open(host, box, *, peer_host, peer_box, boot, stream=0, key=None, **timers):
    """Let a host and a box open a session by HELLO, under ``key`` if there is one.

    ``boot`` is the boot counter of both; ``timers`` may be ``wait`` and ``quiet``, to replace the
    defaults.
    """
    from dxpu.fabric.session.session import Mode
    for here, there, peer, mode in ((host, box, peer_host, Mode.OPENS),
                                    (box, host, peer_box, Mode.ANSWERS)):
        await here.write("control.node", number=here.node)
        await here.write("control.boot", counter=boot)
        if "wait" in timers:
            await here.write("control.hello", wait=timers["wait"])
        if "quiet" in timers:
            await here.write("control.quiet", time=timers["quiet"])
        await here.add_peer(peer, there.node, clear=key is None)
        if key is not None:
            await give_key(here, peer, key)
        await here.write(f"control.session[{here.session(peer, stream)}].mode",
                         opener=mode.value)


async def wait_for_session(proxy, peer, *, stream=0, open=True, timeout_us=1000):
    """Wait until a session is open, or closed; returns its register `hello`."""
    from dxpu.fabric.session.session import Phase
    index = proxy.session(peer, stream)
    for _ in range(timeout_us):
        state = await proxy.read(f"control.session[{index}].hello")
        if (state["phase"] == Phase.OPEN.value) == open:
            return state
        await Timer(1, "us")
    raise RegisterError(f"{proxy.name}: session {index} is {state} after {timeout_us} us")


async def bind(host, port, box, slot, *, generation, operation_id, paths=0b01, stream=0):
    """Bind slot ``slot`` (from 1) of ``box`` to downstream port ``port`` of ``host``.

    The box's row comes first, since the host's commit sends BIND.
    """
    await box.commit(slot - 1, used=1, generation=generation, operation_id=operation_id,
                     node=host.node, stream=stream, paths=paths)
    await host.commit(port, used=1, generation=generation, operation_id=operation_id,
                      node=box.node, slot=slot, stream=stream, paths=paths)


async def slot_state(host, port):
    """State of a downstream port in the host proxy: fields of ``control.slot[n].state``."""
    return await host.read(f"control.slot[{port}].state")


async def wait_for_slot(host, port, *, timeout_us=200, **wanted):
    """Wait until a downstream port is in the state ``wanted``, such as ``link=1``."""
    for _ in range(timeout_us * 2):
        state = await slot_state(host, port)
        if all(state[name] == value for name, value in wanted.items()):
            return state
        await Timer(500, "ns")
    raise RegisterError(f"{host.name}: slot {port} is {state} after {timeout_us} us, not {wanted}")


async def unbind(host, port, box, slot, *, generation, operation_id):
    """Release both rows, the host's first, so that its UNBIND still finds the box's row."""
    for proxy, row in ((host, port), (box, slot - 1)):
        await proxy.commit(row, used=0, generation=generation, operation_id=operation_id)
