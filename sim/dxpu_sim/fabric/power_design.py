"""Two fabric engines under keys that Python writes word by word; either can lose its power."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.crypto import PretendedNoise
from dxpu.fabric.wire.format import Role
from dxpu.proxy.keys import KeyShadow, KeyUnit
from dxpu.stream import connect

from .fault_design import ENDS, NODES, FaultBench

__all__ = ["PowerBench"]


class PowerBench(FaultBench):
    """A :class:`FaultBench` whose sessions need a key, with what a proxy has for it at each end.
    ``<end>_reset`` is the loss of an end's power: its keys, and words of a key, are gone.

    Members
    -------
    <end>_key_column, <end>_key_word, <end>_key_next : 2, 32, 1
        Of :class:`~dxpu.proxy.keys.KeyShadow`: ``column``, ``word`` and ``as_next``.
    <end>_key_put, <end>_key_give : 1
        An edge from 0 to 1 is the strobe ``put`` or ``give``.
    <end>_key_valid, <end>_key_two : 1
        This end has a key, or two.
    <end>_random : 1
        This end has random words.
    <end>_down : 1
        The session is not open.
    """

    _KEY = {"column": 2, "word": 32, "next": 1, "put": 1, "give": 1}

    def __init__(self):
        super().__init__(64, rows=2, paths=1, keyed=True)

    def more_members(self):
        members = {}
        for end in ENDS:
            members |= {f"{end}_key_{name}": In(bits) for name, bits in self._KEY.items()}
            members |= {f"{end}_{name}": Out(1)
                        for name in ("key_valid", "key_two", "random", "down")}
        return members

    def _set_up(self, m, end, peer):
        super()._set_up(m, end, peer)
        engine, beside, now = self._engines[end], Module(), {
            name: self._inputs[f"{end}_key_{name}"] for name in self._KEY}
        beside.submodules.unit, beside.submodules.shadow = unit, shadow = KeyUnit(), KeyShadow()
        # The noise goes on: the same bits again would be the same nonces.
        m.submodules[f"{end}_noise"] = noise = PretendedNoise(seed=0x1234567 * NODES[end])
        connect(m, noise.o, unit.noise)
        wiring.connect(beside, engine.cmac, unit.cmac)
        connect(beside, unit.random, engine.random)
        connect(beside, shadow.o, engine.new_key)
        for name in ("put", "give"):
            before = Signal(name=f"{end}_{name}_before")
            m.d.sync += before.eq(now[name])
            m.d.comb += getattr(shadow, name).eq(now[name] & ~before)
        m.submodules[f"{end}_keys"] = ResetInserter(self._inputs[f"{end}_reset"])(beside)
        m.d.comb += [
            shadow.column.eq(now["column"]), shadow.word.eq(now["word"]),
            shadow.as_next.eq(now["next"]), shadow.node.eq(NODES[peer]),
            engine.failed.eq(unit.failed), engine.keyed.eq(1),
            engine.local_hello.role.eq(Role.HOST if end == "host" else Role.BOX),
            getattr(self, f"{end}_key_valid").eq(engine.with_key.any()),
            getattr(self, f"{end}_key_two").eq(engine.with_two.any()),
            getattr(self, f"{end}_random").eq(engine.random.valid),
            getattr(self, f"{end}_down").eq(engine.session_down.any()),
        ]
