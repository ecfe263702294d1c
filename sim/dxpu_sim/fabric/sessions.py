"""Software's handling of an engine's sessions, in hardware: sets them up, watches their state."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.fabric.session.types import Mode, SessionView, Setting, SettingKind
from dxpu.stream import connect

__all__ = ["SessionWatch", "SetUp", "attach_sessions"]


class SetUp(wiring.Component):
    """Sets all sessions up alike, and again when the mode changes.

    Parameters
    ----------
    count : int
        Number of sessions.

    Members
    -------
    mode, tx_tag, rx_tag : :class:`Mode`, 16, 16
    setting : stream of :class:`Setting`
    done : 1
        All sessions are set up.
    """

    def __init__(self, *, count):
        self._count = count
        super().__init__({"mode": In(Mode), "tx_tag": In(16), "rx_tag": In(16), "done": Out(1),
                          "setting": Out(stream.Signature(Setting))})

    def elaborate(self, platform):
        m = Module()
        o, mode = self.setting, Signal(Mode)
        session, tags = Signal(range(self._count + 1)), Signal()
        m.d.comb += [
            o.valid.eq(session != self._count),
            self.done.eq(~o.valid & (mode == self.mode)),
            o.payload.session.eq(session),
            o.payload.kind.eq(Mux(tags, SettingKind.TAGS, SettingKind.MODE)),
            o.payload.mode.eq(mode),
            o.payload.tx_tag.eq(self.tx_tag), o.payload.rx_tag.eq(self.rx_tag),
        ]
        with m.If(o.valid & o.ready):
            m.d.sync += [tags.eq(~tags), session.eq(session + tags)]
        with m.Elif(~o.valid & (mode != self.mode)):
            m.d.sync += [mode.eq(self.mode), session.eq(0)]
        return m


class SessionWatch(wiring.Component):
    """Reads the state of all sessions, one after the other.

    Parameters
    ----------
    count : int
        Number of sessions.

    Members
    -------
    look, looked, seen, shown
        Ports of the :class:`~dxpu.fabric.engine.FabricEngine`.
    stirs : 1
        Strobe: a frame leaves, so the last result about acknowledgements is void.
    busy, failed : 1
        Acknowledgements may be missing; some session has failed.
    """

    def __init__(self, *, count):
        self._count = count
        super().__init__({
            "view_request": Out(1), "view_session": Out(range(count)),
            "view_done": In(1), "session_view": In(SessionView),
            "stirs": In(1), "busy": Out(1, init=1), "failed": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        stirred, busy, failed = Signal(), Signal(), Signal()
        now = busy | (self.session_view.unacked != 0), failed | self.session_view.failed
        m.d.comb += self.view_request.eq(1)
        with m.If(self.view_done):
            m.d.sync += [busy.eq(now[0]), failed.eq(now[1]),
                         self.view_session.eq(self.view_session + 1)]
            with m.If(self.view_session == self._count - 1):
                m.d.sync += [
                    self.view_session.eq(0), self.busy.eq(now[0] | stirred), self.failed.eq(now[1]),
                    stirred.eq(0), busy.eq(0), failed.eq(0),
                ]
        with m.If(self.stirs):
            m.d.sync += [stirred.eq(1), self.busy.eq(1)]
        return m


def attach_sessions(m, engine, count, *, mode, tx_tag, rx_tag):
    """Set the sessions of an engine up; return the set-up and the watch."""
    m.submodules.set_up, m.submodules.watch = set_up, watch = SetUp(count=count), SessionWatch(
        count=count)
    connect(m, set_up.setting, engine.setting)
    m.d.comb += [
        set_up.mode.eq(mode), set_up.tx_tag.eq(tx_tag), set_up.rx_tag.eq(rx_tag),
        engine.view_request.eq(watch.view_request), engine.view_session.eq(watch.view_session),
        watch.view_done.eq(engine.view_done), watch.session_view.eq(engine.session_view),
        watch.stirs.eq(engine.stat_tx_frames),
    ]
    return set_up, watch
