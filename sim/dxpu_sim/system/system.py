"""Python side of :class:`dxpu_sim.system.design.System`: root complex, GPUs, manager, checkers."""

import os
import random

from cocotb.triggers import Timer

from dxpu.tlp.types import Malformed, TlpClass
from dxpu_model.tlp import classify, malformed
from dxpu_sim.endpoint.driver import find_gpus
from dxpu_sim.endpoint.gpu import Gpu
from dxpu_sim.ethernet.pcap import INTERRUPT
from dxpu_sim.pcie.checkers import CheckFailed, watch
from dxpu_sim.pcie.links import DirectLink, LibraryLink, replace_port
from dxpu_sim.pcie.ports import Mailbox, RootComplex, quiet, until
from dxpu_sim.pcie.switch_route import SwitchRoute
from dxpu_tools.collection import keep

from .capture import captured
from .setup import Proxy, bind, let_open, open_session, wait_for_session, wait_for_slot
from .shape import shape

__all__ = ["LOSS_COUNTERS", "SimulatedSystem"]

#: Counters that may rise in a clean run; all others must stay zero.
TRAFFIC_COUNTERS = ("fabric_tx_frames", "fabric_tx_tlps", "fabric_rx_frames", "fabric_rx_tlps",
                    "fabric_tx_waited", "pool_waited",
                    "tx_good", "rx_good", "table_committed", "switch_config",
                    # Hot-plug.
                    "switch_interrupt",
                    # From one GPU to another.
                    "switch_peer",
                    # A bus scan reads devices that do not exist.
                    "switch_unsupported0")


#: Counters that rise when the Ethernet loses frames.
LOSS_COUNTERS = ("fabric_link_gap", "fabric_link_nak", "fabric_link_duplicate",
                 "fabric_retry_timeout", "fabric_tx_repeated", "fabric_rx_refused")


class SimulatedSystem:
    """A host with its GPUs behind proxies, ready to be used.

    Registers are used for the manager's part; all traffic is checked at its ends (see
    :mod:`dxpu_sim.pcie.checkers`). GPU n is bound to downstream port n.

    Parameters
    ----------
    dut : cocotb handle
    options : dict
        Arguments of :class:`~dxpu_sim.system.design.System` for this design.
    gpu : dict
        Arguments of every :class:`~dxpu_sim.endpoint.gpu.Gpu`, besides serial number and name.
    behind : dict
        For some GPUs, by number: a function from the GPU to the port of the library that is put
        into the slot.

    Attributes
    ----------
    rc : RootComplex
        The present root complex, or the last one before a power-off.
    root_port
        Root port of ``rc``.
    host_link : :class:`~dxpu_sim.pcie.links.DirectLink`
        Link to the root port.
    gpus : list of :class:`~dxpu_sim.endpoint.gpu.Gpu`
    links : list of :class:`~dxpu_sim.pcie.links.DirectLink`
        PCIe link of each GPU; for those of ``behind`` a
        :class:`~dxpu_sim.pcie.links.LibraryLink`.
    drivers : list of :class:`~dxpu_sim.endpoint.driver.GpuDriver`
        Drivers in the order of ``gpus``; set by :meth:`start`.
    hosts, boxes : list of :class:`~dxpu_sim.system.setup.Proxy`
    host : :class:`~dxpu_sim.system.setup.Proxy`
        The first host; with several hosts, all other attributes belong to the first.
    host_names : list of str
        Names of the hosts' PCIe ports.
    host_routes : list of :class:`~dxpu_sim.pcie.switch_route.SwitchRoute`
        Routes of each host's switch.
    routes : :class:`~dxpu_sim.pcie.switch_route.SwitchRoute`
        Routes of the first host's switch.
    slots : list of (box, slot)
        Place of each GPU.
    titles : list of str
        Name of each GPU, as in its registers.
    ports : int
        Downstream ports of the host proxy.
    """

    def __init__(self, dut, options=None, *, gpu=None, behind=None):
        quiet()
        self.dut = dut
        self.seed = int(os.environ["DXPU_SEED"])
        self.rng = random.Random(self.seed)
        design = shape(options or {})
        self._names, self._period_ns = design.names, (options or {}).get("period_ps", 8000) / 1000
        self.ports = design.ports
        self.slots = [(b, s + 1) for b, count in enumerate(design.boxes) for s in range(count)]
        self.names = [f"gpu{n}" for n in range(len(self.slots))]
        self.host_names = design.names[:design.hosts]
        self.mailboxes = {name: Mailbox(dut, name) for name in (*self.host_names, *self.names)}
        self.host_routes = [
            SwitchRoute(name, dict(enumerate(self.names)) if name == "host" else {},
                        ports=design.ports, placeholders=design.placeholders)
            for name in self.host_names]
        self.routes = self.host_routes[0]
        self.routes.present.clear()
        self.checker = watch(self.mailboxes, route=self._route, originates=self._originates)
        self._make_host()
        self.titles = [f"GPU {n} (box {b}, slot {s})" for n, (b, s) in enumerate(self.slots)]
        self.gpus, self.links = [], []
        for n, name in enumerate(self.names):
            self.gpus.append(Gpu(serial=0x4458_5055_0000_0000 | n + 1, name=self.titles[n],
                                 **(gpu or {})))
            if n in (behind or {}):
                link = LibraryLink(self.mailboxes[name])
                link.connect(behind[n](self.gpus[-1]))
            else:
                link = DirectLink(self.mailboxes[name])
                replace_port(self.gpus[-1], "upstream", link)
            link.resets.append(self.gpus[-1].hot_reset)
            link.ups.append(lambda name=name: self.checker.reborn(name))
            self.links.append(link)
        proxies = [Proxy(dut, f"{name}_bus", map, node) for name, map, node in
                   zip(design.names, design.maps, design.nodes, strict=True)]
        self.hosts, self.boxes = proxies[:design.hosts], proxies[design.hosts:]
        self.host = self.hosts[0]
        self.drivers = []
        keep()

    def capture(self, path):
        """A context in which every frame and every TLP is written into a file; for a design that
        was built with :func:`~dxpu_sim.system.capture.public`."""
        return captured(self.dut, self.mailboxes.values(), self._names, path,
                        period_ns=self._period_ns, remark=self._remark)

    def _remark(self, name, record):
        """Comment of a TLP that has left the design."""
        if name not in self.host_names or malformed(record.raw) != Malformed.NONE:
            return ""
        info = classify(record.raw)
        return INTERRUPT * (info.cls is TlpClass.P and info.address in self._interrupts(name))

    def _interrupts(self, host):
        """Addresses at which writes of devices interrupt a host; none if no software runs there."""
        if host != "host":
            return ()
        first = self.rc.msi_region.get_absolute_address(0)
        return range(first, first + self.rc.msi_region.size)

    def _make_host(self, **options):
        self.rc = RootComplex()
        self.host_link = DirectLink(self.mailboxes["host"], **options)
        self.root_port = self.rc.make_port()
        replace_port(self.root_port, "downstream", self.host_link)

    def _owner(self, port):
        """Routes of the switch to which a PCIe port belongs now; ``None`` for a GPU in no slot."""
        return next((r for r in self.host_routes if port == r.host or port in r.slots.values()),
                    None)

    def _route(self, port, header):
        owner = self._owner(port)
        return [] if owner is None else owner(port, header)

    def _originates(self, port, header):
        owner = self._owner(port)
        # Into a link that is down, a switch after a reset may send under its new ID.
        return (owner is not None and owner.originates(port, header)
                or port in self.host_names and not self._link_is_up(port))

    def _link_is_up(self, host):
        return self.host_link.up

    def power_off(self):
        """Cut the host's power, in the middle of any activity.

        Nothing sent before may reach the host after it is on again.
        """
        self.rc.power_off()
        self.host_link.retire()
        for name in (*self.host_names, *self.names):
            self.checker.fault(name)

    async def power_on(self):
        """Switch the host on, with a new root complex, and wait for the link.

        TLPs to the GPUs may get lost until the checker knows that they are mended.
        """
        self._make_host(up=False)
        self.host_link.ups.append(self._host_up)
        await self.host_link.put_back()

    def _host_up(self):
        self.checker.reborn("host")
        self.checker.mended("host")
        self.routes.reset()

    async def prepare(self, *, packing_limit=512, retry_wait=None, hello=None):
        """Do the manager's part before bindings: nodes, sessions, presence of GPUs.

        ``retry_wait`` replaces the default of register ``control.retry``. Sessions are set up by
        registers, or opened by HELLO if ``hello`` holds arguments of
        :func:`~dxpu_sim.system.setup.let_open`.
        """
        await Timer(1, "us")
        for proxy in (*self.hosts, *self.boxes):
            await proxy.write("control.fabric", packing_limit=packing_limit, ack_delay=125)
            if retry_wait is not None:
                await proxy.write("control.retry", wait=retry_wait)
        for n, box in enumerate(self.boxes):
            for h, host in enumerate(self.hosts):
                if hello:
                    await let_open(host, box, peer_host=n, peer_box=h, **hello)
                    await wait_for_session(host, n)
                else:
                    a, b = self.rng.sample(range(1, 1 << 16), 2)
                    await open_session(host, box, peer_a=n, peer_b=h, tag_a=a, tag_b=b)
            there = sum(1 << s - 1 for owner, s in self.slots if owner == n)
            await box.write("control.present", slots=there)

    async def connect(self, *, paths=0b01, **options):
        """Do the manager's part: :meth:`prepare`, then all bindings, over ``paths``."""
        await self.prepare(**options)
        for port, (b, slot) in enumerate(self.slots):
            await bind(self.host, port, self.boxes[b], slot, generation=1, operation_id=port + 1,
                       paths=paths)
        for port in range(len(self.slots)):
            await wait_for_slot(self.host, port, link=1)
        self.routes.present.update(range(len(self.slots)))

    async def start(self, *, paths=0b01, retry_wait=None, **options):
        """Connect, enumerate, and open a driver for every GPU."""
        await self.connect(paths=paths, retry_wait=retry_wait)
        await self.rc.enumerate()
        self.drivers = find_gpus(self.rc)
        if len(self.drivers) != len(self.gpus):
            raise CheckFailed(f"{len(self.drivers)} of {len(self.gpus)} GPUs were enumerated")
        for driver in self.drivers:
            await driver.open(**options)

    async def idle(self, timeout_ns=200_000):
        """Wait until every TLP has arrived."""
        await until(lambda: not self.checker.outstanding(), "all TLPs have arrived",
                    timeout_ns=timeout_ns)

    async def counters(self):
        """Counters of all proxies: proxy name to counter name to total."""
        await Timer(2, "us")
        return {proxy.name.removesuffix("_bus"): await proxy.counters()
                for proxy in (*self.hosts, *self.boxes)}

    async def finish(self, *, allow=()):
        """Wait until everything has arrived, then check checkers and counters; returns the
        counters.

        Counters whose names end with an element of ``allow`` may have risen.
        """
        await self.idle()
        self.checker.finish()
        counters = await self.counters()
        bad = [f"{proxy}.{name} = {total}" for proxy, totals in counters.items()
               for name, total in totals.items()
               if total and not name.endswith((*TRAFFIC_COUNTERS, *allow))]
        if bad:
            raise CheckFailed("counters that should be zero: " + ", ".join(bad))
        return counters
