"""Two fabric engines whose sessions are opened under a key, or in clear, and strangers beside
them."""

import random

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.arbiter import PacketArbiter
from dxpu.crypto import PretendedNoise
from dxpu.fabric.opening.types import KeyWord
from dxpu.fabric.wire.format import Role
from dxpu.proxy.keys import KeyUnit
from dxpu.stream import connect

from .fault_design import ENDS, NODES, FaultBench
from .stranger import Stranger, templates

__all__ = ["StrangersBench", "ranges"]

#: Key of the pair.
_KEY = bytes(range(0x10, 0x20))
#: Begins the random numbers of the strangers' frames.
_SEED = 20


def _made(end):
    return templates(random.Random(_SEED), end, NODES)


def ranges(end):
    """First and last number of the frames that the stranger sends to an end, by their names
    (:func:`~.stranger.templates`)."""
    found, first = {}, 0
    for name, frames in _made(end).items():
        found[name] = first, first + len(frames) - 1
        first += len(frames)
    return found


class _Gives(wiring.Component):
    """Gives an engine the key of its peer, once after each reset."""

    def __init__(self, node):
        self._node = node
        super().__init__({"o": Out(stream.Signature(KeyWord))})

    def elaborate(self, platform):
        m = Module()
        count, o = Signal(4), self.o
        m.d.comb += [
            o.valid.eq(~count[3]), o.payload.node.eq(self._node),
            o.payload.data.eq(Const(int.from_bytes(_KEY, "little"), 128).word_select(
                count[:3], 16)),
        ]
        with m.If(o.valid & o.ready):
            m.d.sync += count.eq(count + 1)
        return m


class StrangersBench(FaultBench):
    """A :class:`FaultBench` of which sessions need a key; on the line to each end a stranger has
    his turn with the other end, frame by frame.

    Parameters
    ----------
    keys : bool
        Both ends get the key after each reset. Without, they are engines without keys, and sessions
        are opened in clear.

    Members
    -------
    <end>_random : 1
        This end has random words, and the key, if it needs them.
    <end>_down : 1
        The session is not open.
    stranger_<end>_<member> : in, ``count`` out
        ``enable``, ``first``, ``last``, ``sweeps``, ``start``, ``limit`` and ``count`` of the
        :class:`~.stranger.Stranger` who sends to this end (:func:`ranges`).
    """

    _STRANGE = {"enable": 1, "first": 7, "last": 7, "sweeps": 1, "start": 16, "limit": 32}

    def __init__(self, *, keys=True):
        self._keys = keys
        self._strangers = {end: Stranger([frame for frames in _made(end).values()
                                          for frame in frames]) for end in ENDS}
        super().__init__(64, rows=1, paths=1, keyed=keys)

    def more_members(self):
        members = {}
        for end in ENDS:
            members |= {f"stranger_{end}_{name}": In(bits) for name, bits in self._STRANGE.items()}
            members |= {f"stranger_{end}_count": Out(32), f"{end}_random": Out(1),
                        f"{end}_down": Out(1)}
        return members

    def frames_to(self, m, end, path):
        m.submodules[f"stranger_{end}"] = stranger = self._strangers[end]
        m.submodules[f"merge_{end}"] = merge = PacketArbiter(64, count=2)
        connect(m, super().frames_to(m, end, path), merge.i[0])
        connect(m, stranger.o, merge.i[1])
        m.d.comb += [
            *(getattr(stranger, name).eq(self._inputs[f"stranger_{end}_{name}"])
              for name in self._STRANGE),
            getattr(self, f"stranger_{end}_count").eq(stranger.count),
        ]
        return merge.o

    def _set_up(self, m, end, peer):
        super()._set_up(m, end, peer)
        engine, beside = self._engines[end], Module()
        ready = getattr(self, f"{end}_random")
        m.d.comb += [
            engine.local_hello.role.eq(Role.HOST if end == "host" else Role.BOX),
            getattr(self, f"{end}_down").eq(engine.session_down.any()), ready.eq(1),
        ]
        if not self._keys:
            return
        beside.submodules.unit, beside.submodules.key = unit, key = KeyUnit(), _Gives(NODES[peer])
        # It is not reset: the same bits again would be the same nonces.
        m.submodules[f"{end}_noise"] = noise = PretendedNoise(seed=0x1234567 * NODES[end])
        connect(m, noise.o, unit.noise)
        wiring.connect(beside, engine.cmac, unit.cmac)
        connect(beside, unit.random, engine.random)
        connect(beside, key.o, engine.new_key)
        m.submodules[f"{end}_keys"] = ResetInserter(self._inputs[f"{end}_reset"])(beside)
        m.d.comb += [
            engine.failed.eq(unit.failed), engine.keyed.eq(1),
            ready.eq(engine.random.valid & engine.with_key.any()),
        ]
