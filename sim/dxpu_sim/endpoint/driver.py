"""Driver software of a GPU; accesses the GPU through the root complex only."""

import struct

from cocotb.triggers import Event, First, Timer
from cocotbext.pcie.core.utils import PcieId

from dxpu_sim.pcie.ports import RootComplex

from .gpu import (
    COPY_TO_GPU, COPY_TO_HOST, DEVICE_ID, NAME_OFFSET, NAME_SIZE, REGISTERS, VENDOR_ID, Command,
)

__all__ = ["DriverError", "GpuDriver", "find_devices", "find_gpus"]


class DriverError(Exception):
    """The GPU did not carry out a request of its driver."""


def find_devices(rc: RootComplex, vendor: int | None = None, device: int | None = None) -> list:
    """Enumerated PCI functions, in bus order; optionally only of ``vendor`` and ``device``."""
    found = []

    def walk(bus):
        for dev in bus.devices:
            if vendor in (None, dev.vendor_id) and device in (None, dev.device_id):
                found.append(dev)
            if dev.subordinate:
                walk(dev.subordinate)

    walk(rc.host_bridge.bus)
    return found


def find_gpus(rc: RootComplex) -> "list[GpuDriver]":
    """A driver for each enumerated GPU, in bus order."""
    return [GpuDriver(rc, dev) for dev in find_devices(rc, VENDOR_ID, DEVICE_ID)]


class GpuDriver:
    """Driver of one GPU.

    Parameters
    ----------
    rc : :class:`~dxpu_sim.pcie.ports.RootComplex`
    dev
        The enumerated PCI function.
    timeout_ns : int
        Longest wait for an interrupt, in nanoseconds of simulated time.
    ns_per_byte : float
        Additional wait for each byte copied.
    """

    RING_COMMANDS = 16

    def __init__(self, rc: RootComplex, dev, *, timeout_ns: int = 1_000_000,
                 ns_per_byte: float = 40.0):
        self.rc = rc
        self.dev = dev
        self.timeout_ns = timeout_ns
        self.ns_per_byte = ns_per_byte
        #: Number of interrupts taken, per vector.
        self.interrupts: list[int] = []
        self._raised = Event()
        self._queued = 0

    @property
    def pcie_id(self) -> PcieId:
        """Bus, device and function number."""
        return self.dev.pcie_id

    async def open(self, *, interrupts: str = "msix") -> None:
        """Enable the device, set up its interrupts (``"msix"`` or ``"msi"``) and its ring."""
        await self.dev.enable_device()
        await self.dev.set_master()
        if interrupts == "msix":
            vectors = await self.dev.enable_msix_range(1, 32, 0)
        elif interrupts == "msi":
            vectors = await self.dev.enable_msi_range(1, 32)
        else:
            raise ValueError(f"interrupts must be 'msix' or 'msi', not {interrupts!r}")
        if vectors < 1:
            raise DriverError(f"{self.pcie_id}: no {interrupts} vectors")
        self.interrupts = [0] * vectors
        for n in range(vectors):
            self.dev.request_irq(n, self._handler(n))
        if await self.read_register("MAGIC") != int.from_bytes(b"DXPG", "little"):
            raise DriverError(f"{self.pcie_id}: not a GPU of ours")
        self._ring, self._ring_memory = self.rc.alloc_region(4096)
        self._fence = self._ring + self.RING_COMMANDS * Command.SIZE
        for name, value in (("RING_LOW", self._ring & 0xffffffff), ("RING_HIGH", self._ring >> 32),
                            ("RING_SIZE", self.RING_COMMANDS),
                            ("FENCE_LOW", self._fence & 0xffffffff),
                            ("FENCE_HIGH", self._fence >> 32)):
            await self.write_register(name, value)
        self._queued = await self.read_register("HEAD")

    def _handler(self, vector):
        async def interrupt():
            self.interrupts[vector] += 1
            self._raised.set()
        return interrupt

    async def read_register(self, register: str | int) -> int:
        """Read a register by name or offset."""
        offset = REGISTERS[register] if isinstance(register, str) else register
        return await self.dev.bar_window[0].read_dword(offset)

    async def write_register(self, register: str | int, value: int) -> None:
        """Write a register by name or offset; posted."""
        offset = REGISTERS[register] if isinstance(register, str) else register
        await self.dev.bar_window[0].write_dword(offset, value)

    async def name(self) -> str:
        """Name of the GPU."""
        raw = b"".join([struct.pack("<I", await self.read_register(NAME_OFFSET + n))
                        for n in range(0, NAME_SIZE, 4)])
        return raw.rstrip(b"\0").decode("ascii")

    async def serial(self) -> int:
        """Serial number."""
        return (await self.read_register("SERIAL_HIGH") << 32
                | await self.read_register("SERIAL_LOW"))

    async def read_vram(self, offset: int, length: int) -> bytes:
        """Read video memory through its BAR."""
        return bytes(await self.dev.bar_window[2].read(offset, length))

    async def write_vram(self, offset: int, data: bytes) -> None:
        """Write video memory through its BAR; posted."""
        await self.dev.bar_window[2].write(offset, data)

    async def wait_interrupt(self, vector: int, before: int, *, length: int = 0) -> None:
        """Wait until ``vector`` was taken more than ``before`` times, after ``length`` bytes."""
        limit = self.timeout_ns + round(self.ns_per_byte * length)
        while self.interrupts[vector] <= before:
            self._raised.clear()
            timer = Timer(limit, "ns")
            if await First(self._raised.wait(), timer) is timer:
                raise DriverError(f"GPU {self.pcie_id}: no interrupt {vector} within {limit} ns")

    async def trigger_interrupt(self, vector: int) -> None:
        """Let the GPU raise ``vector``, and wait for the interrupt."""
        before = self.interrupts[vector]
        await self.write_register("INTERRUPT", vector)
        await self.wait_interrupt(vector, before)

    async def copy(self, opcode: int, host: int, vram: int, length: int, *,
                   vector: int = 0) -> None:
        """Run one copy command to its end: queue, doorbell, interrupt, fence, status."""
        before = self.interrupts[vector]
        self._queued = self._queued + 1 & 0xffffffff
        slot = (self._queued - 1) % self.RING_COMMANDS
        self._ring_memory[slot * Command.SIZE:(slot + 1) * Command.SIZE] = Command(
            opcode, 1 | vector << 8, host, vram, length, self._queued).pack()
        await self.write_register("DOORBELL", self._queued)
        await self.wait_interrupt(vector, before, length=length)
        fence_offset = self._fence - self._ring
        fence, = struct.unpack("<I", self._ring_memory[fence_offset:fence_offset + 4])
        if fence != self._queued:
            raise DriverError(f"GPU {self.pcie_id}: interrupt before fence: fence is {fence}, "
                              f"command {self._queued}")
        if await self.read_register("STATUS") & 2:
            raise DriverError(f"GPU {self.pcie_id}: copy of {length} bytes failed")

    async def copy_to_gpu(self, host: int, vram: int, length: int, *, vector: int = 0) -> None:
        """Let the copy engine read ``length`` bytes of host memory into video memory."""
        await self.copy(COPY_TO_GPU, host, vram, length, vector=vector)

    async def copy_to_host(self, host: int, vram: int, length: int, *, vector: int = 0) -> None:
        """Let the copy engine write ``length`` bytes of video memory to host memory."""
        await self.copy(COPY_TO_HOST, host, vram, length, vector=vector)

    async def copy_there_and_back(self, data: bytes, vram: int, *, vector: int = 0) -> bytes:
        """Copy ``data`` to video memory at ``vram`` and back to another buffer; returns the
        result."""
        source, memory = self.rc.alloc_region(len(data))
        target, back = self.rc.alloc_region(len(data))
        memory[:len(data)] = data
        await self.copy_to_gpu(source, vram, len(data), vector=vector)
        await self.copy_to_host(target, vram, len(data), vector=vector)
        result = bytes(back[:len(data)])
        # Not after a failed copy: the GPU may still use the buffers then.
        for address in (source, target):
            self.rc.free_region(address)
        return result
