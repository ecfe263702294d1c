"""Python side of :class:`dxpu_sim.software_host.box_design.BoxBench`: a box with GPUs, and its
user.

:class:`BoxSystem` does the manager's part and plays the GPUs. The user at the other end of the
Ethernet sends and receives the frames: :class:`SimulatedPort` connects a :class:`dxpu_host.Host`
that runs in simulated time.
"""

import os
import random
from collections import deque

import cocotb
from cocotb.task import resume
from cocotb.triggers import Event, First, Timer
from cocotb.utils import get_sim_time

from dxpu_sim.endpoint.gpu import Gpu
from dxpu_sim.pcie.links import DirectLink, replace_port
from dxpu_sim.pcie.ports import Mailbox, quiet
from dxpu_sim.system.setup import Proxy, RegisterError, give_key, wait_for_session

from .audit import HostAudit
from .bad_wire import BadWire
from .box_design import BoxBench

__all__ = ["BOX_NODE", "HOST_NODE", "KEY", "BoxSystem", "SimulatedPort"]

HOST_NODE, BOX_NODE = 0x001, 0x101
#: Key of a box that needs one, and of its host.
KEY = bytes(range(0x20, 0x30))


class BoxSystem:
    """A box with a GPU in each slot.

    Parameters
    ----------
    dut : cocotb handle
    options : dict
        Arguments of :class:`~dxpu_sim.software_host.box_design.BoxBench` for this design.
    gpu : dict
        Arguments of every :class:`~dxpu_sim.endpoint.gpu.Gpu`, besides serial number and name.

    Attributes
    ----------
    ethernet : :class:`~dxpu_sim.pcie.ports.Mailbox`
    box : :class:`~dxpu_sim.system.setup.Proxy`
    key : bytes or None
        The key of the box and its hosts; None if it needs none.
    gpus : list of :class:`~dxpu_sim.endpoint.gpu.Gpu`
    links : list of :class:`~dxpu_sim.pcie.links.DirectLink`
    mailboxes : list of :class:`~dxpu_sim.pcie.ports.Mailbox`
        PCIe ports of the slots.
    rng : random.Random
    """

    def __init__(self, dut, options=None, *, gpu=None):
        quiet()
        self.dut = dut
        self.rng = random.Random(int(os.environ["DXPU_SEED"]))
        design = BoxBench(**(options or {}))
        self.key = KEY if (options or {}).get("keys") else None
        self.ethernet = Mailbox(dut, "ethernet")
        self.box = Proxy(dut, "bus", design.map, BOX_NODE)
        self.gpus, self.links, self.mailboxes = [], [], []
        for n in range(len([name for name in design.signature.members if name.startswith("gpu")])):
            self.gpus.append(Gpu(serial=0x4458_5055_0000_0000 | n + 1,
                                 name=f"GPU of slot {n + 1}", **(gpu or {})))
            self.mailboxes.append(Mailbox(dut, f"gpu{n}"))
            link = DirectLink(self.mailboxes[-1])
            replace_port(self.gpus[-1], "upstream", link)
            link.resets.append(self.gpus[-1].hot_reset)
            self.links.append(link)

    async def prepare(self, *, boot=1, wait=60, quiet=100, retry=60, generation=1, hosts=None):
        """Write the manager's registers: hosts, sessions opened by the hosts, a row for each slot.

        ``hosts`` are the nodes of the rows, by default all the same. ``wait``, ``quiet`` and
        ``retry`` go to the registers ``hello``, ``quiet`` and ``retry``, in units of 64 cycles; the
        defaults are 31 us, 51 us, 31 us.
        """
        from dxpu.fabric.session.session import Mode
        box = self.box
        await Timer(1, "us")
        await box.write("control.node", number=BOX_NODE)
        await box.write("control.fabric", packing_limit=1500, ack_delay=125)
        await box.write("control.retry", wait=retry)
        await box.write("control.boot", counter=boot)
        await box.write("control.hello", wait=wait)
        await box.write("control.quiet", time=quiet)
        hosts = hosts or [HOST_NODE] * len(self.gpus)
        for n, node in enumerate(sorted(set(hosts))):
            await box.add_peer(n, node, clear=self.key is None)
            if self.key is not None:
                await give_key(box, n, self.key)
            await box.write(f"control.session[{n * box.streams}].mode", opener=Mode.ANSWERS.value)
        await box.write("control.present", slots=(1 << len(self.gpus)) - 1)
        for row, node in enumerate(hosts):
            await box.commit(row, used=1, generation=generation,
                             operation_id=boot << 16 | generation << 8 | row, node=node,
                             paths=1)

    async def restart(self, **options):
        """Reset the box, and :meth:`prepare` it with other options: at least a new ``boot``."""
        self.dut.restart.value = 1
        await Timer(1, "us")
        self.dut.restart.value = 0
        await self.prepare(**options)

    async def session(self, *, open=True, timeout_us=2000):
        """Wait until the session is open, or closed."""
        return await wait_for_session(self.box, 0, open=open, timeout_us=timeout_us)

    async def rises(self, counter, *, timeout_us=500):
        """Wait until a counter is not 0; returns the counter."""
        for _ in range(timeout_us):
            total = (await self.box.read(f"counters.{counter}"))["count"]
            if total:
                return total
            await Timer(1, "us")
        raise RegisterError(f"counters.{counter} is 0 after {timeout_us} us")


class SimulatedPort:
    """A :class:`dxpu_host.Port` in simulated time, for a host in a thread of
    :func:`cocotb.task.bridge`.

    Parameters
    ----------
    mailbox : :class:`~dxpu_sim.pcie.ports.Mailbox`
    there, back : :class:`~.bad_wire.BadWire`
        Wires to the box, and from the box.
    audit : :class:`~.audit.HostAudit`
        Checks each frame at the host's end of the wires.

    Attributes
    ----------
    wires : pair of :class:`~.bad_wire.BadWire`
    """

    #: Delay of the frames of the host.
    DELAY_NS = 500

    def __init__(self, mailbox: Mailbox, there: BadWire, back: BadWire, audit: HostAudit):
        self.wires, self._audit = (there, back), audit
        self._mailbox = mailbox
        self._outgoing: deque[bytes] = deque()
        self._incoming: deque[bytes] = deque()
        self._came, self._leaves = Event(), Event()
        self._time = get_sim_time("ns") * 1e-9
        mailbox.received.append(self._receive)
        self._task = cocotb.start_soon(self._pump())

    def now(self) -> float:
        """Seconds of simulated time."""
        return self._time

    def send(self, frame: bytes) -> None:
        """Send a frame; see :class:`dxpu_host.Port`."""
        self._audit.sent(frame)
        self._outgoing.extend(self.wires[0].carry(frame))

    def receive(self) -> bytes | None:
        """Receive a frame; see :class:`dxpu_host.Port`."""
        if not self._incoming:
            return None
        frame = self._incoming.popleft()
        self._audit.came(frame)
        return frame

    def wait(self, timeout: float) -> None:
        """Wait for a frame while the simulation goes on; see :class:`dxpu_host.Port`."""
        self.run(self._wait(timeout))

    def close(self) -> None:
        """Close the port after all frames have left; see :class:`dxpu_host.Port`."""
        self.wait(1e-6)
        self._mailbox.received.remove(self._receive)

    def run(self, coroutine):
        """Let the simulation run ``coroutine``, while the host waits; returns its result."""
        async def job():
            self._leaves.set()
            result = await coroutine
            self._time = get_sim_time("ns") * 1e-9
            return result
        return resume(job)()

    async def _wait(self, timeout):
        if not self._incoming:
            self._came.clear()
            # At most an hour, in place of "no timer".
            await First(self._came.wait(), Timer(max(1, round(min(timeout, 3600) * 1e9)), "ns"))

    def _receive(self, record):
        if not record.discard:
            self._incoming.extend(self.wires[1].carry(record.raw))
            if self._incoming:
                self._came.set()

    async def _pump(self):
        while True:
            while self._outgoing:
                await Timer(self.DELAY_NS, "ns")
                await self._mailbox.send(self._outgoing.popleft())
            self._leaves.clear()
            await self._leaves.wait()
