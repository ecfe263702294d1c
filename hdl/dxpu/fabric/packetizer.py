"""From TLPs to DXF frames.

Ref: docs/wire-format.md; DxPU paper, 3.3.2
"""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream import PacketSignature, check_width, connect
from .assembler import Assembler
from .packer import DwordPacker, FrameBuffer, FramePadder
from .planner import Planner
from .preamble import PreambleBuilder
from .tx_queue import TxQueue
from .types import Control, FrameRoute, PathMeta, RouteRequest, TlpMeta

__all__ = ["Packetizer"]


class Packetizer(wiring.Component):
    """Sends TLPs in frames, several to a frame where they are queued already, and control frames.

    TLPs leave in the order they came. Consecutive TLPs of one row share a frame as far as
    ``packing_limit`` allows (31 at most; a larger one travels alone); nothing is ever waited for.
    Control frames go first, at the next frame boundary. Frames have no FCS.

    Once a frame has started its beats follow in every cycle that ``o.ready`` allows.

    TLPs and control frames for which the link has no route are dropped and counted. TLPs that end
    with ``discard`` are dropped without a trace. Nothing else is dropped: ``i`` waits for space.

    Parameters
    ----------
    width : int
        Data bits per beat.
    depth : int
        Beats of memory for TLPs; see :class:`~dxpu.fabric.tx_queue.TxQueue`.

    Members
    -------
    i : packet stream with :class:`TlpMeta`
        Whole, well-formed TLPs.
    control : stream of :class:`Control`
    request, route : stream of :class:`RouteRequest` out, :class:`FrameRoute` in
        One answer per request, in the order of the frames, after any time.
    packing_limit : 14
        Bytes of Ethernet payload that a frame of several TLPs may have; may change at any time.
    o : packet stream with :class:`PathMeta`
    stat_frames, stat_tlps : 1
        Pulses: a frame (control frames included), a TLP was sent.
    stat_unroutable : 1
        Pulse: a TLP or a control frame was dropped.
    """

    def __init__(self, width, *, depth):
        self._width = check_width(width)
        self._queue = TxQueue(width, depth=depth)
        super().__init__({
            "i": In(PacketSignature(width, TlpMeta)),
            "control": In(stream.Signature(Control)),
            "request": Out(stream.Signature(RouteRequest)),
            "route": In(stream.Signature(FrameRoute)),
            "packing_limit": In(14, init=512),
            "o": Out(PacketSignature(width, PathMeta)),
            "stat_frames": Out(1),
            "stat_tlps": Out(1),
            "stat_unroutable": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = self._queue
        m.submodules.planner = planner = Planner()
        m.submodules.preamble = preamble = PreambleBuilder(self._width)
        m.submodules.assembler = assembler = Assembler(self._width)
        m.submodules.packer = packer = DwordPacker(self._width)
        m.submodules.padder = padder = FramePadder(self._width)
        m.submodules.buffer = buffer = FrameBuffer(self._width)

        connect(m, wiring.flipped(self.i), queue.i)
        connect(m, queue.descriptors, planner.i)
        connect(m, wiring.flipped(self.control), preamble.control)
        connect(m, preamble.request, wiring.flipped(self.request))
        connect(m, wiring.flipped(self.route), preamble.route)
        connect(m, preamble.o, assembler.preamble)
        connect(m, queue.o, assembler.tlps)
        connect(m, assembler.o, packer.i)
        connect(m, packer.o, padder.i)
        connect(m, padder.o, buffer.i)
        connect(m, buffer.o, wiring.flipped(self.o))
        m.d.comb += [
            planner.packing_limit.eq(self.packing_limit),
            preamble.plan.eq(planner.plan),
            preamble.plan_valid.eq(planner.valid),
            planner.take.eq(preamble.plan_take),
            preamble.hurry.eq(assembler.hurry),
            buffer.first.eq(padder.first),
            self.stat_frames.eq(assembler.stat_frames),
            self.stat_tlps.eq(assembler.stat_tlps),
            self.stat_unroutable.eq(assembler.stat_unroutable),
        ]
        return m
