"""dxpu_manage.generation: a generation that tables take after all they have had."""

from hypothesis import given, strategies as st

from dxpu_manage import generation_after, is_newer

GENERATIONS = st.integers(0, 0xFFFF)


def test_serial_order():
    assert is_newer(1, 0) and is_newer(0, 0xFFFF) and is_newer(0x7FFF, 0)
    assert not is_newer(5, 5) and not is_newer(0, 1) and not is_newer(0x8000, 0)


def test_some_generations():
    assert generation_after() == 1
    assert generation_after(0) == 1
    assert generation_after(0xFFFF) == 0
    assert generation_after(3, 9, 5) == 10
    assert generation_after(0xFFFE, 2) == generation_after(2, 0xFFFE) == 3


@given(GENERATIONS, st.lists(st.integers(0, 0x7FFD), min_size=1, max_size=5))
def test_newer_than_all_and_no_newer_than_need_be(oldest, later):
    """Wherever the generations are, as long as all are within a half of the circle."""
    held = [oldest, *(oldest + n & 0xFFFF for n in later)]
    after = generation_after(*held)
    assert all(is_newer(after, generation) for generation in held)
    assert after - 1 & 0xFFFF in held
