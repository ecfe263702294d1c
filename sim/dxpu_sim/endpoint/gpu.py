"""Model of a GPU as seen by its driver: registers, video memory, a copy engine and interrupts.

The PCI function is a device of cocotbext-pcie, so it can stand behind any link of the library or,
through :class:`dxpu_sim.pcie.links.LibraryLink`, behind a design.

BAR 0 (64 KiB, 32-bit): :data:`REGISTERS`, from 0x100 the name in ASCII (64 bytes), from 0x8000 the
MSI-X table, from 0xC000 its pending bits. Only aligned accesses of 4 or 8 bytes. BAR 2 (64-bit,
prefetchable): the video memory, any access.

All other requests are answered as PCIe Base 5.0, 2.3.1 demands: UR for I/O, locked, atomic and Type
1 requests, for addresses outside the BARs, for registers that do not exist and for accesses of a
wrong size. Such posted writes are dropped. ``UNSUPPORTED`` counts all of these requests.

The copy engine takes commands of 32 bytes from a ring in host memory (:class:`Command`). It keeps
up to ``TAGS`` reads of ``READ_SIZE`` bytes in flight, accepts split completions, and completions of
different reads in any order. Its writes have the largest payload configured. After a command the
engine writes the command's cookie to ``FENCE`` (if set) and raises an interrupt (if requested).
"""

import struct
from dataclasses import dataclass

import cocotb
from cocotb.queue import Queue
from cocotb.triggers import Event, Timer
from cocotbext.pcie.core import Device, Endpoint
from cocotbext.pcie.core.caps import MsiCapability, MsixCapability
from cocotbext.pcie.core.caps.common import PciExtCap
from cocotbext.pcie.core.tlp import CplStatus, Tlp, TlpType

from dxpu.endpoint.register_map import (
    CLASS_CODE, COPY_TO_GPU, COPY_TO_HOST, DEVICE_ID, MAGIC, MSIX_PENDING, MSIX_TABLE, NAME_OFFSET,
    NAME_SIZE, REGISTERS, REGISTER_BAR_SIZE, VECTORS, VENDOR_ID,
)
from dxpu_sim.pcie.ports import UnexpectedCompletion
from dxpu_sim.pcie.tlps import (
    completion_length, describe, enabled_bytes, is_message, request_bytes,
)

__all__ = ["COPY_TO_GPU", "COPY_TO_HOST", "DEVICE_ID", "MSIX_TABLE", "NAME_OFFSET", "NAME_SIZE",
           "REGISTERS", "VENDOR_ID", "Command", "Gpu", "SparseMemory"]

_NAMES = {offset: name for name, offset in REGISTERS.items()}
_WRITABLE = {"SCRATCH", "TAGS", "READ_SIZE", "RING_LOW", "RING_HIGH", "RING_SIZE", "HEAD",
             "DOORBELL", "FENCE_LOW", "FENCE_HIGH"}


@dataclass
class Command:
    """A command of the copy engine; 32 bytes, little endian, in this order."""

    opcode: int
    #: Bit 0: interrupt when done; bits 15:8: the vector.
    flags: int
    host: int
    vram: int
    length: int
    cookie: int

    FORMAT = "<IIQQII"
    SIZE = 32

    def pack(self) -> bytes:
        """The command as stored in the ring."""
        return struct.pack(self.FORMAT, self.opcode, self.flags, self.host, self.vram, self.length,
                           self.cookie)

    @classmethod
    def unpack(cls, raw: bytes) -> "Command":
        """A command from its bytes in the ring."""
        return cls(*struct.unpack(cls.FORMAT, raw))


class SparseMemory:
    """``size`` bytes of memory; only written pages take room, unwritten bytes read as 0."""

    PAGE = 4096

    def __init__(self, size: int):
        self.size = size
        self._pages: dict[int, bytearray] = {}

    def _parts(self, address, length):
        if address < 0 or length < 0 or address + length > self.size:
            raise IndexError(f"{length} bytes at {address:#x} are outside of {self.size:#x}")
        while length:
            page, offset = divmod(address, self.PAGE)
            n = min(length, self.PAGE - offset)
            yield page, offset, n
            address += n
            length -= n

    def clear(self) -> None:
        """All bytes are 0."""
        self._pages.clear()

    def read(self, address: int, length: int) -> bytes:
        """``length`` bytes from ``address``."""
        return b"".join(bytes(self._pages[page][offset:offset + n]) if page in self._pages
                        else bytes(n) for page, offset, n in self._parts(address, length))

    def write(self, address: int, data: bytes) -> None:
        """Write ``data`` at ``address``."""
        start = 0
        for page, offset, n in self._parts(address, len(data)):
            if page not in self._pages:
                self._pages[page] = bytearray(self.PAGE)
            self._pages[page][offset:offset + n] = data[start:start + n]
            start += n


class SerialNumber(PciExtCap):
    """Device Serial Number extended capability (PCIe Base 5.0, 7.9.3)."""

    def __init__(self, serial):
        super().__init__()
        self.cap_id, self.cap_ver, self.length = 0x0003, 1, 3
        self.serial = serial

    async def _read_register(self, reg):
        return self.serial >> 32 * (reg - 1) & 0xffffffff

    async def _write_register(self, reg, data, mask):
        pass


@dataclass
class _Read:
    """A read in flight."""

    left: int
    #: Position of the next byte, and the function that stores data there.
    position: int
    deliver: object
    #: Called when the last byte has come, or when the read failed.
    done: object


class GpuFunction(Endpoint):
    """The PCI function of a :class:`Gpu`."""

    #: Time from the completion of the write for a Function Level Reset to the reset, in ns.
    RESET_NS = 100

    def __init__(self, *, serial, name, vram, tags, read_size, max_payload, reset):
        super().__init__()
        self.vendor_id, self.device_id, self.class_code = VENDOR_ID, DEVICE_ID, CLASS_CODE
        self.subsystem_vendor_id, self.subsystem_id = VENDOR_ID, serial & 0xffff
        self.pcie_cap.max_payload_size_supported = max_payload.bit_length() - 8
        self.pcie_cap.function_level_reset_capability = True
        self.pcie_cap.initiate_function_level_reset = self._begin_reset
        self._reset = reset
        self.msi_cap = MsiCapability()
        self.msi_cap.msi_64bit_address_capable = True
        self.msi_cap.msi_multiple_message_capable = VECTORS.bit_length() - 1
        self.register_capability(self.msi_cap)
        self.msix_cap = MsixCapability()
        self.msix_cap.msix_table_size = VECTORS - 1
        self.msix_cap.msix_table_offset = MSIX_TABLE
        self.msix_cap.msix_pba_offset = MSIX_PENDING
        self.register_capability(self.msix_cap)
        self.register_extended_capability(SerialNumber(serial))
        self.configure_bar(0, REGISTER_BAR_SIZE)
        self.configure_bar(2, vram.size, ext=True, prefetch=True)

        self.vram = vram
        self.messages: list[Tlp] = []
        self._dead = False
        self.registers = dict.fromkeys(REGISTERS, 0) | {
            "MAGIC": MAGIC, "VERSION": 1, "SERIAL_LOW": serial & 0xffffffff,
            "SERIAL_HIGH": serial >> 32, "TAGS": tags, "READ_SIZE": read_size,
            "VRAM_MIB": vram.size >> 20,
        }
        self.name = name.encode("ascii").ljust(NAME_SIZE, b"\0")
        self.msix_table = bytearray((b"\0" * 12 + b"\1\0\0\0") * VECTORS)
        self.msix_pending = 0
        #: Largest number of reads in flight so far.
        self.most_reads = 0
        self._reads: dict[int, _Read] = {}
        self._next_tag = 0
        self._read_ended = Event()
        self._requests = Queue()
        self._doorbell = Event()
        cocotb.start_soon(self._run_requests())
        cocotb.start_soon(self._run_engine())

    # Requests to this device.

    async def upstream_recv(self, tlp):
        if tlp.is_completion():
            tlp.release_fc()
            self._complete_read(tlp)
        elif tlp.is_nonposted():
            # Completions wait for credits, so another task makes them: nothing blocks behind them.
            await self._requests.put(tlp)
        else:
            tlp.release_fc()
            if is_message(tlp):
                self.messages.append(tlp)
            else:
                await self._memory_write(tlp)

    async def _run_requests(self):
        while True:
            tlp = await self._requests.get()
            if tlp.fmt_type in {TlpType.CFG_READ_0, TlpType.CFG_WRITE_0}:
                await super().upstream_recv(tlp)
            elif tlp.fmt_type in {TlpType.MEM_READ, TlpType.MEM_READ_64}:
                tlp.release_fc()
                await self._memory_read(tlp)
            else:
                tlp.release_fc()
                await self._refuse(tlp)

    async def _begin_reset(self):
        async def finish():
            await Timer(self.RESET_NS, "ns")
            if not self._dead:
                self._reset()
        cocotb.start_soon(finish())

    def die(self):
        """Stop this function after a reset; a new function replaces it, and open activities never
        end."""
        self._dead = True

    async def upstream_send(self, tlp):
        if self._dead:
            await Event().wait()
        # The library leaves the byte count 0, which means 4096; the specification demands 4.
        if tlp.fmt_type == TlpType.CPL and not tlp.byte_count:
            tlp.byte_count = 4
        await super().upstream_send(tlp)

    async def _refuse(self, tlp, status=CplStatus.UR):
        self.registers["UNSUPPORTED"] += 1
        self.pcie_cap.unsupported_request_detected = True
        completion = Tlp.create_completion_for_tlp(tlp, self.pcie_id, status=status)
        locked = tlp.fmt_type in {TlpType.MEM_READ_LOCKED, TlpType.MEM_READ_LOCKED_64}
        if locked:
            completion.fmt_type = TlpType.CPL_LOCKED
        completion.byte_count = 4
        if locked or tlp.fmt_type in {TlpType.MEM_READ, TlpType.MEM_READ_64}:
            completion.byte_count, completion.lower_address = request_bytes(tlp)
        await self.upstream_send(completion)

    def _target(self, tlp):
        """BAR and offset addressed by ``tlp``, or ``None``."""
        return self.match_bar(tlp.address) if self.memory_space_enable else None

    async def _memory_read(self, tlp):
        target = self._target(tlp)
        data = None
        if target is not None:
            bar, offset = target
            data = (self._read_registers(tlp, offset) if bar == 0
                    else self.vram.read(offset, tlp.length * 4))
        if data is None:
            await self._refuse(tlp)
            return
        left, lower = request_bytes(tlp)
        position = tlp.address & ~0x7f | lower
        start = position & ~3
        while left:
            # Split at multiples of the read completion boundary of 128 bytes.
            limit = (position & ~3) + (128 << self.pcie_cap.max_payload_size)
            end = min(position + left, limit & ~127)
            completion = Tlp.create_completion_data_for_tlp(tlp, self.pcie_id)
            completion.byte_count, completion.lower_address = left, position & 0x7f
            completion.set_data(data[(position & ~3) - start:(end + 3 & ~3) - start])
            await self.upstream_send(completion)
            left -= end - position
            position = end

    async def _memory_write(self, tlp):
        target = self._target(tlp)
        if target is None:
            self.registers["UNSUPPORTED"] += 1
        elif target[0] == 2:
            for address, data in enabled_bytes(tlp):
                self.vram.write(target[1] + address - tlp.address, data)
        elif not await self._write_registers(tlp, target[1]):
            self.registers["UNSUPPORTED"] += 1

    # Registers.

    @staticmethod
    def _whole_words(tlp):
        return tlp.length <= 2 and tlp.first_be == 15 and tlp.last_be == (15 if tlp.length == 2
                                                                         else 0)

    def _read_registers(self, tlp, offset):
        if not self._whole_words(tlp):
            return None
        words = [self._read_register(offset + 4 * n) for n in range(tlp.length)]
        return None if None in words else struct.pack(f"<{tlp.length}I", *words)

    def _read_register(self, offset):
        if offset in _NAMES:
            return self.registers[_NAMES[offset]]
        if NAME_OFFSET <= offset < NAME_OFFSET + NAME_SIZE:
            return struct.unpack_from("<I", self.name, offset - NAME_OFFSET)[0]
        if MSIX_TABLE <= offset < MSIX_TABLE + 16 * VECTORS:
            return struct.unpack_from("<I", self.msix_table, offset - MSIX_TABLE)[0]
        if offset in (MSIX_PENDING, MSIX_PENDING + 4):
            return self.msix_pending if offset == MSIX_PENDING else 0
        return None

    async def _write_registers(self, tlp, offset):
        if not self._whole_words(tlp):
            return False
        words = struct.unpack(f"<{tlp.length}I", bytes(tlp.data))
        return all([await self._write_register(offset + 4 * n, word)
                    for n, word in enumerate(words)])

    async def _write_register(self, offset, value):
        name = _NAMES.get(offset)
        if MSIX_TABLE <= offset < MSIX_TABLE + 16 * VECTORS:
            struct.pack_into("<I", self.msix_table, offset - MSIX_TABLE, value)
            cocotb.start_soon(self._send_pending())
        elif name in _WRITABLE:
            self.registers[name] = value
            if name == "DOORBELL":
                self.registers["STATUS"] |= 1
                self._doorbell.set()
        elif name == "ERROR":
            self.registers["ERROR"] = 0
            self.registers["STATUS"] &= ~2
        elif name == "UNSUPPORTED":
            self.registers["UNSUPPORTED"] = 0
        elif name == "INTERRUPT" and value < VECTORS:
            cocotb.start_soon(self.interrupt(value))
        else:
            return False
        return True

    async def message(self, code, *, kind=TlpType.MSG_TO_RC):
        """Send message ``code`` without data, by default to the root complex."""
        tlp = Tlp()
        tlp.fmt_type = kind
        tlp.requester_id = self.pcie_id
        tlp.first_be, tlp.last_be = code & 15, code >> 4
        await self.upstream_send(tlp)

    # Interrupts.

    async def interrupt(self, vector):
        """Raise ``vector`` by MSI-X or MSI, whichever is enabled; masked MSI-X vectors stay
        pending."""
        if self.msix_cap.msix_enable:
            self.msix_pending |= 1 << vector
            await self._send_pending()
        elif self.msi_cap.msi_enable:
            enabled = 1 << self.msi_cap.msi_multiple_message_enable
            await self.msi_cap.issue_msi_interrupt(vector % enabled)

    async def _send_pending(self):
        for vector in range(VECTORS):
            low, high, data, control = struct.unpack_from("<IIII", self.msix_table, 16 * vector)
            if (self.msix_pending >> vector & 1 and not control & 1 and self.msix_cap.msix_enable
                    and not self.msix_cap.msix_function_mask):
                self.msix_pending &= ~(1 << vector)
                await self.msix_cap.issue_msix_interrupt(high << 32 | low, data)

    async def write_config_register(self, reg, data, mask):
        await super().write_config_register(reg, data, mask)
        if self.msix_pending:
            cocotb.start_soon(self._send_pending())

    # Copy engine.

    async def _run_engine(self):
        r = self.registers
        while True:
            if r["HEAD"] == r["DOORBELL"]:
                r["STATUS"] &= ~1
                self._doorbell.clear()
                await self._doorbell.wait()
                continue
            command = await self._fetch(r["HEAD"] % max(r["RING_SIZE"], 1))
            if command is None or not await self._execute(command):
                r["ERROR"] += 1
                r["STATUS"] |= 2
            r["HEAD"] = r["HEAD"] + 1 & 0xffffffff
            fence = r["FENCE_HIGH"] << 32 | r["FENCE_LOW"]
            if command is not None and fence:
                await self._write_host(fence, struct.pack("<I", command.cookie))
            if r["HEAD"] == r["DOORBELL"]:
                r["STATUS"] &= ~1
            if command is not None and command.flags & 1:
                await self.interrupt(command.flags >> 8 & 0xff)

    async def _fetch(self, slot):
        """Command in ``slot`` of the ring, or ``None`` if the read fails."""
        raw = bytearray(Command.SIZE)

        def put(position, data):
            raw[position:position + len(data)] = data

        ring = self.registers["RING_HIGH"] << 32 | self.registers["RING_LOW"]
        if not await self._read_host(ring + slot * Command.SIZE, Command.SIZE, put, 0):
            return None
        return Command.unpack(bytes(raw))

    async def _execute(self, command):
        if command.vram + command.length > self.vram.size or not self.bus_master_enable:
            return False
        if command.opcode == COPY_TO_GPU:
            return await self._read_host(command.host, command.length, self.vram.write,
                                         command.vram)
        if command.opcode == COPY_TO_HOST:
            await self._write_host(command.host, self.vram.read(command.vram, command.length))
            return True
        return False

    async def _write_host(self, address, data):
        limit = 128 << self.pcie_cap.max_payload_size
        start = 0
        while start < len(data):
            n = min(len(data) - start, limit - (address + start) % limit)
            tlp = Tlp()
            tlp.fmt_type = (TlpType.MEM_WRITE_64 if (address + start) >> 32
                            else TlpType.MEM_WRITE)
            tlp.requester_id = self.pcie_id
            tlp.set_addr_be_data(address + start, data[start:start + n])
            await self.upstream_send(tlp)
            start += n

    async def _read_host(self, address, length, deliver, position):
        """Read host memory with many requests in flight; returns False if a request failed.

        ``deliver(position, data)`` is called with each piece as it comes, in any order.
        """
        if not self.bus_master_enable:
            return False
        waiting, good = 0, True

        def done(success):
            nonlocal waiting, good
            waiting -= 1
            good &= success

        size = max(1, min(self.registers["READ_SIZE"], 128 << self.pcie_cap.max_read_request_size))
        start = 0
        while start < length:
            here = address + start
            n = min(length - start, size - here % size, 4096 - here % 4096)
            tlp = Tlp()
            tlp.fmt_type = TlpType.MEM_READ_64 if here >> 32 else TlpType.MEM_READ
            tlp.requester_id = self.pcie_id
            tlp.set_addr_be(here, n)
            tlp.tag = await self._claim_tag()
            self._reads[tlp.tag] = _Read(n, position + start, deliver, done)
            self.most_reads = max(self.most_reads, len(self._reads))
            waiting += 1
            await self.upstream_send(tlp)
            start += n
        while waiting:
            self._read_ended.clear()
            await self._read_ended.wait()
        return good

    async def _claim_tag(self):
        """Wait for a free tag: of 32 or 256 (Extended Tag Field Enable), at most ``TAGS`` in
        use."""
        tags = 256 if self.pcie_cap.extended_tag_field_enable else 32
        while len(self._reads) >= max(1, min(tags, self.registers["TAGS"])):
            self._read_ended.clear()
            await self._read_ended.wait()
        while self._next_tag in self._reads or self._next_tag >= tags:
            self._next_tag = 0 if self._next_tag >= tags else self._next_tag + 1
        tag = self._next_tag
        self._next_tag += 1
        return tag

    def _complete_read(self, tlp):
        read = self._reads.get(tlp.tag)
        if read is None:
            raise UnexpectedCompletion(f"GPU {self.pcie_id}: {describe(tlp)}")
        good = tlp.status == CplStatus.SC
        if good:
            n = completion_length(tlp)
            if tlp.byte_count != read.left or not n:
                raise UnexpectedCompletion(f"GPU {self.pcie_id}: {describe(tlp)}, but {read.left} "
                                           "bytes are due")
            offset = tlp.lower_address & 3
            read.deliver(read.position, bytes(tlp.data[offset:offset + n]))
            read.position += n
            read.left -= n
        if not read.left or not good:
            del self._reads[tlp.tag]
            read.done(good)
            self._read_ended.set()


class Gpu(Device):
    """A GPU with one PCIe port (``upstream_port``).

    Parameters
    ----------
    serial : int
        64-bit serial number; also found in the Device Serial Number capability.
    name : str
        Up to 64 ASCII characters, read through BAR 0.
    vram_bytes : int
        Size of the video memory; a power of two.
    tags, read_size : int
        Reads in flight and bytes of each; a driver may change both. The library has 256 tags.
    max_payload : int
        Largest payload supported, in bytes.
    forgets : bool
        A reset leaves nothing in the video memory. That of many a real GPU does.
    """

    def __init__(self, *, serial: int = 1, name: str = "DXPU model GPU",
                 vram_bytes: int = 256 << 20, tags: int = 140, read_size: int = 128,
                 max_payload: int = 256, forgets: bool = True):
        if not 1 <= tags <= 256:
            raise ValueError(f"tags must be 1 to 256, not {tags!r}")
        if not 4 <= read_size <= 4096 or read_size & read_size - 1:
            raise ValueError(f"read_size must be a power of two from 4 to 4096, not {read_size!r}")
        if vram_bytes < 1 << 20 or vram_bytes & vram_bytes - 1:
            raise ValueError("vram_bytes must be a power of two of at least 1 MiB, "
                             f"not {vram_bytes!r}")
        self.serial, self._forgets = serial, forgets
        self.vram = SparseMemory(vram_bytes)
        self._options = {"serial": serial, "name": name, "tags": tags, "read_size": read_size,
                         "max_payload": max_payload, "reset": self.function_reset}
        self.function = GpuFunction(vram=self.vram, **self._options)
        #: Numbers of hot resets, and of Function Level Resets, since the start.
        self.resets = self.function_resets = 0
        super().__init__(self.function)

    def hot_reset(self) -> None:
        """Reset everything; activities under way end."""
        self._bus_num = 0
        self._renew()
        self.resets += 1

    def function_reset(self) -> None:
        """Function Level Reset (6.6.2): as a hot reset, but link and bus number stay."""
        self._renew()
        self.function_resets += 1

    def _renew(self):
        if self._forgets:
            self.vram.clear()
        self.function.die()
        self.functions.remove(self.function)
        self.function = GpuFunction(vram=self.vram, **self._options)
        self.append_function(self.function)

    async def upstream_recv(self, tlp):
        """Take a TLP from the link.

        TLPs for no other function go to the GPU's function, which answers all requests, wrong
        requests too.
        """
        if tlp.fmt_type in {TlpType.CFG_READ_0, TlpType.CFG_WRITE_0}:
            self.bus_num = tlp.completer_id.bus
        others = [] if is_message(tlp) else [
            f for f in self.functions if f is not self.function and f.match_tlp(tlp)]
        await (others[0] if others else self.function).upstream_recv(tlp)
