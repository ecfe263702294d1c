"""``dxpu host`` and :class:`Host` without a box: options, errors, waiting."""

import json
import random
import threading

import pytest

from dxpu_host import Host, PortError, Timeout, Timers, command
from dxpu_host.scan import Bus
from dxpu_sim.cli import main
from dxpu_sim.golden.wire import Ack, Frame, build, parse
from host_bench import NONE

SHORT = Timers(retry=0.001, hello=0.001, quiet=0.0, attach=0.05)


class Silence:
    """A port without anybody at the other end; frames in ``incoming`` come."""

    def __init__(self, *_):
        self.sent, self.incoming, self.closed, self.broken = [], [], False, None

    def send(self, frame):
        self.sent.append(frame)

    def receive(self):
        if self.broken:
            raise self.broken
        return self.incoming.pop(0) if self.incoming else None

    def wait(self, timeout):
        threading.Event().wait(timeout)

    def close(self):
        self.closed = True


def run(capsys, monkeypatch, *options, port=Silence):
    monkeypatch.setattr(command, "EthernetPort", port)
    monkeypatch.setattr(command, "Timers", lambda: SHORT)
    status = main(["host", *options])
    return status, *capsys.readouterr()


@pytest.mark.parametrize("options, message", [
    (("--box", "0"), "--box must be a whole number from 1 to 4094, not '0'"),
    (("--box", "x"), "--box must be a whole number from 1 to 4094, not 'x'"),
    (("--box", "1", "--node", "0xfff"), "--node must be a whole number from 1 to 4094, "
     "not '0xfff'"),
    (("--box", "1", "--slots", "1,x"), "--slots must be a whole number from 1 to 255, not 'x'"),
    (("--box", "1", "--slots", "2,1,2"), "--slots must not name a slot twice, as '2,1,2' does"),
    (("--box", "1", "--stream", "16"), "--stream must be a whole number from 0 to 15, not '16'"),
    (("--box", "1", "--path", "-1"), "--path must be a whole number from 0 to 15, not '-1'"),
    (("--box", "1", "--generation", "65536"), "--generation must be a whole number from 0 to "
     "65535, not '65536'"),
    (("--box", "1", "--slower", "0"), "--slower must be a number from 0.01 to 1000000, not '0'"),
])
def test_wrong_options_get_one_line(options, message, capsys, monkeypatch):
    status, out, error = run(capsys, monkeypatch, "--iface", "eth0", *options)
    assert (status, out, error) == (2, "", f"dxpu host: error: {message}\n")


def test_a_port_that_cannot_be_opened_gets_one_line(capsys, monkeypatch):
    def port(*_):
        raise PortError("as the test wants")

    status, out, error = run(capsys, monkeypatch, "--iface", "x", "--box", "1", port=port)
    assert (status, out, error) == (2, "", "dxpu host: error: as the test wants\n")


@pytest.mark.parametrize("as_json", [False, True])
def test_a_box_that_does_not_answer(as_json, capsys, monkeypatch):
    status, out, error = run(capsys, monkeypatch, "--iface", "x", "--box", "0x101",
                             *["--json"] * as_json)
    message = "box 0x101 does not answer HELLO within 0.05 s"
    assert status == 1 and error == f"dxpu host: error: {message}\n"
    if as_json:
        assert json.loads(out) == {"ok": False, "problems": [message], "counters": {},
                                   "devices": []}
    else:
        assert out == ""


def test_an_empty_slot_is_shown(capsys):
    command._say([Bus(1, 1), Bus(9, 9)], [], {}, False)
    assert capsys.readouterr().out == ("-[0000:00]-+-01.0-[01]--\n"
                                       "           \\-02.0-[09]--\n")


@pytest.mark.parametrize("options, message", [
    ({"node": 0}, "node must be from 1 to 0xffe, not 0"),
    ({"max_payload": 1024}, "max_payload must be a power of two from 128 to 512, not 1024"),
    ({"max_read": 300}, "max_read must be a power of two from 128 to 4096, not 300")])
def test_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        Host(Silence(), **options)


def test_frames_that_are_not_for_us_are_counted():
    port = Silence()
    with Host(port, timers=SHORT, rng=random.Random(1)) as host:
        port.incoming += [build(Frame(Ack(NONE), dst_node=1, src_node=2)),
                          build(Frame(Ack(NONE), dst_node=3, src_node=2)), bytes(60), b"short"]
        host.poll()
        assert host.counters == {"no_session": 1, "other_node": 1, "ethertype": 1, "runt": 1}
    assert port.closed


def test_a_port_that_breaks_ends_what_waits():
    for threaded in (False, True):
        port = Silence()
        host = Host(port, timers=SHORT.slower(100))
        if threaded:
            host.start()
        timer = threading.Timer(0.05, lambda port=port: setattr(port, "broken",
                                                                PortError("unplugged")))
        timer.start()
        with pytest.raises(PortError, match="unplugged"):
            host.connect(0x101)
        timer.join()
        port.broken = None
        host.close()


def test_a_thread_serves_while_others_wait():
    port = Silence()
    with Host(port, timers=SHORT) as host:
        host.start()
        with pytest.raises(Timeout, match="box 0x101 does not answer HELLO"):
            host.connect(0x101)
        before = len(port.sent)
        threading.Event().wait(0.1)
        assert len(port.sent) > before  # HELLO goes on
        assert parse(port.sent[-1]).dst_node == 0x101


def test_a_dma_handler_must_not_wait():
    class Recursive(Silence):
        def receive(self):
            host.poll()

    host = Host(Recursive(), timers=SHORT)
    with pytest.raises(RuntimeError, match="a DMA handler must not wait for the host"):
        host.poll()
