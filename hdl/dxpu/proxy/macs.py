"""MACs on the frame ports of a proxy's core: the interface between them, and the factory.

Another MAC needs a :class:`MacFactory` and nothing else of this package.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.counted import Counted
from dxpu.ethernet import GmiiSignature, Mac
from dxpu.stream import PacketSignature, connect

__all__ = ["GMII", "FramePort", "MacFactory", "attach_macs", "lead_out", "proxy_members"]


class FramePort(wiring.Signature):
    """Ethernet frames of one path, seen from the core; all in the core's clock domain.

    Frames begin with the destination address and have no FCS. They are whole dwords.

    Parameters
    ----------
    width : int
        Data bits per beat.
    counters : dict of str to str
        What the MAC counts: name to text (:class:`~dxpu.counted.Counted`).

    Members
    -------
    tx : Out(PacketSignature(width))
        Frames to be sent, none with ``discard``, of 60 bytes or more. Once a frame has begun, a
        beat is offered in each cycle until its last one is taken, so a MAC in this clock domain may
        cut through; one in another may, if ``width`` times the core clock exceeds its rate (for
        1 Gb/s, if it is at least 1.25 Gb/s).
    rx : In(PacketSignature(width))
        Frames received. The last beat of a frame has ``discard`` if the frame is bad, such as one
        with a wrong FCS. The core drops a frame that it has no room for, and counts it: ``ready``
        is 0 for one cycle then, and 1 otherwise.
    link_up : In(1)
        The path has a link. 1 if the MAC does not know.
    stat_<counter> : In(1)
        High for one cycle for each event that is counted.
    """

    def __init__(self, width, counters):
        super().__init__({
            "tx": Out(PacketSignature(width)),
            "rx": In(PacketSignature(width)),
            "link_up": In(1, init=1),
            **{f"stat_{name}": In(Counted(text)) for name, text in counters.items()},
        })


@dataclass(frozen=True)
class MacFactory:
    """Makes the MAC of each path.

    Parameters
    ----------
    port : str
        Name of the MAC's port on the line's side, and of the proxy's array of them.
    signature : wiring.Signature
        That port, seen from the MAC.
    make : callable
        Takes the data bits per beat and the number of the path. Returns a component with ``i`` and
        ``o``, packet streams of frames to be sent and received as :class:`FramePort` has them; with
        the port; with ``stat_<counter>`` for each counter; and with ``link_up`` if the MAC knows
        its link. Clock domains other than ``sync`` have the number of the path in their names.
    counters : dict of str to str
        What the MAC counts: name to text of the register ``mac<path>_<name>``, in which
        ``{on_path}`` names the path.
    fast : bool
        The line is faster than 1 Gb/s: the core grants what fills it, for more block RAM.
    """

    port: str
    signature: wiring.Signature
    make: Callable[[int, int], wiring.Component]
    counters: Mapping[str, str] = field(default_factory=dict)
    fast: bool = False


#: Beats between a MAC and the core, which always takes them: no more than must cross.
_RX_BEATS = 16

#: The MAC for 1 Gb/s; path n is in the clock domains ``gmii<n>_rx`` and ``gmii<n>_tx``.
GMII = MacFactory(
    port="gmii", signature=GmiiSignature(),
    make=lambda width, path: Mac(width, rx_depth=_RX_BEATS, rx_domain=f"gmii{path}_rx",
                                 tx_domain=f"gmii{path}_tx"),
    counters=Mac.STATISTICS)


def proxy_members(core, macs):
    """Members of a proxy that is ``core`` with MACs: ports of the MACs, and ``links``, in the place
    of the frame ports."""
    members = {}
    for name, member in core.signature.members.items():
        if name == "frame":
            paths, = member.dimensions
            members[macs.port] = Out(macs.signature).array(paths)
            members["links"] = In(paths, init=(1 << paths) - 1)
        else:
            members[name] = member
    return members


def attach_macs(m, core, macs, proxy):
    """Put a MAC on each frame port of ``core``, and lead all other ports out to ``proxy``.

    A path has a link if its bit of ``links`` says so and, where the MAC knows, the MAC too.
    """
    m.submodules.core = core
    for n, frame in enumerate(core.frame):
        m.submodules[f"mac{n}"] = mac = macs.make(frame.tx.payload.shape().width, n)
        connect(m, frame.tx, mac.i)
        connect(m, mac.o, frame.rx)
        wiring.connect(m, wiring.flipped(getattr(proxy, macs.port)[n]), getattr(mac, macs.port))
        link_up = proxy.links[n]
        if "link_up" in mac.signature.members:
            link_up &= mac.link_up
        m.d.comb += frame.link_up.eq(link_up)
        m.d.comb += [getattr(frame, f"stat_{name}").eq(getattr(mac, f"stat_{name}"))
                     for name in macs.counters]
    lead_out(m, core, proxy, but=("frame",))


def lead_out(m, inner, outer, *, but=()):
    """Connect all ports of ``inner`` to those of the same names of ``outer``, which contains it,
    ``but`` some."""
    for name, member in inner.signature.members.items():
        if name in but:
            continue
        ours, theirs = getattr(inner, name), getattr(outer, name)
        if member.is_port:
            m.d.comb += ours.eq(theirs) if member.flow is In else theirs.eq(ours)
        elif member.dimensions:
            for one, other in zip(ours, theirs, strict=True):
                wiring.connect(m, one, wiring.flipped(other))
        else:
            wiring.connect(m, ours, wiring.flipped(theirs))
