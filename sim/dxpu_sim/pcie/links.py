"""Links between a design's TLP ports and models of cocotbext-pcie.

There are three, from the one that simulates most to the fastest:

- :class:`LibraryLink`: the library's data link layer with its credits and its DLLPs;
- :class:`DirectLink`: no data link layer, but a link that goes up and down, and classes of TLPs
  that can be held;
- :class:`DirectPort`: the design directly behind a port of the library.

The library makes some 19 tasks for each TLP on its own link, and wakes every 10 us on an idle one,
so benches of whole systems have a :class:`DirectLink`: it takes a fifth off their time.
"""

import logging
from collections import deque
from collections.abc import Callable

import cocotb
from cocotb.queue import Queue
from cocotb.triggers import Event, First, Timer
from cocotbext.pcie.core import Device
from cocotbext.pcie.core.dllp import FcType
from cocotbext.pcie.core.port import SimPort
from cocotbext.pcie.core.tlp import Tlp

from .mailbox import CLASSES
from .ports import Mailbox, RootComplex
from .tlps import describe, pack, unpack

__all__ = ["TRAINING_NS", "DirectLink", "DirectPort", "LibraryLink", "attach_device", "attach_host",
           "replace_port"]

log = logging.getLogger("dxpu.pcie")

#: Time for a link to come up; much shorter than in reality, as tests would have to wait.
TRAINING_NS = 500


class _Link:
    """The design's end of a link, and TLPs of the design that wait on it.

    The link goes down for :data:`TRAINING_NS` when the design requests a hot reset, and can be
    pulled. TLPs on the link at that time are lost. While the link is down, TLPs of the design are
    dropped.

    Parameters
    ----------
    mailbox : :class:`~dxpu_sim.pcie.ports.Mailbox`
    queue : int
        TLPs of one class that may wait here before the class is stalled in the design.
    up : bool
        Initial state of the link; a link that is down waits for :meth:`put_back`.

    Attributes
    ----------
    up : bool
    resets, ups : lists of callables
        Called after the link has gone down, and when the link comes up again.
    """

    def __init__(self, mailbox: Mailbox, *, queue: int = 8, up: bool = True):
        self.up = up
        self.mailbox = mailbox
        self.resets: list[Callable[[], None]] = []
        self.ups: list[Callable[[], None]] = []
        self._pulled = not up
        self._queue = queue
        self._waiting: deque[tuple[int, Tlp]] = deque()
        self._counts = [0] * len(CLASSES)
        self._held: set[int] = set()
        self._arrival = Event()
        mailbox.received.append(self._out_of_design)
        mailbox.link(up)
        cocotb.start_soon(self._run_out_of_design())
        cocotb.start_soon(self._run_resets())

    def pull(self) -> None:
        """Remove the other end: the link goes down and stays down."""
        self._pulled = True
        self._down()

    async def put_back(self) -> None:
        """Put the other end back; the link comes up."""
        self._pulled = False
        await self._train()

    def retire(self) -> None:
        """Like :meth:`pull`, for ever: another port may take the mailbox."""
        self.pull()
        self.mailbox.received.remove(self._out_of_design)

    def hold(self, cls: int, held: bool = True) -> None:
        """Stop taking TLPs of class ``cls`` from the design, or take them again."""
        (self._held.add if held else self._held.discard)(cls)
        self._update_stall(cls)

    def _down(self):
        self.up = False
        self.mailbox.link(False)
        self._waiting.clear()
        for cls in range(len(CLASSES)):  # TLPs offered to a link that is down are taken
            self._counts[cls] = 0
            self.mailbox.stall(cls, False)
        for callback in self.resets:
            callback()

    async def _train(self):
        await Timer(TRAINING_NS, "ns")
        await self.mailbox.until_released()
        while not self.mailbox.idle:
            await Timer(100, "ns")
        if not self._pulled:
            self.up = True
            self.mailbox.link(True)
            for callback in self.ups:
                callback()

    async def _run_resets(self):
        while True:
            await self.mailbox.until_reset()
            if self.up:
                self._down()
                await self._train()
            await Timer(100, "ns")

    def _out_of_design(self, record):
        if record.discard or not self.up:
            return
        tlp = unpack(record.raw)
        cls = tlp.get_fc_type().value
        if cls != record.cls:
            raise RuntimeError(f"{self.mailbox.name}: {describe(tlp)} left the design as class "
                               f"{record.cls}")
        self._waiting.append((cls, tlp))
        self._counts[cls] += 1
        self._update_stall(cls)
        self._arrival.set()

    def _take(self, n: int) -> Tlp:
        """The waiting TLP with index ``n``, which waits no longer."""
        cls, tlp = self._waiting[n]
        del self._waiting[n]
        self._counts[cls] -= 1
        self._update_stall(cls)
        return tlp

    def _update_stall(self, cls):
        self.mailbox.stall(cls, cls in self._held or self._counts[cls] >= self._queue)

    async def _run_out_of_design(self):
        raise NotImplementedError


class LibraryLink(_Link, SimPort):
    """Link partner with a design's TLP port at the end of a link of the library.

    ``root_complex.make_port().connect(port)`` on the host side and
    ``port.connect(device.upstream_port)`` on the device side. Flow control credits return to the
    library only after the design has taken the TLP. Links of the library have one queue for all
    classes, so a blocked non-posted request would block posted requests. So TLPs keep the order in
    which they left the design, with two exceptions: posted requests and completions pass a
    non-posted request without credits, and posted requests pass a completion without credits.

    Parameters and attributes are those of the other links (:class:`_Link`).
    """

    def __init__(self, mailbox: Mailbox, **options):
        SimPort.__init__(self, fc_init=[[64, 1024, 64, 64, 64, 1024]] * 8)
        self.rx_handler = self._into_design
        mailbox.sent.append(self._taken)
        _Link.__init__(self, mailbox, **options)

    async def _into_design(self, tlp):
        if self.up:
            await self.mailbox.send(pack(tlp), tlp)
        else:
            tlp.release_fc()

    def retire(self) -> None:
        super().retire()
        self.mailbox.sent.remove(self._taken)

    @staticmethod
    def _taken(record):
        if isinstance(record.token, Tlp):
            record.token.release_fc()

    def _eligible(self):
        """Index of the first waiting TLP that has credits and may go; ``None`` if there is none."""
        blocked = set()
        for n, (cls, tlp) in enumerate(self._waiting):
            if cls not in blocked and self.fc_state[0].tx_tlp_has_credit(tlp):
                if cls == FcType.P.value or FcType.CPL.value not in blocked:
                    return n
            elif cls == FcType.P.value:
                return None
            blocked.add(cls)
        return None

    async def _run_out_of_design(self):
        fc = self.fc_state[0]
        await fc.initialized.wait()
        updates = (self._arrival, fc.fc_p_update, fc.fc_np_update, fc.fc_cpl_update)
        while True:
            for event in updates:
                event.clear()
            while (n := self._eligible()) is not None:
                await self.send(self._take(n))
            if not any(event.is_set() for event in updates):
                await First(*(event.wait() for event in updates))


class DirectLink(_Link):
    """Port of the library with a link to the design that has no data link layer and no delay.

    TLPs keep their order in both directions. The library gets the next TLP of the design when it
    has done with the one before; meanwhile TLPs wait here, and from ``queue`` of a class on in the
    design. In the other direction the library waits while 64 TLPs are on their way, which are the
    credits for headers of a :class:`LibraryLink`. :func:`replace_port` gives the port to its owner.

    Parameters and attributes are those of the other links (:class:`_Link`).
    """

    _ON_THE_WAY = 64

    def __init__(self, mailbox: Mailbox, **options):
        # Device or bridge of the library set these when they get the port.
        self.log = log
        self.parent = None
        self.rx_handler = None
        self._leaving: deque[bytes] = deque()
        self._leaves, self._left = Event(), Event()
        super().__init__(mailbox, **options)
        cocotb.start_soon(self._run_into_design())

    async def send(self, tlp):
        """Called by the library when ``tlp`` leaves the library here."""
        tlp.release_fc()
        while len(self._leaving) >= self._ON_THE_WAY:
            self._left.clear()
            await self._left.wait()
        self._leaving.append(pack(tlp))
        self._leaves.set()

    def _down(self):
        self._leaving.clear()
        self._left.set()
        super()._down()

    async def _run_into_design(self):
        while True:
            while self._leaving:
                raw = self._leaving.popleft()
                self._left.set()
                if self.up:
                    await self.mailbox.send(raw)
            self._leaves.clear()
            await self._leaves.wait()

    async def _run_out_of_design(self):
        while True:
            while self._waiting:
                await self.rx_handler(self._take(0))
            self._arrival.clear()
            await self._arrival.wait()


class DirectPort:
    """Port of the library with the design directly behind it, without a link in between.

    No link is simulated: no credits, no delay, and TLPs of the design are always taken.

    Parameters
    ----------
    mailbox : :class:`~dxpu_sim.pcie.ports.Mailbox`
    """

    def __init__(self, mailbox: Mailbox):
        self.mailbox = mailbox
        # Device or bridge of the library set these when they get the port.
        self.log = log
        self.parent = None
        self.rx_handler = None
        self._arrived = Queue()
        mailbox.received.append(self._out_of_design)
        cocotb.start_soon(self._run_out_of_design())

    async def send(self, tlp):
        """Called by the library when ``tlp`` leaves the library here."""
        tlp.release_fc()
        await self.mailbox.send(pack(tlp))

    def _out_of_design(self, record):
        if not record.discard:
            self._arrived.put_nowait(unpack(record.raw))

    async def _run_out_of_design(self):
        while True:
            await self.rx_handler(await self._arrived.get())


def attach_host(rc: RootComplex, mailbox: Mailbox, *, link: bool = True):
    """Give ``rc`` a root port with the design behind ``mailbox`` below; return the root port.

    With ``link`` there is a link with credits (:class:`LibraryLink`) in between, else none
    (:class:`DirectPort`).
    """
    bridge = rc.make_port()
    if link:
        bridge.connect(LibraryLink(mailbox))
    else:
        replace_port(bridge, "downstream", DirectPort(mailbox))
    return bridge


def attach_device(device: Device, mailbox: Mailbox, *, link: bool = True) -> None:
    """Put ``device`` below the design behind ``mailbox``; ``link`` as for :func:`attach_host`."""
    if link:
        LibraryLink(mailbox).connect(device.upstream_port)
    else:
        replace_port(device, "upstream", DirectPort(mailbox))


def replace_port(owner, side: str, port) -> None:
    """Replace the port on ``side`` of a bridge or device of the library by ``port``.

    The old port must not start its link, as it has no other end. Only before simulated time has
    passed.
    """
    getattr(owner, f"{side}_port").fc_initialized = True
    setter = "set_port" if isinstance(owner, Device) else f"set_{side}_port"
    getattr(owner, setter)(port)
