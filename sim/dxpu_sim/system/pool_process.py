"""The manager of a pool, as a process, and commands to it, beside a simulated system."""

import json
import subprocess
import sys
import time
from pathlib import Path

from cocotb.triggers import Timer
from cocotb.utils import get_sim_time

from dxpu.factory import FactoryRecord
from dxpu_sim.pcie.checkers import CheckFailed
from dxpu_sim.pcie.ports import Mailbox
from dxpu_tools.files import write_bytes, write_text

from .nodes import factory_of
from .network import MANAGER_INTERFACE, ManagerFailed, NetworkProcess
from .operate import Operator

__all__ = ["CommandOperator", "PoolProcess", "strap"]

_DXPU = (sys.executable, "-m", "dxpu_cli")
#: Names in the folder of a pool. Its manager and commands run there, as the name of a socket has
#: 107 bytes at most.
_SETTINGS, _FABRIC, _COMMANDS = "manager.toml", "fabric.sock", "manager.sock"
#: Simulated time between two questions to the manager.
_PAUSE_US = 100
#: As a simulation is slower than hardware by some thousands, the manager waits for longer.
_TEXT = f"""\
[store]
path = "pool.db"
[nodes]
records = "records"
[fabric]
{{fabric}}
slower = 200
[http]
listen = "unix:{_COMMANDS}"
[limits]
attach = 500
consent = 500
patience = 500
look = 500
admits = true
"""


async def strap(system):
    """What boards give to proxies: slots with a card; and timers that a simulation can wait for."""
    for proxy in (*system.hosts, *system.boxes):
        await proxy.write("control.hello", wait=60)
        await proxy.write("control.quiet", time=100)
    for n, box in enumerate(system.boxes):
        there = sum(1 << slot - 1 for b, slot in system.slots if b == n)
        await box.write("control.present", slots=there)


class PoolProcess:
    """`dxpu manager run` with a port to the fabric, factory records and a store; nothing else is
    between it and the proxies.

    Parameters
    ----------
    dut : cocotb handle
    system : :class:`~.system.SimulatedSystem`
    folder : Path
        For settings, records, store and sockets.
    veth : bool
        The port is an Ethernet interface in a network of the manager's own; otherwise a UNIX
        socket.
    patience : float
        Seconds that a command may take.
    """

    def __init__(self, dut, system, folder: Path, *, veth: bool = True,
                 patience: float = NetworkProcess.PATIENCE_S):
        self._dut, self.system, self.folder = dut, system, Path(folder).resolve()
        self._veth, self._patience = veth, patience
        records = self.folder / "records"
        records.mkdir(parents=True, exist_ok=True)
        for proxy in (*system.hosts, *system.boxes):
            key, mac, serial = factory_of(proxy.node)
            write_bytes(records / f"{serial:08x}.bin",
                        FactoryRecord(mac, serial, key + bytes(16)).to_bytes(), mode=0o600,
                        replace=True)
        write_text(self.folder / _SETTINGS, _TEXT.format(
            fabric=f'interface = "{MANAGER_INTERFACE}"' if veth else f'socket = "{_FABRIC}"'))
        self._process: NetworkProcess | None = None
        self._mailbox = Mailbox(dut, "intruder")

    async def start(self, *, first: bool = False) -> None:
        """Start the manager; it takes commands then.

        ``first``: no simulated time passes meanwhile, as if nodes got their power afterwards. So
        the manager hears their first announcements.
        """
        self._process = NetworkProcess(
            self._dut, (*_DXPU, "manager", "run", _SETTINGS), self.folder, self._mailbox,
            at="" if self._veth else _FABRIC)
        said = await self._process.line("manager run", at_once=first)
        if f"unix:{_COMMANDS}" not in said:
            raise ManagerFailed(f"the manager says: {said}")

    def kill(self) -> None:
        """The manager is gone at once."""
        assert self._process is not None
        self._process.end()
        self._process = None

    async def dxpu(self, *words: str, status: int = 0) -> str:
        """What a command prints; the simulation goes on meanwhile.

        Raises
        ------
        ManagerFailed
            If the command ends with another status, or the manager has ended.
        """
        begin, command = time.monotonic(), f"`dxpu {' '.join(words)}`"
        with open(self.folder / "said.txt", "w+") as out:
            process = subprocess.Popen(
                [*_DXPU, *words, "--manager", f"unix:{_COMMANDS}"], stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT, cwd=self.folder)
            while (ended := process.poll()) is None:
                if time.monotonic() > begin + self._patience:
                    process.kill()
                    process.wait()
                    raise self._failure() or ManagerFailed(
                        f"{command} has not ended after {self._patience:.0f} s")
                await Timer(NetworkProcess.POLL_NS, "ns")
            out.seek(0)
            said = out.read().strip()
        if ended != status:
            raise self._failure() or ManagerFailed(f"{command} ends with {ended}: {said}")
        return said

    def _failure(self):
        return self._process.ended() if self._process else None

    async def wait_for(self, gpus: int, hosts: int) -> None:
        """Wait until the manager has found so many free GPUs and so many hosts."""
        begin = time.monotonic()
        while True:
            shown = json.loads(await self.dxpu("pool", "show", "--json"))
            if (shown["states"], shown["hosts"]) == ({"free": gpus}, hosts):
                return
            if time.monotonic() > begin + self._patience:
                raise ManagerFailed(f"the manager has found {shown['hosts']} hosts and "
                                    f"{shown['states']} after {self._patience:.0f} s")
            await Timer(_PAUSE_US, "us")

    def host(self, number: int) -> str:
        """Name of a host in the pool."""
        return f"{factory_of(self.system.hosts[number].node)[2]:08x}"

    def gpu(self, number: int) -> str:
        """Name of a GPU in the pool."""
        box, slot = self.system.slots[number]
        return f"{factory_of(self.system.boxes[box].node)[2]:08x}.{slot}"


class CommandOperator(Operator):
    """Gives commands to the manager of a pool, and touches no register.

    Parameters
    ----------
    system : :class:`~dxpu_sim.system.system.SimulatedSystem`
        With one host.
    pool : PoolProcess
    """

    def __init__(self, system, pool):
        super().__init__(system)
        self.pool = pool

    async def set_up(self):
        """The manager finds all nodes, and gives numbers to them."""
        await strap(self.system)
        await self.pool.start(first=True)
        await self.pool.wait_for(len(self.system.gpus), len(self.system.hosts))

    async def commit(self, gpu, port):
        """Attach a GPU; the manager chooses the port, which must be this one. The link is up
        then."""
        self.route(gpu, port)
        self.fault(gpu)
        self.routes.present.add(port)
        await self.pool.dxpu("attach", self.pool.host(0), self.pool.gpu(gpu), "--wait", "500")
        shown = json.loads(await self.pool.dxpu("gpu", "show", self.pool.gpu(gpu), "--json"))
        if shown["port"] != port:
            raise CheckFailed(f"the manager gives port {shown['port']}, not {port}")
        self.system.checker.mended(self.system.names[gpu])
        self.committed_ns = get_sim_time("ns")

    async def release(self, gpu, port=None):
        """Detach a GPU, with the consent of the host's operating system."""
        self.fault(gpu)
        await self.pool.dxpu("detach", self.pool.host(0), self.pool.gpu(gpu), "--wait", "500")

    async def wait_for_slot(self, port, **wanted):
        """Nothing is left to be waited for after a command."""

    def end(self):
        """The manager ends."""
        self.pool.kill()
