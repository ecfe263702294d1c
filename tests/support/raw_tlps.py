"""TLPs as bytes, for tests of code that handles bytes (PCIe Base 5.0, 2.2)."""


def memory(address, length=1, *, data=b"", tag=1, requester=0x0100, first=15, last=None, kind=0):
    """Memory request (or, by ``kind``, I/O or atomic): a write if it has data."""
    length = len(data) // 4 or length
    last = (15 if length > 1 else 0) if last is None else last
    wide = address >> 32 > 0
    return (bytes([(0x40 if data else 0) | 0x20 * wide | kind, tag >> 2 & 0x80 | tag >> 5 & 8,
                   length >> 8 & 3, length & 255])
            + requester.to_bytes(2, "big") + bytes([tag & 255, last << 4 | first])
            + address.to_bytes(8 if wide else 4, "big") + data)


def config(kind, target, register, *, value=None, tag=1, requester=0x0000, enables=15):
    """Configuration request of type ``kind``: a write if given a value."""
    data = b"" if value is None else value.to_bytes(4, "little")
    return (bytes([(0x40 if data else 0) | 4 | kind, 0, 0, 1]) + requester.to_bytes(2, "big")
            + bytes([tag, enables]) + target.to_bytes(2, "big")
            + bytes([register >> 8, register & 0xfc]) + data)


def completion(data=b"", *, count=None, lower=0, status=0, tag=1, requester=0x0100,
               completer=0x0300):
    """Completion, with data if given."""
    count = len(data) if count is None else count
    return (bytes([0x4a if data else 0x0a, 0, 0, len(data) // 4]) + completer.to_bytes(2, "big")
            + (status << 13 | count & 0xfff).to_bytes(2, "big") + requester.to_bytes(2, "big")
            + bytes([tag, lower]) + data)


def message(routing, code, *, requester=0x0100, target=0):
    """Message without data."""
    return (bytes([0x30 | routing, 0, 0, 0]) + requester.to_bytes(2, "big") + bytes([0, code])
            + target.to_bytes(2, "big") + bytes(6))
