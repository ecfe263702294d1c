"""Hot-plug of the downstream ports: what their slots show, and when they ask for attention."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.mapping.types import ConfigUpdate
from dxpu.stream import connect
from dxpu.switch.config.port_map import DOWNSTREAM, function_map
from dxpu.switch.errors.containment import LinkGuard
from dxpu.switch.messages.messages import MessageRequest
from dxpu.switch.types import PortState

from .link_speed import LinkSpeed
from .wake import WakeUp

__all__ = ["HotPlug", "SlotControl", "SlotController", "SlotEvents", "SlotView"]


#: Power state of a port that an event can wake up.
D3HOT = 3


class SlotEvents(data.Struct):
    """The events of a slot: those that happened, are enabled or are being cleared."""

    button: 1    #: Attention Button Pressed
    presence: 1  #: Presence Detect Changed
    command: 1   #: Command Completed
    link: 1      #: Data Link Layer State Changed


class SlotControl(data.Struct):
    """What software wrote to Slot Control."""

    enables: SlotEvents
    interrupt: 1                #: Hot-Plug Interrupt Enable
    attention_indicator: 2 = 3  #: 1 on, 2 blink, 3 off
    power_indicator: 2 = 3      #: 1 on, 2 blink, 3 off
    power_off: 1                #: Power Controller Control
    no_power_limit: 1           #: Auto Slot Power Limit Disable


class SlotView(data.Struct):
    """What software can see of a slot."""

    events: SlotEvents
    present: 1      #: Presence Detect State
    link_active: 1  #: Data Link Layer Link Active
    intx: 1         #: Interrupt Status
    speed: 4        #: Current Link Speed, if the link is active
    equalized: 1    #: Equalization 8.0 GT/s Complete, if the link is active
    pme: 1          #: PME Status


class SlotController(wiring.Component):
    """State and events of one slot.

    The levels are shown one cycle after the inputs, and an event appears in the cycle in which the
    level that it is about is first seen changed: presence, link and their events come in one step
    if the inputs do. An event that happens while software clears it stays.

    While ``hold`` (the function is being reset) there are no events and no link, and the presence
    that is shown does not move; what changed meanwhile, or was pressed, is an event afterwards.

    The condition for an interrupt is that interrupts are enabled and any enabled event is set. With
    ``msi`` an interrupt is requested each time the condition becomes true, ``msi`` included, and
    each time that software clears an event and the condition holds still. So software that reads
    and clears once for each interrupt misses nothing. A request stays until it is taken, or until
    ``msi`` falls; it is offered only with ``msi``. ``others`` are the conditions of other
    interrupts, each of which is requested each time that it becomes true, ``msi`` included.
    ``intx`` is that any of the conditions is true.

    Ref: PCIe Base 5.0, 6.7.3, 7.5.3.7, 7.5.3.8, 7.5.3.10, 7.5.3.11

    Members
    -------
    present : 1
        A GPU is bound to the slot.
    link_up : 1
        The link to it works.
    open : 1
        Software lets the port have a link.
    press : 1
        Pulse: the attention button is pressed.
    command : 1
        Pulse: software wrote to Slot Control, and completion is reported.
    clear : :class:`SlotEvents`
        Events that software clears in this cycle.
    control : :class:`SlotControl`
    hold : 1
        The function is in reset.
    msi : 1
        Memory writes for interrupts are possible.
    others : 2
        Other interrupts of the port, with the same vector, are wanted.
    taken : 1
        Pulse: the request is taken.
    view : :class:`SlotView`
        ``intx`` is that an interrupt is wanted; what follows it is not known here.
    request : 1
        An MSI is to be sent.
    """

    present: In(1)
    link_up: In(1)
    open: In(1)
    press: In(1)
    command: In(1)
    clear: In(SlotEvents)
    control: In(SlotControl)
    hold: In(1)
    msi: In(1)
    others: In(2)
    taken: In(1)
    view: Out(SlotView)
    request: Out(1)

    def elaborate(self, platform):
        m = Module()
        view, events = self.view, Value.cast(self.view.events)
        pressed = Signal()
        happened = Signal(SlotEvents)
        link = self.present & self.link_up & self.open
        m.d.comb += [
            happened.button.eq(self.press | pressed),
            happened.presence.eq(self.present ^ view.present),
            happened.command.eq(self.command),
            happened.link.eq(link ^ view.link_active),
        ]
        with m.If(self.hold):
            m.d.sync += [
                events.eq(0),
                view.link_active.eq(0),
                pressed.eq(pressed | self.press),
            ]
        with m.Else():
            m.d.sync += [
                events.eq(self._next(events, happened)),
                view.present.eq(self.present),
                view.link_active.eq(link),
                pressed.eq(0),
            ]
        self._interrupt(m, events)
        return m

    def _next(self, events, happened):
        return events & ~Value.cast(self.clear) | Value.cast(happened)

    def _interrupt(self, m, events):
        pending, wanted, armed, was_armed, again = (Signal() for _ in range(5))
        others, were = Signal.like(self.others), Signal.like(self.others)
        enabled = events & Value.cast(self.control.enables)
        m.d.comb += [
            wanted.eq(self.control.interrupt & enabled.any()),
            self.view.intx.eq(wanted | self.others.any()),
            armed.eq(wanted & self.msi),
            others.eq(Mux(self.msi, self.others, 0)),
            self.request.eq(pending & self.msi),
        ]
        m.d.sync += [
            was_armed.eq(armed),
            were.eq(others),
            again.eq((events & Value.cast(self.clear)).any()),
        ]
        with m.If(self.taken | ~self.msi):
            m.d.sync += pending.eq(0)
        with m.If(armed & (~was_armed | again) | (others & ~were).any()):
            m.d.sync += pending.eq(1)


class HotPlug(wiring.Component):
    """The slots of all downstream ports, behind their Slot Control and Slot Status registers.

    A write to the registers has its effect in the cycle after it is announced, on controls and
    events at once.

    Parameters
    ----------
    ports : int
        Downstream ports.
    identity : Identity
        What the slots have.

    Members
    -------
    config : :class:`~dxpu.mapping.ConfigUpdate`
    ones : 32
        With ``config``: the ones that were written, where ones clear.
    command : 1
        With ``config``: a byte of Slot Control was written, if the register is that.
    states : array of :class:`PortState`
        By function.
    hold : 1
        The functions are being reset.
    present, link_up, press, taken, request : ``ports``
        See :class:`SlotController`.
    retrain : ``ports``
        Pulse: software retrains the link, which is active.
    off : ``ports``
        Software lets the port have no link, or it is contained.
    turned_off, orderly, surprise, contain, abort
        See :class:`~dxpu.switch.errors.containment.LinkGuard`. Without Downstream Port Containment
        the inputs are ignored and the outputs 0.
    views : array of :class:`SlotView`
    intx : ``ports``
        Level of the interrupt pin: 0 if MSI is enabled, with Interrupt Disable, or outside D0.
    control : array of :class:`SlotControl`
    pme : stream of :class:`~dxpu.switch.messages.messages.MessageRequest`
        PM_PME messages of the ports; see :class:`~.wake.WakeUp`.
    """

    #: Members of :class:`SlotEvents`: fields of Slot Status, and of Slot Control that enable them.
    EVENTS = {
        "button": ("Attention Button Pressed", "Attention Button Pressed Enable"),
        "presence": ("Presence Detect Changed", "Presence Detect Changed Enable"),
        "command": ("Command Completed", "Command Completed Interrupt Enable"),
        "link": ("Data Link Layer State Changed", "Data Link Layer State Changed Enable"),
    }
    #: Members of :class:`SlotControl`: fields of Slot Control.
    CONTROLS = {
        "interrupt": "Hot-Plug Interrupt Enable",
        "attention_indicator": "Attention Indicator Control",
        "power_indicator": "Power Indicator Control",
        "power_off": "Power Controller Control",
        "no_power_limit": "Auto Slot Power Limit Disable",
    }

    def __init__(self, ports, identity):
        self._ports = ports
        self._map = function_map(DOWNSTREAM, identity)
        self._options = identity.slot
        self._fastest = identity.link_speed
        super().__init__({
            "config": In(ConfigUpdate),
            "ones": In(32),
            "command": In(1),
            "states": In(PortState).array(ports + 1),
            "hold": In(1),
            "present": In(ports),
            "link_up": In(ports),
            "press": In(ports),
            "taken": In(ports),
            "retrain": In(ports),
            "request": Out(ports),
            "off": Out(ports),
            "turned_off": In(1),
            "orderly": In(ports),
            "surprise": Out(ports),
            "contain": Out(ports),
            "abort": Out(ports),
            "views": Out(SlotView).array(ports),
            "intx": Out(ports),
            "control": Out(SlotControl).array(ports),
            "pme": Out(stream.Signature(MessageRequest)),
        })

    def elaborate(self, platform):
        m = Module()
        up = self.states[0]
        register = "Power Management Control/Status"
        pmcsr, pme_status = self._map.dword(register), self._map.bit(register, "PME Status")
        # An MSI is a memory write and passes the upstream port too.
        up_passes = up.master & (up.power == 0)
        closed = self._guard(m)
        m.submodules.wake = wake = WakeUp(self._ports)
        connect(m, wake.o, wiring.flipped(self.pme))
        m.d.comb += [wake.hold.eq(self.hold), wake.bus.eq(up.secondary)]
        for n in range(self._ports):
            m.submodules[f"slot{n}"] = slot = SlotController()
            m.submodules[f"speed{n}"] = speed = LinkSpeed(self._fastest)
            state, control, awake = self.states[n + 1], self.control[n], Signal()
            before = Signal(SlotEvents, name=f"before{n}")
            m.d.sync += before.eq(slot.view.events)
            m.d.comb += [
                awake.eq(state.power == 0),
                slot.present.eq(self.present[n]),
                slot.link_up.eq(self.link_up[n]),
                self.off[n].eq(state.disable | state.reset | up.reset | control.power_off
                               | closed[n]),
                slot.open.eq(~self.off[n]),
                slot.press.eq(self.press[n]),
                slot.hold.eq(self.hold),
                slot.control.eq(control),
                slot.msi.eq(state.msi & state.master & awake & up_passes),
                slot.others.eq(Cat(state.dpc_interrupt & state.dpc_event,
                                   state.bandwidth_interrupt & state.bandwidth)),
                slot.taken.eq(self.taken[n]),
                self.request[n].eq(slot.request),
                self.views[n].eq(slot.view),
                self.views[n].intx.eq(slot.view.intx & ~state.msi),
                self.views[n].pme.eq(wake.status[n]),
                wake.enable[n].eq(state.pme_enable),
                wake.clear[n].eq(
                    self.config.strobe & (self.config.function == n + 1)
                    & (self.config.register == pmcsr) & self.ones[pme_status]),
                wake.wakes[n].eq((Value.cast(slot.view.events) & ~Value.cast(before)
                                  & Value.cast(control.enables)).any() & (state.power == D3HOT)),
                speed.target.eq(state.target_speed),
                speed.active.eq(slot.view.link_active),
                speed.retrain.eq(self.retrain[n]),
                self.views[n].speed.eq(speed.speed),
                self.views[n].equalized.eq(speed.equalized),
                self.intx[n].eq(self.views[n].intx & ~state.intx_disable & awake),
            ]
            self._registers(m, n, slot, control)
        return m

    def _guard(self, m):
        """Containment; returns the slots that must have no link."""
        if not self._options.dpc:
            return C(0, self._ports)
        m.submodules.guard = guard = LinkGuard(self._ports)
        m.d.comb += [
            *(a.eq(b) for a, b in zip(guard.states, self.states[1:], strict=True)),
            guard.link_active.eq(Cat(v.link_active for v in self.views)),
            guard.works.eq(self.present & self.link_up),
            guard.open.eq(~self.off),
            *(getattr(guard, name).eq(getattr(self, name))
              for name in ("hold", "turned_off", "orderly")),
            self.surprise.eq(guard.surprise),
            self.contain.eq(guard.contain),
            self.abort.eq(guard.abort),
        ]
        return guard.closed

    def _registers(self, m, n, slot, control):
        """Clear and follow what is written to the dword of Slot Control and Slot Status."""
        fmap = self._map
        here = Signal(name=f"here{n}")
        m.d.comb += here.eq(self.config.strobe & (self.config.function == n + 1)
                            & (self.config.register == fmap.dword("Slot Control")))
        fields = {f.name: f for f in fmap.by_name["Slot Control"].fields}
        follow = {f"{name}": control[name] for name in self.CONTROLS}
        names = dict(self.CONTROLS)
        for event, (status, enable) in self.EVENTS.items():
            follow[event], names[event] = control.enables[event], enable
            if enable in fields:
                m.d.comb += slot.clear[event].eq(here & self.ones[fmap.bit("Slot Status", status)])
        for member, target in follow.items():
            if (field := fields.get(names[member])) is not None:
                with m.If(here):
                    m.d.sync += target.eq(self.config.value[field.lsb:field.lsb + field.width])
        if self._options.command_completed:
            m.d.comb += slot.command.eq(here & self.command)
