"""Placeholders in the slots of the virtual switch, below a root complex without support for them.

The library's enumeration plays the firmware, once, at boot: it must leave bus numbers and windows
for GPUs on every port. A hot-plug driver does the rest, and nothing above a slot changes again.
Sizes of the placeholders come as JSON in ``$DXPU_PLACEHOLDER``.
"""

import json
import os

import cocotb
from cocotb.triggers import Timer
from cocotbext.pcie.core.tlp import CplStatus, TlpType

from dxpu_sim.endpoint.driver import GpuDriver, find_devices
from dxpu_sim.pcie.pciehp import find_slots
from dxpu_sim.pcie.ports import until

from .bench import System

MEMORY, PREFETCHABLE = json.loads(os.environ["DXPU_PLACEHOLDER"])
PORTS = 2
CLASS_CODE = 0xFF0000


class Bridge:
    """Windows and buses that a type 1 header, as read from hardware, opens to the bus below."""

    def __init__(self, words):
        buses, memory, prefetchable, base, limit = words
        self.words = words
        self.secondary, self.subordinate = buses >> 8 & 0xFF, buses >> 16 & 0xFF
        self.memory = range((memory & 0xFFF0) << 16, (memory | 0xFFFFF) + 1)
        self.prefetchable = range(base << 32 | (prefetchable & 0xFFF0) << 16,
                                  (limit << 32 | prefetchable | 0xFFFFF) + 1)

    @classmethod
    async def read(cls, device):
        """Read the header of an enumerated bridge."""
        return cls([await device.config_read_dword(4 * n) for n in (6, 8, 9, 10, 11)])


def holds(window, address, size):
    """Whether a window contains the whole BAR."""
    return address in window and address + size - 1 in window


async def boot(dut, slots=()):
    """Boot with empty slots, and enumerate; GPUs of ``slots`` wait outside."""
    dut.present.value = 0
    await Timer(1, "us")
    system = System(dut, slots, PORTS)
    dut.present.value = 0
    system.route = system.checker.route
    system.route.present.clear()
    system.route.placeholders = True
    await Timer(20, "us")
    await system.rc.enumerate()
    return system


@cocotb.test()
async def every_empty_slot_has_room(dut):
    """Bus numbers and windows on all ports; sizes are right; no access to the BARs succeeds."""
    system = await boot(dut)
    assert len(find_devices(system.rc)) == 1 + 1 + PORTS + PORTS
    places = find_devices(system.rc, 0x1234, 0xD0F2)
    assert len(places) == PORTS
    buses, windows = set(), []
    for place in places:
        assert place.class_code == CLASS_CODE
        bridge = await Bridge.read(place.bus.bridge)
        assert 0 < bridge.secondary == place.pcie_id.bus <= bridge.subordinate
        buses.add(bridge.secondary)
        assert place.bar_size[0] == MEMORY and place.bar_size[2] == PREFETCHABLE
        assert holds(bridge.memory, place.bar_addr[0], MEMORY)
        assert holds(bridge.prefetchable, place.bar_addr[2], PREFETCHABLE)
        windows += [bridge.memory, bridge.prefetchable]
        await place.bus.bridge.enable_bridge()
        for bar in (0, 2):
            address, size = place.bar_addr[bar], place.bar_size[bar]
            for offset in (0, 0x7FC, size - 4):
                completion, = await system.rc.request(TlpType.MEM_READ_64 if bar else
                                                      TlpType.MEM_READ, address + offset)
                assert completion.status == CplStatus.UR
                assert completion.completer_id == place.pcie_id
            await place.bar_window[bar].write_dword(0x100, 0xDEAD_BEEF)
    await system.idle()
    await Timer(1, "us")  # the last write is still on its way
    assert int(dut.count_unclaimed0.value) == 2 * PORTS
    assert len(buses) == PORTS
    assert all(a.stop <= b.start or b.stop <= a.start
               for n, a in enumerate(windows) for b in windows[:n])
    await system.finish()


@cocotb.test()
async def gpus_take_the_places(dut):
    """GPUs bound in turn work in the windows of the boot; nothing above the slots changes."""
    system = await boot(dut, range(PORTS))
    bridges = [d for d in find_devices(system.rc) if d.subordinate]
    before = [(await Bridge.read(d)).words for d in bridges]
    slots = find_slots(system.rc)
    places = [slot.port.subordinate.devices[0] for slot in slots]
    for slot in slots:
        await slot.start()
        await slot.until(lambda slot=slot: slot.on)
        assert not slot.has_gpu
    for n, slot in ((1, slots[1]), (0, slots[0])):
        interrupts = slot.interrupts
        system.route.present.add(n)
        dut.present.value = int(dut.present.value) | 1 << n
        await slot.until(lambda slot=slot: slot.has_gpu)
        assert slot.log == ["found", "gone", "added"] and slot.interrupts >= interrupts + 2
        driver = GpuDriver(system.rc, slot.device)
        await driver.open()
        assert await driver.serial() == 100 + n
        bridge = await Bridge.read(slot.port)
        assert slot.device.pcie_id == places[n].pcie_id
        for bar, window in ((0, bridge.memory), (2, bridge.prefetchable)):
            assert holds(window, slot.device.bar_addr[bar], slot.device.bar_size[bar])
        data = system.rng.randbytes(3000)
        assert await driver.copy_there_and_back(data, 0x2000) == data
        assert await driver.read_vram(0x2000, 100) == data[:100]
    assert [(await Bridge.read(d)).words for d in bridges] == before
    # A pulled GPU leaves an empty slot: the placeholder does not come back.
    await system.idle()
    system.route.present.discard(1)
    dut.present.value = 0b01
    await slots[1].until(lambda: slots[1].log[-1] == "gone")
    await until(lambda: not slots[1].on, "the slot is off", timeout_ns=10_000)
    completion, = await system.rc.request(TlpType.CFG_READ_1, target=places[1].pcie_id)
    assert completion.status == CplStatus.UR
    await system.finish()
