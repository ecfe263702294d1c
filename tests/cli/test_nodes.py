"""``dxpu nodes``."""

import json
import os

import pytest

from dxpu_cli import main as cli
from dxpu_cli.commands import nodes as command
from dxpu_host.errors import PortError
from dxpu_model.management import Identity, Message

NODES = [
    Identity(b"\x02\x51\0\0\0\2", serial=7, role=2, slots=4, capabilities=0x30, links=3, present=5),
    Identity(b"\x02\x51\0\0\0\1", serial=0xABCDEF, role=1, slots=8, links=1,
             table=0x10003),
]


class Hears:
    """A port at which these nodes announce themselves, twice each."""

    def __init__(self, interface, node):
        assert (interface, node) == ("eth0", 0)
        self._end, write = os.pipe()
        os.write(write, b"x")
        os.close(write)
        self.frames = 2 * [Message(6, 0, follows=node.pack(), src_node=0xFFF).frame()
                           for node in self.nodes]

    nodes = NODES

    def fileno(self):
        return self._end

    def receive(self):
        return self.frames.pop() if self.frames else None

    def close(self):
        os.close(self._end)


class Silent(Hears):
    nodes = ()


def run(capsys, monkeypatch, *options, port=Hears):
    monkeypatch.setattr(command, "EthernetPort", port)
    status = cli.main(["nodes", "--iface", "eth0", *options])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_nodes_are_shown(capsys, monkeypatch):
    status, out, _ = run(capsys, monkeypatch, "--seconds", "0.01")
    assert status == 0
    assert out == ("02:51:00:00:00:01  serial 0x00abcdef  host, 8 slots, 1 links, no keys, "
                   "65539 table changes\n"
                   "02:51:00:00:00:02  serial 0x00000007  box, 4 slots, 2 with a GPU, 2 links, "
                   "keys, 0 table changes\n")
    status, out, _ = run(capsys, monkeypatch, "--seconds", "0.01", "--json")
    host, box = json.loads(out)
    assert host["mac"] == "02:51:00:00:00:01" and box["present"] == 5 and box["number"] == 0xFFF
    assert (host["table"], box["table"]) == (0x10003, 0)


def test_nobody_is_said(capsys, monkeypatch):
    status, out, error = run(capsys, monkeypatch, "--seconds", "0.01", port=Silent)
    assert (status, out) == (0, "")
    assert error.splitlines()[-1] == ("no node without a number announced itself on eth0 within "
                                      "0.01 s: one that has a number is silent")


@pytest.mark.parametrize("text", ["x", "0", "4000"])
def test_a_wrong_time_gets_one_line(text, capsys, monkeypatch):
    assert run(capsys, monkeypatch, "--seconds", text) == (
        2, "", f"dxpu nodes: error: --seconds must be a number from 0.01 to 3600, not {text!r}\n")


def test_a_port_that_cannot_be_opened_gets_one_line(capsys, monkeypatch):
    def port(*_):
        raise PortError("no interface 'eth0'; there are lo")

    assert run(capsys, monkeypatch, port=port) == (
        2, "", "dxpu nodes: error: no interface 'eth0'; there are lo\n")
