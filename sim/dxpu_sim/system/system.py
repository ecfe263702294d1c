"""Python side of :class:`dxpu_sim.system.design.System`: root complex, GPUs, manager, checkers."""

import os
import random

from cocotb.triggers import Timer

from dxpu_sim.endpoint.driver import find_gpus
from dxpu_sim.endpoint.gpu import Gpu
from dxpu_sim.pcie.checkers import CheckFailed, watch
from dxpu_sim.pcie.ports import DutPort, Mailbox, RootComplex, quiet, until
from dxpu_sim.pcie.switch_route import SwitchRoute

from .design import System
from .setup import Proxy, bind, let_open, open_session, wait_for_session, wait_for_slot

__all__ = ["LOSS_COUNTERS", "SimulatedSystem"]

#: Counters that rise in a clean run; all others must stay zero.
TRAFFIC_COUNTERS = ("fabric_tx_frames", "fabric_tx_tlps", "fabric_rx_frames", "fabric_rx_tlps",
                    "fabric_tx_waited", "pool_waited",
                    "tx_good", "rx_good", "table_committed", "switch_config",
                    # Hot-plug.
                    "switch_interrupt",
                    # From one GPU to another.
                    "switch_peer",
                    # A bus scan asks for devices that are not there.
                    "switch_unsupported0")


#: Counters that rise where the Ethernet loses frames.
LOSS_COUNTERS = ("fabric_link_gap", "fabric_link_nak", "fabric_link_duplicate",
                 "fabric_retry_timeout", "fabric_tx_repeated", "fabric_rx_refused")


class SimulatedSystem:
    """A host with its GPUs behind proxies, ready to be used.

    The manager's part is done through registers, all traffic is checked at its ends (see
    :mod:`dxpu_sim.pcie.checkers`). Which slot is bound to which downstream port: GPU n to port n.

    Parameters
    ----------
    dut : cocotb handle
    options : dict
        Arguments of :class:`~dxpu_sim.system.design.System` that the design was made with.
    gpu : dict
        Arguments of every :class:`~dxpu_sim.endpoint.gpu.Gpu`, beside serial number and name.
    behind : dict
        For some GPUs, by number: a function that takes the GPU and returns the port of the library
        that is to be in the slot.

    Attributes
    ----------
    rc : RootComplex
        The one that is on, or was last.
    root_port
        Its port of the library.
    host_link : :class:`~dxpu_sim.pcie.ports.DutPort`
        The link to that.
    gpus : list of :class:`~dxpu_sim.endpoint.gpu.Gpu`
    links : list of :class:`~dxpu_sim.pcie.ports.DutPort`
        The PCIe link of each.
    drivers : list of :class:`~dxpu_sim.endpoint.driver.GpuDriver`
        After :meth:`start`; in the order of ``gpus``.
    hosts, boxes : list of :class:`~dxpu_sim.system.setup.Proxy`
    host : :class:`~dxpu_sim.system.setup.Proxy`
        The first host, to which all other attributes belong where there are several.
    host_names : list of str
        Names of the hosts' PCIe ports.
    host_routes : list of :class:`~dxpu_sim.pcie.switch_route.SwitchRoute`
        Of each host's switch.
    routes : :class:`~dxpu_sim.pcie.switch_route.SwitchRoute`
        The first of them.
    slots : list of (box, slot)
        Where each GPU stands.
    titles : list of str
        The name that each GPU gives itself.
    ports : int
        Downstream ports of the host proxy.
    """

    def __init__(self, dut, options=None, *, gpu=None, behind=None):
        quiet()
        self.dut = dut
        self.seed = int(os.environ["DXPU_SEED"])
        self.rng = random.Random(self.seed)
        design = System(**(options or {}))
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
            link = DutPort(self.mailboxes[name])
            link.connect((behind or {}).get(n, lambda gpu: gpu.upstream_port)(self.gpus[-1]))
            link.resets.append(self.gpus[-1].hot_reset)
            link.ups.append(lambda name=name: self.checker.reborn(name))
            self.links.append(link)
        proxies = [Proxy(dut, f"{name}_bus", map, node) for name, map, node in
                   zip(design.names, design.maps, design.nodes, strict=True)]
        self.hosts, self.boxes = proxies[:design.hosts], proxies[design.hosts:]
        self.host = self.hosts[0]
        self.drivers = []

    def _make_host(self, **options):
        self.rc = RootComplex()
        self.host_link = DutPort(self.mailboxes["host"], **options)
        self.root_port = self.rc.make_port()
        self.root_port.connect(self.host_link)

    def _owner(self, port):
        """Routes of the switch that a PCIe port belongs to now; ``None`` for a GPU in no slot."""
        return next((r for r in self.host_routes if port == r.host or port in r.slots.values()),
                    None)

    def _route(self, port, header):
        owner = self._owner(port)
        return [] if owner is None else owner(port, header)

    def _originates(self, port, header):
        owner = self._owner(port)
        # Into a link that is down a switch that was reset may send under its new name.
        return (owner is not None and owner.originates(port, header)
                or port in self.host_names and not self._link_is_up(port))

    def _link_is_up(self, host):
        return self.host_link.up

    def power_off(self):
        """The host loses its power, in the middle of whatever it does: nothing that was sent before
        may reach it when it is on again."""
        self.rc.power_off()
        self.host_link.retire()
        for name in (*self.host_names, *self.names):
            self.checker.fault(name)

    async def power_on(self):
        """The host is on again, with a root complex that knows nothing; it waits for the link. TLPs
        to the GPUs may get lost until the checker is told that they are mended."""
        self._make_host(up=False)
        self.host_link.ups.append(self._host_up)
        await self.host_link.put_back()

    def _host_up(self):
        self.checker.reborn("host")
        self.checker.mended("host")
        self.routes.reset()

    async def prepare(self, *, packing_limit=512, retry_wait=None, hello=None):
        """What the manager does before it binds: nodes, sessions, which slots hold a GPU.

        ``retry_wait`` is that of the register ``control.retry``, if another is wanted. Sessions are
        set up by registers, or opened by HELLO if ``hello`` has the arguments of
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
        """What the manager does: all of :meth:`prepare`, then all bindings, over ``paths``."""
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
        """Let everything arrive, and ask checkers and counters; returns the counters.

        Those whose names end with one of ``allow`` may have risen.
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
