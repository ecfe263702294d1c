"""Adds texts to a wave in the FST format.

The format is that of GTKWave's ``fstapi``, in blocks: a header, one or more blocks of value changes
(type 8), the widths of all signals (geometry, 3), and their names (hierarchy: 4 by gzip, 6 by LZ4).
Numbers in tables are LEB128, all others big-endian. Values of the signals that are there stay as
they are: a block of changes gets the texts behind them.
"""

import bisect
import gzip
import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from dxpu_tools.errors import UserError

from .texts import SCOPE, Texts

__all__ = ["add_texts"]

_HEADER, _CHANGES, _GEOMETRY, _NAMES_GZIP, _NAMES_LZ4 = 0, 8, 3, 4, 6
#: Beginning of the header: first and last time, byte order, memory, numbers of scopes, names,
#: signals and blocks of changes, exponent of the time unit.
_HEAD = struct.Struct(">QQdQQQQQb")
#: Width of a text in the geometry, and entries of the hierarchy.
_TEXT_WIDTH = 0xFFFFFFFF
_SCOPE, _UPSCOPE, _MODULE, _STRING = 254, 255, 0, 21


def add_texts(source: Path, target: Path, texts: Sequence[Texts]) -> None:
    """Write wave ``source`` with one more scope, :data:`~.texts.SCOPE`, of texts to ``target``.

    A text begins at the first step of the wave that is not before its time.

    Raises
    ------
    ~dxpu_tools.errors.UserError
        ``source`` is no FST file, or of a kind that Verilator does not write.
    """
    with open(target, "wb") as out:
        exponent = 0
        for kind, body in _blocks(source.read_bytes()):
            if kind == _HEADER:
                exponent = _HEAD.unpack_from(body)[-1]
                body = _header(body, len(texts))
            elif kind == _CHANGES:
                body = _changes(body, texts, exponent)
            elif kind == _GEOMETRY:
                body = _geometry(body, len(texts))
            elif kind == _NAMES_LZ4:
                kind, body = _NAMES_GZIP, _hierarchy(_decompressed(body[8:]), texts)
            elif kind == _NAMES_GZIP:
                body = _hierarchy(gzip.decompress(body[8:]), texts)
            else:
                raise UserError(f"{str(source)!r} is no wave of a kind known here: it has a block "
                                f"of type {kind}")
            out.write(struct.pack(">BQ", kind, len(body) + 8) + body)


def _blocks(data: bytes) -> Iterator[tuple[int, bytes]]:
    if not data or data[0] != _HEADER:
        raise UserError("this is no wave in the FST format")
    at = 0
    while at < len(data):
        kind, length = struct.unpack_from(">BQ", data, at)
        yield kind, data[at + 9:at + 1 + length]
        at += 1 + length


def _leb(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _signed_leb(value: int) -> bytes:
    out = bytearray()
    while not -64 <= value < 64:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value & 127])


def _read_leb(data: bytes, at: int) -> tuple[int, int]:
    """A number, and the position behind it."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _read_signed_leb(data: bytes, at: int) -> tuple[int, int]:
    value, behind = _read_leb(data, at)
    bits = 7 * (behind - at)
    return value - (value >> bits - 1 << bits), behind


def _header(body: bytes, count: int) -> bytes:
    start, end, order, memory, scopes, names, signals, blocks, exponent = _HEAD.unpack_from(body)
    # The byte order is that of the machine that wrote it, so it stays as it is.
    return (_HEAD.pack(start, end, order, memory, scopes + 1, names + count, signals + count,
                       blocks, exponent) + body[_HEAD.size:])


def _geometry(body: bytes, count: int) -> bytes:
    length, signals = struct.unpack_from(">QQ", body)
    data = body[16:] if length == len(body) - 16 else zlib.decompress(body[16:])
    data += _leb(_TEXT_WIDTH) * count
    packed = zlib.compress(data)
    return struct.pack(">QQ", len(data), signals + count) + (
        packed if len(packed) < len(data) else data)


def _hierarchy(data: bytes, texts: Sequence[Texts]) -> bytes:
    data += bytes([_SCOPE, _MODULE]) + SCOPE.encode() + b"\0\0"
    for one in texts:
        data += bytes([_STRING, 0]) + one.name.encode() + b"\0" + _leb(0) + _leb(0)
    data += bytes([_UPSCOPE])
    return struct.pack(">Q", len(data)) + gzip.compress(data)


def _changes(body: bytes, texts: Sequence[Texts], exponent: int) -> bytes:
    """A block of changes: initial values, changes of each signal, their places, times."""
    length, packed, _ = struct.unpack(">QQQ", body[-24:])
    times_at = len(body) - 24 - packed
    stamps = body[times_at:times_at + packed]
    times = list(accumulate(_numbers(stamps if length == packed else zlib.decompress(stamps))))
    places_at = times_at - 8 - struct.unpack_from(">Q", body, times_at - 8)[0]
    places = body[places_at:times_at - 8]

    at = 24
    full, at = _read_leb(body, at)
    size, at = _read_leb(body, at)
    signals, at = _read_leb(body, at)
    initial = body[at:at + size]
    behind, at = _read_leb(body, at + size)  # signals once more; here the places count from
    changes = body[at:places_at]

    last, more, where = _last_place(places), b"", b""
    for one in texts:
        chunk = _chunk(one, times, exponent)
        if not chunk:
            where += _leb(1 << 1)
            continue
        place = len(changes) + len(more)
        where += _signed_leb(place - last << 1 | 1)
        more += b"\0" + chunk
        last = place
    # Readers make room for all changes, unpacked.
    room = struct.unpack_from(">Q", body, 16)[0] + len(more)
    return b"".join([
        body[:16], struct.pack(">Q", room), _leb(full), _leb(size), _leb(signals + len(texts)),
        initial, _leb(behind + len(texts)), changes, more, places, where,
        struct.pack(">Q", len(places) + len(where)), body[times_at:]])


def _numbers(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _read_leb(data, at)
        yield value


def _last_place(places: bytes) -> int:
    """Where the last changes begin in a block: odd numbers above 0 are distances, negative ones
    say that a signal changes as another one does, even ones that so many do not change."""
    at = last = 0
    while at < len(places):
        if places[at] & 1:
            value, at = _read_signed_leb(places, at)
            last += max(value >> 1, 0)
        else:
            _, at = _read_leb(places, at)
    return last


def _chunk(one: Texts, times: Sequence[int], exponent: int) -> bytes:
    """Changes of a text in a block with these times: the step, counted from the change before, the
    length, the bytes."""
    found = {}
    for time, text in one.within(times[0], times[-1], exponent):
        found[bisect.bisect_left(times, time)] = text
    out, before = b"", 0
    for step, text in found.items():
        raw = text.encode()
        out += _leb(step - before << 1) + _leb(len(raw)) + raw
        before = step
    return out


def _decompressed(block: bytes) -> bytes:
    """Content of an LZ4 block."""
    out, at = bytearray(), 0

    def count(bits: int) -> int:
        nonlocal at
        more = bits == 15
        while more:
            bits += block[at]
            more = block[at] == 255
            at += 1
        return bits

    while at < len(block):
        token = block[at]
        at += 1
        literals = count(token >> 4)
        out += block[at:at + literals]
        at += literals
        if at < len(block):
            distance = int.from_bytes(block[at:at + 2], "little")
            at += 2
            left, begin = count(token & 15) + 4, len(out) - distance
            while left:
                piece = out[begin:begin + left]
                out += piece
                left -= len(piece)
    return bytes(out)
