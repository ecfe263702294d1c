"""What the next frame is to be."""

from amaranth.lib import data

from dxpu.fabric.arq.frame_note import FrameNote
from dxpu.fabric.wire.types import EPOCH_BITS

__all__ = ["FrameOrder", "PreambleBeat", "PreambleInfo"]


def FrameOrder(cells):
    """Layout of a decision about the next frame, whose route the link is asked for.

    Members
    -------
    type : 4
    count, dwords, offset, final : 5, 13, 11, 1
        TLPs, as in a :class:`~dxpu.fabric.send.planner.FramePlan`; no ``count`` in control frames.
    code, generation, argument : 8, 16, 32
        Of an EVENT.
    nonce, offered, echoed, reason, keyed : 32, 16, 16, 2, 1
        Of a :class:`~dxpu.fabric.wire.types.Greeting`.
    words, request : 1, 1
        A SACK has its word; if not, the number of its request to go back.
    resend, cell : 1, number
        The frame is a repetition; its TLPs are in the replay memory from this cell on.
    store, reserved : 1, ``range(cells + 1)``
        The frame is to be stored for repetitions; so many cells are reserved for it.
    """
    return data.StructLayout({
        "type": 4, "count": 5, "dwords": 13, "offset": 11, "final": 1,
        "code": 8, "generation": 16, "argument": 32,
        "nonce": 32, "offered": 16, "echoed": 16, "reason": 2, "keyed": 1, "words": 1,
        "request": 1,
        "resend": 1, "cell": range(cells), "store": 1, "reserved": range(cells + 1),
    })


def PreambleInfo(cells):
    """Layout of what the rest of the frame needs besides the bytes of the preamble.

    Members
    -------
    count : 5
        Records that follow; none in control frames.
    total : 13
        Dwords of these records.
    final : 1
        Each record ends a TLP.
    drop : 1
        There is no frame: its TLPs, if any, are to be dropped. No data then.
    binding : 32
        What the CRC of each TLP is XORed with.
    path : 4
    extension : 1
        The preamble has a credit extension.
    store, note, session, epoch, reserved : 1, FrameNote, 6, number, cells
        The frame is to be stored for repetitions, with this note; ``reserved`` cells wait for it.
    resend, cell : 1, number
        The TLPs come from this cell, not from the queue.
    """
    return data.StructLayout({
        "count": 5, "total": 13, "final": 1, "drop": 1, "binding": 32, "path": 4, "extension": 1,
        "store": 1, "note": FrameNote, "session": 6, "epoch": EPOCH_BITS,
        "reserved": range(cells + 1), "resend": 1, "cell": range(cells),
    })


def PreambleBeat(width, cells):
    """Layout of a beat of a preamble.

    Members
    -------
    data, dwords, first, last
        As in a packet; ``last`` is the end of the preamble. Lanes past ``dwords`` are zero.
    info : :func:`PreambleInfo`
        The same in all beats of a preamble.
    """
    return data.StructLayout({
        "data": width, "dwords": range(width // 32 + 1), "first": 1, "last": 1,
        "info": PreambleInfo(cells),
    })
