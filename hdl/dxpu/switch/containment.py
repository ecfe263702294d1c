"""Downstream Port Containment: which slots are cut off at once, and what is said in their place.

Ref: PCIe Base 5.0, 2.9.3, 3.2.1 (Surprise Down), 6.2.10
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .types import PortState

__all__ = ["LinkGuard"]


class LinkGuard(wiring.Component):
    """Finds links that are lost by surprise, and keeps contained slots without a link.

    A link that goes while nobody has taken it away is a Surprise Down error. Not so if software or
    a reset has closed it, if it is contained, in an orderly removal, and after PME_Turn_Off was
    sent to the slot, until the link is up again.

    Containment begins when DPC Trigger Status says so. What is certain to set it - a Surprise Down
    error that triggers, a message that was discarded - holds the link down before, from the cycle
    of its strobe on, until the error logger has ``settled`` it. So there is no time in which a
    request of the slot passes, or ends with another status than containment asks for.

    Latency one cycle.

    Parameters
    ----------
    ports : int
        Downstream ports.

    Members
    -------
    states : array of :class:`PortState`
        Of the downstream ports.
    link_active : ``ports``
        As software sees it.
    works : ``ports``
        The GPU is there and its link is up.
    open : ``ports``
        Neither software nor containment closes the port.
    hold : 1
        The functions are in reset.
    turned_off : 1
        Pulse: PME_Turn_Off goes to all slots with a link.
    orderly : ``ports``
        Level: what happens to the link now is agreed upon.
    contain : ``ports``
        Strobes: a message triggers.
    settled : ``ports``
        Strobes: an error that may have set ``closed`` has been worked off.
    surprise : ``ports``
        Strobes: Surprise Down.
    closed : ``ports``
        The port has no link.
    abort : ``ports``
        Completions in place of the slot say Completer Abort, else Unsupported Request.
    """

    def __init__(self, ports):
        self._ports = ports
        super().__init__({
            "states": In(PortState).array(ports),
            "link_active": In(ports),
            "works": In(ports),
            "open": In(ports),
            "hold": In(1),
            "turned_off": In(1),
            "orderly": In(ports),
            "contain": In(ports),
            "settled": In(ports),
            "surprise": Out(ports),
            "closed": Out(ports),
            "abort": Out(ports),
        })

    def elaborate(self, platform):
        m = Module()
        told, certain, triggers = (Signal(self._ports, name=name)
                                   for name in ("told", "certain", "triggers"))
        m.d.comb += [
            self.surprise.eq(self.link_active & ~self.works & self.open
                             & ~self.orderly & ~told & ~self.hold.replicate(self._ports)),
            *(triggers[n].eq(~state.surprise_masked & (
                (state.trigger == 2) | (state.trigger == 1) & state.surprise_fatal))
              for n, state in enumerate(self.states)),
            self.closed.eq(certain | Cat(state.contained for state in self.states)),
            self.abort.eq(self.closed & ~Cat(state.refuse for state in self.states)),
        ]
        m.d.sync += [
            told.eq((told | self.turned_off.replicate(self._ports)) & self.link_active),
            certain.eq(certain & ~self.settled | self.surprise & triggers | self.contain),
        ]
        return m
