"""The PCI tree looks as pciutils prints it."""

from types import SimpleNamespace

from dxpu_sim.pcie import lspci


def bus(number, *devices, last=None):
    return SimpleNamespace(bus_num=number, last_bus_num=number if last is None else last,
                           devices=list(devices))


def endpoint(device=0, function=0, vendor=0x1234, device_id=0xd0a0):
    return SimpleNamespace(device_num=device, function_num=function, subordinate=None,
                           vendor_id=vendor, device_id=device_id)


def bridge(device, first, last, *devices):
    return SimpleNamespace(device_num=device, function_num=0,
                           subordinate=bus(first, *devices, last=last))


def test_empty_root():
    assert lspci.tree(bus(0)) == "-[0000:00]-"


def test_one_endpoint():
    assert lspci.tree(bus(0, endpoint())) == "-[0000:00]---00.0  DXPU model GPU [1234:d0a0]"


def test_switch_with_empty_slots():
    """Root port, upstream port, downstream ports: the picture of a host proxy."""
    tree = lspci.tree(bus(0, bridge(0, 1, 6, bridge(
        0, 2, 6, bridge(0, 3, 3, endpoint()), bridge(1, 4, 4, endpoint()), bridge(2, 5, 5),
        bridge(3, 6, 6)))), name=lambda d: "GPU")
    assert tree.splitlines() == [
        r"-[0000:00]---00.0-[01-06]----00.0-[02-06]--+-00.0-[03]----00.0  GPU",
        r"                                           +-01.0-[04]----00.0  GPU",
        r"                                           +-02.0-[05]--",
        r"                                           \-03.0-[06]--",
    ]


def test_strokes_go_on_beside_a_bridge_with_several_devices():
    tree = lspci.tree(bus(0, endpoint(0), bridge(1, 1, 1, endpoint(0, 0), endpoint(0, 1)),
                          endpoint(31, 3, 0x8086, 0x1)), name=lambda d: f"{d.device_id:x}")
    assert tree.splitlines() == [
        r"-[0000:00]-+-00.0  d0a0",
        r"           +-01.0-[01]--+-00.0  d0a0",
        r"           |            \-00.1  d0a0",
        r"           \-1f.3  1",
    ]


def test_devices_are_sorted():
    lines = lspci.tree(bus(0, endpoint(5), endpoint(1, 1), endpoint(1, 0))).splitlines()
    assert [line.split("-")[-1][:4] for line in lines] == ["01.0", "01.1", "05.0"]


def test_unknown_device_by_its_numbers():
    assert lspci.describe(endpoint(vendor=0xabcd, device_id=0x42)) == "Device [abcd:0042]"
