"""dxpu.fabric.credit.credits: what is granted fits."""

import random

import pytest

from dxpu.fabric.credit.credits import grants_for
from tests.support.testbench import seed


@pytest.mark.parametrize("width", [32, 64, 128, 256, 512])
def test_what_is_granted_fits_however_it_is_mixed(width):
    rng = random.Random(seed())
    beats = 2048 * 8 // width

    def size(units):
        return -(-(40 + 16 * units) // (width // 8))

    headers, units = grants_for(width, beats, headers=8)
    assert units >= 32  # 512 bytes
    for _ in range(200):
        cuts = sorted(rng.randint(0, units) for _ in range(headers - 1))
        parts = [b - a for a, b in zip([0, *cuts], [*cuts, units], strict=True)]
        assert sum(map(size, parts)) <= beats
    headers, units = grants_for(width, 8192 // width, headers=16, units=2)
    assert units == 2 * headers and headers * size(2) <= 8192 // width
    with pytest.raises(ValueError, match="4 beats are not enough for 9 headers"):
        grants_for(width, 4, headers=9)
