"""A cocotb bench that puts a PCIe endpoint in Verilog below a stock Linux kernel.

Of DXPU it needs nothing but the socket at ``$CARRIER``, whose messages are written down in
docs/reference/linux-carrier.md. For an endpoint of your own, change what is said about its ports.
"""

import os
import select
import socket
import struct
from collections import deque

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

HELLO, TLP, LINK, RESET = 1, 2, 3, 4
#: Cycles without traffic, with the link up, after which the bench sleeps until a message comes, but
#: 10 ms at most.
QUIET = 200


class Carrier:
    """The simulation's end of the socket."""

    def __init__(self, path: str):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.bytes = b""
        self.send(HELLO, struct.pack("<4sH2x", b"TLPS", 1))

    def send(self, kind: int, payload: bytes):
        """Send a message."""
        self.socket.sendall(struct.pack("<IB3x", len(payload), kind) + payload)

    def messages(self, wait_s: float):
        """All messages that have come, as kind and payload; at the socket's end ``None``."""
        if select.select([self.socket], [], [], wait_s)[0]:
            try:
                new = self.socket.recv(1 << 16)
            except ConnectionError:
                new = b""
            if not new:
                yield None
                return
            self.bytes += new
        while len(self.bytes) >= 8:
            length, kind = struct.unpack_from("<IB3x", self.bytes)
            if len(self.bytes) < 8 + length:
                break
            payload, self.bytes = self.bytes[8:8 + length], self.bytes[8 + length:]
            yield kind, payload


def class_of(tlp: bytes) -> str:
    """Credit class of a TLP: posted, non-posted, completion (PCIe Base 5.0, 2.6.1)."""
    kind = tlp[0] & 0x1f
    if kind in (0x0a, 0x0b):
        return "cpl"
    return "p" if kind & 0x10 or (kind == 0 and tlp[0] & 0x40) else "np"


class Endpoint:
    """The ports of the endpoint: 32 bits a beat, byte 0 of a TLP in bits 7:0 of its first beat."""

    def __init__(self, dut):
        self.dut = dut
        #: What shall go in, and dwords of the TLP that is going in.
        self.waiting: deque[bytes] = deque()
        self.beats: deque[tuple[str, int, bool, bool]] = deque()
        self.taken = b""
        #: Credits used so far by what came out: TLPs, and units of 16 bytes.
        self.used = {name: [0, 0] for name in ("p", "np", "cpl")}
        for name in self.used:
            for signal in ("valid", "discard", "data", "first", "last"):
                getattr(dut, f"port_tx_{name}_{signal}").value = 0
            getattr(dut, f"port_tx_{name}_dwords").value = 1
            self.grant(name)
        dut.port_rx_ready.value = 1
        dut.reset.value = 0

    def grant(self, name):
        """Credits for 128 more TLPs, and for 16 KiB more."""
        headers, units = self.used[name]
        getattr(self.dut, f"port_rx_{name}_header").value = headers + 128 & 0xffff
        getattr(self.dut, f"port_rx_{name}_data").value = units + 1024 & 0xffff

    def offer(self):
        """Offer the next beat, if there is one and none is on offer."""
        if not self.beats and self.waiting:
            tlp = self.waiting.popleft()
            name = class_of(tlp)
            self.beats.extend(
                (name, int.from_bytes(tlp[n:n + 4], "little"), n == 0, n + 4 == len(tlp))
                for n in range(0, len(tlp), 4))
        if self.beats:
            name, data, first, last = self.beats[0]
            for signal, value in (("data", data), ("first", first), ("last", last), ("valid", 1)):
                getattr(self.dut, f"port_tx_{name}_{signal}").value = value

    def moved(self) -> bytes | None:
        """What the last edge of the clock moved; returns a TLP that has come out."""
        if self.beats:
            name = self.beats[0][0]
            if int(getattr(self.dut, f"port_tx_{name}_ready").value):
                self.beats.popleft()
                getattr(self.dut, f"port_tx_{name}_valid").value = 0
        if not int(self.dut.port_rx_valid.value):
            return None
        self.taken += int(self.dut.port_rx_data.value).to_bytes(4, "little")
        if not int(self.dut.port_rx_last.value):
            return None
        tlp, self.taken = self.taken, b""
        name = class_of(tlp)
        self.used[name][0] += 1
        if tlp[0] & 0x40:
            self.used[name][1] += ((((tlp[2] & 3) << 8 | tlp[3]) or 1024) + 3) // 4
        self.grant(name)
        return tlp


@cocotb.test
async def below_linux(dut):
    """TLPs go both ways until the carrier closes the socket."""
    endpoint = Endpoint(dut)
    dut.rst.value = 1
    cocotb.start_soon(Clock(dut.clk, 8, "ns").start())
    for _ in range(4):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    await RisingEdge(dut.clk)
    carrier = Carrier(os.environ["CARRIER"])
    link, quiet = 0, 0
    while True:
        for message in carrier.messages(0.01 if link and quiet > QUIET else 0):
            quiet = 0
            if message is None:
                return
            kind, payload = message
            if kind == TLP:
                endpoint.waiting.append(payload)
            elif kind == RESET:
                dut.reset.value = payload[0]
                endpoint.waiting.clear()
        for _ in range(16):
            endpoint.offer()
            await RisingEdge(dut.clk)
            quiet += 1
            tlp = endpoint.moved()
            if tlp is not None:
                quiet = 0
                carrier.send(TLP, tlp)
            if int(dut.port_link_up.value) != link:
                link ^= 1
                carrier.send(LINK, bytes([link]))
