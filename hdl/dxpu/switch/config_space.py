"""Configuration spaces of all ports, in one block RAM."""

from functools import reduce
from operator import or_

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.mapping.types import ConfigUpdate
from dxpu.priority import encode, lowest_bit
from dxpu.stream import connect
from dxpu.switch.config.fields import (
    FUNCTION_DWORDS, HIGH, HIGH_DWORDS, HIGH_KEPT, STICKY, STICKY_DPC,
)
from dxpu.switch.config.identity import Identity
from dxpu.switch.config.placeholder_map import HELD, hide, placeholder_map
from dxpu.switch.config.port_map import DOWNSTREAM, UPSTREAM, function_map
from dxpu.switch.errors.containment import ContainmentStatus
from dxpu.switch.errors.types import ContainmentTrigger, LogWrite, StatusRegisters
from dxpu.switch.hotplug.hotplug import HotPlug, SlotControl, SlotView
from dxpu.switch.hotplug.placeholder import PlaceholderStatus, Placeholders
from dxpu.switch.messages.messages import MessageRequest
from dxpu.tlp.types import TlpClass

from .types import ConfigRequest, PortState

__all__ = ["ConfigSpace", "StateMirror"]


class _Rule(data.Struct):
    """How a dword is written."""

    reset: 32
    rw: 32
    w1c: 32


class ConfigSpace(wiring.Component):
    """Configuration spaces of the upstream port and ``ports`` downstream ports.

    After reset the memory is filled from the reset image (:data:`FUNCTION_DWORDS` cycles a
    function); requests wait meanwhile. The downstream functions are filled again when Secondary Bus
    Reset of the upstream port is set, and when it is cleared. Each dword that is filled or changed
    is announced on ``config``, so whoever follows it is always in step, from reset on.

    Dwords from 200h on (:data:`~.config.fields.HIGH`) are kept where no capability is, and
    announced as the dwords of the memory that they are kept in.

    Requests are served in order, one at a time; a response comes 4 cycles after its request. A
    write has taken effect in ``states`` two cycles after ``config`` announced it, that is when its
    response is offered.

    Status bits are not in this memory. Those of Slot Status and PME Status of the downstream ports,
    with Slot Control and the links, are in :class:`~dxpu.switch.hotplug.hotplug.HotPlug`, which a
    fill resets too; those of errors are behind ``errors``, and those of containment in
    :class:`~dxpu.switch.errors.containment.ContainmentStatus`. The logs of errors are in the
    memory; ``log`` is taken whenever nothing else is written.

    With placeholders (``identity.placeholder``), dwords :data:`~.config.placeholder_map.HELD` and
    up of a downstream function are the configuration space of the endpoint that stands in its slot;
    they are filled again whenever its link goes. Who makes requests keeps software from them. With
    Downstream Port Containment a write that triggers it has set DPC Status when its response is
    offered.

    Ref: PCIe Base 5.0, chapter 7; all that is data is in :mod:`dxpu.switch.config.port_map`.

    Parameters
    ----------
    ports : int
        Downstream ports, 1 to 32.
    identity : Identity, optional
        Identifiers in the headers.

    Members
    -------
    request : stream of :class:`ConfigRequest`
        For functions 0 to ``ports`` only.
    response : stream of 32 bits
        Value read; for writes the new value.
    errors : :class:`~.errors.types.StatusRegisters`
        Of errors.
    log : stream of :class:`~.errors.types.LogWrite`
    down : 1
        The link of the upstream port is down: all functions are reset when it goes and when it
        comes, and the slots have no link meanwhile.
    present, link_up, press, intx : ``ports``
        See :class:`~dxpu.switch.hotplug.hotplug.HotPlug`.
    bound : ``ports``
        See :class:`~dxpu.switch.hotplug.placeholder.Placeholders`; without them it has no effect.
    refused, refused_cls : arrays
        ``refused`` and ``cls`` of :class:`~dxpu.switch.hotplug.placeholder.PlaceholderStatus`.
    msi, msi_taken : ``ports``
        ``request`` and ``taken`` there.
    pme : stream of :class:`~.messages.messages.MessageRequest`
        See :class:`~dxpu.switch.hotplug.hotplug.HotPlug`.
    slot_control : array of :class:`~dxpu.switch.hotplug.hotplug.SlotControl`
    slot_power : 10
        Captured Slot Power Limit: value [7:0], scale [9:8].
    serial : 32
        Lower half of the Device Serial Number.
    config : :class:`~dxpu.mapping.ConfigUpdate`
    states : array of :class:`PortState`
        By function.
    slot_off : ``ports``
        Level: software or containment has taken the link of the slot away.
    link_active : ``ports``
        Present, up, not disabled, not in reset, not switched off, not contained. A register, one
        cycle behind. That of a placeholder does not count.
    held : ``ports``
        The link of a placeholder is active.
    turned_off, orderly, surprise : ``ports``
        See :class:`~dxpu.switch.hotplug.hotplug.HotPlug`; with Downstream Port Containment only.
    malformed : ``ports``
        Pulses: a TLP of the slot is malformed; whether that triggers containment is decided here.
    triggers, announce, announced
        See :class:`~dxpu.switch.errors.containment.ContainmentStatus`.
    busy : 1
        Memory is being filled.
    """

    def __init__(self, *, ports=8, identity=None):
        if not isinstance(ports, int) or not 1 <= ports <= 32:
            raise ValueError(f"ports must be an integer from 1 to 32, not {ports!r}")
        self._ports = ports
        self._identity = identity or Identity()
        super().__init__({
            "request": In(stream.Signature(ConfigRequest)),
            "response": Out(stream.Signature(32)),
            "errors": Out(StatusRegisters()),
            "log": In(stream.Signature(LogWrite)),
            "down": In(1),
            "present": In(ports),
            "link_up": In(ports, init=(1 << ports) - 1),
            "press": In(ports),
            "bound": In(ports),
            "refused": In(data.ArrayLayout(ports, 2)),
            "refused_cls": In(data.ArrayLayout(TlpClass, 2)),
            "msi": Out(ports),
            "msi_taken": In(ports),
            "pme": Out(stream.Signature(MessageRequest)),
            "intx": Out(ports),
            "slot_control": Out(SlotControl).array(ports),
            "slot_power": In(10),
            "serial": In(32, init=self._identity.serial & 0xFFFF_FFFF),
            "config": Out(ConfigUpdate),
            "states": Out(PortState).array(ports + 1),
            "slot_off": Out(ports),
            "link_active": Out(ports),
            "held": Out(ports),
            "turned_off": In(1),
            "orderly": In(ports),
            "surprise": Out(ports),
            "malformed": In(ports),
            "triggers": In(ContainmentTrigger).array(2),
            "announce": Out(ports),
            "announced": In(ports),
            "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        dpc = self._identity.slot.dpc
        up = function_map(UPSTREAM, self._identity)
        down = function_map(DOWNSTREAM, self._identity)
        held = placeholder_map(self._identity) if self._identity.placeholder else None
        bits = (FUNCTION_DWORDS - 1).bit_length()

        m.submodules.memory = memory = Memory(
            shape=32, depth=FUNCTION_DWORDS * (self._ports + 1), init=[])
        write, read = memory.write_port(), memory.read_port()
        m.submodules.rules = rules = Memory(shape=_Rule, depth=2 * FUNCTION_DWORDS, init=[
            {"reset": reset, "rw": rw, "w1c": w1c}
            for fmap, inside in ((up, None), (down, held))
            for reset, rw, w1c in zip(*self._images(fmap, inside), strict=True)])
        rule = rules.read_port()

        # The access under way: a request or a step of the fill.
        access = Signal(ConfigRequest, reset_less=True)
        fill, filling = Signal(range(memory.depth + 1)), Signal()
        mapped, special = Signal(), Signal()
        old, new, live = (Signal(32, reset_less=True) for _ in range(3))
        refill, ones, command = Signal(), Signal(32), Signal()
        # What survives a reset of the functions: not the first fill.
        warm, sticky = Signal(), Signal()
        m.d.comb += sticky.eq((access.register >= STICKY.start) & (access.register < STICKY.stop)
                              | (access.register == STICKY_DPC if dpc else 0))
        all_due = Signal()  # all functions are to be filled
        renew, renewing = Signal(self._ports), Signal(self._ports)  # placeholders to be filled
        hotplug = self._hotplug(m, renew, renewing)
        update = Signal(ConfigUpdate)
        m.submodules.mirror = mirror = StateMirror(self._ports, self._identity)
        m.d.comb += [
            mapped.eq(access.register < FUNCTION_DWORDS),
            self.config.eq(update),
            read.addr.eq(Cat(access.register[:bits], access.function)),
            rule.addr.eq(Cat(access.register[:bits], access.function != 0)),
            # Logs are written between; none is before the first fill is over.
            self.log.ready.eq(~update.strobe & ~self.busy),
            write.addr.eq(Mux(update.strobe, Cat(update.register[:bits], update.function),
                              Cat(self.log.p.register[:bits], self.log.p.function))),
            write.data.eq(Mux(update.strobe, update.value, self.log.p.value)),
            write.en.eq(update.strobe | self.log.valid & self.log.ready),
        ]
        m.d.sync += [update.strobe.eq(0), self.errors.reset.eq(0)]
        status = self._status(m, access, update, ones)
        view = Signal(SlotView)  # of the function that is accessed
        with m.Switch(access.function):
            for n, v in enumerate(hotplug.views):
                with m.Case(n + 1):
                    m.d.comb += view.eq(v)
        held_live = self._held_live(m, access, update, ones, view, held) if held else 0
        m.d.comb += [
            hotplug.config.eq(update),
            hotplug.ones.eq(ones),
            hotplug.command.eq(command),
            hotplug.hold.eq(self.busy | refill | self.down | all_due),
        ]
        was_down = Signal()
        m.d.sync += was_down.eq(self.down)
        with m.If(self.down != was_down):
            m.d.sync += all_due.eq(1)

        def fill_step():
            """Write the dword of the last step, go to the next one."""
            m.d.sync += [
                fill.eq(fill + 1),
                filling.eq(1),
                access.function.eq(fill[bits:]),
                access.register.eq(fill[:bits]),
                self.errors.reset.eq(1),
                update.strobe.eq(filling & ~(warm & sticky)),
                update.function.eq(access.function),
                update.register.eq(access.register),
                update.value.eq(rule.data.reset | self._own_number(access, down)),
            ]

        with m.FSM():
            with m.State("Fill"):
                # The rule of the address of the last cycle is on the port of the ROM.
                m.d.comb += [
                    rule.addr.eq(Cat(fill[:bits], fill[bits:] != 0)),
                    self.busy.eq(1),
                ]
                m.d.sync += [refill.eq(0), warm.eq(warm | refill), ones.eq(0), command.eq(0)]
                fill_step()
                with m.If(fill == memory.depth):
                    m.d.sync += filling.eq(0)
                    m.next = "Idle"
            if held:
                with m.State("Renew"):
                    m.d.comb += rule.addr.eq(Cat(fill[:bits], C(1, 1)))
                    m.d.sync += [ones.eq(0), command.eq(0)]
                    fill_step()
                    with m.If(fill[:bits] == 0):
                        m.d.sync += filling.eq(0)
                        m.next = "Idle"
            with m.State("Idle"):
                with m.If(all_due):
                    m.d.sync += [all_due.eq(self.down != was_down), fill.eq(0), warm.eq(1)]
                    m.next = "Fill"
                if held:
                    first = lowest_bit(renew)
                    with m.Elif(renew.any()):
                        m.d.comb += renewing.eq(first)
                        m.d.sync += fill.eq(Cat(C(HELD, bits), (encode(first) + 1)[:6]))
                        m.next = "Renew"
                with m.Else():
                    m.d.comb += self.request.ready.eq(1)
                    m.d.sync += [access.eq(self.request.payload),
                                 access.register.eq(self._kept_at(self.request.p.register))]
                    with m.If(self.request.valid):
                        m.next = "Fetch"
            with m.State("Fetch"):
                m.next = "Modify"
            with m.State("Modify"):
                # A power state that the function does not have is not taken over.
                enabled = Cat(e.replicate(8) for e in access.enables) & access.write.replicate(32)
                name = "Power Management Control/Status"
                pmcsr = [up.dword(name), *((HELD + held.dword(name),) if held else ())]
                m.d.comb += special.eq(access.register.matches(*pmcsr)
                                       & (access.data[0] ^ access.data[1]))
                retrains = Signal()
                m.d.comb += [
                    retrains.eq(self._retrains(access, view.link_active, down)),
                    hotplug.retrain.eq((retrains << access.function) >> 1),
                ]
                change = rule.data.rw & enabled & ~Cat(special.replicate(2), C(0, 30))
                clear = access.data & rule.data.w1c & enabled
                m.d.sync += [
                    ones.eq(clear),
                    command.eq(access.write & access.enables[:2].any()),
                    old.eq(read.data),
                    live.eq(self._live(m, view, access, up, down) | held_live | status),
                    new.eq((read.data & ~change | access.data & change) & ~clear
                           | retrains << down.bit("Link Status",
                                                  "Link Bandwidth Management Status")),
                ]
                m.next = "Commit"
            with m.State("Commit"):
                bridge = up.dword("Bridge Control")
                reset = up.bit("Bridge Control", "Secondary Bus Reset")
                m.d.sync += [
                    update.strobe.eq(mapped & access.write),
                    update.function.eq(access.function),
                    update.register.eq(access.register),
                    update.value.eq(new),
                    refill.eq(access.write & (access.function == 0)
                              & (access.register == bridge) & (new[reset] | old[reset])),
                    fill.eq(FUNCTION_DWORDS),
                    self.response.payload.eq(Mux(mapped, new | live, 0)),
                ]
                m.next = "Settle"
                if dpc:
                    m.d.comb += self._containment.software.eq(Mux(
                        self._triggers(access, new, down),
                        1 << (access.function - 1)[:5], 0))
            with m.State("Settle"):
                m.next = "Respond"
            with m.State("Respond"):
                m.d.comb += self.response.valid.eq(1)
                with m.If(self.response.ready):
                    m.next = "Idle"
                    with m.If(refill):
                        m.next = "Fill"

        m.d.comb += [
            mirror.config.eq(update),
            *(a.eq(b) for a, b in zip(self.states, mirror.states, strict=True)),
            *(a.eq(b) for a, b in zip(hotplug.states, mirror.states, strict=True)),
            *(state.abort.eq(hotplug.abort[n]) for n, state in enumerate(self.states[1:])),
        ]
        if dpc:
            self._contain(m, hotplug, mirror)
        return m

    @staticmethod
    def _kept_at(register):
        """The dword of the memory for a dword of configuration space; see :func:`.kept_at`."""
        low = (HIGH_DWORDS - 1).bit_length()
        return Mux(register[low:] == HIGH >> low, Cat(register[:low], C(HIGH_KEPT >> low, 6)),
                   Cat(register[:-1], register[-1] | (register[low:] == HIGH_KEPT >> low)))

    @staticmethod
    def _retrains(access, active, down):
        """The access retrains a link that is active, and stays so (7.5.3.7, 7.5.3.8)."""
        retrain, disable = (down.bit("Link Control", name)
                            for name in ("Retrain Link", "Link Disable"))
        return (access.write & (access.register == down.dword("Link Control"))
                & (access.function != 0) & active & access.enables[retrain // 8]
                & access.data[retrain] & ~access.data[disable])

    def _status(self, m, access, update, ones):
        """Status bits that are elsewhere, of the dword that is accessed."""
        m.d.comb += [
            self.errors.function.eq(access.function),
            self.errors.register.eq(access.register),
            self.errors.ones.eq(ones),
        ]
        if not self._identity.slot.dpc:
            return self.errors.value
        m.submodules.containment = self._containment = containment = ContainmentStatus(self._ports)
        status = containment.status
        m.d.comb += [
            *(getattr(status, name).eq(getattr(self.errors, name))
              for name in ("function", "register", "ones", "reset")),
            containment.config.eq(update),
        ]
        return self.errors.value | status.value

    def _contain(self, m, hotplug, mirror):
        """What triggers containment, and where it shows."""
        containment = self._containment
        malformed = Cat(~state.malformed_masked & (
            (state.trigger == 2) | (state.trigger == 1) & state.malformed_fatal)
            for state in mirror.states[1:]) & self.malformed
        m.d.comb += [
            *(a.eq(b) for a, b in zip(containment.triggers, self.triggers, strict=True)),
            containment.error.eq(hotplug.contain | malformed),
            containment.interrupt.eq(Cat(state.dpc_interrupt for state in mirror.states[1:])),
            containment.announced.eq(self.announced),
            self.announce.eq(containment.announce),
        ]
        for n in range(self._ports):
            for states in (self.states, hotplug.states):
                m.d.comb += [
                    states[n + 1].contained.eq(containment.contained[n]),
                    states[n + 1].dpc_event.eq(containment.event[n]),
                ]

    @staticmethod
    def _triggers(access, new, down):
        """The write under way triggers containment (PCIe Base 5.0, 6.2.10.3)."""
        trigger = down.bit("DPC Control", "DPC Software Trigger")
        enable = down.bit("DPC Control", "DPC Trigger Enable")
        return (access.write & (access.function != 0)
                & (access.register == down.dword("DPC Control"))
                & access.enables[trigger // 8] & access.data[trigger]
                & (new[enable] ^ new[enable + 1]))

    @staticmethod
    def _images(fmap, inside):
        """Reset values, bits that are written, and bits that ones clear; of ``inside`` too."""
        for image in (lambda f: f.reset_image(), lambda f: f.access_image("RW"),
                      lambda f: f.access_image("RW1C")):
            yield hide(image(fmap), image(inside)) if inside else image(fmap)

    def _hotplug(self, m, renew, renewing):
        """The slots, and what software sees of the one that is accessed."""
        m.submodules.hotplug = hotplug = HotPlug(self._ports, self._identity)
        if self._identity.placeholder:
            self._placeholders(m, hotplug, renew, renewing)
        else:
            m.d.comb += [
                hotplug.present.eq(self.present),
                hotplug.link_up.eq(self.link_up),
                self.link_active.eq(Cat(v.link_active for v in hotplug.views)),
            ]
        m.d.comb += [
            hotplug.press.eq(self.press),
            hotplug.taken.eq(self.msi_taken),
            hotplug.turned_off.eq(self.turned_off),
            hotplug.orderly.eq(self.orderly | self.held),
            self.surprise.eq(hotplug.surprise),
            self.msi.eq(hotplug.request),
            self.intx.eq(hotplug.intx),
            self.slot_off.eq(hotplug.off),
            *(a.eq(b) for a, b in zip(self.slot_control, hotplug.control, strict=True)),
        ]
        connect(m, hotplug.pme, wiring.flipped(self.pme))
        return hotplug

    def _placeholders(self, m, hotplug, renew, renewing):
        """Placeholders between the slots and what they show; one is renewed when its link goes."""
        m.submodules.placeholders = holders = Placeholders(
            ports=self._ports, options=self._identity.placeholder)
        first_fill, was_held = Signal(init=1), Signal(self._ports)
        with m.If(~self.busy):
            m.d.sync += first_fill.eq(0)
        m.d.sync += [
            was_held.eq(self.held),
            renew.eq(renew & ~renewing | was_held & ~self.held),
        ]
        m.d.comb += [
            holders.present.eq(self.present),
            holders.link_up.eq(self.link_up),
            holders.bound.eq(self.bound),
            holders.fresh.eq(self.down | first_fill),
            *(a.eq(b) for a, b in zip(holders.views, hotplug.views, strict=True)),
            *(a.eq(b) for a, b in zip(holders.control, hotplug.control, strict=True)),
            hotplug.present.eq(holders.show_present),
            hotplug.link_up.eq(holders.show_link),
            self.link_active.eq(Cat(v.link_active for v in hotplug.views) & holders.free),
            self.held.eq(holders.held),
        ]

    def _held_live(self, m, access, update, ones, view, held):
        """What the placeholders do not keep in the memory, of the dword that is accessed: Device
        Status, and the link, which is that of the port."""
        m.submodules.status = status = PlaceholderStatus(ports=self._ports)
        m.d.comb += [
            status.refused.eq(self.refused),
            status.cls.eq(self.refused_cls),
            status.held.eq(self.held),
            status.config.eq(update),
            status.ones.eq(ones),
            status.function.eq(access.function),
            status.register.eq(access.register),
        ]
        return status.live | self._live_link(held, access, view, HELD)

    def _own_number(self, access, down):
        """What of a downstream function's reset value depends on the number of its port."""
        value = Const(0, 32)
        for r in down.registers:
            for f in r.fields:
                if isinstance(f.reset, str):
                    port = access.function - 1 if f.reset == "port" else access.function
                    here = (access.function != 0) & (access.register == r.offset // 4)
                    shift = f.lsb + 8 * (r.offset % 4)
                    value |= Mux(here, (port & (1 << f.width) - 1) << shift, 0)
        return value[:32]

    def _live(self, m, view, access, up, down):
        """Live fields of the dword that is accessed."""
        status, interrupt = Signal(32), Signal(32)
        m.d.comb += [
            status[down.bit("Slot Status", "Presence Detect State")].eq(view.present),
            interrupt[down.bit("Status", "Interrupt Status")].eq(view.intx),
            *(status[down.bit("Slot Status", name)].eq(view.events[event])
              for event, (name, _) in HotPlug.EVENTS.items()
              if name in {f.name for f in down.by_name["Slot Status"].fields}),
        ]
        pmcsr = "Power Management Control/Status"
        power = up.bit("Device Capabilities", "Captured Slot Power Limit Value")
        downstream = access.function != 0
        return reduce(or_, (
            Mux((downstream if fmap is down else ~downstream)
                & (access.register == fmap.dword(name)), value, 0)
            for fmap, name, value in (
                (down, "Status", interrupt),
                (down, "Slot Status", status),
                (down, pmcsr, view.pme << down.bit(pmcsr, "PME Status")),
                (up, "Device Capabilities", self.slot_power << power)))) | Mux(
                    access.register == up.dword("Serial Number (Lower)"), self.serial, 0
                ) | self._live_link(down, access, view)

    def _live_link(self, fmap, access, view, start=0):
        """Live fields of the link of a port, or of what stands in its slot; ``start`` of whose
        dwords they are."""
        names = {f.name for f in fmap.by_name["Link Status"].fields if f.access == "LIVE"}
        link = {"Current Link Speed": view.speed, "Negotiated Link Width":
                C(self._identity.link_width, 6), "Data Link Layer Link Active": C(1, 1)}
        shown = [("Link Status", {name: link[name] for name in link if name in names})]
        if "Link Status 2" in fmap.by_name:
            shown.append(("Link Status 2", {
                f.name: view.equalized for f in fmap.by_name["Link Status 2"].fields}))
        return reduce(or_, (
            Mux((access.function != 0) & view.link_active
                & (access.register == start + fmap.dword(name)),
                reduce(or_, (v << fmap.bit(name, field) for field, v in fields.items())), 0)
            for name, fields in shown))


class StateMirror(wiring.Component):
    """Fields of the configuration spaces that the routing needs at once, in registers.

    Follows ``config`` by one cycle.

    Parameters
    ----------
    ports : int
        Downstream ports.
    identity : Identity
        What registers there are.

    Members
    -------
    config : :class:`~dxpu.mapping.ConfigUpdate`
    states : array of :class:`PortState`
        By function.
    """

    #: Members of :class:`PortState`: register and field they follow, in every function.
    COMMON = {
        "io": ("Command", "I/O Space Enable"),
        "memory": ("Command", "Memory Space Enable"),
        "master": ("Command", "Bus Master Enable"),
        "intx_disable": ("Command", "Interrupt Disable"),
        "power": ("Power Management Control/Status", "Power State"),
        "forward_errors": ("Bridge Control", "SERR# Enable"),
        "serr": ("Command", "SERR# Enable"),
        "parity": ("Command", "Parity Error Response"),
        "parity_below": ("Bridge Control", "Parity Error Response Enable"),
        "correctable": ("Device Control", "Correctable Error Reporting Enable"),
        "nonfatal": ("Device Control", "Non-Fatal Error Reporting Enable"),
        "fatal": ("Device Control", "Fatal Error Reporting Enable"),
        "unsupported": ("Device Control", "Unsupported Request Reporting Enable"),
        "isa": ("Bridge Control", "ISA Enable"),
        "reset": ("Bridge Control", "Secondary Bus Reset"),
        "secondary": ("Secondary Bus Number", "Secondary Bus Number"),
        "subordinate": ("Subordinate Bus Number", "Subordinate Bus Number"),
        "block_atomics": ("Device Control 2", "AtomicOp Egress Blocking"),
        "block_prefixes": ("Device Control 2", "End-End TLP Prefix Blocking"),
        "msi": ("MSI Message Control", "MSI Enable"),
        "max_payload": ("Device Control", "Max_Payload_Size"),
        "ltr": ("Device Control 2", "LTR Mechanism Enable"),
    }
    #: Those that only downstream functions have.
    DOWNSTREAM = {
        "ari": ("Device Control 2", "ARI Forwarding Enable"),
        "disable": ("Link Control", "Link Disable"),
        "validate": ("ACS Control", "ACS Source Validation Enable"),
        "translation": ("ACS Control", "ACS Translation Blocking Enable"),
        "redirect": ("ACS Control", "ACS P2P Request Redirect Enable"),
        "redirect_cpl": ("ACS Control", "ACS P2P Completion Redirect Enable"),
        "upstream": ("ACS Control", "ACS Upstream Forwarding Enable"),
        "direct": ("ACS Control", "ACS Direct Translated P2P Enable"),
        "target_speed": ("Link Control 2", "Target Link Speed"),
        "bandwidth_interrupt": ("Link Control", "Link Bandwidth Management Interrupt Enable"),
        "bandwidth": ("Link Status", "Link Bandwidth Management Status"),
        "pme_enable": ("Power Management Control/Status", "PME Enable"),
    }
    #: Those that only downstream functions with Downstream Port Containment have.
    CONTAINMENT = {
        "trigger": ("DPC Control", "DPC Trigger Enable"),
        "refuse": ("DPC Control", "DPC Completion Control"),
        "dpc_interrupt": ("DPC Control", "DPC Interrupt Enable"),
        "dpc_correctable": ("DPC Control", "DPC ERR_COR Enable"),
        "surprise_masked": ("Uncorrectable Error Mask", "Surprise Down Error"),
        "surprise_fatal": ("Uncorrectable Error Severity", "Surprise Down Error"),
        "malformed_masked": ("Uncorrectable Error Mask", "Malformed TLP"),
        "malformed_fatal": ("Uncorrectable Error Severity", "Malformed TLP"),
    }

    def __init__(self, ports, identity):
        self._identity = identity
        super().__init__({
            "config": In(ConfigUpdate),
            "states": Out(PortState).array(ports + 1),
        })

    def elaborate(self, platform):
        m = Module()
        up, down = (function_map(kind, self._identity) for kind in (UPSTREAM, DOWNSTREAM))
        below = self.COMMON | self.DOWNSTREAM | (
            self.CONTAINMENT if self._identity.slot.dpc else {})
        for function, state in enumerate(self.states):
            fmap = down if function else up
            names = below if function else self.COMMON
            follow = [(state[member], fmap, *where) for member, where in names.items()]
            with m.If(self.config.strobe & (self.config.function == function)):
                for target, fmap, register, field in follow:
                    with m.If(self.config.register == fmap.dword(register)):
                        bit = fmap.bit(register, field)
                        width = next(f.width for f in fmap.by_name[register].fields
                                     if f.name == field)
                        m.d.sync += target[:width].eq(self.config.value[bit:bit + width])
        return m
