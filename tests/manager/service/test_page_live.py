"""The manager's page follows the pool, and shows each user what the user may do."""

import asyncio
import re
from dataclasses import replace

import pytest

from dxpu_manager.service.program import listening
from tests.support.browser import browser
from tests.support.page_bench import (
    A, B, C, D, H0, H1, LIVE, free_port, in_a_browser, is_in, opened, push, slot,
)
from tests.support.service_bench import on_a_desk

pytestmark = pytest.mark.machine


# Live -------------------------------------------------------------------------------------------


def test_what_others_do_is_seen_at_once(tmp_path, chromium):
    async def does(desk, window, url):
        page = await opened(window, url)
        await asyncio.sleep(0.5)
        page.asked.clear()
        await asyncio.sleep(6)
        assert [one for one in page.asked if "/redfish" in one or "/readyz" in one] == []
        await desk.attach(H0, A)
        await page.until(is_in(A, "attached"), 3)
        await page.until("document.querySelectorAll('#lines path').length === 1", 3)
        read = [one for one in page.asked if "/redfish" in one]
        assert read and not any("expand" in one for one in read)
        desk.nodes.do("pull 00010001 1")
        await page.until(is_in(C, "absent"))
        desk.nodes.do(f"cut {H1}")
        await page.until("document.querySelector('[data-host=\"00000101\"].silent')")
        assert await page.js("[...document.querySelectorAll('#facts .warns')].map(e => "
                             "e.textContent).join()") == "silent nodes1"
        desk.nodes.do(f"join {H1}")
        await page.until("!document.querySelector('.silent')")
        for what in ("does not answer: ", "answers again"):
            assert await page.js("document.querySelector('#events').textContent.includes("
                                 f"'host {H1} {what}')")
        assert page.errors == []

    in_a_browser(tmp_path, does)


def test_a_lost_manager_is_said_and_found_again(tmp_path, chromium):
    async def does(desk):
        settings = replace(desk.settings, unix=None, port=free_port())
        async with browser(tmp_path / "profile") as window:
            async with listening(desk.service, settings):
                page = await opened(window, f"{settings.address}/ui")
                await desk.attach(H0, A)
                await page.until(is_in(A, "attached"))
            await page.until("document.body.dataset.link === 'lost'")
            assert re.match(r"lost at \d\d:\d\d:\d\d: .*; tries again",
                            await page.js("document.querySelector('#link').textContent"))
            await page.click(slot(B))
            await push(page, "Attach…")
            await push(page, "Attach")
            line = "document.querySelector('dialog.question .error').textContent"
            assert await page.until(line) == "the manager does not answer"
            await desk.attach(H1, C)
            async with listening(desk.service, settings):
                await page.until(LIVE)
                await page.until(is_in(C, "attached"))
                assert await page.js("document.querySelector('#events').textContent.includes("
                                     f"'GPU {C}: attaching -> attached')")
                await desk.attach(H1, D)
                await page.until(is_in(D, "attached"))
        assert not any("exception" in error.lower() for error in page.errors)

    on_a_desk(tmp_path, does)


# Users ------------------------------------------------------------------------------------------


def test_roles(tmp_path, chromium):
    """Who only reads sees no button that changes something; who is removed is out."""
    async def does(desk, window, url):
        accounts = desk.service.accounts
        accounts.make("reader", "reads a lot", "ReadOnly")
        accounts.make("worker", "works a lot", "Operator")
        page = await window.page(url)

        async def log_in(name, password):
            await page.until("document.querySelector('#log-in')?.hidden === false")
            await page.click("input[name=name]")
            await page.js("document.querySelector('input[name=name]').value = ''")
            await page.type(name)
            await page.press("Tab")
            await page.type(password)
            await page.press("Enter")

        await log_in("reader", "guesses a lot")
        await page.until("document.querySelector('#log-in .error').textContent.includes("
                         "'name or password is wrong')")
        await log_in("reader", "reads a lot")
        await page.until(LIVE)
        assert await page.js("document.querySelector('#user').textContent") == "reader (ReadOnly)"
        seen = ("[...document.querySelectorAll('button')].filter(b => b.getClientRects().length "
                "&& !b.matches('#states button, .host')).map(b => b.textContent).join()")
        assert await page.js(seen) == "Log out"
        await page.click(slot(A))
        await page.until("document.querySelector('dialog.detail')")
        assert await page.js(seen) == "Log out,Back"
        await page.press("Escape")
        await page.press(" ")
        await asyncio.sleep(0.2)
        assert await page.js("document.querySelector('#chosen').hidden")
        # The token is in this tab alone, and another tab has to log in.
        assert await page.js("document.cookie") == ""
        # Another role, while the page is open.
        accounts.change("reader", role="Operator")
        await page.until(f"{seen}.includes('Request GPUs…')")
        await page.reload()
        await page.until(f"{LIVE} && document.querySelector('#user').textContent === "
                         "'reader (Operator)'")
        await page.click("#log-out")
        await log_in("worker", "works a lot")
        await page.until(LIVE)
        assert [session.name for session in accounts.sessions()] == ["worker"]
        accounts.remove("worker")
        await page.until("document.querySelector('#log-in')?.hidden === false")
        assert all("401" in error for error in page.errors)

    in_a_browser(tmp_path, does, account=("root", "administers", "Administrator"))
