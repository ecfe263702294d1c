"""Names of a bench's cocotb tests, without importing the bench, which needs a simulation."""

import importlib.util
import re
from pathlib import Path

__all__ = ["bench_cases"]


def bench_cases(bench: str, pattern: str = r"^async def (\w+)\(dut\)") -> list[str]:
    """Matches of ``pattern`` in the source of a module."""
    source = Path(importlib.util.find_spec(bench).origin).read_text()
    return re.findall(pattern, source, re.MULTILINE)
