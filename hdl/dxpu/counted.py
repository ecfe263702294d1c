"""Event pulses for counters, each declared with the text of its counter.

A component that has something to count has an output ``stat_<name>`` of shape :class:`Counted`. The
proxies gather these outputs and their texts (:func:`texts_of`) and make a register of each.
"""

from amaranth import *
from amaranth.hdl import ShapeCastable
from amaranth.lib.wiring import Out

__all__ = ["Counted", "counted", "counted_by", "texts_of"]

PREFIX = "stat_"


class Counted(ShapeCastable):
    """Shape of an event pulse: one bit, high for one cycle per event.

    Parameters
    ----------
    text : str
        What the counter counts, as a sentence. It may contain names in braces; whoever gathers the
        texts fills them in (:func:`texts_of`).
    """

    def __init__(self, text):
        if not isinstance(text, str) or not text.endswith("."):
            raise ValueError(f"text must be a sentence, not {text!r}")
        self.text = text

    def __repr__(self):
        return f"Counted({self.text!r})"

    def as_shape(self):
        """One bit."""
        return unsigned(1)

    def const(self, init):
        """A constant of one bit."""
        return Const(init or 0, 1)

    def from_bits(self, raw):
        """What a simulation sees: a number."""
        return raw

    def __call__(self, value):
        return value


def counted(texts):
    """Members of a component: one output for each entry of ``texts``, which maps ``stat_<name>`` to
    a text."""
    return {name: Out(Counted(text)) for name, text in texts.items()}


def counted_by(part):
    """The members ``stat_*`` of ``part``, to be declared by a component that passes them on."""
    members = {name: member for name, member in part.signature.members.items()
               if name.startswith(PREFIX)}
    for name, member in members.items():
        if not isinstance(member.shape, Counted):
            raise TypeError(f"{name} of {type(part).__name__} must be Counted, not "
                            f"{member.shape!r}")
    return members


def texts_of(part, **words):
    """Texts of a component's event pulses, by their names without ``stat_``.

    Parameters
    ----------
    part : Component
    words : dict of strings
        Values of the names in braces.
    """
    return {name.removeprefix(PREFIX): member.shape.text.format(**words)
            for name, member in counted_by(part).items()}
