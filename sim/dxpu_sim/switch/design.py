"""The virtual switch between mailboxes: a root complex above, devices in its slots."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.arbiter import PacketArbiter
from dxpu.attach.egress import Egress
from dxpu.mapping import HostTable
from dxpu.stream import PacketLayout, check_width, connect
from dxpu.switch import Identity, PlaceholderOptions, SlotInfo, VirtualSwitch
from dxpu.tlp.ingress import Ingress
from dxpu.tlp.types import TlpInfo
from dxpu_sim.pcie.mailbox import CLASSES, MailboxSignature, TlpPort
from dxpu_sim.run.clock import SimClock

from .streams import Joiner, Splitter

__all__ = ["SwitchTop"]


class SwitchTop(wiring.Component):
    """Host table and virtual switch with a mailbox at each port; has its own clock.

    Parameters
    ----------
    width : int
        Data bits per beat.
    ports : int
        Number of downstream ports.
    placeholder : tuple of int, optional
        Arguments of :class:`~dxpu.switch.PlaceholderOptions`.

    Members
    -------
    host, device0, device1, ... : :class:`~dxpu_sim.pcie.mailbox.MailboxSignature`
    present : ``ports``
        Presence of devices in the slots.
    count_config, count_unsupported0, ... : 16
        Counters, one for each of :attr:`VirtualSwitch.STATS`.
    count_malformed, count_discarded, count_overflow : 16
        Counters of TLPs that did not enter the switch, all ports together.
    """

    #: Counters besides those of the switch.
    ENTRY = ("malformed", "discarded", "overflow")
    COUNTERS = (*(name.removeprefix("stat_") for name in VirtualSwitch.STATS), *ENTRY)

    def __init__(self, width=64, *, ports=3, depth=512, placeholder=None):
        super().__init__({
            "host": In(MailboxSignature()),
            **{f"device{n}": In(MailboxSignature()) for n in range(ports)},
            "present": In(ports),
            **dict.fromkeys((f"count_{name}" for name in self.COUNTERS), Out(16)),
        })
        self._width = check_width(width)
        self._ports = ports
        self._depth = depth
        self._identity = Identity(
            placeholder=None if placeholder is None else PlaceholderOptions(*placeholder))

    def elaborate(self, platform):
        m = Module()
        m.submodules.clock = SimClock()
        m.submodules.switch = self._switch = switch = VirtualSwitch(
            self._width, ports=self._ports, identity=self._identity)
        m.submodules.table = table = HostTable(ports=self._ports)
        for n in "01":
            connect(m, getattr(switch, f"lookup{n}"), getattr(table, f"lookup{n}"))
            connect(m, getattr(table, f"result{n}"), getattr(switch, f"result{n}"))
        m.d.comb += [table.config.eq(switch.config), switch.present.eq(self.present)]

        ingresses = []
        source, sink = self._port(m, "host", 1, ingresses)
        connect(m, source.info, switch.upstream_info)
        connect(m, source.beats, switch.upstream_beats)
        connect(m, switch.upstream_o, sink)
        m.submodules.merge = merge = PacketArbiter(self._width, count=self._ports, meta=SlotInfo)
        m.submodules.split = split = Splitter(self._width, SlotInfo)
        connect(m, merge.o, split.i)
        connect(m, split.info, switch.downstream_info)
        connect(m, split.beats, switch.downstream_beats)
        out = switch.downstream_o
        for n in range(self._ports):
            source, sink = self._port(m, f"device{n}", n + 2, ingresses)
            m.submodules[f"join{n}"] = join = Joiner(self._width, TlpInfo)
            connect(m, source.info, join.info)
            connect(m, source.beats, join.beats)
            self._beats(m, join.o, merge.i[n])
            m.d.comb += [merge.i[n].p.meta.port.eq(n), merge.i[n].p.meta.info.eq(join.o.p.meta),
                         merge.i[n].p.meta.life.eq(switch.lives[n])]
            chosen = out.p.meta.port == n
            self._beats(m, out, sink, chosen)
            m.d.comb += sink.p.meta.eq(out.p.meta.cls)

        events = {name.removeprefix("stat_"): [getattr(switch, name)] for name in switch.STATS}
        for name in self.ENTRY:
            events[name] = [getattr(i, f"stat_{name}") for i in ingresses]
        for name, pulses in events.items():
            counter = getattr(self, f"count_{name}")
            m.d.sync += counter.eq(counter + sum(pulses))
        return m

    def _port(self, m, name, seed, ingresses):
        """Make mailbox, ingress and egress of a port."""
        m.submodules[name] = box = TlpPort(self._width, seed=seed)
        m.submodules[f"{name}_in"] = ingress = Ingress(self._width, depth=self._depth)
        m.submodules[f"{name}_out"] = egress = Egress(self._width, depth=self._depth)
        wiring.connect(m, wiring.flipped(getattr(self, name)), box.py)
        connect(m, box.o, ingress.i)
        for cls in CLASSES:
            connect(m, getattr(egress, cls), getattr(box, f"i_{cls}"))
        m.d.comb += ingress.max_payload.eq(self._switch.max_payload[len(ingresses)])
        ingresses.append(ingress)
        return ingress, egress.i

    def _beats(self, m, source, sink, chosen=1):
        """Connect two streams without their side information."""
        m.d.comb += [
            *(sink.p[k].eq(source.p[k]) for k, _ in PacketLayout(self._width)),
            sink.valid.eq(source.valid & chosen),
        ]
        with m.If(chosen):
            m.d.comb += source.ready.eq(sink.ready)
