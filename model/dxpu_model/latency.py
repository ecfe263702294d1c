"""Golden conglomeration of LTR messages, from PCIe Base 6.0, 6.18."""

__all__ = ["conglomerate"]


def _nanoseconds(latency: int) -> int | None:
    """Latency required by a 16-bit field; ``None`` without a requirement or with a reserved
    scale."""
    scale = latency >> 10 & 7
    return (latency & 0x3FF) * 32**scale if latency >> 15 and scale < 6 else None


def conglomerate(latencies: list[int], own: int) -> int:
    """Latency field of a switch that adds ``own`` nanoseconds, from the fields of its slots.

    The result has the finest scale with enough range; the value is rounded down.
    """
    required = [ns for latency in latencies if (ns := _nanoseconds(latency)) is not None]
    if not required:
        return 0
    left, scale = max(0, min(required) - own), 0
    while left >> 5 * scale > 0x3FF:
        scale += 1
    return 0x8000 | scale << 10 | left >> 5 * scale
