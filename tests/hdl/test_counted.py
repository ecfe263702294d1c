"""Pulses that are counted have a text, and are signals of one bit else."""

import pytest
from amaranth.hdl import Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from dxpu.counted import Counted, counted, counted_by, texts_of


class Part(wiring.Component):
    """Counts two things."""

    def __init__(self):
        super().__init__({"level": Out(4), "stat_sent": Out(Counted("Frames sent{where}.")),
                          **counted({"stat_lost": "Frames lost."})})


def test_a_pulse_is_a_plain_signal_of_one_bit():
    part = Part()
    assert isinstance(part.stat_sent, Signal) and len(part.stat_sent) == 1
    assert part.stat_lost.init == 0


def test_texts_are_found_by_name_in_the_order_of_the_members():
    assert list(texts_of(Part(), where=" on path 1").items()) == [
        ("sent", "Frames sent on path 1."), ("lost", "Frames lost.")]
    with pytest.raises(KeyError):
        texts_of(Part())


def test_members_are_passed_on_with_their_texts():
    class Whole(wiring.Component):
        def __init__(self):
            super().__init__({"o": Out(1), **counted_by(Part())})

    assert texts_of(Whole(), where="") == {"sent": "Frames sent.", "lost": "Frames lost."}


@pytest.mark.parametrize("text", [None, "", "Frames sent"])
def test_a_text_is_a_sentence(text):
    with pytest.raises(ValueError, match="text must be a sentence, not "):
        Counted(text)


def test_a_pulse_without_a_text_is_not_overlooked():
    class Silent(wiring.Component):
        stat_sent: Out(1)

    with pytest.raises(TypeError, match="stat_sent of Silent must be Counted, not 1"):
        texts_of(Silent())
