"""`dxpu_host` uses GPUs behind a box proxy, over wires that lose, double and reorder frames.

The host runs in a thread of its own, for which the simulation waits, with simulated time and short
timers (first waits of 40 us, 31 us in the box). ``$DXPU_BOX``: options of the design, as JSON.
"""

import json
import os
import random
import struct

import cocotb
from cocotb.task import bridge
from cocotb.triggers import Timer

from dxpu_host import Host, SessionLost, SlotLost, Timeout, Timers, Unsupported
from dxpu_sim.endpoint.gpu import (
    COPY_TO_GPU, COPY_TO_HOST, DEVICE_ID, REGISTERS, VENDOR_ID, Command,
)

from .audit import HostAudit
from .bad_wire import BadWire
from .box_system import BOX_NODE, HOST_NODE, BoxSystem, SimulatedPort

OPTIONS = json.loads(os.environ.get("DXPU_BOX", "{}"))
TIMERS = Timers(retry=40e-6, hello=40e-6, quiet=60e-6, refresh=100e-6, completion=5e-3,
                attach=2e-3)
VRAM = 1 << 20
BAD = {"loss": 0.03, "double": 0.03, "swap": 0.03}


class Driver:
    """Driver of a model GPU, on the API of `dxpu_host` only."""

    RING = 16

    def __init__(self, host, device):
        self.host, self.device = host, device
        device.enable()
        assert device.enable_msi(8) == 8
        self.ring = host.memory.allocate(4096)
        self.fence = self.ring.start + self.RING * Command.SIZE
        for name, value in (("RING_LOW", self.ring.start), ("RING_SIZE", self.RING),
                            ("FENCE_LOW", self.fence)):
            self.write(name, value)
        self.queued = 0

    def read(self, name):
        return int.from_bytes(self.device.bar[0].read(REGISTERS[name], 4), "little")

    def write(self, name, value):
        self.device.bar[0].write(REGISTERS[name], struct.pack("<I", value))

    def copy(self, opcode, address, vram, length, vector=0):
        """Run a copy; returns after the interrupt of the engine, before which the fence must have
        come."""
        before = self.device.interrupts[vector]
        slot = self.queued % self.RING * Command.SIZE
        self.queued += 1
        self.ring.data[slot:slot + Command.SIZE] = Command(
            opcode, 1 | vector << 8, address, vram, length, self.queued).pack()
        self.write("DOORBELL", self.queued)
        self.device.wait_interrupt(vector, after=before, timeout=20e-3)
        offset = self.fence - self.ring.start
        fence, = struct.unpack_from("<I", self.ring.data, offset)
        assert fence == self.queued, "the interrupt has overtaken the fence"
        assert not self.read("STATUS") & 2

    def there_and_back(self, data, vram):
        """Copy ``data`` to video memory and back by DMA; returns the result."""
        source, target = (self.host.memory.allocate(len(data)) for _ in range(2))
        source.data[:] = data
        self.copy(COPY_TO_GPU, source.start, vram, len(data), vector=1)
        self.copy(COPY_TO_HOST, target.start, vram, len(data), vector=2)
        result = bytes(target.data)
        for region in (source, target):
            self.host.memory.remove(region)
        return result


class Run:
    """A box, and a host at the other end of two bad wires."""

    def __init__(self, dut, host=Host, bad=BAD, **options):
        self.system = BoxSystem(dut, OPTIONS, gpu={"vram_bytes": VRAM, **options})
        self.rng = self.system.rng
        self.audit = HostAudit(self.system.key)
        self.port = SimulatedPort(self.system.ethernet, *(
            BadWire(random.Random(self.rng.getrandbits(32)), **bad) for _ in range(2)),
            audit=self.audit)
        self.host = host(self.port, node=HOST_NODE, timers=TIMERS, now=self.port.now,
                         rng=random.Random(self.rng.getrandbits(32)), key=self.system.key)

    def wire(self):
        """Sum of the counts of both wires."""
        return self.port.wires[0].counts + self.port.wires[1].counts

    def pause(self, us):
        """Let the host be idle for a while."""
        end = self.port.now() + us * 1e-6
        while self.port.now() < end:
            self.host.poll(end - self.port.now())

    def use(self, driver, size=3000):
        """Use registers, video memory, DMA and interrupts, with random data."""
        rng, device = self.rng, driver.device
        value = rng.getrandbits(32)
        driver.write("SCRATCH", value)
        assert driver.read("SCRATCH") == value
        offset, data = rng.randrange(5000), rng.randbytes(rng.randint(1, size))
        device.bar[2].write(offset, data)
        assert device.bar[2].read(offset, len(data)) == data
        data = rng.randbytes(rng.randint(1, size))
        assert driver.there_and_back(data, rng.randrange(VRAM // 2) & ~3) == data


def begin(run, slots=(1, 2)):
    """Bind slots, enumerate; return a driver for each."""
    for slot in slots:
        run.host.bind(BOX_NODE, slot)
    devices = [d for d in run.host.enumerate() if d.device_id == DEVICE_ID]
    assert len(devices) == len(slots)
    for device in devices:
        assert device.vendor_id == VENDOR_ID and device.class_code >> 8 == 0x0302
        assert {n: bar.size for n, bar in device.bar.items()} == {0: 0x10000, 2: VRAM}
        assert device.bar[2].wide and device.bar[2].prefetchable and not device.bar[0].wide
    return [Driver(run.host, device) for device in devices]


@cocotb.test()
async def gpus_are_used_over_a_bad_wire(dut):
    """All functions of a driver with two GPUs; then the GPUs are released, and bound once more."""
    run = Run(dut)
    await run.system.prepare()

    @bridge
    def job():
        with run.host:
            drivers = begin(run)
            for n, driver in enumerate(drivers):
                name = driver.device.bar[0]
                text = b"".join(name.read(0x100 + k, 4) for k in range(0, 64, 4))
                assert text.rstrip(b"\0").decode() == f"GPU of slot {n + 1}"
                run.use(driver)
                run.use(driver)
                unsupported(run, driver)
            interrupts(run, drivers[0])
            handlers(run, drivers[1])
            for driver in drivers:
                run.host.unbind(driver.device)
                try:
                    driver.read("SCRATCH")
                except SlotLost:
                    continue
                raise AssertionError("a slot that is not bound answers")
            for driver in begin(run):
                run.use(driver)
        return run.wire()

    wire = await job()
    assert run.audit.tlps > 300 and run.audit.frames["SACK"]
    assert wire["lost"] > 5 and wire["doubled"] > 5 and wire["swapped"] > 5
    counters = run.host.counters
    assert not any(counters[name] for name in ("malformed", "blocked", "poisoned", "failed"))
    assert all(gpu.resets >= 2 for gpu in run.system.gpus)
    totals = await run.system.box.counters()
    assert totals["fabric_tx_repeated"] and totals["fabric_link_gap"]
    bad = [name for name, total in totals.items() if total and name.endswith(
        ("malformed", "overflow", "large", "unexpected"))]
    assert not bad, bad
    link = run.host.link_counters(BOX_NODE)
    assert link["repeated"] and link["gap"] and not link["dropped"]
    print(f"software_host: {dict(wire)}, link {dict(link)}, {dict(counters)}")


def unsupported(run, driver):
    """Access registers and memory that do not exist."""
    for access in (lambda: driver.device.bar[0].read(0x700, 4),
                   lambda: driver.device.bar[0].read(REGISTERS["SCRATCH"], 1)):
        try:
            access()
        except Unsupported:
            continue
        raise AssertionError("what is not there was read")
    before = run.host.counters["unclaimed"]
    failed = driver.read("ERROR")
    try:
        driver.copy(COPY_TO_GPU, 0x7000_0000, 0, 64)
    except AssertionError:
        assert driver.read("ERROR") == failed + 1
        assert run.host.counters["unclaimed"] > before
        driver.write("ERROR", 0)
    else:
        raise AssertionError("a copy from nowhere succeeds")


def interrupts(run, driver):
    """Raise each vector, with a handler that uses the device."""
    seen = []

    def handler(vector):
        seen.append((vector, driver.read("SCRATCH")))

    driver.device.on_interrupt(handler)
    driver.write("SCRATCH", 0x1234)
    for vector in range(8):
        before = driver.device.interrupts[vector]
        driver.write("INTERRUPT", vector)
        driver.device.wait_interrupt(vector, after=before)
    run.pause(20)
    assert seen == [(vector, 0x1234) for vector in range(8)], seen
    driver.device.on_interrupt(None)


def handlers(run, driver):
    """DMA to memory backed by functions; a failing function causes Completer Abort at the
    device."""
    written, bad = {}, []

    def read(address, length):
        if bad:
            raise RuntimeError("as the test wants")
        return bytes((address + n) * 7 & 0xFF for n in range(length))

    def write(address, data):
        written.update((address + n, byte) for n, byte in enumerate(data))

    base, size = 0x9_0000_0000, 0x1000
    region = run.host.on_dma(base, size, read=read, write=write)
    driver.copy(COPY_TO_GPU, base + 5, 0x40, 1000)
    driver.copy(COPY_TO_HOST, base + 1501, 0x40, 1000)
    assert written == {base + 1501 + n: (base + 5 + n) * 7 & 0xFF for n in range(1000)}
    bad.append(True)
    try:
        driver.copy(COPY_TO_GPU, base, 0, 64)
    except AssertionError:
        assert run.host.counters["failed"] == 1
        run.host.counters["failed"] = 0
        driver.write("ERROR", 0)
    else:
        raise AssertionError("a copy of what cannot be read succeeds")
    run.host.memory.remove(region)


@cocotb.test()
async def a_box_that_is_reset(dut):
    """A box is reset in the middle of its work: waiting accesses end in SessionLost, then all is
    bound again.

    The same for a box that only forgets its session, and for an Ethernet that dies.
    """
    run = Run(dut, bad={"loss": 0.01})
    system = run.system
    await system.prepare()

    def lost(driver):
        """Use the device until an access reports its loss."""
        end = run.port.now() + 20e-3
        while run.port.now() < end:
            try:
                run.use(driver, 500)
            except SessionLost as error:
                assert not driver.device.present
                return str(error)
        raise AssertionError("the device is still there")

    def back():
        """Wait for the new session, and bind the slots again."""
        for slot in (1, 2):
            for _ in range(20):
                try:
                    run.host.bind(BOX_NODE, slot)
                    break
                except (SessionLost, Timeout):
                    run.pause(200)
        drivers = [Driver(run.host, d) for d in run.host.enumerate()]
        for driver in drivers:
            run.use(driver)
        return drivers

    @bridge
    def job():
        with run.host:
            drivers = begin(run)
            run.port.run(system.restart(boot=2))
            print("software_host: after a reset:", lost(drivers[0]))
            drivers = back()
            run.port.run(system.box.write("control.session[0].open", strobe=1))
            print("software_host: after it forgot:", lost(drivers[1]))
            drivers = back()
            for wire in run.port.wires:
                wire.dead = True
            print("software_host: after silence:", lost(drivers[0]))
            for wire in run.port.wires:
                wire.dead = False
            drivers = back()
            run.host.unbind(drivers[0].device)

    await job()


@cocotb.test()
async def a_gpu_that_is_pulled_and_put_back(dut):
    """A GPU is pulled: its requests end, its DMA stops, the other GPU works on. Put back, it is a
    new device.
    """
    run = Run(dut, bad={"loss": 0.01})
    await run.system.prepare()

    @bridge
    def job():
        with run.host:
            drivers = begin(run)
            run.system.links[0].pull()
            try:
                while True:
                    drivers[0].read("SCRATCH")
            except SlotLost as error:
                print("software_host: pulled:", error)
            run.use(drivers[1])
            run.port.run(run.system.links[0].put_back())
            device = run.host.wait_ready(drivers[0].device)
            assert not drivers[0].device.present and device.present
            again = next(d for d in run.host.enumerate() if d.slot is device.slot)
            run.use(Driver(run.host, again))
            device = run.host.reset(again)
            assert device.config_read(4, 2) & 6 == 0
            run.host.enumerate()
            run.use(Driver(run.host, device))
            run.use(drivers[1])

    await job()


@cocotb.test()
async def nobody_answers(dut):
    """Binding to a box without a row for this host, and to a missing box."""
    run = Run(dut, bad={})
    await run.system.prepare(generation=5)

    @bridge
    def job():
        with run.host:
            for box, slot, words in ((BOX_NODE, 1, "does not answer BIND of generation 1"),
                                     (0x222, 1, "does not answer HELLO")):
                try:
                    run.host.bind(box, slot)
                except Timeout as error:
                    assert words in str(error), error
                else:
                    raise AssertionError("who is not there answers")
            device = run.host.bind(BOX_NODE, 1, generation=5)
            assert device.device_id == DEVICE_ID

    await job()
    assert (await run.system.rises("binding_refused")) == 2  # BIND and UNBIND
    await Timer(1, "us")
