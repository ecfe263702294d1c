import pytest

from tests.support.browser import CHROMIUM


@pytest.fixture
def chromium():
    """For a test that needs the browser."""
    if CHROMIUM is None:
        pytest.skip("browser: no chromium (Debian: chromium)")
