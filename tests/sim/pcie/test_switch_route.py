"""The route model against addresses worked out by hand from the registers."""

import pytest
from dxpu_sim.pcie.checkers import Header, TlpChecker, type0
from dxpu_sim.pcie.switch_route import SwitchRoute
from tests.support.raw_tlps import completion, config, memory, message

PREFETCHABLE = 0x8000_0000_0000_0000


@pytest.fixture
def switch():
    """Upstream port 01:00.0; downstream ports 02:00 to 02:02 with buses 3, 4 and 5 to 6.

    Port n has 1 MiB at 0xc000_0000 + n MiB, 256 MiB of the 64-bit window, 4 KiB of I/O at 0x8000.
    """
    route = SwitchRoute("host", {0: "a", 1: "b", 2: "c"})

    def write(kind, target, register, value, **options):
        raw = config(kind, target, register, value=value, **options)
        assert route("host", Header.parse(raw)) == []

    def bridge(kind, target, buses, n, count):
        base, limit = 0xc000_0000 + (n << 20), 0xc000_0000 + (n + count - 1 << 20)
        low, high = 0x1000_0000 * n, 0x1000_0000 * (n + count) - 1
        write(kind, target, 0x18, buses)
        write(kind, target, 0x1c, 0x8080 + (n << 4) + (n + count - 1 << 12))
        write(kind, target, 0x20, limit & 0xfff00000 | base >> 16)
        write(kind, target, 0x24, high & 0xfff00000 | low >> 16)
        write(kind, target, 0x28, PREFETCHABLE >> 32)
        write(kind, target, 0x2c, PREFETCHABLE >> 32)
        write(kind, target, 0x30, 0)
        write(kind, target, 0x04, 0x7, enables=3)

    bridge(0, 0x0100, 0x060201, 0, 3)
    for n, buses in enumerate((0x030302, 0x040402, 0x060502)):
        bridge(1, 0x0200 | n << 3, buses, n, 1)
    return route


def go(route, source, raw):
    return route(source, Header.parse(raw))


@pytest.mark.parametrize("address, slot", [
    (0xbfff_fffc, None), (0xc000_0000, "a"), (0xc00f_fffc, "a"), (0xc010_0000, "b"),
    (0xc020_0000, "c"), (0xc02f_fffc, "c"), (0xc030_0000, None), (PREFETCHABLE, "a"),
    (PREFETCHABLE + 0x0fff_fffc, "a"), (PREFETCHABLE + 0x1000_0000, "b"),
    (PREFETCHABLE + 0x2fff_fffc, "c"), (PREFETCHABLE + 0x3000_0000, None), (0x1000_0000, None)])
def test_memory_from_host(switch, address, slot):
    for data in (b"", bytes(4)):
        raw = memory(address, data=data, requester=0)
        assert go(switch, "host", raw) == ([(slot, raw)] if slot else [])


@pytest.mark.parametrize("address, slot", [
    (0x7ffc, None), (0x8000, "a"), (0x8ffc, "a"), (0x9000, "b"), (0xaffc, "c"), (0xb000, None)])
def test_io_from_host(switch, address, slot):
    raw = memory(address, requester=0, kind=2)
    assert go(switch, "host", raw) == ([(slot, raw)] if slot else [])


@pytest.mark.parametrize("target, slot", [
    (0x0200, None), (0x02f8, None), (0x0300, "a"), (0x0308, None), (0x0301, "a"), (0x0400, "b"),
    (0x0700, None)])
def test_type_1_config(switch, target, slot):
    raw = config(1, target, 0)
    assert go(switch, "host", raw) == ([(slot, type0(raw))] if slot else [])


def test_config_below_a_further_bridge_stays_type_1(switch):
    raw = config(1, 0x0608, 0)
    assert go(switch, "host", raw) == [("c", raw)]


def test_completions(switch):
    for requester, to in ((0x0300, "a"), (0x0400, "b"), (0x0600, "c")):
        raw = completion(bytes(4), requester=requester)
        assert go(switch, "host", raw) == [(to, raw)]
    raw = completion(bytes(4), requester=0x0000)
    assert go(switch, "a", raw) == [("host", raw)]
    raw = completion(bytes(4), requester=0x0400)
    assert go(switch, "a", raw) == [("b", raw)]
    for requester in (0x0100, 0x0208):
        assert go(switch, "a", completion(bytes(4), requester=requester)) == []


@pytest.mark.parametrize("address, to", [
    (0x1000, "host"), (0xc000_0000, None), (0xc010_0000, "b"), (PREFETCHABLE + 0x2000_0000, "c")])
def test_memory_from_slot(switch, address, to):
    raw = memory(address, requester=0x0300)
    assert go(switch, "a", raw) == ([(to, raw)] if to else [])


def test_who_asks_decides_about_no_route(switch):
    for requester in (0x0000, 0x0300, 0x0400, 0x0900):
        raw = memory(0x1000, requester=requester)
        assert go(switch, "a", raw) == [("host", raw)]


def test_enables(switch):
    down, up = memory(0xc000_0000, requester=0), memory(0x1000, requester=0x0300)
    for command, expected in ((7, (1, 1)), (5, (0, 1)), (3, (1, 0)), (0, (0, 0))):
        go(switch, "host", config(1, 0x0200, 0x04, value=command))
        assert (len(go(switch, "host", down)), len(go(switch, "a", up))) == expected
    go(switch, "host", config(1, 0x0200, 0x04, value=7))
    for command, expected in ((5, (0, 1)), (3, (1, 0))):
        go(switch, "host", config(0, 0x0100, 0x04, value=command))
        assert (len(go(switch, "host", down)), len(go(switch, "a", up))) == expected


def test_absent_slot(switch):
    switch.present.discard(0)
    assert go(switch, "host", memory(0xc000_0000, requester=0)) == []
    assert go(switch, "host", config(1, 0x0300, 0)) == []
    assert go(switch, "b", memory(0xc000_0000, requester=0x0400)) == []


def test_messages(switch):
    for routing, source, expected in (
            (0, "a", ["host"]), (0, "host", []), (3, "host", ["a", "b", "c"]), (4, "host", []),
            (4, "a", []), (5, "a", []), (3, "a", [])):
        raw = message(routing, 0x18, requester=0x0300 if source == "a" else 0)
        assert go(switch, source, raw) == [(to, raw) for to in expected], (routing, source)
    for target, source, to in ((0x0400, "host", "b"), (0x0400, "a", "b"), (0x0000, "a", "host")):
        raw = message(2, 0x7f, requester=0x0300 if source == "a" else 0, target=target)
        assert go(switch, source, raw) == [(to, raw)]


def test_own_identifiers(switch):
    own = [n for n in range(1 << 16) if switch.is_own(n)]
    assert own == [0x0100, 0x0200, 0x0208, 0x0210]
    checker = TlpChecker(["host", "a", "b", "c"], switch, switch.originates)
    checker.entered("host", config(1, 0x0700, 0, tag=5))
    checker.left("host", completion(count=4, status=1, tag=5, requester=0, completer=0x0100))
    checker.finish()
    checker.left("host", completion(count=4, status=1, tag=5, requester=0, completer=0x0300))
    assert "never entered" in checker.violations[0]


def test_byte_enables_of_a_write(switch):
    go(switch, "host", config(1, 0x0200, 0x18, value=0xff08ff, enables=0b0010))
    assert switch.downstream[0].registers[0x18] == 0x030802


def test_the_switch_answers_for_placeholders(switch):
    """With the bus number of an empty slot, or none before the first write; only if it has any."""
    answers = {bus: Header.parse(completion(completer=bus << 8)) for bus in (0, 3, 4, 9)}
    switch.present = {1}

    def allowed():
        return {bus for bus, h in answers.items() if switch.originates("host", h)}

    assert not allowed() & {3, 4, 9}
    switch.placeholders = True
    assert allowed() == {0, 3}
