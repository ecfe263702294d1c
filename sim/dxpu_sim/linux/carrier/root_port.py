"""A PCIe root port in Python, between a guest's accesses and the TLPs of a link.

Registers of a root port without a slot: Type 1 header, PCI Express capability, MSI, AER with the
root error registers. Downwards, the port turns accesses into TLPs and waits for completions.
Upwards, the port serves memory requests from the guest's memory, turns writes to the interrupt
range into interrupts, and records error messages (PCIe Base 5.0, 6.2.4, 7.8.4).
"""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

from cocotbext.pcie.core.tlp import CplStatus, Tlp, TlpType
from cocotbext.pcie.core.utils import PcieId

from dxpu_sim.pcie.tlps import (
    CompletionTimeout, completion_length, describe, enabled_bytes, is_message, pack, request_bytes,
    unpack,
)

from .config_bytes import ConfigBytes
from .tasks import Tasks

__all__ = ["INTERRUPTS", "RootPort"]

log = logging.getLogger("dxpu.linux")

#: Writes to these addresses are interrupts (Intel SDM, volume 3, "Message Signalled Interrupts").
INTERRUPTS = range(0xfee0_0000, 0xfef0_0000)

_MSI, _EXPRESS, _AER = 0x80, 0x40, 0x100
_ERR_COR, _ERR_NONFATAL, _ERR_FATAL = 0x30, 0x31, 0x33
_PM_PME, _PME_TO_ACK = 0x18, 0x1b
#: Read Completion Boundary: multiples at which completions of one read may be split.
_RCB = 64
_NOTHING = (1 << 64) - 1


def _registers():
    """The registers after reset."""
    c = ConfigBytes(4096)
    c.place(0x00, 0x2030_8086, 4)
    c.place(0x04, 0, 2, writable=0x0547)
    c.place(0x06, 0x0010, 2, clears=0xf900)  # capabilities list
    c.place(0x08, 0x0604_0000, 4)
    c.place(0x0c, 0, 1, writable=0xff)
    c.place(0x0e, 0x01, 1)  # Type 1 header
    c.place(0x18, 0, 3, writable=0xffffff)
    c.place(0x1c, 0x0101, 2, writable=0xf0f0)
    c.place(0x1e, 0, 2, clears=0xf900)
    c.place(0x20, 0, 4, writable=0xfff0_fff0)
    c.place(0x24, 0x0001_0001, 4, writable=0xfff0_fff0)
    c.place(0x28, 0, 8, writable=(1 << 64) - 1)
    c.place(0x30, 0, 4, writable=0xffff_ffff)
    c.place(0x34, _EXPRESS, 1)
    c.place(0x3c, 0xff, 1, writable=0xff)
    c.place(0x3e, 0, 2, writable=0x0053)
    # PCI Express capability, version 2, root port.
    c.place(_EXPRESS, 0x10 | _MSI << 8 | 0x0042 << 16, 4)
    c.place(_EXPRESS + 0x04, 0x0000_8001, 4)  # role-based error reporting, payloads of 256 bytes
    c.place(_EXPRESS + 0x08, 0x2810, 2, writable=0x7fff)
    c.place(_EXPRESS + 0x0a, 0, 2, clears=0x000f)
    c.place(_EXPRESS + 0x0c, 0x0010_0011, 4)  # x1, 2.5 GT/s, data link layer active reporting
    c.place(_EXPRESS + 0x10, 0, 2, writable=0x00fb)
    c.place(_EXPRESS + 0x12, 0x2011, 2)
    c.place(_EXPRESS + 0x1c, 0, 2, writable=0x001f)
    c.place(_EXPRESS + 0x1e, 0x0001, 2)  # configuration retry is visible to software
    c.place(_EXPRESS + 0x20, 0, 4, clears=0x0001_0000)
    c.place(_EXPRESS + 0x24, 0x0000_001f, 4)
    c.place(_EXPRESS + 0x28, 0, 2, writable=0x001f)
    # MSI: one vector, 64-bit address.
    c.place(_MSI, 0x05 | 0x0080 << 16, 4, writable=0x0001_0000)
    c.place(_MSI + 0x04, 0, 8, writable=0xffff_ffff_ffff_fffc)
    c.place(_MSI + 0x0c, 0, 2, writable=0xffff)
    # AER, version 2, the last extended capability.
    c.place(_AER, 0x0002_0001, 4)
    c.place(_AER + 0x04, 0, 4, clears=0x0ffff030)
    c.place(_AER + 0x08, 0, 4, writable=0x0ffff030)
    c.place(_AER + 0x0c, 0x0046_2030, 4, writable=0x0ffff030)
    c.place(_AER + 0x10, 0, 4, clears=0x0000_f1c1)
    c.place(_AER + 0x14, 0x0000_2000, 4, writable=0x0000_f1c1)
    c.place(_AER + 0x2c, 0, 4, writable=0x7)
    c.place(_AER + 0x30, 0, 4, clears=0x7f)
    return c


class RootPort:
    """The only function of bus 0, with a link below it.

    Parameters
    ----------
    mailbox : :class:`~dxpu_sim.pcie.ports.Mailbox` or :class:`~dxpu_sim.linux.carrier.Edge`
        The link: mailbox of a host proxy's upstream port, or a socket.
    memory : :class:`~dxpu_sim.linux.carrier.remote.GuestMemory`
    interrupt : function
        Called with address and data of each interrupt.
    tasks : :class:`~dxpu_sim.linux.carrier.tasks.Tasks`
        Runs coroutines; says what a nanosecond below is.
    timeout_ns : int
        Completion timeout. Every request must be answered, so a timeout is an error.
    training_ns : int
        Time from the end of a reset to a working link.

    Attributes
    ----------
    counts : Counter
        Events: ``reads``, ``writes``, ``bytes read``, ``bytes written`` (by devices),
        ``interrupts``, ``unsupported``, messages by name.
    up : bool
        The link works; false during a Secondary Bus Reset or Link Disable, and while the partner
        says so (:meth:`partner`).
    downs, ups : lists of functions
        Called after the link has gone down, and when the link comes up again.
    """

    def __init__(self, mailbox, memory, interrupt: Callable[[int, int], None], tasks: Tasks, *,
                 timeout_ns: int = 20_000_000, training_ns: int = 0):
        self.mailbox, self.memory, self._interrupt = mailbox, memory, interrupt
        self.timeout_ns, self._training_ns = timeout_ns, training_ns
        self.counts: Counter = Counter()
        self._tasks = tasks
        self._trained = self._partner_up = True
        self.downs: list[Callable[[], None]] = []
        self.ups: list[Callable[[], None]] = []
        self.registers = _registers()
        #: Open requests by tag: request, its completions, event of the last one.
        self._waiting: dict[int, tuple[Tlp, list[Tlp], Any]] = {}
        self._next_tag = 0
        self._requests = tasks.queue()
        mailbox.received.append(self._received)
        mailbox.link(True)
        tasks.start(self._serve())

    @property
    def up(self) -> bool:
        """The link works, see the class."""
        return self._trained and self._partner_up

    def partner(self, up: bool) -> None:
        """The link's other end has come up or gone down by itself."""
        self._partner_up = up
        # Link Status with Data Link Layer Link Active or without.
        self.registers.assign(_EXPRESS + 0x12, 0x2011 if up else 0x0011, 2)
        if not up:
            self._abandon()

    # Registers of the root port itself.

    def _write_own(self, register, value, size):
        before = self._in_reset
        self.registers.write(register, value, size)
        if self._in_reset and not before:
            self._down()
        elif before and not self._in_reset:
            self._tasks.start(self._train())

    def _abandon(self):
        """End all open requests without an answer."""
        for _, _, arrived in self._waiting.values():
            arrived.set()

    def _down(self):
        self._trained = False
        self.mailbox.link(False)
        self._abandon()
        for callback in self.downs:
            callback()

    async def _train(self):
        await self._tasks.sleep(self._training_ns)
        while not self.mailbox.idle:
            await self._tasks.sleep(100)
        if not self._in_reset:
            self._trained = True
            self.mailbox.link(True)
            for callback in self.ups:
                callback()

    @property
    def _in_reset(self):
        """Whether Secondary Bus Reset or Link Disable is set."""
        return bool(self.registers.read(0x3e, 2) & 0x40
                    or self.registers.read(_EXPRESS + 0x10, 2) & 0x10)

    @property
    def _secondary(self):
        return self.registers.read(0x19, 1)

    @property
    def _subordinate(self):
        return self.registers.read(0x1a, 1)

    def _claims(self, address):
        """Whether a memory request from above goes down."""
        c = self.registers
        if not c.read(0x04, 2) & 2:
            return False
        windows = (((c.read(0x20, 2) & 0xfff0) << 16, c.read(0x22, 2) << 16 | 0xfffff),
                   (c.read(0x28, 4) << 32 | (c.read(0x24, 2) & 0xfff0) << 16,
                    c.read(0x2c, 4) << 32 | (c.read(0x26, 2) & 0xfff0) << 16 | 0xfffff))
        return any(low <= address <= high for low, high in windows)

    # Requests downwards.

    async def config_read(self, bus: int, device: int, function: int, register: int,
                          size: int) -> int:
        """Value of a configuration read by the guest; all ones without an answer."""
        if bus == 0:
            return (self.registers.read(register, size) if not device and not function
                    else _NOTHING >> 64 - 8 * size)
        completion = await self._config(TlpType.CFG_READ_0, bus, device, function, register, size)
        if completion is None or completion.status != CplStatus.SC:
            return _NOTHING >> 64 - 8 * size
        word = int.from_bytes(completion.data[:4], "little")
        return word >> 8 * (register & 3) & (1 << 8 * size) - 1

    async def config_write(self, bus: int, device: int, function: int, register: int, size: int,
                           value: int) -> None:
        """Carry out a configuration write of the guest; returns after its completion."""
        if bus == 0:
            if not device and not function:
                self._write_own(register, value, size)
            return
        await self._config(TlpType.CFG_WRITE_0, bus, device, function, register, size, value)

    async def _config(self, kind, bus, device, function, register, size, value=None):
        if not self._secondary or not self._secondary <= bus <= self._subordinate or (
                not self.up):
            return None
        tlp = Tlp()
        tlp.fmt_type = kind
        if bus != self._secondary:
            tlp.type |= 1
        elif device:
            return None  # a link has one device at its other end
        tlp.completer_id = PcieId(bus, device, function)
        tlp.set_addr_be(register, size)
        if value is not None:
            tlp.set_addr_be_data(register, value.to_bytes(size, "little"))
        while True:
            completions = await self._request(tlp)
            if not completions:
                return None
            completion, = completions
            if completion.status != CplStatus.CRS:
                return completion
            if value is None and register == 0 and self.registers.read(_EXPRESS + 0x1c, 2) & 0x10:
                completion.status = CplStatus.SC
                completion.set_data(b"\x01\x00\xff\xff")
                return completion
            await self._tasks.sleep(1000)

    async def memory_read(self, address: int, size: int) -> int:
        """Value of a memory read by the guest; all ones without an answer."""
        if not self.up or not self._claims(address):
            return _NOTHING >> 64 - 8 * size
        tlp = Tlp()
        tlp.fmt_type = TlpType.MEM_READ
        tlp.set_addr_be(address, size)
        completions = await self._request(tlp)
        if not completions or any(c.status != CplStatus.SC for c in completions):
            self.registers.set_bits(0x1e, 0x2000, 2)  # received master abort
            return _NOTHING >> 64 - 8 * size
        data = b"".join(bytes(c.data) for c in completions)
        return int.from_bytes(data[address & 3:(address & 3) + size], "little")

    async def memory_write(self, address: int, size: int, value: int) -> None:
        """Carry out a memory write of the guest; posted, so returns when the request is on its
        way."""
        if not self.up or not self._claims(address):
            return
        tlp = Tlp()
        tlp.fmt_type = TlpType.MEM_WRITE
        tlp.set_addr_be_data(address, value.to_bytes(size, "little"))
        tlp.requester_id = PcieId(0, 0, 0)
        self.counts["posted"] += 1
        await self.mailbox.send(pack(tlp))

    async def _request(self, tlp):
        tlp.requester_id = PcieId(0, 0, 0)
        while self._next_tag in self._waiting:
            self._next_tag = self._next_tag + 1 & 0xff
        tlp.tag = self._next_tag
        self._next_tag = self._next_tag + 1 & 0xff
        arrived = self._tasks.event()
        self._waiting[tlp.tag] = (tlp, [], arrived)
        self.counts["requests"] += 1
        await self.mailbox.send(pack(tlp))
        if not await self._tasks.wait(arrived, self.timeout_ns):
            raise CompletionTimeout(f"root port: {describe(tlp)}: not complete after "
                                    f"{self.timeout_ns / 1e6:g} ms")
        return self._waiting.pop(tlp.tag)[1]

    # TLPs from below.

    def _received(self, record):
        if record.discard or not self.up:
            return
        tlp = unpack(record.raw)
        if tlp.is_completion():
            self._complete(tlp)
        elif is_message(tlp):
            self._message(tlp)
        else:
            # One queue: a read must not pass a write, and both are served in order.
            self._requests.put_nowait(tlp)

    def _complete(self, tlp):
        request, parts, arrived = self._waiting.get(tlp.tag, (None, [], None))
        if arrived is None or arrived.is_set():
            raise RuntimeError(f"root port: unexpected completion: {describe(tlp)}")
        parts.append(tlp)
        reads = request.fmt_type in (TlpType.MEM_READ, TlpType.MEM_READ_64)
        if not reads or tlp.status != CplStatus.SC or tlp.byte_count <= completion_length(tlp):
            arrived.set()

    def _message(self, tlp):
        code = tlp.last_be << 4 | tlp.first_be
        names = {_ERR_COR: "ERR_COR", _ERR_NONFATAL: "ERR_NONFATAL", _ERR_FATAL: "ERR_FATAL",
                 _PM_PME: "PM_PME", _PME_TO_ACK: "PME_TO_Ack"}
        self.counts[names.get(code, f"message {code:#04x}")] += 1
        source = int(tlp.requester_id)
        if code in (_ERR_COR, _ERR_NONFATAL, _ERR_FATAL):
            if self.registers.read(0x3e, 2) & 2:  # SERR# Enable forwards them
                self._log_error(code, source)
        elif code == _PM_PME:
            self.registers.assign(_EXPRESS + 0x20, source | 1 << 16, 4)
            if self.registers.read(_EXPRESS + 0x1c, 2) & 8:
                self._raise()

    def _log_error(self, code, source):
        """Record an error in Root Error Status and Error Source Identification; interrupt if
        enabled."""
        status = self.registers.read(_AER + 0x30, 4)
        if code == _ERR_COR:
            if not status & 1:
                self.registers.assign(_AER + 0x34, source, 2)
            bits, wanted = (2 if status & 1 else 1), 1
        else:
            if not status & 4:
                self.registers.assign(_AER + 0x36, source, 2)
                bits = 4 | (0x10 if code == _ERR_FATAL else 0)
            else:
                bits = 8
            bits |= 0x40 if code == _ERR_FATAL else 0x20
            wanted = 4 if code == _ERR_FATAL else 2
        self.registers.set_bits(_AER + 0x30, bits, 4)
        if self.registers.read(_AER + 0x2c, 4) & wanted:
            self._raise()

    def _raise(self):
        if self.registers.read(_MSI + 2, 2) & 1:
            self.counts["own interrupts"] += 1
            self._interrupt(self.registers.read(_MSI + 4, 8), self.registers.read(_MSI + 12, 2))

    async def _serve(self):
        while True:
            tlp = await self._requests.get()
            if not self.registers.read(0x04, 2) & 4:
                await self._refuse(tlp, "bus master is off")
            elif tlp.ep:
                await self._refuse(tlp, "poisoned")
            elif tlp.fmt_type in (TlpType.MEM_WRITE, TlpType.MEM_WRITE_64):
                await self._write(tlp)
            elif tlp.fmt_type in (TlpType.MEM_READ, TlpType.MEM_READ_64):
                await self._read(tlp)
            else:
                await self._refuse(tlp, "not for memory")

    async def _write(self, tlp):
        if tlp.address in INTERRUPTS and tlp.length == 1:
            self.counts["interrupts"] += 1
            self._interrupt(tlp.address, int.from_bytes(tlp.data[:4], "little"))
            return
        self.counts["writes"] += 1
        for address, data in enabled_bytes(tlp):
            self.counts["bytes written"] += len(data)
            if not self.memory.write(address, data):
                await self._refuse(tlp, "no memory there")
                return

    async def _read(self, tlp):
        data = self.memory.read(tlp.address, tlp.length * 4)
        if data is None:
            await self._refuse(tlp, "no memory there")
            return
        self.counts["reads"] += 1
        left, lower = request_bytes(tlp)
        self.counts["bytes read"] += left
        position = tlp.address & ~3 | lower & 3
        start, limit = tlp.address, 128 << (self.registers.read(_EXPRESS + 0x08, 2) >> 5 & 7)
        while left:
            end = min(position + left, (position & ~3) + limit & ~(_RCB - 1))
            completion = Tlp.create_completion_data_for_tlp(tlp, PcieId(0, 0, 0))
            completion.byte_count, completion.lower_address = left, position & 0x7f
            completion.set_data(data[(position & ~3) - start:(end + 3 & ~3) - start])
            await self.mailbox.send(pack(completion))
            left -= end - position
            position = end

    async def _refuse(self, tlp, why):
        self.counts["unsupported"] += 1
        log.warning("root port: %s: %s", why, describe(tlp))
        if tlp.is_nonposted():
            completion = Tlp.create_ur_completion_for_tlp(tlp, PcieId(0, 0, 0))
            completion.byte_count = 4
            if tlp.fmt_type in (TlpType.MEM_READ, TlpType.MEM_READ_64):
                completion.byte_count, completion.lower_address = request_bytes(tlp)
            await self.mailbox.send(pack(completion))
