"""What a proxy may take: LUTs, block RAMs, and cycles of a conversion (budget.json).

Later work that needs more has to say so there, and work that needs less lowers what is there.
"""

import json
from pathlib import Path

import pytest

from dxpu_cli.bench.synthesised import proxy_size
from dxpu_cli.progress import Progress

BUDGET = json.loads(Path(__file__).with_name("budget.json").read_text())
#: Part of a budget that need not be used. What synthesis makes of equal logic differs by less.
SLACK = 0.03


@pytest.mark.parametrize("role", ["host", "box"])
def test_a_proxy_keeps_to_its_budget(role):
    used = {name: count for name, (count, _) in proxy_size(role, 64, Progress()).items()}
    budget = BUDGET[role]
    assert used.keys() >= budget.keys() == {"LUT4", "FF", "DP16KD"}
    for name, most in budget.items():
        assert used[name] <= most, f"{role}: {used[name]} {name} of {most}"
        assert used[name] >= (1 - SLACK) * most, f"{role}: only {used[name]} {name}: lower {most}"
