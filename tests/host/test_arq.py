"""`dxpu_host`'s sender: what is sent again after a NAK, an acknowledgement and a wait."""

import itertools

import pytest
from dxpu_host.arq import MODULUS, Sender
from tests.support.mutate import mutant

WAIT = 1.0


def frames(count, first=0):
    """A sender with ``count`` frames sent at time 0."""
    sender = Sender(WAIT, window=8)
    sender.next = sender.oldest = first
    for n in range(count):
        assert sender.room and sender.add(1, n, 0.0).seq == (first + n) % MODULUS
    return sender


def numbers(sender, now=0.0):
    return [(sent.seq, probe) for sent, probe in sender.again(now)]


@pytest.mark.parametrize("first", [0, MODULUS - 2])
def test_a_nak_brings_all_again_whatever_is_acknowledged_before_it_is_done(first):
    """An acknowledgement between the NAK and the repetition shortens that, and no more."""
    for acknowledged in range(6):  # of 5, and all of them
        sender = frames(5, first=first)
        sender.back(0)
        assert not sender.room
        assert sender.acknowledged((first + acknowledged) % MODULUS, 0.1)
        assert sender.room == (acknowledged == 5)
        assert numbers(sender, 0.2) == [((first + n) % MODULUS, False)
                                        for n in range(acknowledged, 5)]
        assert numbers(sender, 0.2) == [] and sender.room


def test_acknowledgements_one_by_one():
    """Each order of a NAK and acknowledgements: what is not acknowledged in the end is repeated if
    there was a NAK, once."""
    for order in itertools.permutations(["nak", 1, 2, 3]):
        sender, nak = frames(4), False
        oldest = 0
        for step in order:
            if step == "nak":
                sender.back(0)
                nak = True
            else:
                assert sender.acknowledged(step, 0.1) == (step >= oldest)
                oldest = max(oldest, step)
        assert sender.oldest == oldest == 3 and nak
        assert numbers(sender, 0.2) == [(3, False)]


def test_an_old_acknowledgement_and_one_of_what_was_not_sent_change_nothing():
    sender = frames(3)
    assert sender.acknowledged(2, 0.0)
    for forged in (1, 0, 4, 100, MODULUS // 2, MODULUS - 1):
        assert not sender.acknowledged(forged, 0.1)
        assert sender.oldest == 2 and sender.has(2) and not sender.has(1) and not sender.has(3)
    sender.back(0)
    assert numbers(sender) == [(2, False)]


def test_what_a_probe_finds_is_repeated():
    """When a probe is acknowledged, so that the others were lost, they come at once."""
    sender = frames(3)
    assert numbers(sender, WAIT - 0.01) == [] and numbers(sender, WAIT) == [(0, True)]
    assert sender.deadline() == WAIT + 2 * WAIT
    assert sender.acknowledged(1, WAIT + 0.1)
    assert numbers(sender, WAIT + 0.1) == [(1, False), (2, False)]
    # All are acknowledged: nothing waits.
    assert sender.acknowledged(3, WAIT + 0.2)
    assert sender.deadline() is None and numbers(sender, 99.0) == []


def test_nothing_is_repeated_for_a_nak_when_all_is_acknowledged():
    sender = frames(2)
    assert sender.acknowledged(2, 0.1)
    sender.back(0)
    assert sender.room and numbers(sender, 0.2) == []


def test_a_copy_of_a_nak_has_no_effect():
    """Until a wait ends, or there is another request, whatever it acknowledges."""
    sender = frames(4)
    for request in (1, 0, 1):
        sender.back(request)
        assert numbers(sender, 0.1) == [(n, False) for n in range(4)]
        sender.back(request)
        assert sender.room and numbers(sender, 0.1) == []
    assert sender.acknowledged(1, 0.2)
    sender.back(1)
    assert sender.room and numbers(sender, 0.2) == []
    assert numbers(sender, 0.2 + WAIT) == [(1, True)]
    sender.back(1)
    assert numbers(sender, 0.3 + WAIT) == [(n, False) for n in range(1, 4)]


def test_waits_double_and_end():
    """Ref: docs/reference/wire-format.md, waits of one path"""
    sender, now = frames(1), 0.0
    for _ in range(Sender.ROUNDS):
        for n in range(Sender.TRANSMISSIONS):
            now += WAIT * 2 ** n
            sender.again(now)
    assert sender.failed and not sender.room and numbers(sender, 1e9) == []


@pytest.mark.parametrize("change", [
    ("(self._rewind or self._probing)", "self._probing"),
    ("(self._rewind or self._probing)", "self._rewind"),
    ("bool(self._kept) and (self._rewind", "(self._rewind"),
    ("if count > len(self._kept):", "if count > len(self._kept) + 1:"),
    ("if self._kept and request", "if request"),
    (" and request != self._obeyed", ""),
    ("self._probing, self._obeyed = True, None", "self._probing = True"),
    ("self._rewind, self._obeyed = True, request", "self._rewind = True"),
    ("            self._rewind = False\n", ""),
], ids=str)
def test_mutants_are_found(change, monkeypatch):
    monkeypatch.setitem(globals(), "Sender", mutant(Sender, change))
    with pytest.raises((AssertionError, IndexError)):
        test_a_nak_brings_all_again_whatever_is_acknowledged_before_it_is_done(0)
        test_acknowledgements_one_by_one()
        test_an_old_acknowledgement_and_one_of_what_was_not_sent_change_nothing()
        test_what_a_probe_finds_is_repeated()
        test_nothing_is_repeated_for_a_nak_when_all_is_acknowledged()
        test_a_copy_of_a_nak_has_no_effect()
