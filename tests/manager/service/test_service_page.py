"""The page of the service has the commands, addresses, messages and metrics that the code has."""

import pytest

from dxpu_cli.pages.fabric_spec import updated
from dxpu_cli.pages.manager_service import PAGE, parts
from dxpu_manager.service.redfish.shown import of_state


@pytest.mark.parametrize("name", parts())
def test_generated_tables(name):
    page = PAGE.read_text()
    assert updated(page, **{name: parts()[name]}) == page, (
        "run `python -m dxpu_cli.pages.manager_service`")


def test_states_in_redfish():
    rows = [f"| {state} | {composition}{', Reserved' * (state == 'reserved')} | {pool} | "
            f"{status}, {health} |" for state, (composition, pool, status, health)
            in of_state.items()]
    assert "\n".join(rows) in PAGE.read_text()
