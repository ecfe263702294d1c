"""Two managers as processes, with one etcd: one leads, the other takes over."""

import json
import subprocess

import pytest

from tests.support.manager_process import DXPU, ManagerProcess, processes, tell, wait_for

A, B, H0 = "00010000.1", "00010000.2", "00000100"


@pytest.fixture
def pair(cluster, tmp_path):
    """Nodes, and two managers that are not started yet."""
    store = f'etcd = "{cluster.endpoints}"\nprefix = "/pair-{tmp_path.name}/"\nlease = 10'
    with processes(tmp_path, "unix:unused.sock", cards=2) as (nodes, _):
        made = [ManagerProcess(tmp_path, f"unix:{name}.sock", name=name, store=store)
                for name in ("one", "two")]
        try:
            yield nodes, made
        finally:
            for manager in made:
                if manager.process is not None and manager.process.poll() is None:
                    manager.kill()


def test_the_second_takes_over_with_all_that_was(pair, tmp_path):
    nodes, (one, two) = pair
    where = f"unix:{tmp_path / 'one.sock'},unix:{tmp_path / 'two.sock'}"

    def dxpu(*argv):
        return subprocess.run([*DXPU, *argv, "--manager", where], text=True, capture_output=True,
                              timeout=60)

    one.start()
    wait_for(lambda: dxpu("attach", H0, "--dry-run").returncode == 0)
    assert dxpu("attach", H0, A).returncode == 0
    two.begin()
    wait_for(lambda: "another manager leads" in two.log.read_text())
    refused = subprocess.run([*DXPU, "manager", "account", str(two.settings)], text=True,
                             capture_output=True, timeout=60)
    assert refused.returncode == 2 and "a manager leads, at unix:" in refused.stderr

    def manager(*argv):
        return subprocess.run([*DXPU, "manager", *map(str, argv)], text=True, capture_output=True,
                              timeout=60)

    # With host 0 that has one GPU.
    copy, filed = tmp_path / "copy.db", tmp_path / "filed.toml"
    done = manager("backup", two.settings, copy)
    assert (done.returncode, done.stdout) == (
        0, f"{copy}: the store as it is now, with the keys of pairs\n")
    done = manager("restore", two.settings, copy)
    assert done.returncode == 2 and "a manager leads, at unix:" in done.stderr
    one.kill()
    two.takes_commands()
    assert tell(nodes, "links 100") == "0"
    shown = json.loads(dxpu("gpu", "show", A, "--json").stdout)
    assert (shown["state"], shown["host"]) == ("attached", H0)
    done = dxpu("attach", H0, B)
    assert done.returncode == 0, done.stderr
    assert dxpu("detach", H0, "--all").returncode == 0
    # The first one comes back, and waits.
    one.begin()
    wait_for(lambda: one.log.read_text().count("another manager leads") == 1)
    assert two.stop() == 0
    one.takes_commands()
    assert dxpu("pool", "show").returncode == 0
    # From etcd to a file, by another pair of settings; nodes come to be as the copy says.
    assert dxpu("attach", H0, B).returncode == 0
    assert one.stop() == 0
    filed.write_text((tmp_path / "manager.toml").read_text().replace(
        "127.0.0.1:7080", f"unix:{tmp_path / 'one.sock'}") + "look = 2\n")
    assert manager("restore", filed, copy).returncode == 0
    last = ManagerProcess(tmp_path, f"unix:{tmp_path / 'one.sock'}", name="filed")
    last.start()
    try:
        wait_for(lambda: tell(nodes, "links 100") == "0")
        assert [gpu["host"] for gpu in json.loads(dxpu("gpu", "list", "--json").stdout)
                if gpu["gpu"] in (A, B)] == [H0, None]
    finally:
        last.kill()
    # And from the file to etcd.
    again = tmp_path / "again.db"
    assert manager("backup", filed, again).returncode == 0
    done = manager("restore", two.settings, again)
    assert (done.returncode, done.stderr) == (0, "")
    two.start()
    assert json.loads(dxpu("gpu", "show", A, "--json").stdout)["host"] == H0
    assert two.stop() == 0
