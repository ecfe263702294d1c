"""docs/howto/run-three-managers.md: what its blocks say makes three managers with one etcd, which
do as the page says when machines are lost; addresses alone are others."""

import json
import os
import re
import shutil
import signal
import subprocess
import textwrap
import time

import pytest

from dxpu_manager.service import read_settings
from tests.support.etcd_bench import need_etcd
from tests.support.examples import ROOT, blocks
from tests.support.manager_process import DXPU, ManagerProcess, free_port, processes, wait_for

PAGE = ROOT / "docs/howto/run-three-managers.md"
A, H0 = "00010000.1", "00000100"


class Machines:
    """Three machines of the page as folders of this one."""

    def __init__(self, folder):
        ports = {"2379": str(free_port()), "2380": str(free_port()), "7080": str(free_port())}
        self.folder, self.processes = folder, {}
        # Calls of one member to another come from 127.0.0.1 here, so certificates have that, too.
        self._others = {"IP:10.0.0.$n": "IP:127.0.0.$n,IP:127.0.0.1", "10.0.0.": "127.0.0.", **{
            f":{port}": f":{other}" for port, other in ports.items()}}
        run, *texts = [block.text for block in blocks(PAGE) if block.note.startswith("executed")]
        subprocess.run(["bash", "-e", "-c", self.here(run)], cwd=folder, check=True,
                       capture_output=True)
        self._etcd, self._settings = map(textwrap.dedent, texts)

    def here(self, text):
        """What the page says, for this machine."""
        text = textwrap.dedent(text).replace("/etc/dxpu/records", "records")
        text = text.replace("/etc/dxpu", str(self.folder)).replace(
            "/var/lib/dxpu/etcd", f"{self.folder}/etcd-$N")
        for there, here in self._others.items():
            text = text.replace(there, here)
        return text

    def start_etcd(self, n):
        """The member of a machine."""
        with open(self.folder / f"etcd-{n}.log", "a") as log:
            self.processes[n] = subprocess.Popen(
                ["bash", "-c", self.here(self._etcd).replace("N=1\n", f"N={n}\n").replace(
                    "etcd --name", "exec etcd --name")],
                stdout=log, stderr=log, cwd=self.folder)

    def settings(self, n):
        """The settings of a machine."""
        text = self.here(self._settings).replace('interface = "eth1"', 'socket = "fabric.sock"')
        for one in ("number = 1", 'listen = "127.0.0.1', "/1.pem", "/1.key"):
            text = text.replace(one, one.replace("1", str(n)) if "127" not in one else
                                f'listen = "127.0.0.{n}')
        return text.replace("[store]", "[store]\nlease = 10") + "[limits]\nadmits = true\n"

    def lose(self, n, manager):
        """A machine is gone."""
        os.kill(self.processes[n].pid, signal.SIGKILL)
        self.processes.pop(n).wait()
        manager.kill()


@pytest.fixture
def machines(tmp_path):
    """Nodes, machines with an etcd that runs, and managers that are not started yet."""
    need_etcd()
    if shutil.which("openssl") is None:
        pytest.skip("openssl: no openssl")
    with processes(tmp_path, "unix:unused.sock", cards=2):
        made = Machines(tmp_path)
        managers = []
        try:
            for n in (1, 2, 3):
                made.start_etcd(n)
            for n in (1, 2, 3):
                manager = ManagerProcess(tmp_path, "unix:unused.sock", name=f"manager-{n}")
                manager.settings.write_text(made.settings(n))
                assert read_settings(manager.settings).number == n
                managers.append(manager)
            yield made, managers
        finally:
            for manager in managers:
                if manager.process is not None and manager.process.poll() is None:
                    manager.kill()
            for process in made.processes.values():
                process.kill()
                process.wait()


def test_what_the_page_says(machines, tmp_path):
    there, managers = machines
    addresses = [read_settings(manager.settings).address for manager in managers]
    environment = os.environ | {"DXPU_MANAGER": ",".join(addresses), "DXPU_USER": "root",
                                "DXPU_PASSWORD": "right password",
                                "DXPU_CA": str(tmp_path / "ca.pem")}

    def dxpu(*argv, stdin=None):
        return subprocess.run([*DXPU, *map(str, argv)], env=environment, input=stdin, text=True,
                              capture_output=True, timeout=60)

    def gpus():
        done = dxpu("gpu", "list", "--json")
        return done.returncode == 0 and {one["gpu"]: one["host"] for one in json.loads(done.stdout)
                                         if one["host"]}

    def account():
        return dxpu("manager", "account", managers[0].settings, "root", "--role", "Administrator",
                    stdin="right password\n").returncode == 0

    wait_for(account)
    first, second, third = managers
    first.begin()
    first.takes_commands()
    for manager in (second, third):
        manager.begin()
        wait_for(lambda manager=manager: f"another manager leads, at {addresses[0]}; this one waits"
                 in manager.log.read_text())
    wait_for(lambda: dxpu("attach", H0, "--dry-run").returncode == 0)
    assert dxpu("attach", H0, A).returncode == 0
    copy = tmp_path / "pool.copy"
    assert dxpu("manager", "backup", second.settings, copy).returncode == 0
    # The leader's machine is lost.
    there.lose(1, first)
    lost = time.monotonic()
    done = dxpu("pool", "show")
    assert done.returncode == 0 or (done.returncode, "no manager listens at" in done.stderr) == (
        6, True), done.stderr
    wait_for(lambda: dxpu("pool", "show").returncode == 0, 60)
    assert time.monotonic() - lost < 45
    assert gpus() == {A: H0}
    # Back again, with its data.
    there.start_etcd(1)
    first.begin()
    wait_for(lambda: first.log.read_text().count("; this one waits") == 1)
    # Two are lost; who leads of the others stops.
    leads, waits = second, third
    if f"leads, at {addresses[2]}" in first.log.read_text():
        leads, waits = third, second
    numbers = {manager: n for n, manager in enumerate(managers, 1)}
    there.lose(1, first)
    there.lose(numbers[waits], waits)
    assert leads.process.wait(60) == 5
    leads.process.stdout.close()
    assert "the lease of this manager may have run out: etcd has not answered in time" in \
        leads.log.read_text()
    done = dxpu("manager", "check", leads.settings)
    assert done.returncode == 2 and re.search(r"has no quorum|no etcd answers", done.stderr)
    # One comes back, and a manager leads by itself.
    there.start_etcd(1)
    wait_for(lambda: dxpu("manager", "check", leads.settings).returncode == 0)
    leads.begin()
    leads.takes_commands()
    assert gpus() == {A: H0}
    assert leads.stop() == 0
    # All data are lost.
    for process in there.processes.values():
        process.kill()
        process.wait()
    for n in (1, 2, 3):
        shutil.rmtree(tmp_path / f"etcd-{n}")
        there.start_etcd(n)
    wait_for(lambda: dxpu("manager", "restore", first.settings, copy).returncode == 0)
    first.begin()
    first.takes_commands()
    wait_for(lambda: gpus() == {A: H0})
    assert dxpu("detach", H0, A).returncode == 0
    assert first.stop() == 0
