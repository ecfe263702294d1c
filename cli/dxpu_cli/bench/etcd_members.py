"""An etcd on loopback, its members as processes."""

import http.client
import os
import shutil
import signal
import socket
import subprocess
import time

from dxpu_tools.errors import UserError

__all__ = ["Cluster", "PATIENCE"]

#: Seconds until an etcd must be ready, on a machine that is busy.
PATIENCE = 60


def _free_ports(count):
    """Ports of loopback that nobody has at present."""
    made = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in made]
    for each in made:
        each.close()
    return ports


class Cluster:
    """Members of an etcd; a context.

    Parameters
    ----------
    folder : Path
        Data and logs of the members.
    count : int
    options : list of str
        Of each member.
    scheme : str
        Of clients' addresses.

    Raises
    ------
    UserError
        There is no etcd on this machine, or it does not start.
    """

    def __init__(self, folder, count=1, *options, scheme="http"):
        self._program = shutil.which("etcd")
        if self._program is None:
            raise UserError("no etcd (Debian: etcd-server; or `apt-get download etcd-server`, "
                            "`dpkg-deb -x`, and its usr/bin on PATH)")
        self._folder, self._options, self._scheme = folder, options, scheme
        ports = _free_ports(2 * count)
        self.ports, self._peers = ports[:count], ports[count:]
        self._processes = {}

    def start(self, *members):
        """Start members, all by default, with the data that they have."""
        members = members or range(len(self.ports))
        peers = ",".join(f"m{n}=http://127.0.0.1:{port}" for n, port in enumerate(self._peers))
        for n in members:
            client = f"{self._scheme}://127.0.0.1:{self.ports[n]}"
            peer = f"http://127.0.0.1:{self._peers[n]}"
            command = [self._program, "--name", f"m{n}", "--data-dir", self._folder / f"m{n}",
                       "--listen-client-urls", client, "--advertise-client-urls", client,
                       "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                       "--initial-cluster", peers, "--logger", "zap", "--log-level", "error",
                       *self._options]
            with open(self._folder / f"m{n}.log", "a") as log:
                self._processes[n] = subprocess.Popen(
                    command, stdout=log, stderr=log,
                    env={key: value for key, value in os.environ.items()
                         if not key.startswith("ETCD")})

    def wait(self, *members):
        """Wait until each of some members has a quorum, or at least one of all."""
        ports = [self.ports[n] for n in members]
        end = time.monotonic() + PATIENCE
        while not (all if members else any)(map(self._is_ready, ports or self.ports)):
            if time.monotonic() > end:
                raise UserError(f"etcd is not ready; see {self._folder}/m0.log")
            time.sleep(0.05)

    def _is_ready(self, port):
        if self._scheme == "https":
            with socket.socket() as line:
                return not line.connect_ex(("127.0.0.1", port))
        try:
            line = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            line.request("GET", "/health")
            return b'"true"' in line.getresponse().read()
        except (OSError, http.client.HTTPException):
            return False

    def kill(self, *members):
        """Kill members, all by default; they keep their data."""
        for n in members or tuple(self._processes):
            process = self._processes.pop(n)
            process.send_signal(signal.SIGKILL)
            process.wait()

    @property
    def endpoints(self):
        """For clients."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def __enter__(self):
        self.start()
        try:
            self.wait()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *exception):
        self.kill()
