"""Light hosts and boxes behind a socket, for managers in other processes."""

import asyncio
import os
import random
import socket
import threading
import time

from dxpu_sim.system.agents import BOX, HOST, Agent, Card, Fabric, Shape

__all__ = ["GPUS", "HOSTS", "KEYS", "LightNodes", "Line", "mac_of"]

#: Serial numbers of the hosts, and of the boxes; slots with cards, and rows of each.
HOSTS, BOXES, CARDS, ROWS = (0x100, 0x101), (0x200, 0x201), 3, 4
GPUS = tuple(f"{box:08x}.{slot}" for box in BOXES for slot in range(1, CARDS + 1))
#: Frames of a line, and bytes of a frame.
_FRAMES, _BYTES = 64, 2000


def mac_of(serial):
    """Factory address of a node."""
    return b"\x02\x51\0\0" + serial.to_bytes(2, "big")


#: Keys for managers.
KEYS = {(serial, mac_of(serial)): serial.to_bytes(16, "big") for serial in (*HOSTS, *BOXES)}


class LightNodes:
    """Light nodes in a thread; a context.

    Parameters
    ----------
    path : str
        Of the socket, to which managers send frames as datagrams.

    Attributes
    ----------
    path : str
    hosts, boxes : list of Agent
    frames : list of tuples
        Time, and address of the manager, of each frame that came.
    commits : list of tuples
        The same of each row that was changed.
    """

    def __init__(self, path):
        shape = Shape(rows=ROWS, peers=4)
        self.hosts = [Agent(HOST, mac=mac_of(serial), serial=serial, key=key, shape=shape,
                            rng=random.Random(serial))
                      for (serial, _), key in KEYS.items() if serial in HOSTS]
        self.boxes = [Agent(BOX, mac=mac_of(serial), serial=serial, key=key, shape=shape,
                            cards={slot: Card() for slot in range(1, CARDS + 1)},
                            rng=random.Random(serial))
                      for (serial, _), key in KEYS.items() if serial in BOXES]
        self.fabric = Fabric([*self.hosts, *self.boxes])
        self.frames, self.commits = [], []
        for agent in self.fabric.agents:
            agent.committed = lambda agent, number, row: self.commits.append(self.frames[-1])
        self.path, self._managers = path, {}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(path)
        self._socket.setblocking(False)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self):
        self._loop.add_reader(self._socket.fileno(), self._receive)
        self._loop.call_soon(self._announce)
        self._thread.start()
        return self

    def __exit__(self, *exception):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._socket.close()

    def _send(self, frame):
        to = self._managers.values() if frame[0] & 1 else [self._managers.get(frame[:6])]
        for path in to:
            try:
                self._socket.sendto(frame, path or "")
            except OSError:
                continue  # lost, as nobody is there or has room

    def _receive(self):
        frame, path = self._socket.recvfrom(_BYTES)
        now = time.monotonic()
        self.frames.append((now, path))
        self._managers[frame[6:12]] = path
        for agent in self.fabric.agents:
            if answer := agent.model.take(frame, 1e6 * now):
                self._send(answer)
        for agent in self.fabric.agents:
            if event := agent.model.tell(1e6 * now):
                self._send(event)

    def _announce(self):
        for agent in self.fabric.agents:
            if agent.number == 0xFFF:
                self._send(agent.model.announcement())
        self._loop.call_later(0.2, self._announce)


class Line:
    """A manager's port whose other end are the nodes.

    Parameters
    ----------
    own : str
        Path of the manager's socket.
    nodes : str
        Path of the nodes'.
    """

    def __init__(self, own, nodes):
        self._socket, self._nodes = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), nodes
        self._socket.bind(own)
        self._socket.setblocking(False)
        #: Address of the port.
        self.mac = b"\x02" + os.urandom(5)
        # Announcements come to all addresses from which a frame has come.
        self.send(b"\xff" * 6 + self.mac + bytes(48))

    def fileno(self):
        return self._socket.fileno()

    def send(self, frame):
        try:
            self._socket.sendto(frame, self._nodes)
        except OSError:
            return  # lost

    def receive(self):
        try:
            return self._socket.recv(_BYTES)
        except BlockingIOError:
            return None

    def close(self):
        self._socket.close()
