"""Quick look-ups of types in cocotbext-pcie."""

import pytest
from cocotbext.pcie.core.tlp import Tlp, TlpType, tlp_type_fc_type_mapping

from dxpu_sim.pcie.tlp_types import quicken

quicken()


@pytest.mark.parametrize("kind", TlpType)
def test_each_type(kind):
    tlp = Tlp()
    tlp.fmt_type = kind
    assert (tlp.fmt, tlp.type) == kind.value and tlp.fmt_type is kind
    assert kind in {kind} and kind not in set(TlpType) - {kind}
    prefix = kind.name.startswith("PREFIX")
    assert (kind in tlp_type_fc_type_mapping) != prefix
    if not prefix:
        assert [tlp.is_posted(), tlp.is_nonposted(), tlp.is_completion()].count(True) == 1


def test_no_type():
    tlp = Tlp()
    tlp.fmt, tlp.type = 7, 0x1f
    with pytest.raises(ValueError, match="is not a valid TlpType"):
        tlp.fmt_type  # noqa: B018
