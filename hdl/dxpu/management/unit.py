"""Management of a proxy: what stands beside its engine.

This file only wires. Ref: docs/reference/management.md
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from dxpu.counted import counted_by
from dxpu.crypto import CipherUse, MacUse
from dxpu.csr import RegisterPort, connect_ports
from dxpu.fabric.wire.format import NODE_UNASSIGNED
from dxpu.stream import PacketSignature

from .agent import ManagementAgent
from .events import EventWord
from .format import IDENTITY_BYTES
from .receiver import FrameTap, ManagementReceiver
from .sender import ManagementSender
from .store import WordStore

__all__ = ["ManagementUnit"]


class ManagementUnit(wiring.Component):
    """Takes frames of management, does what they ask for, and answers.

    Parameters
    ----------
    width, paths : int
    directory, challenge_ticks, event_ticks
        Of :class:`~.agent.ManagementAgent`.

    Members
    -------
    taps : array of :class:`~.receiver.FrameTap`
        What comes on each path.
    path_o : array of packet streams
        Frames to be sent.
    tick, addressed, enable, mac, node, identity, column, key_column, event, bus, random, failed,
    cmac, cipher
        Of :class:`~.agent.ManagementAgent`.
    stat_*
        Of the agent and of :class:`~.receiver.ManagementReceiver`.
    """

    def __init__(self, width, paths, directory, **ticks):
        self._agent = ManagementAgent(directory, paths=paths, **ticks)
        self._receiver = ManagementReceiver(width, paths)
        self._width, self._paths = width, paths
        super().__init__({
            "taps": In(FrameTap(width)).array(paths),
            "path_o": Out(PacketSignature(width)).array(paths),
            "tick": In(1), "addressed": In(1), "enable": In(1), "mac": In(48),
            "node": In(12, init=NODE_UNASSIGNED),
            "identity": In(data.ArrayLayout(32, IDENTITY_BYTES // 4)),
            "column": Out(2), "key_column": In(32),
            "event": In(stream.Signature(EventWord)),
            "bus": Out(RegisterPort()),
            "random": In(stream.Signature(32)), "failed": In(1),
            "cmac": Out(MacUse()), "cipher": Out(CipherUse()),
            **counted_by(self._agent), **counted_by(self._receiver),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.agent, m.submodules.receiver = agent, receiver = self._agent, self._receiver
        m.submodules.sender = sender = ManagementSender(self._width, self._paths)
        m.submodules.store = store = WordStore(self._width)
        for theirs, ours in ((self.taps, receiver.taps), (self.path_o, sender.path_o)):
            for one, other in zip(theirs, ours, strict=True):
                connect(m, flipped(one), other)
        connect(m, receiver.came, agent.came)
        connect(m, agent.outgoing, sender.outgoing)
        connect_ports(m, agent.bus, flipped(self.bus))
        for part in (agent, receiver):
            m.d.comb += [getattr(self, name).eq(getattr(part, name)) for name in counted_by(part)]
        for name in ("event", "random", "cmac", "cipher"):
            connect(m, flipped(getattr(self, name)), getattr(agent, name))
        m.d.comb += [
            agent.tick.eq(self.tick), agent.addressed.eq(self.addressed),
            agent.enable.eq(self.enable), agent.mac.eq(self.mac),
            agent.node.eq(self.node), agent.identity.eq(self.identity),
            self.column.eq(agent.column), agent.key_column.eq(self.key_column),
            agent.failed.eq(self.failed),
            store.put.eq(receiver.put), store.put_at.eq(receiver.put_at),
            store.put_beat.eq(receiver.put_beat),
            store.get.eq(sender.get), store.get_at.eq(sender.get_at), sender.beat.eq(store.beat),
            store.write.eq(agent.write), store.write_at.eq(agent.write_at),
            store.write_word.eq(agent.write_word), agent.write_ready.eq(store.write_ready),
            store.read.eq(agent.read), store.read_at.eq(agent.read_at), agent.word.eq(store.word),
        ]
        return m
