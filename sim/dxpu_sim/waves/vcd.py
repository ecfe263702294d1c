"""Adds texts to a wave in the VCD format, as GTKWave's ``string`` variables.

IEEE 1364 has no texts in VCD. GTKWave, and what reads its files, take a variable of type ``string``
and changes ``sTEXT id``, in which a blank is written as an octal number.
"""

import heapq
import re
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from dxpu_tools.errors import UserError

from .texts import SCOPE, Texts

__all__ = ["add_texts"]

#: Characters of identifiers (IEEE 1364-2005, 18.2.1).
_PRINTABLE = [chr(code) for code in range(33, 127)]
_UNITS = {"s": 0, "ms": -3, "us": -6, "ns": -9, "ps": -12, "fs": -15}


def add_texts(source: Path, target: Path, texts: Sequence[Texts]) -> None:
    """Write wave ``source`` with one more scope, :data:`~.texts.SCOPE`, of texts to ``target``.

    Raises
    ------
    ~dxpu_tools.errors.UserError
        ``source`` is no VCD file.
    """
    # Signals may have names in any encoding.
    with open(source, encoding="latin-1") as lines, open(target, "w", encoding="latin-1") as out:
        taken, exponent = set(), None
        for line in lines:
            if match := re.match(r"\s*\$var\s+\S+\s+\d+\s+(\S+)\s", line):
                taken.add(match[1])
            elif match := re.search(r"\b(1|10|100)\s*([munpf]?s)\b", line):
                exponent = _UNITS[match[2]] + len(match[1]) - 1 if exponent is None else exponent
            if line.lstrip().startswith("$enddefinitions"):
                break
            out.write(line)
        else:
            raise UserError(f"{str(source)!r} is no wave in the VCD format")
        ids = [name for name, _ in zip(_free(taken), texts, strict=False)]
        out.write(f"$scope module {SCOPE} $end\n")
        for name, one in zip(ids, texts, strict=True):
            out.write(f"$var string 1 {name} {one.name} $end\n")
        out.write("$upscope $end\n" + line)
        _copy(lines, out, ids, texts, -12 if exponent is None else exponent)


def _free(taken: set[str]) -> Iterator[str]:
    """Identifiers that no signal has, the shortest first."""
    for length in range(1, 8):
        for letters in product(_PRINTABLE, repeat=length):
            if (name := "".join(letters)) not in taken:
                yield name


def _copy(lines, out, ids, texts, exponent) -> None:
    """Copy all changes, with those of the texts between them."""
    waiting: list[tuple[float, int, str]] = []
    first = last = None
    for line in lines:
        if not line.startswith("#"):
            out.write(line)
            continue
        now = int(line[1:])
        if first is None:
            first = now
            for order, (name, one) in enumerate(zip(ids, texts, strict=True)):
                waiting += [(time, order, _change(name, text))
                            for time, text in one.within(first, 1 << 62, exponent)]
            heapq.heapify(waiting)
        while waiting and waiting[0][0] < now:
            time, _, change = heapq.heappop(waiting)
            if round(time) != last:
                last = round(time)
                out.write(f"#{last}\n")
            out.write(change)
        if now != last:
            out.write(line)
        last = now
        while waiting and waiting[0][0] <= now:
            out.write(heapq.heappop(waiting)[2])


def _change(name: str, text: str) -> str:
    escaped = re.sub(r"[^!-\[\]-~]", lambda m: "".join(f"\\{byte:03o}" for byte in
                                                       m[0].encode()), text)
    return f"s{escaped} {name}\n"
