"""Light nodes as a program, for a manager that is another program.

::

    manager ── UNIX socket, a frame in each packet ── hosts and boxes, in simulated registers
"""

import asyncio
import random
import time
from pathlib import Path

from dxpu.factory import FactoryRecord
from dxpu_sim.ethernet.frame_socket import FrameSocket
from dxpu_tools.files import write_bytes

from .fabric import Fabric
from .node import BOX, HOST, Agent, Card, Shape

__all__ = ["FABRIC", "RECORDS", "NodesProgram", "make_agents"]

#: Names in the folder of a system: the socket, and the folder of factory records.
FABRIC, RECORDS = "fabric.sock", "records"
#: Seconds between two announcements of a node without a number.
_ANNOUNCED = 0.2


def make_agents(hosts: int, boxes: int, cards: int, *, rows: int = 8, paths: int = 1,
                seed: int = 1) -> list[Agent]:
    """Hosts with serial numbers from 100h, and boxes from 10000h, all slots with a card up to
    ``cards``."""
    rng = random.Random(seed)
    shape = Shape(rows=rows, paths=paths, peers=16)

    def agent(role, serial, there):
        mac = b"\x02\x51\0" + serial.to_bytes(3, "big")
        return Agent(role, mac=mac, serial=serial, key=rng.randbytes(16), shape=shape,
                     cards=there, rng=random.Random(serial))

    return [*(agent(HOST, 0x100 + n, {}) for n in range(hosts)),
            *(agent(BOX, 0x10000 + n, {slot: Card() for slot in range(1, cards + 1)})
              for n in range(boxes))]


class NodesProgram:
    """Light nodes behind a socket in a folder, with factory records for the manager.

    Parameters
    ----------
    folder : Path
    agents : list of Agent
    loss : float
        Frames that are lost, and as many that come twice.
    """

    def __init__(self, folder: Path, agents: list[Agent], *, loss: float = 0.0, seed: int = 1):
        self.folder, self.agents, self.loss = Path(folder), agents, loss
        self.fabric = Fabric(agents)
        self._rng = random.Random(seed)
        self._by_mac = {agent.mac: agent for agent in agents}
        self._port: FrameSocket | None = None
        #: Nodes that nobody reaches.
        self.cut: set[Agent] = set()
        records = self.folder / RECORDS
        records.mkdir(parents=True, exist_ok=True)
        for agent in agents:
            record = FactoryRecord(agent.mac, agent.serial, agent.key + self._rng.randbytes(16))
            write_bytes(records / f"{agent.serial:08x}.bin", record.to_bytes(), mode=0o600,
                        replace=True)

    async def serve(self, ready=lambda: None) -> None:
        """Answer managers, without an end."""
        self._port = FrameSocket(self.folder / FABRIC)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._port.fileno(), self._receive)
        ready()
        try:
            await self._announce()
        finally:
            loop.remove_reader(self._port.fileno())
            self._port.close()

    def _copies(self):
        return 0 if self._rng.random() < self.loss else 1 + (self._rng.random() < self.loss)

    def _receive(self):
        while (frame := self._port.receive()) is not None:
            now = time.monotonic() * 1e6
            for _ in range(self._copies()):
                for agent in self.agents:
                    if agent not in self.cut and (answer := agent.model.take(frame, now)):
                        self._send(answer)
        self._tell()

    def _tell(self):
        now = time.monotonic() * 1e6
        for agent in self.agents:
            if agent not in self.cut and (event := agent.model.tell(now)):
                self._send(event)

    def _send(self, frame):
        for _ in range(self._copies()):
            self._port.send(frame)

    async def _announce(self):
        while True:
            await asyncio.sleep(_ANNOUNCED)
            for agent in self.agents:
                if agent.number == 0xFFF and agent not in self.cut:
                    self._send(agent.model.announcement())
            self._tell()

    # What happens to nodes ----------------------------------------------------------------------

    def node(self, serial: int) -> Agent:
        """A node by serial number."""
        return next(agent for agent in self.agents if agent.serial == serial)

    def do(self, line: str) -> str:
        """What a line of a test, or of somebody who tries a manager, says; returns what is so.

        ``reset NODE``, ``cut NODE``, ``join NODE``, ``pull NODE SLOT``, ``insert NODE SLOT``,
        ``break NODE SLOT``, ``refuse NODE``, ``consent NODE``, ``off HOST``, ``boot HOST``, ``links
        NODE``, ``unlink NODE PATH``, ``link NODE PATH``: serial numbers are hexadecimal.
        """
        name, serial, *rest = line.split()
        agent = self.node(int(serial, 16))
        slot = int(rest[0]) if rest else 0
        if name == "reset":
            agent.reset()
        elif name == "cut":
            self.cut.add(agent)
        elif name == "join":
            self.cut.discard(agent)
        elif name == "pull":
            agent.cards.pop(slot)
            agent.changed()
        elif name == "insert":
            agent.cards[slot] = Card()
            agent.changed()
        elif name == "break":
            agent.cards[slot].works = False
            agent.changed()
        elif name in ("refuse", "consent"):
            agent.consents = name == "consent"
        elif name in ("off", "boot"):
            agent.software.powered = name == "boot"
            agent.changed()
        elif name in ("link", "unlink"):
            agent.link(slot, up=name == "link")
        elif name == "links":
            return " ".join(str(port) for port in range(agent.shape.rows)
                            if self.fabric.is_linked(agent, port))
        else:
            raise ValueError(f"there is no command {name}")
        return ""
