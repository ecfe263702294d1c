"""``dxpu slots`` and :class:`Host` without a box: options, errors, waiting."""

import json
import random
import socket
import threading
from collections import Counter
from types import SimpleNamespace

import pytest

from dxpu_cli.commands import slots as command
from dxpu_cli.main import main
from dxpu_cli.options import NO_KEYS
from dxpu_host import (
    Device, EthernetPort, Host, HostError, PortError, SlotLost, Timeout, Timers, host as hosts,
)
from dxpu_host.scan import Bus
from dxpu_host.slots import HostSlot
from dxpu_host.tlp import config_request
from dxpu_model.wire import Ack, Frame, build, parse
from tests.support.host_bench import NONE

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
    status = main(["slots", *options])
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
    assert (status, out, error) == (2, "", f"dxpu slots: error: {message}\n")


def test_a_port_that_cannot_be_opened_gets_one_line(capsys, monkeypatch):
    def port(*_):
        raise PortError("as the test wants")

    status, out, error = run(capsys, monkeypatch, "--iface", "x", "--box", "1", port=port)
    assert (status, out, error) == (2, "", "dxpu slots: error: as the test wants\n")


@pytest.mark.parametrize("as_json", [False, True])
def test_a_box_that_does_not_answer(as_json, capsys, monkeypatch):
    status, out, error = run(capsys, monkeypatch, "--iface", "x", "--box", "0x101",
                             *["--json"] * as_json)
    message = "box 0x101 does not answer HELLO within 0.05 s"
    assert status == 1 and error == f"{NO_KEYS}\ndxpu slots: error: {message}\n"
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


@pytest.mark.parametrize("where, message", [
    ("socket", "this system has no raw Ethernet frames: Invalid argument"),
    ("bind", "interface 'lo' cannot be used, is it an Ethernet? (Invalid argument)")])
def test_an_interface_of_another_kind(where, message, monkeypatch):
    """Not every interface of Linux has Ethernet frames, and not every Linux has them."""
    def fails(*_):
        raise OSError(22, "Invalid argument")

    class Socket:
        def __init__(self, *_):
            pass

        def close(self):
            closed.append(self)

    closed = []
    monkeypatch.setattr(socket, "socket", fails if where == "socket" else Socket)
    monkeypatch.setattr(EthernetPort, "_set_up", fails)
    with pytest.raises(PortError) as raised:
        EthernetPort("lo", 1)
    assert str(raised.value) == message and len(closed) == (where == "bind")


def test_a_slot_that_fails_does_not_hide_others(capsys, monkeypatch):
    class Slots(SimpleNamespace):
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def connect(self, box, stream):
            pass

        def bind(self, box, slot, **_):
            if slot == 2:
                raise HostError("slot 2 does not answer")
            return slot

        def bus(self, slot):
            if slot == 3:
                raise HostError("slot 3 has more than 8 buses")
            return Bus(8 * slot, 8 * slot)

    monkeypatch.setattr(command, "Host", lambda *_, **__: Slots(counters=Counter()))
    status, out, error = run(capsys, monkeypatch, "--iface", "x", "--box", "1", "--slots",
                             "3,2,1,4")
    assert status == 1 and "[08]" in out and "[20]" in out
    assert error == (f"{NO_KEYS}\ndxpu slots: error: slot 3 has more than 8 buses\n"
                     "dxpu slots: error: slot 2 does not answer\n")


# A host whose slots are here

class Box:
    """A box of which nothing comes back."""

    open = True
    link = SimpleNamespace(address=SimpleNamespace(peer=0x101))

    def __init__(self):
        self.unbound, self.sent = [], []
        self.unbind = self.unbound.append

    def bound(self, number):
        return True

    def settled(self):
        return False

    def send(self, number, raw):
        self.sent.append(raw)


def with_slots(count):
    """A host with ready slots of one box, and that box."""
    host, box = Host(Silence(), timers=Timers(completion=0.01)), Box()
    for number in range(1, count + 1):
        slot = HostSlot(box, number, range(8 * number, 8 * number + 8), host.memory,
                        host._interrupts, host.counters)
        slot.ready()
        host._slots[box, number] = slot
    return host, box


def test_at_the_end_all_slots_are_given_back_though_the_box_is_slow():
    host, box = with_slots(3)
    with pytest.raises(Timeout, match="slot 1: the box does not acknowledge UNBIND"):
        host.unbind(host._slots[box, 1])
    box.unbound.clear()
    host.close()
    assert box.unbound == [1, 2, 3] and host._port.closed


def test_what_was_found_in_a_life_that_is_over_is_not_kept(monkeypatch):
    host, box = with_slots(1)
    found = []

    def scan(host, slot, windows):
        found.append(Bus(8, 8))
        if len(found) == 1:
            slot.down(SlotLost("as the test wants"))
            slot.ready()
        return found[-1]

    monkeypatch.setattr(hosts, "scan", scan)
    with pytest.raises(SlotLost, match="was reset since its device was found"):
        host.buses()
    assert host.buses() == [found[1]] and host.buses()[0] is found[1] and len(found) == 2


def test_a_function_of_a_life_that_is_over_is_not_kept(monkeypatch):
    """Its last completion and the end of the life come in one turn."""
    host, box = with_slots(1)
    slot = host._slots[box, 1]

    def last(slot, tlp, life):
        if tlp.register == 3:  # the header type, which is read last
            slot.down(SlotLost("as the test wants"))
            slot.ready()
        return bytes(4)

    monkeypatch.setattr(host, "configure", last)
    with pytest.raises(SlotLost, match="was reset since its device was found"):
        Device(host, slot, 0x0800)
    assert slot.devices == {}


def test_the_last_tag_is_for_one_thread_only(monkeypatch):
    host, box = with_slots(1)
    slot = host._slots[box, 1]
    tlp = config_request(0x0800, 0, None)
    for _ in range(slot.requests.TAGS - 1):
        slot.requests.add(config_request(0x0800, 0, None), 9.0)
    waits = []

    def wait_until(done, what):
        """Another thread takes the last tag between the look and the lock; later one is free."""
        waits.append(what)
        if len(waits) == 2:
            del slot.requests._open[7]
        assert done()
        if len(waits) == 1:
            slot.requests.add(config_request(0x0800, 0, None), 9.0)

    monkeypatch.setattr(host, "wait_until", wait_until)
    host._request(slot, tlp, slot.lives)
    assert tlp.tag == 7 and len(box.sent) == 1 and len(waits) == 2


def test_a_thread_that_fails_says_so():
    port = Silence()
    port.broken = ValueError("as the test wants")
    host = Host(port, timers=SHORT)
    host.start()
    host._thread.join()
    port.broken = None
    with pytest.raises(HostError, match="the thread that serves has ended: ValueError"):
        host.wait_until(lambda: False, "nothing")
    host.close()
