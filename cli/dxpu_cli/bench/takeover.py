"""Time until another manager has taken over from one that ends, with real etcds and processes."""

import json
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from dxpu_tools.errors import UserError

from .etcd_members import PATIENCE, Cluster
from .light_nodes import LightNodes

__all__ = ["ManagerProcess", "measure"]

#: Seconds of the lease.
TTL = 3
#: Members of etcd; how a leader ends, and by which signal.
MEMBERS = (1, 3)
ENDS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP, "ended in order": signal.SIGTERM}


class ManagerProcess:
    """A manager as a process; see :mod:`.manager_process`.

    Attributes
    ----------
    own : str
        Path of the manager's socket, and its name.
    said : list of dict
        What the manager has said so far.
    """

    def __init__(self, endpoints, folder, nodes, *, ttl=TTL):
        self.own = tempfile.mktemp(dir=folder)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dxpu_cli.bench.manager_process", endpoints, "/bench/", nodes,
             self.own, str(ttl)], stdout=subprocess.PIPE, text=True)
        self.said, self._says = [], threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for line in self._process.stdout:
            with self._says:
                self.said.append(json.loads(line))
                self._says.notify_all()
        with self._says:
            self.said.append({"what": "ended", "time": time.monotonic()})
            self._says.notify_all()

    def has_said(self, what):
        """All that was said of a kind, in order."""
        return [line for line in list(self.said) if line["what"] == what]

    def until(self, what, count=1):
        """Wait until something was said so many times; returns the last of these lines."""
        with self._says:
            if not self._says.wait_for(lambda: len(self.has_said(what)) >= count, PATIENCE):
                raise UserError(f"a manager has not said {what!r} in {PATIENCE} s")
        return self.has_said(what)[count - 1]

    def signal(self, number):
        """Send a signal."""
        self._process.send_signal(number)

    def kill(self):
        """End the process, whatever it does."""
        self._process.kill()
        self._process.wait()


def measure(rounds: int) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Seconds until another manager leads, and until a wish is fulfilled by it, by how the leader
    has ended and by the members of etcd; printed as a table."""
    result = {}
    print(f"{'seconds, median and most':<36}{'another leads':>18}{'a wish is fulfilled':>22}")
    for members in MEMBERS:
        with (tempfile.TemporaryDirectory() as folder, Cluster(Path(folder), members) as cluster,
              LightNodes(f"{folder}/nodes") as nodes):
            table = result[f"{members} of etcd"] = _rounds(rounds, cluster, folder, nodes.path)
        for end, times in table.items():
            cells = (f"{statistics.median(each):.2f} {max(each):6.2f}" for each in times.values())
            print(f"{f'{end}, etcd of {members}':<36}" + "{:>18}{:>22}".format(*cells))
    return result


def _rounds(rounds, cluster, folder, nodes):
    def start():
        made = ManagerProcess(cluster.endpoints, folder, nodes)
        made.until("waits")
        started.append(made)
        return made

    started = []
    try:
        leader, other = start(), start()
        if not leader.has_said("leads") and other.has_said("leads"):
            leader, other = other, leader
        table = {}
        for end, number in ENDS.items():
            times = table[end] = {"leads": [], "done": []}
            for _ in range(rounds):
                leader.until("done", 3)
                began = time.monotonic()
                leader.signal(number)
                for what, seconds in times.items():
                    seconds.append(round(other.until(what)["time"] - began, 3))
                leader.kill()
                leader, other = other, start()
        return table
    finally:
        for each in started:
            each.kill()
