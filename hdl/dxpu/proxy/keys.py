"""What a proxy with keys has beside its engine: a cipher, random words, and the keys that software
writes.

Ref: docs/reference/keyed-sessions.md, docs/reference/crypto.md
"""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from dxpu.counted import Counted
from dxpu.crypto import Aes128, CipherShare, CipherUse, Cmac, MacShare, MacUse, RandomSource
from dxpu.fabric.opening.types import KeyWord
from dxpu.fabric.wire.format import NODE_UNASSIGNED

from .management import RandomShare

__all__ = ["KeyShadow", "KeyUnit", "attach_keys", "attach_knocks", "attach_no_keys"]

#: Key of the conditioner, which need not be secret.
_CONDITIONER = b"DXPU conditioner"


class KeyShadow(wiring.Component):
    """Keeps the key that software writes until it is whole, and hands it on then.

    A key is four words. When all of them were written it may be given to a peer, once: what is
    given before that is counted, and has no effect. So a key is never a mixture of two.

    Members
    -------
    put, column, word : 1, 2, 32
        Strobe: ``word`` is that word of the key. The first byte is in the lowest bits.
    give, peer, node, as_next : 1, 4, 12, 1
        Strobe: it is the key of that peer, the next one or the only one.
    whole : 1
        All words were written.
    busy : 1
        A key is being handed on; nothing may be written.
    o : stream of :class:`~dxpu.fabric.opening.types.KeyWord`
    stat_incomplete : 1
        Pulse.
    """

    put: In(1)
    column: In(2)
    word: In(32)
    give: In(1)
    peer: In(4)
    node: In(12)
    as_next: In(1)
    whole: Out(1)
    busy: Out(1)
    o: Out(stream.Signature(KeyWord))
    stat_incomplete: Out(Counted("Keys that were given to a peer before all of their words were "
                                 "written; ignored."))

    def elaborate(self, platform):
        m = Module()
        m.submodules.kept = kept = Memory(shape=32, depth=4, init=[])
        write, read = kept.write_port(), kept.read_port(domain="comb")
        there, number, out = Signal(4), Signal(3), self.o.payload
        m.d.comb += [
            write.addr.eq(self.column), write.data.eq(self.word), write.en.eq(self.put),
            read.addr.eq(number[1:]), out.data.eq(read.data.word_select(number[0], 16)),
            self.whole.eq(there.all()), self.o.valid.eq(self.busy),
            self.stat_incomplete.eq(self.give & ~self.whole),
        ]
        with m.If(self.put):
            m.d.sync += there.bit_select(self.column, 1).eq(1)
        with m.If(self.give):
            m.d.sync += [
                there.eq(0), self.busy.eq(self.whole), out.peer.eq(self.peer),
                out.node.eq(self.node), out.following.eq(self.as_next),
            ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += number.eq(number + 1)
            with m.If(number.all()):
                m.d.sync += self.busy.eq(0)
        return m


class KeyUnit(wiring.Component):
    """One AES-128 and one AES-CMAC for all that a proxy with keys does, and its random words.

    Members
    -------
    noise : stream of 1
        Raw bits of a noise source, at any pace.
    cmac : :class:`~dxpu.crypto.MacUse`
        For the opening agent.
    manager_cmac, manager_cipher, manager_random
        For a unit of management; only with ``managed``.
    knock_cmac : :class:`~dxpu.crypto.MacUse`
        For who looks at knocks; only with ``knocks``.
    random : stream of 32
    failed : 1
        A test of the noise has failed: no random word comes any more, until reset.
    """

    def __init__(self, *, managed=False, knocks=False):
        self._managed, self._knocks = managed, knocks
        super().__init__({
            "noise": In(stream.Signature(1)),
            "cmac": In(MacUse()),
            **({"manager_cmac": In(MacUse()), "manager_cipher": In(CipherUse()),
                "manager_random": Out(stream.Signature(32))} if managed else {}),
            **({"knock_cmac": In(MacUse())} if knocks else {}),
            "random": Out(stream.Signature(32)),
            "failed": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.aes = aes = Aes128(ram=True)
        m.submodules.cipher_share = ciphers = CipherShare(count=2 + self._managed)
        m.submodules.cmac, m.submodules.mac_share = cmac, macs = Cmac(), MacShare(
            count=2 + self._managed + self._knocks)
        m.submodules.source = source = RandomSource()
        connect(m, ciphers.i, aes.i)
        connect(m, aes.o, ciphers.o)
        connect(m, cmac.cipher, ciphers.users[0])
        connect(m, source.cipher, ciphers.users[1])
        connect(m, macs.use, cmac.use)
        connect(m, flipped(self.cmac), macs.users[0])
        connect(m, source.cmac, macs.users[1])
        connect(m, flipped(self.noise), source.noise)
        if self._knocks:
            connect(m, flipped(self.knock_cmac), macs.users[-1])
        if self._managed:
            m.submodules.random_share = words = RandomShare()
            connect(m, flipped(self.manager_cmac), macs.users[2])
            connect(m, flipped(self.manager_cipher), ciphers.users[2])
            connect(m, source.o, words.i)
            connect(m, words.o[0], flipped(self.random))
            connect(m, words.o[1], flipped(self.manager_random))
        else:
            connect(m, source.o, flipped(self.random))
        key = Const(int.from_bytes(_CONDITIONER, "little"), 128)
        m.d.comb += [
            source.key_column.eq(key.word_select(source.column, 32)),
            self.failed.eq(source.stuck | source.biased),
        ]
        return m


def attach_no_keys(m, engine, file, clear):
    """Connect the peers of an engine without keys to the ``file`` of control registers; ``clear``:
    there is a peer."""
    for peer, row in zip(engine.peers, file.peer, strict=True):
        m.d.comb += peer.valid.eq(row.node.valid)
    m.d.comb += clear.eq(Cat(peer.valid for peer in engine.peers).any())


def attach_knocks(m, engine, file, knock, unit):
    """Connect ``knock``, a :class:`~dxpu.fabric.opening.types.KnockPort` of the proxy, to the
    engine, to the ``file`` of control registers, and to ``unit``, a :class:`KeyUnit`."""
    connect(m, knock.cmac, unit.knock_cmac)
    look, asked = engine.look, knock.body_look
    m.d.comb += [
        knock.free.eq(file.node.number == NODE_UNASSIGNED),
        look.keep.eq(asked.keep), look.looks.eq(asked.looks), look.at.eq(asked.at),
        asked.word.eq(look.word),
    ]


def attach_keys(m, engine, file, clear, shadow, noise, management=None, knock=None):
    """Connect a keyed engine to the ``file`` of control registers, by ``shadow``, a
    :class:`KeyShadow`, and to ``noise``, a port of the proxy; ``clear``: there is a peer whose
    sessions need no key. ``management`` is the unit of management, if there is one; ``knock`` the
    :class:`~dxpu.fabric.opening.types.KnockPort` of the proxy, if there is one."""
    m.submodules.key_unit = unit = KeyUnit(managed=management is not None, knocks=knock is not None)
    if knock is not None:
        attach_knocks(m, engine, file, flipped(knock), unit)
    if management is not None:
        connect(m, management.cmac, unit.manager_cmac)
        connect(m, management.cipher, unit.manager_cipher)
        connect(m, unit.manager_random, management.random)
        m.d.comb += management.failed.eq(unit.failed)
    m.submodules.key_shadow = shadow
    connect(m, flipped(noise), unit.noise)
    connect(m, engine.cmac, unit.cmac)
    connect(m, unit.random, engine.random)
    connect(m, shadow.o, engine.new_key)
    m.d.comb += [
        engine.failed.eq(unit.failed), file.stall.eq(shadow.busy),
        file.security.noise_failed.eq(unit.failed), file.security.whole.eq(shadow.whole),
        shadow.put.eq(Cat(row.word.written for row in file.key).any()),
    ]
    with m.If(engine.random.valid):
        m.d.sync += file.security.random.eq(1)
    with m.If(unit.failed):
        m.d.sync += file.security.random.eq(0)
    for n, row in enumerate(file.key):
        with m.If(row.word.written):
            m.d.comb += [shadow.column.eq(n), shadow.word.eq(row.word.bytes_w)]
    without = []
    for n, (peer, row) in enumerate(zip(engine.peers, file.peer, strict=True)):
        # What a session is like must not change while it may be open.
        m.d.sync += peer.valid.eq(row.node.valid)
        with m.If(~peer.valid):
            m.d.sync += engine.keyed[n].eq(~row.node.clear)
        m.d.comb += [row.key.valid.eq(engine.with_key[n]), row.key.next.eq(engine.with_two[n])]
        with m.If(row.key.written):
            m.d.comb += [shadow.give.eq(1), shadow.peer.eq(n), shadow.node.eq(row.node.number),
                         shadow.as_next.eq(row.key.next_w)]
        without.append(peer.valid & ~engine.keyed[n])
    m.d.sync += clear.eq(Cat(without).any())
    m.d.comb += file.security.clear.eq(clear)
