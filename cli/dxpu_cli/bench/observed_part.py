"""What an observed proxy has beside its datapath, to be measured and routed alone."""

from types import SimpleNamespace

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dxpu.csr import RegisterFile, RegisterMux, RegisterPort, connect_ports
from dxpu.fabric.session.types import SessionNews
from dxpu.mapping.types import RowEvent
from dxpu.proxy.observed import Observation
from dxpu.rows import TlpMeta
from dxpu.stage import Fill
from dxpu.stream import PacketSignature
from dxpu.switch.tracking.types import RoundTrip

__all__ = ["ObservedPart"]


class ObservedPart(wiring.Component):
    """The measurements of a proxy, with their registers, and ports for all that they look at.

    Parameters
    ----------
    proxy : HostProxy or BoxProxy
        An observed proxy of the same kind, for names and sizes.
    width, rows, paths : int

    Members
    -------
    bus : :class:`~dxpu.csr.RegisterPort`
    seen : bits
        What is looked at.
    """

    def __init__(self, proxy, width, *, rows, paths):
        self._blocks = {name: proxy.registers.blocks[name] for name in ("observe", "stages")}
        self._is_host = proxy.registers.name == "host_proxy"
        fills = {name: Fill(Signal.like(fill.level), fill.room, fill.text, fill.free,
                            None if fill.leaves is None else Signal.like(fill.leaves))
                 for name, fill in proxy.core.fills.items()}
        self._observation = Observation("host" if self._is_host else "box", width=width, rows=rows,
                                        paths=paths, fills=fills)

        def stream(*meta):
            return PacketSignature(width, *meta).create(path=("seen",))

        self._streams = {"leaving": stream(), "arrived": stream(TlpMeta), "tlp_i": stream(TlpMeta),
                         "entry": stream(), "exit": stream()}
        self._looked = {
            "links": Signal(paths), "session_news": Signal(SessionNews), "waiting": Signal(rows),
            "np_waits": Signal(rows), "frame_ends": Signal(), "frame_takes": Signal(),
            "frame_judged": Signal(), "row_event": Signal(RowEvent), "fenced": Signal(rows),
            "overdue": Signal(rows), "trip": Signal(RoundTrip), "entry_row": Signal(6)}
        self._pulses = {name: Signal(name=name) for name in proxy.pulses}
        self._seen = [Value.cast(value) for value in (
            *self._looked.values(), *self._pulses.values(),
            *(level for fill in fills.values() for level in (fill.level, fill.leaves)
              if level is not None),
            *(part for one in self._streams.values()
              for part in (one.valid, one.ready, one.payload)))]
        super().__init__({"bus": In(RegisterPort()),
                          "seen": In(sum(len(value) for value in self._seen))})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += Cat(self._seen).eq(self.seen)
        m.submodules.mux = mux = RegisterMux(
            {name: (base, block.size) for name, (base, block) in self._blocks.items()})
        connect_ports(m, wiring.flipped(self.bus), mux.bus)
        files = {}
        for name, (_, block) in self._blocks.items():
            m.submodules[name] = files[name] = RegisterFile(block)
            connect_ports(m, getattr(mux, name), files[name].bus)
        looked, streams = SimpleNamespace(**self._looked), self._streams
        engine = SimpleNamespace(**self._looked, **{
            name: streams[name] for name in ("leaving", "arrived", "tlp_i")})
        self._observation.wire(
            m, files, bus=self.bus, table=looked, engine=engine, pulses=self._pulses,
            fenced=looked.fenced, entry=streams["entry"], exit=streams["exit"],
            **({"overdue": looked.overdue, "trip": looked.trip} if self._is_host
               else {"entry_row": looked.entry_row}))
        return m
