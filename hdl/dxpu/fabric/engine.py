"""The fabric engine of a proxy: TLPs of mapping-table rows on one side, frames on the other.

This file only wires. Ref: docs/explanation/fabric-engine.md
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dxpu.counted import counted, texts_of
from dxpu.fabric.arq.resequencer import Resequencer
from dxpu.fabric.arq.retransmit import Retransmitter
from dxpu.fabric.arq.selective import SelectiveRetransmitter
from dxpu.fabric.contexts import UNIT
from dxpu.fabric.credit.accounts import CreditAccounts
from dxpu.fabric.credit.class_queues import ClassQueues
from dxpu.fabric.credit.classifier import Classifier
from dxpu.fabric.credit.credits import OVERHEAD_BYTES
from dxpu.fabric.credit.grants import CreditGrants
from dxpu.fabric.credit.limits.commit_fork import CommitFork
from dxpu.fabric.credit.shares import GrantShares
from dxpu.fabric.credit.sizing import LARGEST, LARGEST_REQUEST
from dxpu.fabric.receive.depacketizer import Depacketizer
from dxpu.fabric.receive.paths.frame_queue import FrameQueue
from dxpu.fabric.receive.paths.frame_selector import FrameSelector
from dxpu.fabric.receive.types import TLP_DWORDS, Refused
from dxpu.fabric.send.packetizer import CELL_BYTES, Packetizer
from dxpu.fabric.session.link import Link
from dxpu.fabric.opening.agent import OpeningAgent
from dxpu.fabric.opening.types import BodyLook, Called, Say
from dxpu.fabric.session.session import SessionKeeper, connect_keeper
from dxpu.fabric.session.types import Peer, PeerRow, SessionNews, SessionView, Setting
from dxpu.fabric.wire.format import (
    CREDIT_BYTES, ETHERNET_BYTES, HEADER_BYTES, RECORD_CRC_BYTES, Capability, Role, SecurityMode,
)
from dxpu.fabric.wire.frame_fields import body_bytes
from dxpu.fabric.wire.frame_types import Body, FrameType
from dxpu.fabric.wire.types import Control, Event, Hello
from dxpu.queue import PacketQueue, Queue
from dxpu.rows import LIFE_BITS, ClassMeta, TlpMeta
from dxpu.stage import NOTE_BITS, Fill, Stage
from dxpu.stream import PacketLayout, PacketSignature, check_width, connect

from .row_gate import RowGate

__all__ = ["ARQ", "FabricEngine"]

#: Ways of retransmission.
ARQ = ("go-back-n", "selective")


class FabricEngine(wiring.Component):
    """Packetizer, depacketizer and link, with the queues to and from the MACs of ``paths`` paths.

    A frame received on any path is stored, and parsed while it arrives if no other waits; bad ones
    vanish here. What does not fit is dropped whole and counted: towards an Ethernet nothing can
    push back.

    Parameters
    ----------
    width : int
        Data bits per beat.
    rows : int
        Rows of the mapping table.
    paths : int
        MACs.
    peers, streams : int
        Sessions: one for each stream of each peer, as of :class:`Link`.
    split : bool
        Header/data split form of frames.
    frame_bytes : int
        Buffer of each path for received frames, and of the packetizer for TLPs, in bytes. With
        ``flow`` the latter is half of it up to 64 bits, but for the split form.
    cells : int, optional
        Of the packetizer's replay memory, for all sessions; 256 bytes each, or 4 beats. With
        selective repeat as many are there for frames that came ahead. 64, or, as all paths carry
        one stream with selective repeat, 64 for each of up to four.
    pause : int
        Of :class:`SessionKeeper`.
    block : bool
        State of the sessions is in block RAM (:class:`~dxpu.fabric.contexts.Owned`), 14 of an
        ECP5 for 64 sessions, and not, but for two of these, in distributed RAM.
    arq : str
        "go-back-n" or "selective" (repeat; not with ``split``). Either end works with both.
    flow : :class:`~.credit.sizing.FlowControl`, optional
        Without it no limits are granted, and TLPs leave without.
    keyed : bool
        There may be keyed sessions.
    looked_at : bool
        There is ``look``; only with ``keyed``.

    Members
    -------
    tlp_i : packet stream with meta :class:`TlpMeta`
        TLPs to be sent; those that end with ``discard`` and those of a closed row are dropped.
    tlp_o : packet stream with meta :class:`TlpMeta`
        TLPs received for open rows.
    frame_o, frame_i : array of packet streams, one per path
    control : stream of :class:`Control`
    event : stream of :class:`Event`
    open : ``rows``
        Bit n: row n is bound; TLPs of others are dropped and counted, in both directions.
    lives : array of numbers
        Current life of each row. TLPs of ``tlp_i`` that belong to an earlier one are dropped, here
        or, as ``tx_unroutable``, when it is their turn to leave; so are those of a row that is not
        bound any more. Those of ``tlp_o`` have the life in which they came.
    events_routed : 1
        Every event that was taken from ``control`` has its route, so rows may change.
    generations : array of 8-bit values
        Low bits of the generation of each row.
    receiving : ``rows``
        Bit n: TLPs of row n are taken and credits for them granted, from nought when this rises.
    released, released_strobe : :class:`~dxpu.rows.ClassMeta`, 1
        A TLP that was received has left its queue.
    waiting : ``rows``
        Bit n: a posted TLP or a completion of row n waits for credits. Another one can still be
        sent, and what is under way.
    np_waits, np_room : ``rows``
        Bit n: a non-posted TLP of row n waits for credits; what is under way, and one more, still
        may.
    progress : ``rows``
        Strobes: a posted TLP or a completion of row n that waited for credits was sent.
    limits_received : ``rows``
        Strobes: credit limits for row n came from its peer.
    session_down : ``rows``
        Bit n: the session of row n is not open.
    session_news : :class:`~.session.types.SessionNews`
        A cycle after a session opens by HELLO, or an open one ends.
    node, links, ack_delay, peers, rows
        Those of :class:`Link`.
    boot, quiet, setting
        Of :class:`SessionKeeper`. ``hello_wait`` is its ``wait``.
    view_request, view_session : 1, number of a session
        Request for the state of that session; held until ``view_done``, and answered again and
        again while it is held.
    view_done, session_view : 1, :class:`SessionView`
        Pulse: ``session_view`` is the state that was requested, some tens of cycles after the
        request.
    local_hello : :class:`Hello`
        What this end sends in HELLO. No session opens with a peer whose HELLO says that it does
        not take what is sent here: frames of the packing limit and of the largest TLP, the split
        form.
    retry_wait : 16
        ``wait`` of the :class:`Retransmitter`.
    packing_limit : 14
        Of :class:`Packetizer`.
    refused : :class:`~.receive.types.Refused`
        A good frame that the link has refused.
    keyed : ``peers``
        Of :class:`SessionKeeper`. This and the following only with ``keyed``.
    new_key, random, failed, cmac, with_key, with_two
        Of :class:`~.opening.agent.OpeningAgent`.
    look : :class:`~.opening.types.BodyLook`
        For who looks at the HELLOs that are refused.
    stat_* : 1
        Pulses; :attr:`stats` names them.
    """

    #: Members that are those of the agent.
    _OF_AGENT = ("new_key", "random", "failed", "cmac", "with_key", "with_two")
    #: Of the queue before each MAC if several carry one stream: half of a frame of 1500 bytes, or
    #: more, so that both are always busy.
    STRIPE_BYTES = 1024

    def __init__(self, width, *, rows, paths=2, peers=16, streams=4, split=False,
                 frame_bytes=8192, cells=None, pause=SessionKeeper.PAUSE, block=True,
                 arq="go-back-n", flow=None, keyed=False, looked_at=False):
        if arq not in ARQ:
            raise ValueError(f"arq must be one of {', '.join(ARQ)}, not {arq!r}")
        if arq == "selective" and split:
            raise ValueError("arq must be go-back-n with split, not 'selective'")
        if looked_at and not keyed:
            raise ValueError("looked_at needs keyed: only then are bodies kept")
        self._width = check_width(width)
        self._looked_at = looked_at
        self._rows = rows
        self._paths = paths
        self._depth = frame_bytes * 8 // width
        selective = arq == "selective"
        if cells is None:
            cells = 64 << (min(paths, 4) - 1).bit_length() if selective else 64
        #: As given; ``cells`` as they are.
        self.split, self.cells, self.arq, self.has_keys = split, cells, arq, keyed
        sessions = peers * streams
        # Where credits bound the size of a TLP, half of the buffer holds seven of the largest.
        small = flow and not split and width <= 64
        self._packetizer = Packetizer(
            width, split=split, cells=cells, selective=selective, keyed=keyed, paths=paths,
            depth=self._depth // 2 if small else self._depth,
            **({"largest": (OVERHEAD_BYTES + 16 * LARGEST) // 4} if small else {}))
        # A peer has one TLP of the split form under way in each session.
        self._depacketizer = Depacketizer(width, split=split, depth=self._depth, keyed=keyed,
                                          assemblies=sessions, selective=selective)
        self._link = Link(rows=rows, peers=peers, streams=streams, paths=paths, frames=cells,
                          selective=selective, block=block)
        self._retransmitter = (SelectiveRetransmitter if selective else Retransmitter)(
            sessions=sessions, paths=paths, cells=cells, block=block,
            # The smallest frame has 44 bytes. While a long one leaves two more are got ready, so
            # three may end in a row, unless each takes three beats or more.
            in_a_row=1 if width <= 128 else 4)
        self._keeper = SessionKeeper(peers=peers, streams=streams, paths=paths, pause=pause,
                                     block=block, has_keys=keyed)
        self._agent = OpeningAgent(peers=peers, streams=streams) if keyed else None
        self._flow = flow
        if flow:
            self._classifier = Classifier(width, largest=LARGEST)
            self._queues = ClassQueues(width, rows=rows, space=flow.queues, largest=LARGEST)
            self._accounts = CreditAccounts(rows=rows, most=(LARGEST, LARGEST_REQUEST))
            self._commits = CommitFork()
            self._grants = CreditGrants(rows=rows, initial=flow.grants, period=flow.period,
                                        again=flow.again, refresh=flow.refresh)
            shares = flow.shares(rows)
            self._shares = shares and GrantShares(rows=rows, initial=flow.grants, shares=shares)
        self._parts = {"tx": self._packetizer, "rx": self._depacketizer, "link": self._link,
                       "retry": self._retransmitter, "session": self._keeper}
        if keyed:
            self._parts["opening"] = self._agent
        self._rx_queues = [FrameQueue(width, depth=self._depth) for _ in range(paths)]
        self._resequencer = None
        if selective:
            self._resequencer = self._parts["early"] = Resequencer(
                width, sessions=sessions, cells=cells, cell=max(4, 8 * CELL_BYTES // width))
        #: Name of each counter pulse, without its ``stat_``, to what it counts.
        self.stats = {
            "tx_unbound": "TLPs to be sent for a row that is not bound, or whose life is over; "
                          "dropped.",
            **({"tx_large": texts_of(self._classifier)["large"],
                "tx_waited": texts_of(self._queues)["parked"],
                "tx_refused": texts_of(self._accounts)["refused"]} if flow else {}),
            "rx_tlps": "TLPs received, for any row.",
            "rx_unbound": "TLPs received for a row that is not bound; dropped.",
            **{f"rx_overflow{n}": f"Frames received on path {n} that did not fit its buffer; "
                                  "dropped." for n in range(paths)},
        }
        for prefix, part in self._parts.items():
            self.stats |= {f"{prefix}_{name}": text for name, text in texts_of(part).items()}
        link, tx, rx = self._link, self._packetizer, self._depacketizer
        #: Events on the way to the line and from it, by direction, in order
        #: (:class:`~dxpu.stage.Stage`): of each frame but ``packed``, of the end of a TLP.
        self.stages = {
            "out": {"planned": Stage(link.request.valid, rises=True),
                    "routed": Stage(link.route.valid & link.route.ready,
                                    link.route.p.dst_node[:NOTE_BITS]),
                    "packed": Stage(tx.stat_tlps), "framed": Stage(tx.stat_frames)},
            "in": {"judged": Stage(rx.judged, rx.committed.p.header.src_node[:NOTE_BITS])},
        }
        #: How full queues are, by name (:class:`~dxpu.stage.Fill`).
        self.fills = {
            **{f"receive{n}": Fill(queue.level, self._depth,
                                   f"Beats of frames that wait on path {n}.")
               for n, queue in enumerate(self._rx_queues)},
            "replay": tx.fill,
            **({"credits": self._queues.fill("TLPs that wait for credits of their peers.")}
               if flow else {}),
        }
        #: TLPs on their way into frames, and out of them; what happens to frames that come: one
        #: ends, the oldest one acts and has the first TLP inside, the oldest one was judged.
        self.leaving, self.arrived = tx.leaving, rx.o
        self.frame_ends = rx.i.valid & rx.i.ready & rx.i.payload.last
        self.frame_takes = rx.took & rx.drained & (
            rx.committed.payload.header.type == FrameType.TLP)
        self.frame_judged = rx.judged
        super().__init__({
            "tlp_i": In(PacketSignature(width, TlpMeta)),
            "tlp_o": Out(PacketSignature(width, TlpMeta)),
            "frame_o": Out(PacketSignature(width)).array(paths),
            "frame_i": In(PacketSignature(width)).array(paths),
            "control": In(stream.Signature(Control)),
            "event": Out(stream.Signature(Event)),
            "open": In(rows),
            "events_routed": Out(1),
            "generations": In(data.ArrayLayout(8, rows)),
            "receiving": In(rows),
            "released": In(ClassMeta),
            "released_strobe": In(1),
            "waiting": Out(rows),
            "np_waits": Out(rows),
            "np_room": Out(rows, init=(1 << rows) - 1),
            "progress": Out(rows),
            "limits_received": Out(rows),
            "lives": In(data.ArrayLayout(LIFE_BITS, rows)),
            "node": In(12),
            "links": In(paths, init=(1 << paths) - 1),
            "ack_delay": In(16),
            "packing_limit": In(14),
            "rows": In(data.ArrayLayout(PeerRow, rows)),
            "peers": In(data.ArrayLayout(Peer, peers)),
            "setting": In(stream.Signature(Setting)),
            "view_request": In(1),
            "view_session": In(range(sessions)),
            "view_done": Out(1),
            "session_view": Out(SessionView),
            "retry_wait": In(16, init=488),
            "boot": In(16),
            "hello_wait": In(16, init=488),
            "quiet": In(20, init=195_313),
            "local_hello": In(Hello, init={
                "largest": 0xFFFF, "capabilities": Capability.SPLIT * split}),
            "session_down": Out(rows),
            "session_news": Out(SessionNews),
            "refused": Out(Refused),
            **({"keyed": In(peers)} if keyed else {}),
            **({"look": In(BodyLook())} if looked_at else {}),
            **({name: self._agent.signature.members[name] for name in self._OF_AGENT}
               if keyed else {}),
            **counted({f"stat_{name}": text for name, text in self.stats.items()}),
        })

    def elaborate(self, platform):
        m = Module()
        for name, part in self._parts.items():
            m.submodules[name] = part
        self._transmit(m)
        self._receive(m)
        self._attach_link(m)
        for prefix, part in self._parts.items():
            for name in part.signature.members:
                if name.startswith("stat_"):
                    target = getattr(self, f"stat_{prefix}_{name.removeprefix('stat_')}")
                    m.d.comb += target.eq(getattr(part, name))
        return m

    def _transmit(self, m):
        m.submodules.tx_gate = gate = RowGate(self._width, rows=self._rows, inside=True)
        tx = self._packetizer
        connect(m, wiring.flipped(self.tlp_i), gate.i)
        passed = self._pay(m, gate.o) if self._flow else gate.o
        if self.split:
            # A HDR frame may leave before its TLP has ended: those that end badly stop here.
            m.submodules.tx_store = store = PacketQueue(self._width, depth=self._depth,
                                                        meta=TlpMeta)
            connect(m, passed, store.i)
            connect(m, store.o, tx.i)
        else:
            connect(m, passed, tx.i)
        m.d.comb += [
            gate.open.eq(self.open),
            gate.lives.eq(self.lives),
            self.stat_tx_unbound.eq(gate.stat_dropped),
            tx.packing_limit.eq(self.packing_limit),
            tx.stale.eq(self._link.stale),
        ]
        outs = list(self.frame_o)
        if self.arq == "selective" and self._paths > 1:
            outs = [self._tx_queue(m, n) for n in range(self._paths)]
        # A path number beyond our MACs goes out by the last one.
        with m.Switch(tx.o.payload.meta.path):
            for n, out in enumerate(outs):
                with m.Case(n) if n < self._paths - 1 else m.Default():
                    m.d.comb += [out.valid.eq(tx.o.valid), tx.o.ready.eq(out.ready)]
        for out in outs:
            m.d.comb += [out.payload[k].eq(tx.o.payload[k])
                         for k in ("data", "dwords", "first", "last", "discard")]

    def _tx_queue(self, m, n):
        """A queue before the MAC of a path, so that the next frame leaves by another one meanwhile;
        returns its input. Frames pass without waiting for their end: they come fast enough."""
        depth = self.STRIPE_BYTES * 8 // self._width
        m.submodules[f"tx_queue{n}"] = queue = Queue(PacketLayout(self._width), depth=depth)
        connect(m, queue.o, wiring.flipped(self.frame_o[n]))
        return queue.i

    def _pay(self, m, tlps):
        """Flow control: what may leave, what is granted, and what the link tells of both. Returns
        the TLPs that leave."""
        link, rx = self._link, self._depacketizer
        m.submodules.tx_classes = classifier = self._classifier
        m.submodules.tx_queues = queues = self._queues
        m.submodules.accounts = accounts = self._accounts
        m.submodules.grants = grants = self._grants
        m.submodules.commits = commits = self._commits
        connect(m, tlps, classifier.i)
        connect(m, classifier.o, queues.i)
        connect(m, commits.limits, accounts.limits)
        # A cycle later: which sessions are lost is known late in the cycle, and whether a TLP may
        # leave is needed early. One that leaves in between might have left a cycle before.
        lost = Signal(self._rows)
        m.d.sync += lost.eq(link.lost)
        m.d.comb += [
            # A session that was lost, or opens again, takes its credits with it.
            accounts.open.eq(self.open & ~lost),
            accounts.lives.eq(self.lives),
            accounts.generations.eq(self.generations),
            accounts.checked.eq(queues.checked),
            accounts.incoming.eq(classifier.o.payload.meta),
            queues.sure.eq(accounts.sure),
            queues.ok.eq(accounts.ok),
            accounts.consumed.eq(queues.consumed),
            queues.wake.eq(accounts.wake),
            accounts.numbered.eq(link.numbered),
            accounts.numbered_strobe.eq(link.numbered_strobe),
            commits.fresh.eq(link.fresh),
            commits.credits.eq(rx.credits),
            grants.open.eq(self.receiving & ~link.lost),
            grants.row.eq(link.limit_row),
            link.generations.eq(self.generations),
            link.granting.eq(grants.open),
            link.limits.eq(grants.limits),
            link.owed.eq(grants.due),
            *(getattr(grants, name).eq(getattr(link, name))
              for name in ("told_row", "told_mask")),
            grants.told.eq(link.told_limits),
            self.limits_received.eq(accounts.wake),
            self.np_room.eq(queues.np_room),
            self.progress.eq(queues.moved),
            self.stat_tx_large.eq(classifier.stat_large),
            self.stat_tx_waited.eq(queues.stat_parked),
            self.stat_tx_refused.eq(accounts.stat_refused),
        ]
        m.d.sync += [self.waiting.eq(queues.blocked), self.np_waits.eq(queues.np_waits)]
        # A cycle later: that a TLP leaves its queue is known late in the cycle, and far from here.
        m.d.sync += [grants.released.eq(self.released),
                     grants.released_strobe.eq(self.released_strobe)]
        connect(m, grants.want, link.want)
        if self._shares:
            m.submodules.shares = shares = self._shares
            m.d.comb += [
                shares.released.eq(grants.released),
                shares.released_strobe.eq(grants.released_strobe),
                shares.tick.eq(grants.tick), shares.row.eq(link.limit_row),
                link.withheld.eq(shares.withheld),
            ]
        plain = stream.Signature(PacketLayout(self._width, TlpMeta)).create(path=("paid",))
        m.d.comb += [
            *(plain.payload[k].eq(queues.o.payload[k]) for k, _ in PacketLayout(self._width)),
            plain.payload.meta.row.eq(queues.o.payload.meta.row),
            plain.payload.meta.life.eq(queues.o.payload.meta.life),
            plain.valid.eq(queues.o.valid),
            queues.o.ready.eq(plain.ready),
        ]
        return plain

    def _receive(self, m):
        rx = self._depacketizer
        m.submodules.rx_selector = selector = FrameSelector(self._width, count=self._paths)
        for n, (frames, queue) in enumerate(zip(self.frame_i, self._rx_queues, strict=True)):
            m.submodules[f"rx_queue{n}"] = queue
            connect(m, wiring.flipped(frames), queue.i)
            wiring.connect(m, queue.o, selector.i[n])
            m.d.comb += [
                queue.whole_only.eq(selector.whole_only[n]),
                getattr(self, f"stat_rx_overflow{n}").eq(queue.stat_overflow),
            ]
        if self._resequencer is None:
            connect(m, selector.o, rx.i)
        else:
            self._attach_resequencer(m, selector.o)
            m.d.comb += selector.hurry.eq(self._link.due)
        m.submodules.rx_gate = gate = RowGate(self._width, rows=self._rows)
        connect(m, rx.o, gate.i)
        connect(m, gate.o, wiring.flipped(self.tlp_o))
        m.d.comb += [
            gate.open.eq(self.open),
            gate.lives.eq(self.lives),
            self.refused.strobe.eq(rx.stat_refused),
            self.refused.header.eq(rx.committed.payload.header),
            self.refused.hello.eq(rx.hello),
            self.stat_rx_tlps.eq(rx.o.valid & rx.o.ready & rx.o.payload.last),
            self.stat_rx_unbound.eq(gate.stat_dropped),
        ]

    def _attach_resequencer(self, m, frames):
        """Selective repeat: what comes ahead is kept, and what peers have kept is known."""
        rx, link, early, retry = (self._depacketizer, self._link, self._resequencer,
                                  self._retransmitter)
        connect(m, frames, early.i)
        connect(m, early.o, rx.i)
        m.d.comb += [
            early.judged.eq(rx.judged),
            early.bad.eq(rx.bad),
            early.keep.eq(rx.held),
            rx.room.eq(early.room & link.holds),
            link.again.eq(early.again),
            link.held.eq(rx.held),
            link.crowded.eq(rx.crowded),
            early.place.eq(link.place),
            early.due.eq(link.due),
            early.due_place.eq(link.due_place),
            link.settled.eq(early.settled),
            early.forget.eq(Mux(link.open.valid & link.open.ready, 1 << link.open.payload, 0)),
            retry.word.eq(rx.word),
            retry.resent.eq(self._packetizer.resent),
            retry.resent_strobe.eq(self._packetizer.resent_strobe),
        ]

    def _attach_link(self, m):
        link, tx, rx = self._link, self._packetizer, self._depacketizer
        connect(m, tx.request, link.request)
        connect(m, link.route, tx.route)
        connect(m, rx.header, link.header)
        connect(m, link.verdict, rx.verdict)
        if self._flow:
            connect(m, rx.committed, self._commits.i)
            connect(m, self._commits.o, link.committed)
        else:
            connect(m, rx.committed, link.committed)
        connect(m, rx.event, wiring.flipped(self.event))
        m.d.comb += [
            link.node.eq(self.node),
            link.links.eq(self.links),
            link.words.eq(rx.words),
            link.request_number.eq(rx.request_number),
            link.frame_done.eq(rx.judged),
            link.frame_taken_back.eq(rx.taken_back),
            link.ack_delay.eq(self.ack_delay),
            link.peers.eq(self.peers),
            link.rows.eq(self.rows),
            link.bound.eq(self.open),
            link.lives.eq(self.lives),
            self.session_down.eq(link.lost),
        ]
        connect(m, link.reply, tx.reply)
        connect(m, wiring.flipped(self.control), tx.control)
        self._attach_retransmitter(m)
        self._attach_sessions(m)
        # Events under way to their route, from where they have left the table's rows behind.
        under_way, asked = Signal(3), link.request
        m.d.comb += self.events_routed.eq(under_way == 0)
        m.d.sync += under_way.eq(
            under_way + (self.control.valid & self.control.ready)
            - (asked.valid & asked.ready & asked.p.consumes & ~asked.p.tlps & ~asked.p.again))

    def _attach_sessions(self, m):
        keeper, tx, rx, link = self._keeper, self._packetizer, self._depacketizer, self._link
        connect_keeper(m, keeper, link, self._retransmitter, rx.committed.payload.header, rx.hello)
        if self._agent is None:
            connect(m, keeper.o, tx.greeting)
        else:
            self._attach_agent(m)
        connect(m, wiring.flipped(self.setting), keeper.setting)
        news = self.session_news
        m.d.sync += [news.opened.eq(keeper.stat_opened), news.ended.eq(keeper.stat_lost)]
        m.d.comb += [news.strobe.eq(news.opened | news.ended), news.session.eq(keeper.about)]
        m.d.comb += [
            keeper.boot.eq(self.boot),
            keeper.wait.eq(self.hello_wait),
            keeper.quiet.eq(self.quiet),
            tx.local_hello.eq(self.local_hello),
        ]
        # What is sent here: the largest TLP in a frame of its own, and what shares one. A HELLO is
        # judged late in a cycle, so what its sender must be able to receive is a register.
        tlp = OVERHEAD_BYTES + 16 * LARGEST if self._flow else 4 * TLP_DWORDS
        alone = HEADER_BYTES + CREDIT_BYTES + tlp + RECORD_CRC_BYTES
        shared, largest = self.packing_limit + ETHERNET_BYTES, Signal(15, init=alone)
        m.d.sync += largest.eq(Mux(shared < alone, alone, shared))
        m.d.comb += keeper.unfit.eq(
            (rx.hello.largest < largest)
            | self.split & ((rx.hello.capabilities & Capability.SPLIT) == 0))
        # Software looks: at the keeper, then at the link.
        shown, half, known = self.session_view, Signal(), Signal.like(keeper.shown)
        m.d.comb += [
            keeper.look.eq(self.view_request & ~half), keeper.looked.eq(self.view_session),
            link.look.eq(self.view_request & half), link.looked.eq(self.view_session),
            self.view_done.eq(link.seen),
            shown.state.eq(link.state), shown.unacked.eq(link.shown_unacked),
            shown.path.eq(link.shown.path), shown.failed.eq(link.shown.failed),
            *(shown[name].eq(known[name]) for name in ("mode", "boot", "tx_tag", "rx_tag")),
            shown.phase.eq(known.phase.as_value()),
        ]
        with m.If(keeper.seen & self.view_request):
            m.d.sync += [half.eq(1), known.eq(keeper.shown)]
        with m.If(link.seen | ~self.view_request):
            m.d.sync += half.eq(0)

    def _attach_agent(self, m):
        """The agent of keyed sessions between keeper, received bodies and greetings."""
        keeper, agent, tx, rx = self._keeper, self._agent, self._packetizer, self._depacketizer
        connect(m, keeper.call, agent.call)
        connect(m, agent.finding, keeper.finding)
        call, greeting = agent.call, tx.greeting
        # A register between the agent's program and the scheduler, each of which is long. Its
        # frame's body is in the packetizer, so the next one is not written before this is sent.
        frame, told = Signal(Say), Signal()
        with m.If(~told):
            m.d.sync += [frame.eq(agent.opening_frame.payload),
                         told.eq(agent.opening_frame.valid)]
        came = call.payload.kind
        m.d.comb += [
            keeper.keyed.eq(self.keyed), agent.fresh_tag.eq(keeper.fresh_tag),
            # Only frames that come are judged.
            call.payload.peer.eq(rx.committed.payload.header.src_node),
            rx.keep.eq(call.valid & call.ready & (
                (came == Called.HELLO) | (came == Called.HELLO_ACK) | (came == Called.HELLO_DONE))),
            rx.came_at.eq(agent.body_at), agent.came_word.eq(rx.came_word),
            *(getattr(tx, name).eq(getattr(agent, name))
              for name in ("body_put", "body_at", "body_word")),
            agent.body_ready.eq(tx.body_ready & ~told),
            agent.node.eq(self.node), agent.opens.eq(self.local_hello.role == Role.HOST),
        ]
        if self._looked_at:
            look = self.look
            m.d.comb += look.word.eq(rx.came_word)
            with m.If(look.keep):
                m.d.comb += rx.keep.eq(1)
            with m.If(look.looks):
                m.d.comb += rx.came_at.eq(look.at)
        for name in self._OF_AGENT:
            if name == "random":
                continue
            member, ours, theirs = (self.signature.members[name], getattr(self, name),
                                    getattr(agent, name))
            if not member.is_port:
                wiring.connect(m, wiring.flipped(ours), theirs)
            else:
                m.d.comb += theirs.eq(ours) if member.flow is In else ours.eq(theirs)
        fields = body_bytes(Body.HELLO, **{
            field.name: Const(SecurityMode.KEYED, 8) if name == "security"
            else self.local_hello[name]
            for (name, _), field in zip(data.Layout.cast(Hello), Body.HELLO.fields, strict=True)})
        m.d.comb += [own.eq(fields.word_select(4 + n, 16))
                     for n, own in enumerate(agent.own_fields)]
        # Greetings in clear and under a key, whichever is there first.
        keyed, waits = Signal(), Signal()
        m.d.sync += waits.eq(greeting.valid & ~greeting.ready)
        last = Signal()
        m.d.sync += last.eq(keyed)
        m.d.comb += [
            keyed.eq(Mux(waits, last, told)),
            greeting.valid.eq(Mux(keyed, told, keeper.o.valid)),
            agent.opening_frame.ready.eq(~told), keeper.o.ready.eq(greeting.ready & ~keyed),
        ]
        with m.If(greeting.ready & keyed):
            m.d.sync += told.eq(0)
        with m.If(keyed):
            m.d.comb += [greeting.payload[name].eq(frame[name])
                         for name in ("type", "session", "path", "tag")]
            m.d.comb += greeting.payload.keyed.eq(1)
        with m.Else():
            m.d.comb += greeting.payload.eq(keeper.o.payload)
        # The first random word is the key of the tags.
        m.d.comb += [
            agent.random.valid.eq(self.random.valid & keeper.tag_key_valid),
            agent.random.payload.eq(self.random.payload),
            self.random.ready.eq(agent.random.ready | ~keeper.tag_key_valid),
        ]
        with m.If(self.random.valid & ~keeper.tag_key_valid):
            m.d.sync += [keeper.tag_key.eq(self.random.payload), keeper.tag_key_valid.eq(1)]
        time = Signal(exact_log2(UNIT))
        m.d.sync += time.eq(time + 1)
        m.d.comb += agent.tick.eq(time == 0)

    def _attach_retransmitter(self, m):
        link, tx, retry = self._link, self._packetizer, self._retransmitter
        connect(m, retry.free, tx.free)
        m.d.comb += [
            retry.wait.eq(self.retry_wait),
            retry.stored.eq(tx.stored),
            retry.stored_strobe.eq(tx.stored_strobe),
            retry.repeat_take.eq(tx.repeat_take),
            tx.repeat.eq(retry.repeat),
            tx.repeat_valid.eq(retry.repeat_valid),
            tx.repeat_more.eq(retry.repeat_more),
            link.short.eq(tx.short),
        ]
