"""Ends of a design's TLP ports in Python, and a root complex with features that its model lacks.

A :class:`Mailbox` is the Python end of :class:`dxpu_sim.pcie.mailbox.TlpPort`;
:mod:`dxpu_sim.pcie.links` attaches models of cocotbext-pcie to it. The library is subclassed, never
edited:

- the library matches completions by tag alone, so :class:`RootComplex` refuses unexpected
  completions, and every request ends in a completion or in an error that names the hanging request;
- routing of the library does not know messages, :class:`RootComplex` does.

The model has at most 256 tags, no prefixes and no digest (ECRC).
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import cocotb
from cocotb.triggers import Event, Timer, ValueChange
from cocotbext.pcie.core import RootComplex as LibraryRootComplex
from cocotbext.pcie.core.tlp import CplStatus, Tlp, TlpType
from cocotbext.pcie.core.utils import PcieId

from .mailbox import CHUNKS, CHUNK_BITS, CLASSES, TRANSFER_DWORDS
from .monitor import RULES
from .tlps import CompletionTimeout, completion_length, describe, is_message, unpack

__all__ = ["DesignHangs", "Mailbox", "RootComplex", "StreamBroken", "TlpRecord",
           "UnexpectedCompletion", "quiet", "tolerate", "until"]

log = logging.getLogger("dxpu.pcie")

_MESSAGES = {t for t in TlpType if t.name.startswith("MSG_")}
_ATOMICS = {TlpType.FETCH_ADD, TlpType.FETCH_ADD_64, TlpType.SWAP, TlpType.SWAP_64, TlpType.CAS,
            TlpType.CAS_64}
_LOCKED_READS = {TlpType.MEM_READ_LOCKED, TlpType.MEM_READ_LOCKED_64}
_MEMORY_READS = {TlpType.MEM_READ, TlpType.MEM_READ_64} | _LOCKED_READS


class DesignHangs(Exception):
    """The design takes no more TLPs at a port."""


class StreamBroken(Exception):
    """The design broke a rule of the streams at a port."""


class UnexpectedCompletion(Exception):
    """A completion arrived without an open request."""


def quiet(level: int = logging.ERROR) -> None:
    """Suppress the library's log: several lines per TLP, and a line per empty slot of bus 0."""
    logging.getLogger("cocotb.pcie").setLevel(level)


@dataclass(slots=True)
class TlpRecord:
    """A TLP that crossed a port of the design."""

    #: Bytes in wire order.
    raw: bytes
    #: Cycles of the first and last beat at the port.
    first_cycle: int = -1
    last_cycle: int = -1
    #: Class stream of a TLP that left (0 posted, 1 non-posted, 2 completion); -1 for TLPs that
    #: entered.
    cls: int = -1
    #: The design marked the TLP as bad.
    discard: bool = False
    #: Data of the sender, kept with the record.
    token: object = None


class Mailbox:
    """Python end of the mailbox whose ports at the top are ``<name>__*``.

    Parameters
    ----------
    dut
        cocotb's handle of the top.
    name : str
        Name of the top's :class:`~dxpu_sim.pcie.mailbox.MailboxSignature` member.
    patience_ns : int
        Longest time for which the design may refuse a TLP; then the test ends in
        :exc:`DesignHangs`.

    Attributes
    ----------
    sent, received : lists of callables
        Called with the :class:`TlpRecord` of each TLP, in order: ``sent`` when the design has taken
        the last beat, ``received`` when the design has delivered the TLP.
    tlps_sent, tlps_received : int
        Totals.
    """

    def __init__(self, dut, name: str, *, patience_ns: int = 500_000):
        self.name = name
        self.patience_ns = patience_ns
        self.sent: list[Callable[[TlpRecord], None]] = []
        self.received: list[Callable[[TlpRecord], None]] = []
        self.tlps_sent = 0
        self.tlps_received = 0
        self._tx_data = [getattr(dut, f"{name}__tx_data{n}") for n in range(CHUNKS)]
        self._rx_data = [getattr(dut, f"{name}__rx_data{n}") for n in range(CHUNKS)]
        for pin in ("tx_control", "tx_gap", "tx_accept", "tx_taken", "tx_info", "rx_count",
                    "rx_info", "rx_stall", "rx_gap", "rx_broken", "link_up", "reset"):
            setattr(self, f"_{pin}", getattr(dut, f"{name}__{pin}"))
        for pin in (self._tx_gap, self._rx_stall, self._rx_gap, self._link_up):
            pin.value = 0
        # An earlier test of the same simulation may have used the mailbox.
        self._request = int(self._tx_accept.value)
        self._tx_control.value = self._request
        self._in_flight: deque[TlpRecord] = deque()
        self._stalled = 0
        cocotb.start_soon(self._watch_taken())
        cocotb.start_soon(self._watch_received())
        cocotb.start_soon(self._watch_progress())
        cocotb.start_soon(self._watch_rules())

    def gaps(self, *, send: float = 0.0, receive: float = 0.0) -> None:
        """Set the share of idle cycles between beats into the design, and of cycles that take no
        beat."""
        self._tx_gap.value = round(send * 256)
        self._rx_gap.value = round(receive * 256)

    def stall(self, cls: int, stalled: bool) -> None:
        """Stop taking TLPs of class ``cls`` from the design, or take them again."""
        mask = self._stalled | 1 << cls if stalled else self._stalled & ~(1 << cls)
        if mask != self._stalled:
            self._stalled = mask
            self._rx_stall.value = mask

    def link(self, up: bool) -> None:
        """Set the link state seen by the design."""
        self._link_up.value = int(up)

    async def until_reset(self) -> None:
        """Wait until the design requests a hot reset."""
        while not int(self._reset.value):
            await ValueChange(self._reset)

    async def until_released(self) -> None:
        """Wait until the design no longer requests a hot reset."""
        while int(self._reset.value):
            await ValueChange(self._reset)

    async def keep_link(self, training_ns: int = 500) -> None:
        """Simulate a link without a device, for ever: up, and down for a while after a reset
        request."""
        while True:
            self.link(True)
            await self.until_reset()
            self.link(False)
            await Timer(training_ns, "ns")
            await self.until_released()

    @property
    def idle(self) -> bool:
        """Whether the design has taken all TLPs sent."""
        return not self._in_flight

    async def send(self, raw: bytes, token: object = None) -> TlpRecord:
        """Send a TLP; returns as soon as the next TLP may be sent."""
        if not raw or len(raw) % 4:
            raise ValueError(f"a TLP must be whole dwords, not {len(raw)} bytes")
        record = TlpRecord(raw, token=token)
        self._in_flight.append(record)
        step = TRANSFER_DWORDS * 4
        for start in range(0, len(raw), step):
            part = raw[start:start + step]
            while self._tx_accept.value != self._request:
                await ValueChange(self._tx_accept)
            for n, data in enumerate(self._tx_data):
                chunk = part[n * CHUNK_BITS // 8:(n + 1) * CHUNK_BITS // 8]
                if chunk:
                    data.value = int.from_bytes(chunk, "little")
            self._request ^= 1
            self._tx_control.value = (self._request | (start + step >= len(raw)) << 1
                                      | len(part) // 4 << 2)
        return record

    async def _watch_progress(self):
        waiting = None
        while True:
            await Timer(self.patience_ns // 2, "ns")
            oldest = self._in_flight[0] if self._in_flight else None
            if oldest is None or oldest is not waiting:
                waiting, chances = oldest, 2
                continue
            chances -= 1
            if not chances:
                raise DesignHangs(
                    f"{self.name}: not taken for {self.patience_ns} ns: "
                    f"{describe(unpack(oldest.raw))}; {len(self._in_flight)} TLP(s) wait")

    async def _watch_rules(self):
        await ValueChange(self._rx_broken)
        broken = int(self._rx_broken.value)
        raise StreamBroken(f"{self.name}: " + ", ".join(
            f"{CLASSES[n // len(RULES)]}: {RULES[n % len(RULES)]}"
            for n in range(len(CLASSES) * len(RULES)) if broken >> n & 1))

    async def _watch_taken(self):
        count = int(self._tx_taken.value)
        while True:
            await ValueChange(self._tx_taken)
            now = int(self._tx_taken.value)
            if now != (count + 1) & 0xffff:
                raise RuntimeError(f"{self.name}: {now - count} TLPs taken in one cycle")
            count = now
            info = int(self._tx_info.value)
            record = self._in_flight.popleft()
            record.first_cycle, record.last_cycle = info & 0xffffffff, info >> 32
            self.tlps_sent += 1
            for callback in self.sent:
                callback(record)

    async def _watch_received(self):
        parts: list[bytes] = []
        while True:
            await ValueChange(self._rx_count)
            info = int(self._rx_info.value)
            dwords = info >> 64 & 0x7f
            whole = b"".join(
                data.value.to_unsigned().to_bytes(CHUNK_BITS // 8, "little")
                for data in self._rx_data[:(dwords * 32 + CHUNK_BITS - 1) // CHUNK_BITS])
            parts.append(whole[:dwords * 4])
            if not info >> 73 & 1:
                continue
            record = TlpRecord(b"".join(parts), info & 0xffffffff, info >> 32 & 0xffffffff,
                               info >> 71 & 3, bool(info >> 74 & 1))
            parts = []
            self.tlps_received += 1
            for callback in self.received:
                callback(record)


def tolerate(bridge):
    """Let ``bridge`` route messages, atomics and locked reads, which the library's bridge
    refuses."""
    match, match_secondary = bridge.match_tlp, bridge.match_tlp_secondary

    def as_memory(tlp):
        if tlp.fmt_type not in _ATOMICS | _LOCKED_READS:
            return tlp
        shadow = Tlp(tlp)
        shadow.fmt_type = TlpType.MEM_READ_64
        return shadow

    bridge.match_tlp = lambda tlp: not is_message(tlp) and match(as_memory(tlp))
    bridge.match_tlp_secondary = lambda tlp: match_secondary(as_memory(tlp))


class RootComplex(LibraryRootComplex):
    """The library's root complex; every request ends in a completion or in an exception.

    Parameters
    ----------
    timeout_ns : int
        Completion timeout of every request, in nanoseconds of simulated time. A design answers
        every request, so a timeout is an error even while the bus is scanned.
    max_payload : int
        Bytes of payload in one TLP: 128, 256, 512, ...

    Attributes
    ----------
    messages : list
        Messages received.
    """

    def __init__(self, *, timeout_ns: int = 200_000, max_payload: int = 256):
        super().__init__()
        self.timeout_ns = timeout_ns
        self.max_payload_size = max_payload.bit_length() - 8
        self.messages: list[Tlp] = []
        self._off = False
        tolerate(self.upstream_bridge)

    def make_port(self, bridge=None, port=None):
        """Make a root port, to be connected to a :class:`~.links.LibraryLink`."""
        bridge = super().make_port(bridge, port)
        tolerate(bridge)
        return bridge

    def power_off(self) -> None:
        """Stop all software activities: requests without a completion wait for ever."""
        self._off = True

    def alloc_region(self, size):
        """Address and memory of ``size`` bytes of host memory, in whole pages.

        A read of the last bytes reads their whole dword, so the size must be whole dwords.
        """
        return super().alloc_region(-(-size // 4096) * 4096)

    def free_region(self, address: int) -> None:
        """Free the region at ``address`` from :meth:`alloc_region`; it must not be in use any more.

        Unused regions slow down every access of a device, as each access searches all regions.
        """
        pool = self.mem_pool
        pool.allocator.free(address)
        pool.regions[:] = [region for region in pool.regions if region[0] != address]

    async def perform_nonposted_operation(self, req, timeout=0, timeout_unit="ns"):
        """Perform ``req``; the library's own timeouts are not used."""
        kind = req.fmt_type
        # In a task of its own, so that the tag is freed even if the calling task is cancelled.
        completions = await cocotb.start_soon(
            super().perform_nonposted_operation(req, self.timeout_ns, "ns"))
        if self._off:
            await Event().wait()
        last = completions[-1] if completions else None
        if last is None or (req.fmt_type in _MEMORY_READS and last.status == CplStatus.SC
                            and last.byte_count > completion_length(last)):
            req.fmt_type = kind  # the root port changed it
            raise CompletionTimeout(f"{describe(req)}: {len(completions)} completion(s), not "
                                    f"complete after {self.timeout_ns} ns")
        return completions

    async def request(self, kind: TlpType, address: int = 0, *, length: int = 1,
                      first_be: int = 15, last_be: int = 0, data: bytes = b"",
                      target: PcieId | None = None, port=None) -> list[Tlp]:
        """Perform a non-posted request with any fields, right or wrong; return the completions.

        The request is routed like all others, or sent unchanged out of root port ``port`` (then
        only its first completion is returned).
        """
        tlp = Tlp()
        tlp.fmt_type = kind
        tlp.requester_id = PcieId(0, 0, 0)
        tlp.address, tlp.length = address, length
        tlp.first_be, tlp.last_be = first_be, last_be
        if data:
            tlp.set_data(data)
        if target is not None:
            tlp.completer_id = target
        if port is None:
            return await self.perform_nonposted_operation(tlp)
        tlp.tag = await self.alloc_tag()
        await port.downstream_send(tlp)
        completion = await self.recv_cpl(tlp.tag, self.timeout_ns, "ns")
        self.release_tag(tlp.tag)
        if self._off:
            await Event().wait()
        if completion is None:
            raise CompletionTimeout(f"{describe(tlp)}: not complete after {self.timeout_ns} ns")
        return [completion]

    async def handle_tlp(self, tlp):
        if tlp.is_completion() and not self.tag_active[tlp.tag]:
            raise UnexpectedCompletion(f"root complex: {describe(tlp)}")
        if is_message(tlp):
            tlp.release_fc()
            self.messages.append(tlp)
        elif not tlp.is_completion() and tlp.fmt_type not in self.rx_tlp_handler:
            tlp.release_fc()
            if tlp.is_nonposted():
                await self.send(Tlp.create_ur_completion_for_tlp(tlp, PcieId(0, 0, 0)))
        else:
            await super().handle_tlp(tlp)

    async def enumerate(self, timeout=0, timeout_unit="ns"):
        """The library's own enumeration."""
        await super().enumerate(self.timeout_ns, "ns")


async def until(condition: Callable[[], bool], what: str, *, timeout_ns: int,
                poll_ns: int = 1000) -> None:
    """Wait until ``condition()``, at most ``timeout_ns``; ``what`` is for the log."""
    waited = 0
    while not condition():
        if waited >= timeout_ns:
            log.error("%s: not after %d ns", what, timeout_ns)
            return
        await Timer(poll_ns, "ns")
        waited += poll_ns
