"""Placeholder endpoints: what empty slots show at boot, so that firmware leaves room for GPUs."""

from amaranth import *
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from dxpu.mapping.types import ConfigUpdate
from dxpu.switch.config.identity import PlaceholderOptions
from dxpu.switch.config.placeholder_map import HELD, placeholder_map
from dxpu.tlp.types import TlpClass

from .hotplug import SlotControl, SlotView

__all__ = ["PlaceholderState", "PlaceholderStatus", "Placeholders"]

#: Slot Control: the power indicator is off.
INDICATOR_OFF = 3


class PlaceholderState(enum.Enum, shape=2):
    """Who has a slot."""

    #: The placeholder, with its link.
    STANDS = 0
    #: Nobody: the placeholder has gone, and software may not know yet.
    LEFT = 1
    #: The GPU, if there is one.
    FREE = 2


class Placeholders(wiring.Component):
    """Decides for each slot whether it shows a placeholder, nothing, or its GPU.

    A placeholder stands until somebody wants the slot: its row is bound, or a GPU is there. Then
    presence and link go in one step, as if the card had been pulled. The slot stays empty until
    software has shown that it is through with that: it has cleared both events, and turned the
    power indicator off or never had it on (6.7.1.1, 6.7.3). A ``rest`` later the slot goes to the
    GPU, whose coming is thus an event of its own. If ``patience`` ends before, as nobody listens,
    it does so all the same. A placeholder comes back only with a conventional reset of the switch,
    where nobody wants the slot by then.

    What is shown follows one cycle later in ``views``; ``held`` and ``free`` go with the views.

    Ref: PCIe Base 5.0, 6.6.1, 6.7.1.1, 6.7.3

    Parameters
    ----------
    ports : int
    options : PlaceholderOptions, optional

    Members
    -------
    present, link_up : ``ports``
        A GPU, and its link.
    bound : ``ports``
        Somebody wants the slot for a GPU.
    fresh : 1
        The switch is in conventional reset: no software has seen a slot yet.
    views : array of :class:`~dxpu.switch.hotplug.hotplug.SlotView`
        What the slots show to software.
    control : array of :class:`~dxpu.switch.hotplug.hotplug.SlotControl`
    show_present, show_link : ``ports``
        What the slots are to show.
    held : ``ports``
        A placeholder stands and its link is active: it takes what is sent to the slot.
    free : ``ports``
        The link that the slot shows is that of the GPU.
    """

    def __init__(self, *, ports, options=None):
        self._ports = ports
        self._options = options or PlaceholderOptions()
        super().__init__({
            "present": In(ports),
            "link_up": In(ports),
            "bound": In(ports),
            "fresh": In(1),
            "views": In(SlotView).array(ports),
            "control": In(SlotControl).array(ports),
            "show_present": Out(ports),
            "show_link": Out(ports),
            "held": Out(ports),
            "free": Out(ports),
        })

    def elaborate(self, platform):
        m = Module()
        cycles, tick = Signal(range(self._options.rest)), Signal()
        m.d.comb += tick.eq(cycles == self._options.rest - 1)
        m.d.sync += cycles.eq(Mux(tick, 0, cycles + 1))
        for n in range(self._ports):
            self._slot(m, n, tick)
        return m

    def _slot(self, m, n, tick):
        view, control = self.views[n], self.control[n]
        state = Signal(PlaceholderState, name=f"state{n}")
        wanted, empty, done = (Signal(name=f"{name}{n}") for name in ("wanted", "empty", "done"))
        # Ticks; the first one comes after a part of a rest.
        left = Signal(range(self._options.patience + 2), name=f"left{n}")
        calm = Signal(2, name=f"calm{n}")
        stands, free = state == PlaceholderState.STANDS, state == PlaceholderState.FREE
        m.d.comb += [
            wanted.eq(self.bound[n] | self.present[n]),
            empty.eq(~view.present & ~view.link_active),
            done.eq(~view.events.presence & ~view.events.link
                    & (control.power_indicator == INDICATOR_OFF)),
            self.show_present[n].eq(stands | free & self.present[n]),
            self.show_link[n].eq(stands | free & self.link_up[n]),
            self.held[n].eq(view.link_active & ~self.free[n]),
        ]
        m.d.sync += self.free[n].eq(free)
        with m.If(self.fresh):
            m.d.sync += state.eq(Mux(wanted, PlaceholderState.FREE, PlaceholderState.STANDS))
        with m.Elif(stands):
            m.d.sync += left.eq(self._options.patience + 1)
            with m.If(wanted):
                m.d.sync += state.eq(PlaceholderState.LEFT)
        with m.Elif(~free):
            m.d.sync += left.eq(left - (tick & left.any()))
            with m.If(~(empty & done)):
                m.d.sync += calm.eq(0)
            with m.Elif(tick):
                m.d.sync += calm.eq(calm + 1)
            with m.If(empty & (calm[1] | ~left.any())):
                m.d.sync += state.eq(PlaceholderState.FREE)


class PlaceholderStatus(wiring.Component):
    """Device Status of the placeholders: what they did not support.

    A bit is set in the cycle after its cause, which wins over software that clears it.

    Ref: PCIe Base 5.0, 6.2.3.2.4 (advisory errors), 7.5.3.5

    Parameters
    ----------
    ports : int

    Members
    -------
    refused : array of ``ports``
        Pulses of each decider: the placeholder of slot n did not take a TLP.
    cls : array of :class:`~dxpu.tlp.types.TlpClass`
        Its class.
    held : ``ports``
        Without a link the bits are cleared.
    config : :class:`~dxpu.mapping.ConfigUpdate`
    ones : 32
        With ``config``: the ones that were written, where ones clear.
    function : 6
        The function that is looked at,
    register : 10
        and its register.
    live : 32
        What its dword has of these bits.
    """

    #: Bits by class of the TLP: those that wait for nobody are errors, the others advisory.
    CAUSES = {
        "Correctable Error Detected": (TlpClass.NP, TlpClass.CPL),
        "Non-Fatal Error Detected": (TlpClass.P,),
        "Unsupported Request Detected": (TlpClass.NP, TlpClass.P),
    }

    def __init__(self, *, ports):
        self._ports = ports
        super().__init__({
            "refused": In(data.ArrayLayout(ports, 2)),
            "cls": In(data.ArrayLayout(TlpClass, 2)),
            "held": In(ports),
            "config": In(ConfigUpdate),
            "ones": In(32),
            "function": In(6),
            "register": In(10),
            "live": Out(32),
        })

    def elaborate(self, platform):
        m = Module()
        fmap = placeholder_map()
        here = HELD + fmap.dword("Device Status")
        written = self.config.strobe & (self.config.register == here)
        for name, classes in self.CAUSES.items():
            bit, stem = fmap.bit("Device Status", name), name.split()[0].lower()
            bits, cleared = (Signal(self._ports, name=f"{stem}_{what}")
                             for what in ("bits", "cleared"))
            caused = [Mux(Cat(self.cls[n] == c for c in classes).any(), self.refused[n], 0)
                      for n in range(2)]
            with m.If(written & self.ones[bit]):
                m.d.comb += cleared.eq((1 << self.config.function) >> 1)
            m.d.sync += bits.eq((bits & ~cleared | caused[0] | caused[1]) & self.held)
            m.d.comb += self.live[bit].eq((self.register == here)
                                          & Cat(C(0, 1), bits).bit_select(self.function, 1))
        return m
