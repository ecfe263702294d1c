"""``dxpu console eth:NAME,MAC``: by frames, before golden nodes with registers of gateware."""

import random
import re
from types import SimpleNamespace

import pytest
from amaranth import Module

from dxpu.factory import FactoryRecord
from dxpu.proxy.box import BoxProxy
from dxpu_cli.console import frame_line
from dxpu_cli.main import main
from dxpu_host.errors import PortError
from tests.support.manager_bench import Network, simulated
from tests.support.proxy_port import only_table, with_board
from tests.support.testbench import seed

SHAPE = {"paths": 2, "peers": 2, "streams": 2}
PORT = "eth:eth0,02:51:00:00:00:01"


@pytest.fixture
def key_file(tmp_path):
    """The key of node 1."""
    path = tmp_path / "node.key"
    path.write_text("01" * 16)
    path.chmod(0o600)
    return path


@pytest.fixture
def say(monkeypatch, capsys, key_file):
    """Runs ``dxpu console`` before a node; returns its status and what it said."""
    rng = random.Random(seed())
    capsys.readouterr()

    def run(node, words, *, port=PORT, loss=0.0, key=key_file):
        network = None

        def opened(interface, number):
            nonlocal network
            assert (interface, number) == ("eth0", 0)
            network = Network([node], loss=loss, rng=rng)
            return network

        monkeypatch.setattr(frame_line, "EthernetPort", opened)
        status = main(["console", port, "--node-key", str(key), *words.split()])
        assert network is None or network.fileno() == -1
        said = capsys.readouterr()
        return status, said.out + said.err
    return run


def table(role="host"):
    """A node of control registers and a table."""
    return simulated(1, only_table(Module(), role, rows=3, **SHAPE)[0])[0]


def test_registers_by_frames_that_are_lost(say):
    """The same words as over a serial line; a write that is not answered is not made again."""
    node, done = table(), 0
    for n in range(1, 30):
        status, text = say(node, f"write control.node number={n}", loss=0.2)
        if status == 0:
            assert text == f"0008  control.node                       {n:08x}\n"
            assert node.registers.read(8) == n
            done += 1
        else:
            assert status == 1 and text.count("\n") == 1 and "does not answer" in text
    assert done > 20
    assert say(node, "read control.identity control.node") == (0, (
        "0000  control.identity                   44585055\n"
        "0008  control.node                       0000001d\n"))
    status, text = say(node, "list")
    assert status == 0 and "table.row[2].binding" in text
    assert say(node, "write control.identity 1") == (1, (
        "dxpu console: node 02:51:00:00:00:01: no 1 registers from 0x0000 on can be written; "
        "nothing was done\n"))


def test_bindings_have_the_epoch_of_the_node(say):
    """Nobody is deposed, and a table that has another manager's epoch is changed under that."""
    node = table()
    assert say(node, "bind 1 --node 0x101 --slot 4") == (
        0, "row 1 is bound to node 0x101, slot 4, stream 0, generation 1\n")
    assert node.registers.read(node.registers.map.address("table.fence_epoch")) == 1
    node.registers.write(node.registers.map.address("table.fence_epoch"), 9)
    assert say(node, "unbind 1") == (0, "row 1 is free\n")
    assert node.registers.read(node.registers.map.address("table.fence_epoch")) == 9
    assert say(node, "bind 0 --node 0xfff --slot 4")[1].startswith(
        "dxpu console: row 0: BAD_TARGET: --node must be")
    status, text = say(node, "bindings")
    assert status == 0 and re.search(r"^  1    no  0x101", text, re.MULTILINE)


def test_a_box_is_set_up_by_frames(say, tmp_path):
    """With its factory record as the key's file."""
    shape = {"paths": 1, "peers": 2, "streams": 1, "keys": True}
    port = with_board(Module(), BoxProxy(32, slots=1, **shape), "ecpix-5-45f", paths=1, gpus=1)
    node, mac, key = simulated(1, port)
    record = tmp_path / "record.bin"
    record.write_bytes(FactoryRecord(mac, 7, key + bytes(16)).to_bytes())
    record.chmod(0o600)
    pair = tmp_path / "pair.key"
    pair.write_text("5a" * 16)
    pair.chmod(0o600)
    status, text = say(node, f"setup --node 0x101 --host 2 --clock 125 --key {pair}", key=record)
    assert status == 0, text
    assert text.splitlines()[:3] == [
        "control.node number=0x101", "control.peer[0].node number=0x2 valid=0x1 clear=0x0",
        "control.peer[0].key (written, and in force)"]
    assert "row 0 is bound to node 0x002, slot 1, stream 0, generation 1\n" in text
    assert "5a5a" not in text
    other = PORT.replace("00:01", "00:02")
    assert say(node, "list", port=other, key=record) == (2, (
        f"dxpu console: error: --node-key: {str(record)!r} is the record of 02:51:00:00:00:01, not "
        "of 02:51:00:00:00:02\n"))
    record.write_bytes(FactoryRecord(mac, 7, None).to_bytes())
    assert say(node, "list", key=record)[1].endswith(f"the record {str(record)!r} has no key\n")
    record.write_bytes(record.read_bytes()[:-1] + b"\0")
    status, text = say(node, "list", key=record)
    assert status == 2 and text.count("\n") == 1 and str(record) in text
    record.chmod(0o644)
    assert say(node, "list", key=record)[1].endswith(f"first: chmod 600 {record}\n")


def test_a_node_that_does_not_answer(say, tmp_path):
    """No such node, or another key: one line."""
    node, wrong = table(), tmp_path / "wrong.key"
    wrong.write_text("02" * 16)
    wrong.chmod(0o600)
    line = ("dxpu console: node 02:51:00:00:00:0{} does not answer: is it there, with this key, "
            "and not asked by another manager of this number?\n")
    assert say(node, "list", key=wrong) == (1, line.format(1))
    assert say(node, "list", port=PORT.replace("00:01", "00:02")) == (1, line.format(2))


@pytest.mark.parametrize("port, words, message", [
    ("eth:eth0", "list", "an Ethernet port is like eth:eth0,02:51:00:00:00:01, interface and "
     "factory address of the node, not 'eth:eth0'"),
    (PORT, "--manager 5 list", "--manager must be a whole number from 1 to 4, not '5'"),
    (PORT, "--slower x list", "--slower must be a number from 0.01 to 1000000, not 'x'"),
    ("/dev/there", "list", "--node-key is for a port such as eth:eth0,02:51:00:00:00:01")])
def test_mistakes(say, port, words, message):
    assert say(table(), words, port=port) == (2, f"dxpu console: error: {message}\n")


def test_no_key_and_no_interface(monkeypatch, capsys, key_file):
    def port(*_):
        raise PortError("interface 'eth0' is down; `sudo ip link set eth0 up`")

    monkeypatch.setattr(frame_line, "EthernetPort", port)
    assert main(["console", PORT, "list"]) == 2
    assert capsys.readouterr().err == ("dxpu console: error: --node-key FILE is missing: a node "
                                       "answers to nobody without its key\n")
    assert main(["console", PORT, "--node-key", "/nowhere", "list"]) == 2
    assert capsys.readouterr().err == ("dxpu console: error: --node-key: cannot read '/nowhere': "
                                       "No such file or directory\n")
    assert main(["console", PORT, "--node-key", str(key_file), "list"]) == 2
    assert capsys.readouterr().err == ("dxpu console: error: interface 'eth0' is down; `sudo ip "
                                       "link set eth0 up`\n")


def test_many_registers_by_few_requests(monkeypatch, key_file):
    """The words of single reads, by frames of a few requests."""
    node, rng, sent = table(), random.Random(seed()), []
    network = Network([node], loss=0.0, rng=rng)
    monkeypatch.setattr(frame_line, "EthernetPort", lambda *_: network)
    addresses = [base + p.address for base, block in node.registers.map.blocks.values()
                 for p in block.placed if p.rows]
    options = SimpleNamespace(port=PORT, manager="4", slower="1", node_key=str(key_file))
    with frame_line.line_of(options) as line:
        single = [line.read(address) for address in addresses]
        send = network.send
        monkeypatch.setattr(network, "send", lambda frame: (sent.append(frame), send(frame))[1])
        assert line.read_all(addresses) == single
    assert 0 < len(sent) < len(addresses)
