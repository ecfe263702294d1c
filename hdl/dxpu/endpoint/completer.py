"""Answers to non-posted requests.

Ref: PCIe Base 5.0, 2.2.9, 2.3.1 (request handling), 2.3.1.1 (data return), 2.7.2.1 (poisoned
requests), 6.6.2 (Function Level Reset)
"""

from functools import reduce
from operator import or_

from amaranth import *
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from dxpu.tlp.completion import completion_for, completion_words
from dxpu.tlp.types import AddressType, CompletionRequest, CompletionStatus, TlpClass

from .types import ConfigState, Departure, TlpTap

__all__ = ["Completer"]


class _Kind(enum.Enum, shape=unsigned(3)):
    """How a request is handled."""

    REFUSED = 0
    CONFIG_READ = 1
    CONFIG_WRITE = 2
    REGISTERS = 3
    MEMORY = 4
    #: A read of no bytes from BAR 0.
    FLUSH = 5


class Completer(wiring.Component):
    """Answers non-posted requests one at a time; the next may come after ``answered``.

    The completer carries out Type 0 configuration requests to function 0. Reads of BAR 2 are
    answered whatever their byte enables are. Reads of BAR 0 are answered if they ask for one or two
    whole dwords that exist. A read of no bytes (a flush) is answered anywhere within the BARs.

    All other requests end in UR and pulse ``refused``: I/O, Type 1, locked and atomic requests,
    translation requests, poisoned configuration writes, other addresses. Completions are as large
    as Max_Payload_Size allows and are split at multiples of 128 bytes.

    Parameters
    ----------
    address_bits : int
        Bits of a byte address in the video memory.

    Members
    -------
    tap : :class:`~.types.TlpTap`
    state : :class:`~.types.ConfigState`
    config_register, config_value : 10, 32
    config_write, config_enables, config_data, config_target : 1, 4, 32, 16
        To :class:`~.config_space.EndpointConfig`; ``config_write`` is a strobe.
    function_reset : 1
        The write of the cycle before asked for a Function Level Reset.
    register_address : 16
    register_data, readable : 32, 1
        Read port of :class:`~.registers.Registers`.
    reads_register, register_granted : 1
        The memory behind the registers is to be read, is read in this cycle for ``register_data``
        of the next one.
    answered : 1
        Pulse: the request was answered.
    reset_due : 1
        Level: the request was answered and asked for a Function Level Reset. Ends with the reset;
        replaces ``answered``.
    refused, poisoned : 1
        Pulses: the request ended in UR; the request was poisoned.
    o : :class:`~.types.Departure`
    """

    def __init__(self, address_bits):
        super().__init__({
            "tap": In(TlpTap()), "state": In(ConfigState),
            "config_register": Out(10), "config_value": In(32), "config_write": Out(1),
            "config_enables": Out(4), "config_data": Out(32), "config_target": Out(16),
            "function_reset": In(1),
            "register_address": Out(16), "register_data": In(32), "readable": In(1),
            "reads_register": Out(1), "register_granted": In(1),
            "answered": Out(1), "reset_due": Out(1), "refused": Out(1), "poisoned": Out(1),
            "o": Out(Departure(address_bits)),
        })
        self._bits = address_bits

    def elaborate(self, platform):
        m = Module()
        o, request = self.o, Signal(CompletionRequest, reset_less=True)
        kind, good, resets = Signal(_Kind), Signal(), Signal()
        # Dwords that remain to be sent, and the byte address of the first.
        left, piece = Signal(11), Signal(8)
        address = Signal(max(16, self._bits), reset_less=True)
        step = Signal.like(piece)  # dwords by which the address moves
        # Data from outside the video memory: the dword to be sent next. It is read at least one
        # cycle before it is sent, as the way from the registers is long.
        reads, value = Signal(), Signal(32, reset_less=True)
        # Dwords up to the boundary that is Max_Payload_Size behind the last one.
        limit, offset = Signal(8), address[2:7]
        m.d.comb += [
            o.cls.eq(TlpClass.CPL), o.payload.eq(piece), o.stored.eq(kind == _Kind.MEMORY),
            o.address.eq(address[:self._bits]),
            self.register_address.eq(address),
            step.eq(piece),
            limit[:5].eq(-offset),
            limit[5:].eq((1 << self.state.max_payload) - offset.any()),
            self.config_register.eq(address[2:12]),
            self.config_data.eq(request.data),
        ]
        moves = address.eq(address + (step << 2))
        with m.If(reads):
            m.d.sync += value.eq(Mux(kind == _Kind.CONFIG_READ, self.config_value,
                                     Mux(kind == _Kind.REGISTERS, self.register_data, 0)))
        with m.If(self.function_reset):
            m.d.sync += resets.eq(1)
        with m.FSM():
            with m.State("Idle"):
                m.d.sync += [left.eq(0), resets.eq(0), good.eq(1)]
                self._take(m, request, kind, left, address)
            with m.State("First"):
                m.d.comb += [
                    self.reads_register.eq(kind == _Kind.REGISTERS),
                    self.config_write.eq(kind == _Kind.CONFIG_WRITE),
                ]
                with m.If((kind != _Kind.REGISTERS) | self.register_granted):
                    m.next = "Second"
            with m.State("Second"):
                m.d.comb += [reads.eq(1), step.eq(1)]
                with m.If(kind == _Kind.REGISTERS):
                    m.d.sync += moves
                with m.If((kind == _Kind.REFUSED)
                          | (kind == _Kind.REGISTERS) & ~self.readable):
                    m.d.sync += good.eq(0)
                m.next = "Third"
            with m.State("Third"):
                with m.If((kind == _Kind.REGISTERS) & (left == 2) & ~self.readable):
                    m.d.sync += good.eq(0)
                m.next = "Cut"
            with m.State("Cut"):
                m.d.sync += piece.eq(Mux(~good, 0, Mux(
                    (kind == _Kind.MEMORY) & (left > limit), limit, left)))
                with m.If(~good):
                    m.d.sync += left.eq(0)
                m.next = "Ask"
            with m.State("Ask"):
                m.d.comb += o.ask.eq(1)
                with m.If(o.go):
                    m.next = "Send"
            with m.State("Send"):
                # Read in each cycle until the first dword of data is taken: of these cycles, two at
                # most can have a write to the memory.
                m.d.comb += [
                    reads.eq((o.index == 3) & o.advance),
                    self.reads_register.eq((kind == _Kind.REGISTERS) & ~o.index[2]),
                ]
                with m.If(o.done):
                    m.d.sync += [
                        left.eq(left - piece),
                        moves,
                        request.byte_count.eq(request.byte_count - (piece << 2)
                                              + request.lower_address[:2]),
                        # Further completions begin at a multiple of 128 bytes.
                        request.lower_address.eq(0),
                    ]
                    m.next = "Cut"
                    with m.If(left == piece):
                        m.next = "Done"
            with m.State("Done"):
                m.d.comb += [self.reset_due.eq(resets), self.answered.eq(~resets),
                             self.refused.eq(~good)]
                with m.If(~resets):
                    m.next = "Idle"
        self._words(m, request, good, value)
        return m

    def _take(self, m, request, kind, left, address):
        """Classify a request when its last dword has come."""
        tap, info = self.tap, self.tap.info
        mine, reads, flush = Signal(), Signal(), Signal()
        m.d.comb += [
            mine.eq(info.cls == TlpClass.NP),
            reads.eq(info.is_memory & ~info.is_atomic & ~info.is_locked
                     & (info.at != AddressType.TRANSLATION_REQUEST)),
            flush.eq((info.length == 1) & (info.first_be == 0)),
            self.poisoned.eq(tap.end & mine & info.ep & info.payload_dwords.any()),
        ]
        with m.If(tap.strobe & mine):
            # Only configuration writes among the requests with data are carried out: one dword.
            m.d.sync += request.data.eq(tap.data)
        with m.If(tap.end & mine):
            m.d.sync += [
                request.eq(completion_for(info, CompletionStatus.SC, 0)),
                request.data.eq(request.data),
                self.config_enables.eq(info.first_be),
                self.config_target.eq(info.target_id),
                address.eq(Mux(info.is_config, info.register << 2, info.address)),
                kind.eq(_Kind.REFUSED),
            ]
            with m.If(info.is_config):
                with m.If(~info.is_type1 & (info.target_id[:3] == 0)
                          & ~(info.is_write & info.ep)):
                    m.d.sync += [
                        kind.eq(Mux(info.is_write, _Kind.CONFIG_WRITE, _Kind.CONFIG_READ)),
                        left.eq(~info.is_write)]
            with m.Elif(reads & (tap.hit0 & (tap.whole | flush) | tap.hit2)):
                m.d.sync += [
                    kind.eq(Mux(tap.hit0, Mux(flush, _Kind.FLUSH, _Kind.REGISTERS), _Kind.MEMORY)),
                    left.eq(Cat(info.length, info.length == 0))]
            m.next = "First"

    def _words(self, m, request, good, value):
        """Header, and data from outside the video memory."""
        o, answer = self.o, Signal(CompletionRequest)
        m.d.comb += [
            answer.eq(request),
            answer.completer_id.eq(self.state.requester_id),
            answer.status.eq(Mux(good, CompletionStatus.SC, CompletionStatus.UR)),
        ]
        pieces = [(word, o.index == n)
                  for n, word in enumerate(completion_words(m, answer, o.payload))]
        pieces.append((value, o.index >= 3))
        m.d.comb += o.word.eq(reduce(or_, (
            Mux(o.elected & when, piece, 0) for piece, when in pieces)))
