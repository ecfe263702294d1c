"""TLPs made and answered by a host; the codec is :class:`dxpu_model.tlp.Tlp`.

Ref: PCI Express Base Specification 5.0, 2.2 and 2.3
"""

from collections.abc import Iterator
from typing import Any

from dxpu.tlp.types import CompletionStatus, Fmt, Type
from dxpu_model.tlp import Tlp, byte_count, complete, lower_address

__all__ = ["Status", "completed_bytes", "completions", "config_request", "enabled_runs",
           "memory_reads", "memory_writes", "requested_bytes"]

#: An enumeration; mypy takes its members for integers.
Status: Any = CompletionStatus


def config_request(target: int, register: int, value: int | None, *, size: int = 4,
                   forward: bool = False, requester: int = 0) -> Tlp:
    """A configuration read, or a write of ``value``.

    Parameters
    ----------
    target : int
        Bus, device and function, as an ID of 16 bits.
    register : int
        Byte offset; its access must not cross a dword.
    size : int
        1, 2 or 4 bytes.
    forward : bool
        Type 1: for a bus behind the device, not its own.
    """
    if size not in (1, 2, 4) or not 0 <= register <= 4096 - size or register % size:
        raise ValueError(f"register must be an aligned offset of {size} bytes below 4096, "
                         f"not {register!r}")
    shift = register & 3
    data = b"" if value is None else (value << 8 * shift).to_bytes(4, "little")
    return Tlp(Fmt.HEADER_3 if value is None else Fmt.HEADER_3_DATA,
               Type.CONFIG_1 if forward else Type.CONFIG_0, length=1, payload=data,
               requester_id=requester, target_id=target, register=register >> 2,
               first_be=((1 << size) - 1) << shift)


def _pieces(address: int, length: int, most: int) -> Iterator[tuple[int, int]]:
    """Pieces of ``length`` bytes from ``address``, of up to ``most`` bytes each.

    Pieces end at multiples of ``most``, a power of two, so that none crosses 4 KiB.
    """
    end = address + length
    while address < end:
        stop = min(end, (address // most + 1) * most)
        yield address, stop - address
        address = stop


def _request(address: int, length: int, payload: bytes, requester: int) -> Tlp:
    """A memory request for bytes that need not be whole dwords."""
    first, end = address & 3, (address + length) & 3
    dwords = (first + length + 3) // 4
    first_be, last_be = 15 << first & 15, 15 >> (-end & 3)
    if dwords == 1:
        first_be, last_be = first_be & last_be, 0
    wide = address >> 32 != 0
    fmt = (Fmt.HEADER_4_DATA if wide else Fmt.HEADER_3_DATA) if payload else (
        Fmt.HEADER_4 if wide else Fmt.HEADER_3)
    return Tlp(fmt, Type.MEMORY, length=dwords, address=address & ~3, first_be=first_be,
               last_be=last_be, requester_id=requester, payload=payload)


def memory_reads(address: int, length: int, most: int, requester: int = 0) -> Iterator[Tlp]:
    """Reads of ``length`` bytes, of up to ``most`` each."""
    for start, size in _pieces(address, length, most):
        yield _request(start, size, b"", requester)


def memory_writes(address: int, data: bytes, most: int, requester: int = 0) -> Iterator[Tlp]:
    """Writes of ``data``, of up to ``most`` bytes each."""
    for start, size in _pieces(address, len(data), most):
        part = data[start - address:start - address + size]
        before, after = start & 3, -(start + size) & 3
        yield _request(start, size, bytes(before) + part + bytes(after), requester)


def requested_bytes(read: Tlp) -> tuple[int, int]:
    """Address of the first byte requested by a memory read, and number of bytes up to the last; for
    a read of zero length one byte.
    """
    first = lower_address(0, read.first_be) & 3
    return read.address + first, byte_count(read.first_be, read.last_be, read.length)


def enabled_runs(write: Tlp) -> Iterator[tuple[int, bytes]]:
    """Address and bytes of each run of enabled bytes of a memory write."""
    enables = [bool(write.first_be >> n & 1) for n in range(4)]
    if write.length > 1:
        enables += [True] * 4 * (write.length - 2)
        enables += [bool(write.last_be >> n & 1) for n in range(4)]
    start = None
    for n, enabled in enumerate([*enables, False]):
        if enabled and start is None:
            start = n
        elif not enabled and start is not None:
            yield write.address + start, write.payload[start:n]
            start = None


def completions(request: Tlp, data: bytes | None, most: int, *, completer: int = 0,
                status: Any = Status.UR) -> Iterator[bytes]:
    """Completions of a non-posted request.

    Parameters
    ----------
    data : bytes
        Data of a memory read, from its first byte to its last; ``None`` for an unsuccessful
        request.
    most : int
        Bytes of payload in one completion, a power of two of at least 128. All completions but the
        last end at multiples of ``most``, so at multiples of the Read Completion Boundary
        (2.3.1.1).
    status
        Completion status without data.
    """
    if data is None:
        yield complete(request, status, completer).pack()
        return
    position, left = requested_bytes(request)
    if len(data) != left:
        raise ValueError(f"data must be {left} bytes, not {len(data)}")
    for start, size in _pieces(position, left, most):
        part = data[start - position:start - position + size]
        before, after = start & 3, -(start + size) & 3
        payload = bytes(before) + part + bytes(after)
        yield Tlp(Fmt.HEADER_3_DATA, Type.COMPLETION, length=len(payload) // 4, payload=payload,
                  tc=request.tc, attr=request.attr, completer_id=completer,
                  requester_id=request.requester_id, tag=request.tag,
                  status=Status.SC.value, byte_count=left - (start - position),
                  lower_address=start & 0x7F).pack()


def completed_bytes(completion: Tlp) -> bytes:
    """Bytes of a memory read carried by a successful completion."""
    first = completion.lower_address & 3
    return completion.payload[first:first + completion.byte_count]
