"""A PC uses the GPU of a box on a stand-alone board, through the RGMII pins of the board.

The host is `dxpu_host`, with simulated time and short timers. Nothing else is connected.
"""

import os
import random

import cocotb
from cocotb.task import bridge
from cocotb.triggers import Edge, First, Timer
from cocotb.utils import get_sim_time

from dxpu.fabric.wire.format import Role
from dxpu.factory import DEFAULT_MAC, FactoryRecord, FactoryState
from dxpu_boards.registry import BOARDS
from dxpu_host import Host, SessionLost, SlotLost, Timeout
from dxpu_model.wire import Frame, FrameError, Hello, build, parse
from dxpu_sim.endpoint.gpu import DEVICE_ID, VENDOR_ID
from dxpu_sim.pcie.ports import Mailbox, quiet
from dxpu_sim.software_host.audit import HostAudit
from dxpu_sim.software_host.bad_wire import BadWire
from dxpu_sim.software_host.bench import TIMERS, Driver
from dxpu_sim.software_host.box_system import BOX_NODE, HOST_NODE, SimulatedPort

from .spi_flash import SpiFlash

VRAM = 16384
#: Number of presses of the board's button, at random times.
PRESSES = 20
#: Bits of the lights.
SESSION, FAULT = 1, 2


class Port(SimulatedPort):
    """Port that records the HELLOs of the box. ``cut``: a reset may cut frames off."""

    def __init__(self, *args):
        super().__init__(*args)
        self.hellos = []
        self.cut = False

    def receive(self):
        frame = super().receive()
        if frame is not None:
            try:
                body = parse(frame).body
            except FrameError as error:
                if self.cut:
                    return frame
                raise AssertionError(f"the box sends a bad frame: {error}") from None
            if isinstance(body, Hello):
                self.hellos.append(body)
        return frame


class Run:
    """The box after power-on, and a host."""

    def __init__(self, dut, *, node=HOST_NODE, timers=TIMERS, key=None):
        quiet()
        self.dut, self.rng = dut, random.Random(int(os.environ["DXPU_SEED"]))
        dut.button.value = 0
        self.mailbox = Mailbox(dut, "ethernet")
        self.audit = HostAudit(key=key)
        self.port = Port(self.mailbox, *(BadWire(random.Random(n)) for n in range(2)), self.audit)
        self.host = Host(self.port, node=node, timers=timers, now=self.port.now,
                         rng=random.Random(self.rng.getrandbits(32)), key=key)

    def lit(self, light):
        return int(self.dut.lights.value) >> light & 1

    def pause(self, us):
        end = self.port.now() + us * 1e-6
        while self.port.now() < end:
            self.host.poll(end - self.port.now())

    def driver(self):
        """Bind and enumerate the GPU."""
        self.host.bind(BOX_NODE, 1)
        device, = self.host.enumerate()
        assert (device.vendor_id, device.device_id) == (VENDOR_ID, DEVICE_ID)
        assert {n: bar.size for n, bar in device.bar.items()} == {0: 0x10000, 2: VRAM}
        return Driver(self.host, device)

    def use(self, driver):
        """Registers, video memory, DMA in both directions, interrupts."""
        rng, device = self.rng, driver.device
        value = rng.getrandbits(32)
        driver.write("SCRATCH", value)
        assert driver.read("SCRATCH") == value
        data = rng.randbytes(1000)
        device.bar[2].write(101, data)
        assert device.bar[2].read(101, len(data)) == data
        data = rng.randbytes(2001)
        assert driver.there_and_back(data, 4096) == data


async def powered():
    """Wait for the PLL and the end of the resets."""
    await Timer(20, "us")


@cocotb.test()
async def a_pc_uses_a_box_that_nobody_has_set_up(dut):
    """Frames that must not set the box up come first: HELLO of a box, other types, broadcasts."""
    run = Run(dut)
    await powered()
    other = Hello(nonce=1, tag_offered=2, tag_echoed=0, role=Role.HOST, slots=0, arq_mode=0,
                  security_mode=0, largest_frame=1514, window=64, smallest_timer=250,
                  give_up_timer=7500, capabilities=0, boot_counter=7, table_generation=0)
    for changes, nodes in (({"role": Role.BOX}, (0x105, 0x202)), ({"answer": True}, (0x105, 0x202)),
                           ({}, (0x105, 0xFFF)), ({}, (0xFFF, 0x202)), ({}, (0x202, 0x202))):
        body = Hello(**{**vars(other), **changes})
        await run.mailbox.send(build(Frame(body, src_node=nodes[0], dst_node=nodes[1])))
    await run.mailbox.send(build(Frame(other, src_node=0x105, dst_node=0x202))[:60])
    await Timer(30, "us")
    assert not run.lit(SESSION)

    @bridge
    def job():
        with run.host:
            driver = run.driver()
            assert run.lit(SESSION)
            for _ in range(3):
                run.use(driver)
            run.host.unbind(driver.device)
            run.use(run.driver())

    await job()
    boot, = {hello.boot_counter for hello in run.port.hellos}
    assert boot != 0
    assert all(hello.role == Role.BOX and hello.slots == 1 for hello in run.port.hellos)
    link = run.host.link_counters(BOX_NODE)
    assert not link["lost"] and not link["dropped"]
    print(f"stand_alone: {get_sim_time('us'):.0f} us, {run.audit.tlps} TLPs of the host, "
          f"link {dict(link)}")


@cocotb.test()
async def the_button_makes_it_anew(dut):
    """A press of the button ends waiting accesses in SessionLost. Then another session opens by
    itself, with another boot value, and everything works again.
    """
    run = Run(dut)
    await powered()

    async def press():
        dut.button.value = 1
        await Timer(1, "us")
        dut.button.value = 0

    @bridge
    def job():
        with run.host:
            driver = run.driver()
            run.use(driver)
            first = run.port.hellos[-1].boot_counter
            run.port.run(press())
            run.pause(30)
            assert not run.lit(SESSION)
            try:
                while True:
                    run.use(driver)
            except (SessionLost, SlotLost):
                pass
            for _ in range(20):
                try:
                    driver = run.driver()
                    break
                except (SessionLost, Timeout):
                    run.pause(200)
            assert run.lit(SESSION)
            run.use(driver)
            assert run.port.hellos[-1].boot_counter == first % 0xFFFF + 1

    await job()


@cocotb.test()
async def the_button_at_any_time(dut):
    """Short and long presses in the middle of HELLOs, binding, enumeration and copies. After each
    press everything works again, with other boot values each time.
    """
    run, pressed = Run(dut), []
    run.port.cut = True
    await powered()

    async def press():
        while len(pressed) < PRESSES:
            await Timer(run.rng.randrange(20_000, 4_000_000), "ns")
            dut.button.value = 1
            await Timer(run.rng.randrange(10, 3000), "ns")
            dut.button.value = 0
            pressed.append(get_sim_time("us"))

    @bridge
    def job():
        driver, used, last, tries = None, [], 0, 0
        with run.host:
            # The last use begins after the last press.
            while len(pressed) < PRESSES or last < PRESSES:
                before = len(pressed)
                try:
                    driver = driver or run.driver()
                    run.use(driver)
                except (SessionLost, SlotLost, Timeout):
                    driver, tries = None, tries + 1
                    assert tries < 100 * PRESSES, "it does not come back"
                    run.pause(100)
                else:
                    last = before
                    used.append(before)
        return used

    cocotb.start_soon(press())
    used = await job()
    boots = [hello.boot_counter for hello in run.port.hellos]
    # Boot values are distinct and in order, one for each restart seen.
    assert len(set(boots)) > PRESSES // 2 and 0 not in boots
    assert all((b - a) % 0xFFFF <= PRESSES for a, b in zip(boots, boots[1:], strict=False))
    print(f"stand_alone: {get_sim_time('us'):.0f} us, {PRESSES} presses, used {len(used)} times "
          f"between {len(set(used))} of them, {len(set(boots))} boot values")


async def serve(dut, flash):
    """Serve a flash at the board's pins."""
    pins = dut.flash_cs, dut.flash_sck, dut.flash_copi
    while True:
        now = get_sim_time("ns")
        flash.step(now, *(int(pin.value) for pin in pins))
        # The output is valid before the next edge.
        dut.flash_cipo.value = flash.output(now + 30)
        await First(*map(Edge, pins))


@cocotb.test()
async def the_address_comes_out_of_the_flash(dut):
    """The board reads its MAC address over the pins; after a reset from the new content."""
    quiet()
    dut.button.value, dut.flash_cipo.value = 0, 1
    mac, place = bytes.fromhex("001122334455"), BOARDS["versa-ecp5-5g"].record
    record = FactoryRecord(mac, 7, bytes(range(32))).to_bytes()
    flash = SpiFlash({place + n: byte for n, byte in enumerate(record)})
    await Timer(1, "us")
    cocotb.start_soon(serve(dut, flash))

    async def read():
        await powered()
        assert int(dut.state.value) == FactoryState.READING.value
        await Timer(150, "us")
        return FactoryState(int(dut.state.value)), int(dut.mac.value).to_bytes(6, "big")

    assert await read() == (FactoryState.VALID, mac)
    assert flash.reads == [place]
    flash.data[place + 8] ^= 1
    dut.button.value = 1
    await Timer(1, "us")
    dut.button.value = 0
    assert await read() == (FactoryState.DAMAGED, DEFAULT_MAC)
    assert flash.reads == [place] * 2 and not flash.aborted
