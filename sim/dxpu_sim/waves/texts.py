"""Texts beside the signals of a wave: rows in words, in the formats VCD and FST."""

from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["SCOPE", "Texts"]

#: Scope of all texts in a wave, beside the top module.
SCOPE = "text"


@dataclass
class Texts:
    """A row of texts.

    Attributes
    ----------
    name : str
        Name in :data:`SCOPE`: letters, digits and ``_``.
    label : str
        Name of the row in a viewer.
    changes : list of (int, str)
        Times in ns, in order, each with the text from there on; empty: nothing.
    """

    name: str
    label: str
    changes: list[tuple[int, str]] = field(default_factory=list)

    def within(self, first: int, last: int, exponent: int) -> Iterator[tuple[int, str]]:
        """Changes from time ``first`` to ``last``, in units of 10 ** ``exponent`` s; the text that
        is there at ``first`` comes first."""
        scale, before = 10 ** (-9 - exponent), ""
        inside = []
        for time, text in self.changes:
            if time * scale <= first:
                before = text
            elif time * scale <= last:
                inside.append((time * scale, text))
        yield first, before
        yield from inside
