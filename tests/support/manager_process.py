"""A manager as a process of its own, before light nodes that are another one."""

import contextlib
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

__all__ = ["DXPU", "ManagerProcess", "free_port", "processes", "tell", "wait_for"]

DXPU = (sys.executable, "-m", "dxpu_cli")


def free_port():
    """A port of this machine that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class ManagerProcess:
    """`dxpu manager run`, which can be killed and started again.

    Parameters
    ----------
    folder : Path
        With light nodes, whose ``manager.toml`` is changed.
    listen : str
    more : str
        More lines of settings, behind ``[http]``.
    name, store : str
        Of the file of settings, and lines in it behind ``[store]``.
    """

    def __init__(self, folder: Path, listen: str, more: str = "", *, name: str = "settings",
                 store: str = 'path = "pool.db"'):
        self.folder, self.log = folder, folder / f"{name}.log"
        self.settings = folder / f"{name}.toml"
        text = (folder / "manager.toml").read_text().replace('path = "pool.db"', store)
        self.settings.write_text(text.replace('listen = "127.0.0.1:7080"',
                                              f'listen = "{listen}"\n{more}') + "look = 2\n")
        self.process = None

    def start(self):
        """Start, and wait until commands are taken."""
        self.begin()
        return self.takes_commands()

    def begin(self):
        """Start."""
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(
                [*DXPU, "manager", "run", str(self.settings)], stdout=subprocess.PIPE, stderr=log,
                text=True)

    def takes_commands(self):
        """Wait until commands are taken; returns the address."""
        guard = threading.Timer(120, self.process.kill)
        guard.start()
        line = self.process.stdout.readline()
        guard.cancel()
        assert "commands: --manager" in line, self.log.read_text()
        return line.rpartition(" ")[2].strip()

    def stop(self):
        """End tidily; returns the exit status."""
        self.process.terminate()
        status = self.process.wait(20)
        self.process.stdout.close()
        return status

    def kill(self):
        """The process is gone at once."""
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@contextlib.contextmanager
def processes(folder, listen, more="", *, hosts=3, boxes=2, cards=4, paths=1):
    """Nodes and a manager; gives the nodes' process and the manager, not started yet."""
    nodes = subprocess.Popen(
        [sys.executable, "-m", "dxpu_sim.system.agents", str(folder), "--hosts", str(hosts),
         "--boxes", str(boxes), "--cards", str(cards),
         "--paths", str(paths)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    manager = None
    try:
        assert nodes.stdout.readline() == "ready\n"
        from dxpu_cli.pool.manager import write_settings
        write_settings(folder)
        manager = ManagerProcess(folder, listen, more)
        yield nodes, manager
    finally:
        if manager is not None and manager.process is not None and manager.process.poll() is None:
            manager.kill()
        nodes.kill()
        nodes.wait()


def tell(nodes, line):
    """A line to the nodes; what they answer."""
    nodes.stdin.write(f"{line}\n")
    nodes.stdin.flush()
    said = nodes.stdout.readline().split(maxsplit=1)
    assert said[0] == "done", said
    return said[1].strip() if len(said) > 1 else ""


def wait_for(is_so, seconds=120.0):
    """What a function says at last."""
    end = time.monotonic() + seconds
    while not (said := is_so()):
        assert time.monotonic() < end, "it has not become so"
        time.sleep(0.05)
    return said
