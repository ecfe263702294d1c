"""The source of hostile TLPs: it must be hostile, in every way, and the same for the same seed."""

import random

from dxpu.tlp.types import Malformed, TlpClass
from dxpu_model.tlp import KINDS, classify, malformed
from dxpu_sim.pcie.hostile import Aim, HostileSource

AIM = Aim(addresses=[0x8000_0000, 0x40_0000_0000], ports=[0x1000], identifiers=[0x0300, 0x0400],
          requesters=[0x0300])


def drawn(count, seed=1, **options):
    source = HostileSource(random.Random(seed), AIM, **options)
    return [source.draw() for _ in range(count)]


def test_every_way_to_be_hostile():
    tlps = drawn(6000, writes=True)
    assert {t.kind for t in tlps} == set(HostileSource.KINDS)
    assert all(t.raw and len(t.raw) % 4 == 0 for t in tlps)
    assert {malformed(t.raw, 128) for t in tlps} == set(Malformed)
    fine = [classify(t.raw) for t in tlps if malformed(t.raw) is Malformed.NONE]
    assert {(i.fmt, i.type) for i in fine if not i.is_message} == {
        pair for name, pair in KINDS.items() if not name.startswith("Msg")}
    assert {i.type & 7 for i in fine if i.is_message} == set(range(8))
    # Most are of a kind that a switch cannot drop at once, and some are discarded by their source.
    assert 0.5 < len(fine) / len(tlps) < 0.9
    assert 100 < sum(t.discard for t in tlps) < 300
    assert max(len(t.raw) for t in tlps) > 4096
    for cls in (TlpClass.P, TlpClass.NP, TlpClass.CPL):
        assert sum(i.cls is cls for i in fine) > 500


def test_aims_at_what_is_there():
    fine = [classify(t.raw) for t in drawn(3000) if malformed(t.raw) is Malformed.NONE]
    near = [i for i in fine if i.is_memory
            and any(abs(i.address - a) < 0x2000 for a in AIM.addresses)]
    assert len(near) > 0.8 * sum(i.is_memory for i in fine)
    assert any(i.requester_id != 0x0300 for i in near)
    assert not any(i.is_config and i.is_write for i in fine)


def test_a_seed_gives_the_same_tlps():
    assert drawn(300) == drawn(300) != drawn(300, seed=2)
