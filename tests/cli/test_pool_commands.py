"""Commands to a running manager, and the command that runs one."""

import json
import os
import re
import sqlite3
import subprocess
import threading
from contextlib import closing
from pathlib import Path

import pytest

from dxpu_cli import main as cli
from dxpu_manager.versions import VERSION
from tests.support.certificate import make_certificate
from tests.support.manager_process import DXPU, free_port, processes, tell, wait_for

A, B, C = "00010000.1", "00010000.2", "00010001.1"
H0, H1, H2 = "00000100", "00000101", "00000102"


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """Nodes, and a manager at a socket."""
    folder = tmp_path_factory.mktemp("pool")
    with processes(folder, "unix:m.sock", cards=2) as (nodes, manager):
        address = manager.start()
        yield nodes, manager, address


@pytest.fixture
def dxpu(pool, capsys, monkeypatch):
    """Runs a command in this process: exit status, output, errors. All GPUs are free before."""
    nodes, _, address = pool
    monkeypatch.setenv("DXPU_MANAGER", address)

    def run(*argv):
        capsys.readouterr()
        try:
            status = cli.main(list(argv))
        except SystemExit as ended:
            status = ended.code
        said = capsys.readouterr()
        return status, said.out, said.err

    def as_json(*argv):
        status, out, error = run(*argv, "--json")
        assert status == 0, error
        return json.loads(out)

    def free():
        for request in as_json("request", "list"):
            run("request", "end", str(request["request"]))
        gpus = as_json("gpu", "list")
        for gpu in gpus:
            if gpu["state"] == "attached" and not gpu["task"]:
                run("detach", gpu["host"], gpu["gpu"], "--force")
            elif gpu["state"] in ("failed", "spare"):
                run("gpu", "set-aside", gpu["gpu"])
            elif gpu["state"] == "quarantined":
                run("gpu", "admit", gpu["gpu"])
        return len(gpus) == 4 and all(gpu["state"] == "free" and not gpu["task"] for gpu in gpus)

    wait_for(free)
    run.json = as_json
    run.nodes = nodes
    return run


def test_gpus_are_attached_by_number_and_by_name_and_detached(dxpu):
    assert dxpu("pool", "show")[1].splitlines()[:2] == ["4 GPUs in 2 boxes, 3 hosts",
                                                        "      4 free"]
    status, out, error = dxpu("attach", H0, "-n", "2", "--where", "box")
    assert (status, error) == (0, "")
    assert re.fullmatch(rf"request \d+ holding: {A} {B}\n", out)
    status, out, _ = dxpu("attach", H1, C)
    assert re.fullmatch(rf"task \d+: attach {C}, host {H1}: completed\n", out)
    assert tell(dxpu.nodes, "links 101") == "0"
    assert [h["gpus"] for h in dxpu.json("host", "list")] == [[A, B], [C], []]
    shown = dxpu.json("gpu", "show", C)
    assert (shown["state"], shown["host"], shown["port"]) == ("attached", H1, 0)
    status, out, _ = dxpu("detach", H0, "--all")
    assert status == 0 and out.endswith(": completed\n")
    assert dxpu.json("request", "list") == []
    assert dxpu("detach", H0, "--all") == (0, f"host {H0} has no GPU\n", "")


def test_a_path_is_asked_for(dxpu):
    status, out, _ = dxpu("attach", H0, "-n", "1", "--path", "0")
    assert status == 0
    assert dxpu.json("gpu", "show", out.split()[-1])["path"] == 0
    status, out, _ = dxpu("attach", H0, "-n", "1", "--path", "1", "--wait", "1")
    assert status == 3 and "waiting: 1 GPU by path 1: never; " in out
    assert dxpu("attach", H0, "--path", "16")[0] == 2
    assert dxpu("attach", H0, A, "--path", "0")[0] == 2


def test_an_agent_of_a_host_says_that_it_sees_a_gpu(dxpu):
    """By name, and by PCI address; the task says what it waits for."""
    assert dxpu.json("host", "agent", H0, "yes")["agent"] is True
    try:
        for gpu, word in ((A, A), (B, "0000:03:00.0")):
            task = dxpu.json("attach", H0, gpu, "--no-wait")["task"]

            def waits(task=task, gpu=gpu):
                return dxpu("task", "show", str(task))[1].endswith(
                    f"\nevidence GPU {gpu}: link, windows; the agent of host {H0} has not said "
                    "that it sees the GPU\n")

            wait_for(waits)
            assert dxpu("host", "confirm", H0, word)[:2] == (0, f"{gpu} attaching\n")
            assert dxpu("task", "watch", str(task))[1].endswith(
                f"\nevidence GPU {gpu}: link, windows, word of the agent\n")
        assert dxpu("gpu", "show", A)[1].endswith(
            "\nevidence      link, windows, word of the agent\n")
        assert dxpu("host", "confirm", H0, "--serial", "S-1") == (
            4, "", f"dxpu host: error: no GPU of host {H0} is known by serial number S-1: say its "
            "name or its bus, too, once\n")
        for words in ((A, "--serial", "S-1"), ("--serial", "S-1")):
            assert dxpu("host", "confirm", H0, *words)[:2] == (0, f"{A} attached\n")
        assert dxpu.json("gpu", "show", A)["serial"] == "S-1"
        assert dxpu("host", "confirm", H0, A, "--serial", "a b") == (
            2, "", "dxpu host: error: SerialNumber has 1 to 64 characters, without space\n")
        assert dxpu("host", "confirm", H0) == (
            2, "", "dxpu host: error: name a GPU, or its serial number\n")
        assert dxpu("host", "confirm", H0, C) == (
            4, "", f"dxpu host: error: host {H0} does not have GPU {C}\n")
        assert dxpu("host", "confirm", H0, "1:2") == (
            2, "", "dxpu host: error: Address must be like 0000:41:00.0 or 41:00.0\n")
    finally:
        assert dxpu.json("host", "agent", H0, "no")["agent"] is False


def test_what_cannot_be_now_has_its_own_status(dxpu):
    """3: it waits. 4: not in this state. 2: there is no such thing. 7: the hardware."""
    dxpu("attach", H0, A)
    status, out, error = dxpu("attach", H1, A)
    assert (status, error) == (
        4, f"dxpu attach: error: GPU {A} is attached, not free or reserved or spare\n")
    status, out, _ = dxpu("attach", H1, "-n", "4", "--wait", "0.2")
    assert status == 3
    assert re.fullmatch(r"request \d+ waiting: 4 GPUs: there are 3 free GPUs; waits for somebody "
                        r"without a lease\n", out)
    assert dxpu("attach", "nobody", "-n", "1") == (
        2, "", "dxpu attach: error: there is no host 'nobody'; `dxpu host list` shows all\n")
    assert dxpu("gpu", "show", "1.1") == (2, "", "dxpu gpu: error: there is no GPU 1.1\n")
    tell(dxpu.nodes, "break 10001 1")
    try:
        status, _, error = dxpu("attach", H2, C)
        assert (status, re.sub(r"\d+", "N", error, count=1)) == (
            7, f"dxpu attach: error: task N: GPU {C}: its link does not come up\n")
        assert dxpu.json("gpu", "show", C)["state"] == "failed"
    finally:
        tell(dxpu.nodes, "insert 10001 1")


def test_a_request_is_kept_taken_up_renewed_and_ended(dxpu):
    status, out, _ = dxpu("attach", H0, "-n", "1", "--keep", "--priority", "3")
    assert status == 0 and "reserved" in out
    number, = re.findall(r"request (\d+)", out)
    assert dxpu("attach", H1, "--dry-run", "-n", "2", "--where", "box")[1] == f"{C} 00010001.2\n"
    assert dxpu("request", "take-up", number)[0] == 0
    wait_for(lambda: dxpu.json("request", "show", number)["phase"] == "holding")
    dxpu("request", "renew", number, "3600")
    assert dxpu.json("request", "show", number)["until"] is not None
    dxpu("request", "renew", number, "none")
    assert dxpu.json("request", "show", number)["until"] is None
    assert dxpu("request", "end", number)[0] == 0
    wait_for(lambda: dxpu.json("request", "show", number)["phase"] == "ended")
    status, _, error = dxpu("request", "renew", number, "5")
    assert (status, error) == (4, f"dxpu request: error: request {number} is ended, not holding or "
                                  "reserved or starting\n")


def test_a_lease_ends_by_itself(dxpu):
    assert dxpu("attach", H0, "-n", "1", "--lease", "1")[0] == 0
    wait_for(lambda: tell(dxpu.nodes, "links 100") == "")


def test_a_broken_gpu_is_swapped_for_a_spare_one(dxpu):
    dxpu("gpu", "spare", "00010001.2")
    dxpu("attach", H0, "-n", "2", "--where", "box")
    dxpu("gpu", "set-aside", C)
    status, out, _ = dxpu("swap", A, "--reason", "smoke")
    assert status == 0
    assert re.fullmatch(rf"{A} failed; request \d+ has 00010001.2 instead\n", out)
    shown = dxpu.json("gpu", "show", A)
    assert (shown["state"], shown["broken"]) == ("failed", "smoke")
    dxpu("attach", H1, "-n", "1", "--wait", "0")
    assert dxpu("gpu", "retire", A)[1] == f"{A} absent\n"


def test_spares_are_planned_and_kept(dxpu):
    dxpu.json("gpu", "model", "V100", A, B, C)
    try:
        said = dxpu.json("pool", "spares", "--rate", "9", "--repair-days", "7",
                         "--probability", "0.9")
        assert (said["keep"], said["rate"], said["repair_days"], said["probability"]) == (
            False, 9.0, 7.0, 0.9)
        # 3 GPUs at 9 a year and a week of repair: 0.518 in repair, so 1 spare is enough for 90 %.
        held = {one["model"]: (one["gpus"], one["in_repair"], one["wanted"], one["held"])
                for one in said["models"]}
        assert held == {"": (1, 0.172603, 1, 0), "V100": (3, 0.517808, 1, 0)}
        assert {one["state"] for one in dxpu.json("gpu", "list")} == {"free"}
        status, out, _ = dxpu("pool", "spares", "--keep", "yes")
        assert status == 0
        lines = [line.split() for line in out.splitlines()]
        assert lines[2] == ["V100", "3", lines[2][2], "0.00", "9.000", "0.518", "1", "1",
                            "90.4348%"]
        assert out.endswith("\n\nspares are kept by the manager; 7 days of repair, 0.9 of the "
                            "time\n")
        assert sorted(one["cause"] for one in dxpu.json("gpu", "list", "--state", "spare")) == 2 * [
            "kept by the plan"]
        assert dxpu("pool", "spares", "--rate", "-1")[0] == 2
        measured = dxpu.json("pool", "spares", "--rate", "measured")
        assert measured["rate"] is None and measured["models"][1]["rate"] > 0.27
    finally:
        dxpu("pool", "spares", "--keep", "no")
        dxpu("gpu", "model", "", A, B, C)
    assert {one["state"] for one in dxpu.json("gpu", "list")} == {"free"}


def test_a_box_is_drained_and_used_again(dxpu):
    """What a request has in the box goes elsewhere; what was attached by name goes away."""
    dxpu("attach", H0, A)
    status, out, _ = dxpu("attach", H1, "-n", "1")
    name, = dxpu.json("host", "show", H1)["gpus"]
    box = name.partition(".")[0]
    status, out, error = dxpu("drain", box)
    assert (status, error) == (0, "") and f"{box} is closed; " in out
    wait_for(lambda: [one.partition(".")[0] for one in dxpu.json("host", "show", H1)["gpus"]]
             not in ([], [box]))
    assert dxpu("box", "open", box)[0] == 0


def test_a_drain_that_is_refused_says_by_whom(dxpu):
    dxpu("attach", H0, C)
    tell(dxpu.nodes, "refuse 100")
    try:
        status, out, error = dxpu("drain", "00010001")
        assert status == 1
        assert "00010001 is closed; 0 of 1 GPUs in use were detached" in out
        assert f"the operating system of host {H0} has not let go of GPU {C}" in error
        status, _, _ = dxpu("drain", "00010001", "--force")
        assert status == 0 and tell(dxpu.nodes, "links 100") == ""
    finally:
        tell(dxpu.nodes, "consent 100")
        dxpu("box", "open", "00010001")


def test_nodes_are_named_and_described(dxpu):
    assert dxpu.json("host", "name", H2, "worker-2")["name"] == "worker-2"
    assert dxpu.json("host", "show", "worker-2")["host"] == H2
    assert dxpu("attach", "worker-2", A)[0] == 0
    assert dxpu.json("box", "kind", "00010001", "joined")["kind"] == "joined"
    assert dxpu.json("gpu", "model", "V100", A, C)[0]["model"] == "V100"
    assert [g["gpu"] for g in dxpu.json("gpu", "list", "--model", "V100")] == [A, C]
    assert [g["gpu"] for g in dxpu.json("gpu", "list", "--state", "attached")] == [A]
    assert [g["gpu"] for g in dxpu.json("gpu", "list", "--box", "00010001")] == [C, "00010001.2"]
    lines = dxpu("host", "list")[1].splitlines()
    assert lines[0].split() == ["HOST", "NAME", "ANSWERS", "OPEN", "GPUS", "FREE", "PORTS"]
    assert lines[3].split() == [H2, "worker-2", "yes", "yes", "1", "7"]
    assert dxpu("host", "close", "worker-2")[0] == 0
    assert dxpu("attach", "worker-2", B)[2] == (
        f"dxpu attach: error: host {H2} is closed: open it first\n")
    dxpu("host", "open", "worker-2")


def test_events_and_tasks_are_listed(dxpu):
    dxpu("attach", H0, A)
    events = [json.loads(line) for line in dxpu("events", "--json")[1].splitlines()]
    assert [event["event"] for event in events] == list(range(1, len(events) + 1))
    assert f"GPU {A}: attaching -> attached, the host has it" in [e["says"] for e in events]
    newest = events[-1]["event"]
    assert dxpu("events", "--after", str(newest)) == (0, "", "")
    tasks = dxpu.json("task", "list", "--all")
    assert tasks[-1]["what"] == f"attach {A}, host {H0}" and tasks[-1]["state"] == "Completed"
    assert dxpu.json("task", "watch", str(tasks[-1]["task"]))["ended"] is not None
    assert dxpu("task", "list")[1].splitlines() == ["TASK  WHAT  STATE  BEGAN  SAYS"]
    number = tasks[-1]["task"]
    assert dxpu("task", "cancel", str(number)) == (
        4, "", f"dxpu task: error: task {number} is done\n")


def test_events_are_followed_as_they_come(pool, dxpu):
    _, _, address = pool
    with subprocess.Popen([*DXPU, "events", "--follow", "--after", "0", "--manager", address],
                          stdout=subprocess.PIPE, text=True) as follows:
        guard = threading.Timer(120, follows.kill)
        guard.start()
        try:
            assert follows.stdout.readline().split()[0] == "1"
            dxpu("host", "name", H1, "followed")
            for line in follows.stdout:
                if f"host {H1} is called followed" in line:
                    break
        finally:
            guard.cancel()
            follows.terminate()
    assert follows.returncode == 143
    dxpu("host", "name", H1, "")


def test_top_shows_slots_hosts_and_who_waits(dxpu):
    dxpu("attach", H0, A)
    dxpu("attach", H1, "-n", "4", "--no-wait")
    lines = dxpu("top")[1].splitlines()
    assert lines[0] == "4 GPUs: 1 attached A, 3 free f"
    assert lines[2:4] == ["00010000  Af······", "00010001  ff······"]
    assert any(line.split()[:2] == [H0, A] for line in lines)
    assert any("there are 3 free GPUs" in line for line in lines)
    assert dxpu.json("top")["states"] == {"attached": 1, "free": 3}


@pytest.mark.parametrize("argv, says", [
    (("attach", H0, A, "-n", "2"), "--count is for a choice of the manager: leave the names of "
     "GPUs out"),
    (("attach", H0, A, A), "name each GPU once"),
    (("attach", H0, "-n", "0"), "--count must be a whole number from 1 to 256, not '0'"),
    (("attach", H0, "--lease", "-1"), "--lease must be a number from 0.001 to 1000000000, not "
     "'-1'"),
    (("detach", H0), "name GPUs, or give --all"),
    (("detach", H0, A, "--all"), "name GPUs, or give --all"),
    (("gpu", "admit", A, A), "name each GPU once"),
    (("drain", "nothing"), "there is no box or host 'nothing'"),
    (("task", "show", "x"), "TASK must be a whole number from 0 to 9007199254740991, not 'x'"),
    (("task", "show", "99999"), "there is no task 99999"),
    (("pool", "show", "--manager", "ftp://x"), "--manager must begin with http://, https:// or "
     "unix:, not 'ftp://x'")])
def test_wrong_use_is_one_line(dxpu, argv, says):
    assert dxpu(*argv) == (2, "", f"dxpu {argv[0]}: error: {says}\n")


def test_a_manager_that_is_not_there_is_one_line(dxpu, tmp_path):
    gone = f"unix:{tmp_path}/none"
    assert dxpu("pool", "show", "--manager", gone) == (
        6, "", f"dxpu pool: error: no manager listens at {gone}: start one with `dxpu manager run`"
        ", or say where with --manager\n")


def test_a_killed_manager_goes_on_when_it_starts_again(pool, dxpu):
    """GPUs stay with their hosts meanwhile, and commands find all as it was."""
    _, manager, address = pool
    dxpu("attach", H0, A)
    manager.kill()
    assert dxpu("pool", "show")[0] == 6
    assert tell(dxpu.nodes, "links 100") == "0"
    assert manager.start() == address
    assert dxpu.json("gpu", "show", A)["state"] == "attached"
    assert manager.stop() == 0
    assert not os.path.exists(address.removeprefix("unix:"))
    manager.start()
    wait_for(lambda: dxpu("detach", H0, A)[0] == 0)


def test_a_fabric_that_ends_ends_the_manager(tmp_path):
    """One line, and no loop without an end."""
    with processes(tmp_path, "unix:m.sock") as (nodes, manager):
        manager.start()
        nodes.kill()
        assert manager.process.wait(60) == 2
        manager.process.stdout.close()
        lines = manager.log.read_text().splitlines()
        assert lines[-1].startswith(f"dxpu manager: error: the fabric at "
                                    f"{str(tmp_path / 'fabric.sock')!r}")
        assert sum("the fabric at" in line for line in lines) == 2
        assert not (tmp_path / "m.sock").exists()


def test_a_second_manager_is_kept_out(pool):
    _, manager, _ = pool
    second = subprocess.run([*DXPU, "manager", "run", str(manager.settings)], text=True,
                            capture_output=True, timeout=60)
    assert (second.returncode, second.stdout) == (2, "")
    assert second.stderr.splitlines()[-1] == (
        f"dxpu manager: error: the store {str(manager.folder / 'pool.db')!r} is in use by another "
        "manager: stop that one first")


def test_accounts_backup_and_restore_and_tls(tmp_path, capsys, monkeypatch):
    """All of an operator's work around a manager: accounts first, as others reach it."""
    def run(*argv, stdin=""):
        done = subprocess.run([*DXPU, "manager", *argv], input=stdin, text=True,
                              capture_output=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    certificate, _ = make_certificate(tmp_path)
    port = free_port()
    with processes(tmp_path, f"localhost:{port}",
                   'certificate = "cert.pem"\nkey = "key.pem"') as (_, manager):
        settings = str(manager.settings)
        assert run("check", settings)[1].splitlines() == [
            f"5 factory records in {tmp_path / 'records'}",
            f"no store at {tmp_path / 'pool.db'} yet; the manager makes it",
            f"commands: --manager https://localhost:{port}"]
        assert run("account", settings, "alice", "--role", "Operator", stdin="secret words\n") == (
            0, "alice  Operator\n", "")
        assert run("account", settings, "alice", "--role", "King")[0] == 2
        assert run("account", settings, "bob") == (
            2, "", "dxpu manager: error: there is no account bob; --role makes one\n")
        assert run("account", settings, "root", "--role", "Administrator",
                   stdin="short\n")[2] == ("dxpu manager: error: a password has 8 to 128 "
                                           "characters, not 5\n")
        run("account", settings, "root", "--role", "Administrator", stdin="right password\n")
        assert run("account", settings)[1] == "alice  Operator\nroot  Administrator\n"
        assert run("account", settings, "root", "--remove")[2].startswith(
            "dxpu manager: error: account root is the last administrator that is enabled")
        address = manager.start()
        assert address == f"https://localhost:{port}"
        monkeypatch.setenv("DXPU_MANAGER", address)

        def dxpu(*argv):
            capsys.readouterr()
            return cli.main(list(argv)), capsys.readouterr().err
        status, error = dxpu("pool", "show")
        assert (status, error) == (6, f"dxpu pool: error: the certificate of the manager at "
                                   f"{address} is not trusted: give its file with $DXPU_CA\n")
        monkeypatch.setenv("DXPU_CA", str(certificate))
        assert dxpu("pool", "show") == (
            2, "dxpu pool: error: log in first ($DXPU_USER and $DXPU_PASSWORD)\n")
        monkeypatch.setenv("DXPU_USER", "alice")
        monkeypatch.setenv("DXPU_PASSWORD", "secret words")
        assert dxpu("pool", "show") == (0, "")
        wait_for(lambda: dxpu("attach", H1, "--dry-run")[0] == 0)
        assert dxpu("attach", H0, "-n", "1")[0] == 0
        # Each event says whose wish it was; what the manager does then is nobody's.
        capsys.readouterr()
        cli.main(["events", "--json"])
        events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert {event["who"] for event in events} == {None, "alice"}
        assert all(event["who"] == ("alice" if "-> attaching" in event["says"] else None)
                   for event in events if event["says"].startswith("GPU "))
        cli.main(["events"])
        assert re.search(r"  task 1: attach \S+, host 00000100 \[alice\]\n",
                         capsys.readouterr().out)
        copy = str(tmp_path / "copy.db")
        assert run("backup", settings, copy)[0] == 0
        assert run("restore", settings, copy) == (
            2, "", f"dxpu manager: error: the store {str(tmp_path / 'pool.db')!r} is in use by a "
            "manager: stop it first\n")
        dxpu("attach", H1, "-n", "1")
        assert manager.stop() == 0
        status, out, error = run("restore", settings, copy)
        assert (status, error) == (0, "") and "; the former store is " in out
        manager.start()
        # The nodes come to be as the backup says.
        def as_then():
            assert dxpu("pool", "show", "--json")[0] == 0
            cli.main(["host", "list", "--json"])
            hosts = json.loads(capsys.readouterr().out)
            return [len(host["gpus"]) for host in hosts] == [1, 0, 0]
        wait_for(as_then)


def test_a_check_brings_no_store_to_another_version(tmp_path, capsys):
    """The manager does; a store of a newer version is refused."""
    old = Path(__file__).parents[1] / "manager/store_version_1.sql"
    (tmp_path / "records").mkdir()
    settings = tmp_path / "manager.toml"
    settings.write_text('[store]\npath = "pool.db"\n[nodes]\nrecords = "records"\n'
                        '[fabric]\nsocket = "fabric.sock"\n')
    with closing(sqlite3.connect(tmp_path / "pool.db")) as database:
        database.executescript(old.read_text())
    assert cli.main(["manager", "check", str(settings)]) == 0
    assert capsys.readouterr().out.splitlines()[1] == (
        f"the store has version 1: the manager keeps it, and brings it to version {VERSION}")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["manager.toml", "pool.db",
                                                                "records"]
    assert cli.main(["manager", "account", str(settings)]) == 0
    assert capsys.readouterr().out == "alice  Operator\n"
    assert (tmp_path / "pool.db.version-1").exists()
    with closing(sqlite3.connect(tmp_path / "pool.db")) as database:
        database.execute(f"PRAGMA user_version = {VERSION + 1}")
    assert cli.main(["manager", "check", str(settings)]) == 2
    assert capsys.readouterr().err == (
        f"dxpu manager: error: the store {str(tmp_path / 'pool.db')!r} has version {VERSION + 1}, "
        f"and this program knows {VERSION}: use the newer program\n")


def test_who_can_be_reached_by_others_needs_an_account(tmp_path):
    make_certificate(tmp_path)
    with processes(tmp_path, f"0.0.0.0:{free_port()}",
                   'certificate = "cert.pem"\nkey = "key.pem"') as (_, manager):
        done = subprocess.run([*DXPU, "manager", "run", str(manager.settings)], text=True,
                              capture_output=True, timeout=60)
        assert done.returncode == 2
        assert re.fullmatch(r"dxpu manager: error: others reach https://0\.0\.0\.0:\d+, and there "
                            r"is no account: make one with `dxpu manager account`",
                            done.stderr.splitlines()[-1])
        taken = subprocess.run([*DXPU, "manager", "check", str(tmp_path / "none.toml")], text=True,
                               capture_output=True, timeout=60)
        assert taken.stderr == (f"dxpu manager: error: cannot read {str(tmp_path / 'none.toml')!r}"
                                ": No such file or directory\n")


def test_an_address_in_use_is_one_line(tmp_path, pool):
    import socket
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with processes(tmp_path, f"127.0.0.1:{port}") as (_, manager):
            done = subprocess.run([*DXPU, "manager", "run", str(manager.settings)], text=True,
                                  capture_output=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        f"dxpu manager: error: nobody can listen at http://127.0.0.1:{port}: is it in use?")
