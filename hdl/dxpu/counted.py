"""Pulses that are counted, each declared with what it counts.

A component that counts something has a member ``stat_<name>`` of shape :class:`Counted`. Whoever
builds registers of it takes the text from there (:func:`texts_of`).
"""

from amaranth import *
from amaranth.hdl import ShapeCastable
from amaranth.lib.wiring import Out

__all__ = ["Counted", "counted", "counted_by", "texts_of"]

PREFIX = "stat_"


class Counted(ShapeCastable):
    """Shape of a pulse, one bit: high for one cycle for each event.

    Parameters
    ----------
    text : str
        What is counted, as a sentence. May have names in braces, which a user of the component
        says (:func:`texts_of`).
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
    """Members of a component: an output for each name (with its ``stat_``) of a dict of texts."""
    return {name: Out(Counted(text)) for name, text in texts.items()}


def counted_by(part):
    """Members ``stat_*`` of a component, for one that passes them on."""
    members = {name: member for name, member in part.signature.members.items()
               if name.startswith(PREFIX)}
    for name, member in members.items():
        if not isinstance(member.shape, Counted):
            raise TypeError(f"{name} of {type(part).__name__} must be Counted, not "
                            f"{member.shape!r}")
    return members


def texts_of(part, **words):
    """What the pulses of a component count, by their names without ``stat_``.

    Parameters
    ----------
    part : Component
    words : dict of strings
        What stands for the names in braces.
    """
    return {name.removeprefix(PREFIX): member.shape.text.format(**words)
            for name, member in counted_by(part).items()}
