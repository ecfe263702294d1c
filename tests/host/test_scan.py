"""`dxpu_host` finds what is in a slot, behind a switch too, and gives it bus numbers and addresses.

The switch is the golden one; what is behind it, or in the slot, is a model of a few registers.
"""

import random

import pytest

from dxpu.tlp.types import CompletionStatus, TlpClass
from dxpu_host import HostError, Unsupported
from dxpu_host.memory import Memory
from dxpu_host.requests import Requests
from dxpu_host.scan import Windows, scan
from dxpu_host.slots import HostSlot
from dxpu_host.tlp import memory_reads
from dxpu_model.switch import UP
from dxpu_model.tlp import Tlp, classify, complete
from dxpu_sim.pcie import lspci
from dxpu_sim.switch.golden import golden_switch

VENDOR = 0x1234


class Endpoint:
    """Functions with BARs: by function number a list of (size, 64 bits, prefetchable), or ``None``
    where there is no BAR; (0, ...) is one of I/O."""

    def __init__(self, functions):
        self.functions = functions
        self.space, self.masks = {}, {}
        for number, bars in functions.items():
            space, mask = bytearray(256), bytearray(256)
            space[0:4] = (0xD0A0 << 16 | VENDOR).to_bytes(4, "little")
            space[6], space[0x34] = 0x10, 0x40
            space[8:12] = (0x030200 << 8).to_bytes(4, "little")
            space[0x0E] = 0x80 if len(functions) > 1 else 0
            # PCI Express: an endpoint that supports 256 bytes; then MSI.
            space[0x40:0x44] = bytes([0x10, 0x70, 0x02, 0x00])
            space[0x44], space[0x70], space[0x72] = 1, 5, 0x80 | 3 << 1
            mask[4] = 6
            mask[0x48:0x4A] = b"\xff\x7f"
            mask[0x72:0x80] = b"\x71" + b"\0" + b"\xff" * 12
            index = 0
            for bar in bars:
                offset = 0x10 + 4 * index
                if bar is not None:
                    size, wide, prefetchable = bar
                    space[offset] = 1 if not size else wide << 2 | prefetchable << 3
                    bits = -(size or 16) & ~15
                    mask[offset:offset + 4] = (bits & 0xFFFF_FFFF).to_bytes(4, "little")
                    if wide:
                        mask[offset + 4:offset + 8] = (bits >> 32 & 0xFFFF_FFFF).to_bytes(
                            4, "little")
                        index += 1
                index += 1
            self.space[number], self.masks[number] = space, mask

    def answer(self, raw):
        """The completion of a configuration request."""
        request = Tlp.unpack(raw)
        place = 4 * request.register
        number = request.target_id & 7
        if number not in self.space or place >= 256 or request.target_id >> 3 & 31:
            return complete(request, CompletionStatus.UR, request.target_id).pack()
        space, mask = self.space[number], self.masks[number]
        if not request.payload:
            return complete(request, CompletionStatus.SC, request.target_id,
                            bytes(space[place:place + 4])).pack()
        for n in range(4):
            if request.first_be >> n & 1:
                m = mask[place + n]
                space[place + n] = space[place + n] & ~m | request.payload[n] & m
        return complete(request, CompletionStatus.SC, request.target_id).pack()

    def register(self, number, offset, size=4):
        return int.from_bytes(self.space[number][offset:offset + size], "little")

    def takes(self, address):
        """Function and BAR that have an address, while memory is on."""
        for number, bars in self.functions.items():
            index = 0
            for bar in bars:
                if bar is not None and bar[0]:
                    base = self.register(number, 0x10 + 4 * index, 8 if bar[1] else 4) & ~15
                    if base <= address < base + bar[0] and self.register(number, 4) & 2:
                        return number, index
                    index += bar[1]
                index += 1
        return None


class Slot:
    """A slot with an endpoint, or a switch with endpoints; plays the host for the scan."""

    max_payload, max_read = 512, 1024

    def __init__(self, endpoint=None, behind=None, windows=None, buses=range(1, 9)):
        self.endpoint, self.behind = endpoint, behind or {}
        if behind is not None:
            self.switch = golden_switch(3)
            for port in behind:
                self.switch.present[port] = True
            self.switch.set_live()
        self.slot = HostSlot(None, 1, buses, Memory([]), [], {})
        self.slot.ready()
        self.windows = windows or Windows()

    def found(self, device):
        self.slot.devices[device.identifier] = device

    def configure(self, slot, tlp, life):
        requests = Requests()
        request = requests.add(tlp, 1.0)
        requests.complete(Tlp.unpack(self.down(tlp.pack())))
        return request.result()

    def down(self, raw):
        """What comes back."""
        if self.endpoint is not None:
            return self.endpoint.answer(raw)
        (port, out), = self.switch.from_upstream(raw)
        if port == UP:
            return out
        (port, out), = self.switch.from_slot(port, self.behind[port].answer(out))
        assert port == UP
        return out

    def scan(self):
        return scan(self, self.slot, self.windows)


CARD = {0: [(0x10000, 0, 0), None, (1 << 28, 1, 1)]}


def check_bars(devices):
    """BARs are aligned, do not overlap, and are where they may be."""
    spans = []
    for device in devices:
        for bar in device.bar.values():
            assert bar.address % bar.size == 0
            low, high = Windows.WIDE if bar.wide and bar.prefetchable else Windows.NARROW
            assert low <= bar.address and bar.address + bar.size <= high
            spans.append((bar.address, bar.address + bar.size))
    spans.sort()
    assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:], strict=False))
    return spans


def test_an_endpoint():
    card = Endpoint(CARD)
    slot = Slot(card)
    device, = slot.scan().walk()
    assert (device.vendor_id, device.device_id, device.class_code) == (VENDOR, 0xD0A0, 0x030200)
    assert {n: (bar.size, bar.wide, bar.prefetchable) for n, bar in device.bar.items()} == {
        0: (0x10000, False, False), 2: (1 << 28, True, True)}
    assert check_bars([device])
    assert card.register(0, 4, 2) == 2  # memory on, DMA off
    assert card.register(0, 0x48, 2) == 1 << 5 | 3 << 12 and slot.slot.max_payload == 256
    for n, bar in device.bar.items():
        assert card.takes(bar.address + bar.size - 1) == (0, n)
    assert dict(device.capabilities()) == {0x10: 0x40, 5: 0x70}
    device.enable()
    assert card.register(0, 4, 2) == 6
    assert device.enable_msi(32) == 8 and card.register(0, 0x72, 2) == 0x80 | 3 << 1 | 3 << 4 | 1
    assert card.register(0, 0x74) == 0xFEE0_1000 and card.register(0, 0x78) == 0
    with pytest.raises(Unsupported):
        device.config_read(0x100)


def test_all_functions_and_kinds_of_bars():
    card = Endpoint({0: [(16, 0, 0), (0, 0, 0), (1 << 20, 0, 1), (4096, 1, 0)],
                     2: [None, (1 << 33, 1, 1), (32, 1, 1)], 7: []})
    devices = list(Slot(card).scan().walk())
    assert [device.function_num for device in devices] == [0, 2, 7]
    assert {n: bar.size for n, bar in devices[0].bar.items()} == {0: 16, 2: 1 << 20, 3: 4096}
    assert {n: bar.size for n, bar in devices[1].bar.items()} == {1: 1 << 33, 3: 32}
    check_bars(devices)
    for device in devices:
        for n, bar in device.bar.items():
            assert card.takes(bar.address) == (device.function_num, n)


def test_a_switch_with_cards_and_an_empty_port():
    cards = {0: Endpoint(CARD), 2: Endpoint({0: [(1 << 21, 0, 0)], 1: [(1 << 24, 1, 1)]})}
    slot = Slot(behind=cards, buses=range(9, 17))
    bus = slot.scan()
    devices = list(bus.walk())
    assert [device.address for device in devices] == [
        "09:00.0", "0a:00.0", "0b:00.0", "0a:01.0", "0a:02.0", "0d:00.0", "0d:00.1"]
    assert bus.last_bus_num == 13 and slot.switch.up.buses() == (10, 13)
    assert [bridge.buses() for bridge in slot.switch.down] == [(11, 11), (12, 12), (13, 13)]
    ends = [device for device in devices if device.subordinate is None]
    check_bars(ends)
    assert lspci.tree(bus).splitlines() == [
        "-[0000:09]---00.0-[0a-0d]--+-00.0-[0b]----00.0  DXPU model GPU [1234:d0a0]",
        "                           +-01.0-[0c]--",
        "                           \\-02.0-[0d]--+-00.0  DXPU model GPU [1234:d0a0]",
        "                                        \\-00.1  DXPU model GPU [1234:d0a0]"]
    # The switch lets each BAR's addresses through to its card, and no others.
    rng, count = random.Random(1), 0
    for device in ends:
        for n, bar in device.bar.items():
            for offset in (0, bar.size - 4, rng.randrange(bar.size) & ~3):
                tlp, = memory_reads(bar.address + offset, 4, 128)
                (port, raw), = slot.switch.from_upstream(tlp.pack())
                assert port == slot_of(device)
                assert cards[port].takes(Tlp.unpack(raw).address) == (device.function_num, n)
                count += 1
    assert count == 12
    for address in (Windows.NARROW[1] - 4, Windows.WIDE[1] - 4, 0x1000):
        tlp, = memory_reads(address, 4, 128)
        (port, raw), = slot.switch.from_upstream(tlp.pack())
        assert port == UP and classify(raw).cls is TlpClass.CPL


def slot_of(device):
    """Port that leads to a device's bus."""
    return {11: 0, 12: 1, 13: 2}[device.identifier >> 8]


def test_slots_share_the_addresses_and_give_them_back():
    windows, spans = Windows(), []
    slots = [Slot(Endpoint(CARD), windows=windows, buses=range(8 * n + 1, 8 * n + 9))
             for n in range(4)]
    for slot in slots:
        spans += check_bars(list(slot.scan().walk()))
    assert len(set(spans)) == 8
    windows.give_back(slots[1].slot)
    again = check_bars(list(Slot(Endpoint(CARD), windows=windows).scan().walk()))
    assert set(again) < set(spans)


def test_without_room():
    with pytest.raises(HostError, match="no 0x80000000 bytes of address space are free for slot 1"):
        Slot(Endpoint({0: [(1 << 31, 0, 0)]})).scan()
    cards = {0: Endpoint(CARD), 1: Endpoint(CARD)}
    with pytest.raises(HostError, match="slot 1 has more than 4 buses"):
        Slot(behind=cards, buses=range(1, 5)).scan()


def test_no_msi():
    card = Endpoint(CARD)
    card.space[0][0x41] = 0
    device, = Slot(card).scan().walk()
    with pytest.raises(HostError, match="01:00.0 has no MSI"):
        device.enable_msi()
