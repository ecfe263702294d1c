"""Structures and interfaces between the parts of the endpoint.

Ref: PCIe Base 5.0, 2.2.5, 2.2.7 (memory requests)
"""

from functools import reduce
from operator import or_

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.tlp.types import Fmt, HeaderCommon, RequestHeader1, TlpClass, TlpInfo, Type, swap_bytes

__all__ = ["ConfigState", "Departure", "Errors", "MAX_PAYLOAD_DWORDS", "Settings", "TlpTap",
           "WordReader", "request_word"]

#: Most data of a TLP from the endpoint, in dwords: 512 bytes.
MAX_PAYLOAD_DWORDS = 128


class ConfigState(data.Struct):
    """Fields of the configuration space that control hardware.

    ``memory`` and ``master`` are 0 outside D0.
    """

    memory: 1            #: the BARs answer
    master: 1            #: requests may be sent
    bar0: 32             #: base addresses; bits below the size are 0
    bar2: 64
    max_payload: 3       #: code, as in Device Control, at most 2
    read_mask: 12        #: Max_Read_Request_Size in bytes, less one
    timeout_off: 1
    msi: 1
    msi_vectors: 3       #: mask of the vector's bits in the data
    msi_address: 64
    msi_data: 16
    msix: 1              #: MSI-X enabled
    msix_masked: 1       #: Function Mask
    requester_id: 16     #: captured bus and device number; function 0


class Errors(data.Struct):
    """Pulses for status registers and error counters."""

    malformed: 1         #: a TLP was malformed, and dropped
    poisoned: 1          #: a poisoned TLP came; its data was not used
    poisoned_read: 1     #: the poisoned TLP was a completion
    unexpected: 1        #: a completion was unexpected, and dropped
    timeout: 1           #: a read was not completed in time
    target_abort: 1      #: a read was completed with CA
    master_abort: 1      #: a read was completed with UR
    refused_np: 1        #: a request was answered with UR
    refused_p: 1         #: a posted request was not supported, and dropped


class Settings(data.Struct):
    """Registers of BAR 0 that control the copy engine."""

    tags: 4              #: reads in flight, 1 or more
    read_mask: 12        #: bytes of one read, a power of two, less one
    ring: 2              #: halves of the ring's address, in the store, that are not 0
    fence: 2             #: halves of the fence's address that are not 0; 0 for no fence
    slot: 16             #: place of the next command in the ring
    waiting: 1           #: the ring has a next command


class TlpTap(wiring.Signature):
    """A TLP dword by dword, from the reader of the queue; without flow control.

    Members
    -------
    info : :class:`~dxpu.tlp.types.TlpInfo`
        Stable from ``begin`` to ``end``.
    hit0, hit2 : 1
        Address within BAR 0, BAR 2; valid after ``begin``.
    whole : 1
        The byte enables say one or two whole dwords.
    begin : 1
        Pulse: ``info`` is valid; two cycles or more before the first ``strobe``.
    strobe, data : 1, 32
        A dword of data, byte 0 least significant.
    end : 1
        Pulse, after the last dword.
    """

    def __init__(self):
        super().__init__({"info": Out(TlpInfo), "hit0": Out(1), "hit2": Out(1), "whole": Out(1),
                          "begin": Out(1), "strobe": Out(1), "data": Out(32), "end": Out(1)})


class WordReader(wiring.Signature):
    """Reads of a :class:`~.store.Store`, seen from the reader.

    Parameters
    ----------
    depth : int
        Number of words.

    Members
    -------
    ask, word_index : 1, ``range(depth)``
        Read this word. Both may change from cycle to cycle.
    granted : 1
        The word is read in this cycle, and is there in the next one.
    """

    def __init__(self, depth):
        super().__init__({"ask": Out(1), "word_index": Out(range(depth)), "granted": In(1)})


class Departure(wiring.Signature):
    """A TLP to be sent, seen from its source; :class:`~.sender.Sender` is the other end.

    Everything but ``ask`` and ``word`` is stable from ``go`` to ``done``.

    Parameters
    ----------
    address_bits : int
        Bits of a byte address in the video memory.

    Members
    -------
    ask : 1
        A TLP is available. ``ask`` may fall again while ``go`` is low; ``cls`` and ``payload`` keep
        their values until the cycle after the next then.
    cls : :class:`~dxpu.tlp.types.TlpClass`
    long : 1
        The header has four dwords.
    payload : 8
        Dwords of data, at most :data:`MAX_PAYLOAD_DWORDS`.
    stored : 1
        The data is in the video memory from byte ``address`` on, which need not be a multiple of 4.
        Otherwise the source supplies the data on ``word``.
    elected, index, word : 1, 3, 32
        While ``elected``, the source puts dword ``index`` of header and data, in lane order, on
        ``word`` in the same cycle. Otherwise ``word`` is 0.
    advance : 1
        Strobe: dword ``index`` is taken.
    go, done : 1
        Pulses: the TLP begins; its last dword was taken.
    """

    def __init__(self, address_bits):
        super().__init__({
            "ask": Out(1), "cls": Out(TlpClass), "long": Out(1), "payload": Out(8),
            "stored": Out(1), "address": Out(address_bits), "elected": In(1), "index": In(3),
            "word": Out(32), "advance": In(1), "go": In(1), "done": In(1),
        })


def request_word(m, index, *, write, long, length, requester_id, tag, first_be, last_be, address,
                 data, shown=1):
    """Dword ``index`` of a memory request in lane order: of its header, or ``data`` behind it.

    The header has four dwords if ``long``, else three. Traffic class 0, no attributes, no hints,
    not poisoned. All is 0 unless ``shown``.
    """
    common, second = Signal(HeaderCommon), Signal(RequestHeader1)
    m.d.comb += [
        common.fmt.eq(Mux(write, Mux(long, Fmt.HEADER_4_DATA, Fmt.HEADER_3_DATA),
                          Mux(long, Fmt.HEADER_4, Fmt.HEADER_3))),
        common.type.eq(Type.MEMORY),
        Cat(common.length_low, common.length_high).eq(length),
        second.requester_id.eq(swap_bytes(requester_id)),
        second.tag.eq(tag),
        second.first_be.eq(first_be),
        second.last_be.eq(last_be),
    ]
    third = Signal()
    m.d.comb += third.eq((index == 2) & shown)
    # Words that are 0 or shown: a lookup table has room for two bits of them, and for less of a
    # multiplexer.
    pieces = [
        (common, (index == 0) & shown), (second, (index == 1) & shown),
        (swap_bytes(address[32:64]), third & long),
        (swap_bytes(Cat(C(0, 2), address[2:32])), third & ~long | (index == 3) & long & shown),
        (data, (index[2] | (index == 3) & ~long) & shown)]
    return reduce(or_, (Mux(when, piece, 0) for piece, when in pieces))
