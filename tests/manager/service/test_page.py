"""The manager's page: its files, and changes by mouse and by keys before light nodes."""

import re
from importlib.resources import files

import pytest

from dxpu_manager.service.page import HEADERS
from tests.support.page_bench import A, B, C, D, H0, H1, in_a_browser, is_in, opened, push, slot
from tests.support.service_bench import eventually, on_a_desk

QUESTION = "dialog.question"

pytestmark = pytest.mark.machine


# Files ------------------------------------------------------------------------------------------


def test_files_and_what_a_browser_may_do_with_them(tmp_path):
    """Every file has the policy, and nothing that the policy forbids."""
    async def does(desk):
        answer = await desk.http.get("/")
        assert answer.status_code == 307 and answer.headers["Location"] == "/ui"
        names = {path.name for path in files("dxpu_manager.service.page").iterdir()
                 if path.name.endswith((".js", ".css", ".svg"))}
        assert {"main.js", "page.css", "icon.svg"} <= names
        texts = {}
        for path in ("/ui", *(f"/ui/{name}" for name in names)):
            answer = await desk.http.get(path)
            assert answer.status_code == 200, path
            assert HEADERS.items() <= {name.title(): text for name, text in
                                       answer.headers.items()}.items(), path
            again = await desk.http.get(path, headers={"If-None-Match": answer.headers["ETag"]})
            assert again.status_code == 304 and not again.content
            texts[path] = answer.text
        for path in ("/ui/routes.py", "/ui/nothing.js", "/ui/../page.css", "/ui/__init__.py"):
            assert (await desk.http.get(path)).status_code == 404, path
        policy = HEADERS["Content-Security-Policy"].split("; ")
        assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'",
                "require-trusted-types-for 'script'"} <= set(policy)
        assert not any("unsafe" in part or "*" in part for part in policy)
        page = texts["/ui"]
        assert not re.search(r"<style|style=|<script(?![^>]* src=)|\son\w+=", page)
        for path, text in texts.items():
            found = [one for one in re.findall(r"\w+://[^\s\"']+", text) if "w3.org/" not in one]
            assert not found, (path, found)
        imported = set(re.findall(r'(?:from|src=|href=) ?"(?:\./|/ui/)([\w.]+)"',
                                  "".join(texts.values())))
        assert imported == names

    on_a_desk(tmp_path, does)


# Changes ----------------------------------------------------------------------------------------


def test_attach_and_detach_by_mouse(tmp_path, chromium):
    async def does(desk, window, url):
        page = await opened(window, url)
        await page.click(slot(A))
        await push(page, "Attach…")
        assert await page.js("document.querySelector('dialog.question .says').textContent") == (
            f"GPU {A} will be attached to host {H0}, which sees a card that is plugged in. All "
            "or none.")
        assert desk.cards(0x100) == set()
        await push(page, "Attach")
        await eventually(lambda: desk.cards(0x100) == {A})
        await page.until(is_in(A, "attached"))
        await page.until("document.querySelectorAll('#lines path').length === 1")
        await page.until("document.querySelector('#said').textContent.includes("
                         f"'done: attach {A}')")
        await page.until("document.querySelector('#events').textContent.includes("
                         f"'GPU {A}: attaching -> attached')")
        assert await page.js("document.querySelector('dialog.detail').innerText.includes("
                             f"'{H0}, port 0')")
        await push(page, "Detach…")
        await push(page, "Leave it")
        await page.until(f"!document.querySelector('{QUESTION}')")
        assert desk.cards(0x100) == {A}
        await push(page, "Detach…")
        await push(page, "Detach")
        await eventually(lambda: desk.cards(0x100) == set())
        await page.until(is_in(A, "free"))
        await page.until("document.querySelectorAll('#lines path').length === 0")
        await push(page, "Back")
        await page.until("!document.querySelector('dialog')")
        assert page.errors == []
        assert all(one.startswith(url.removesuffix("ui")) for one in page.asked)

    in_a_browser(tmp_path, does)


def test_attach_and_detach_by_keys(tmp_path, chromium):
    """No mouse: Tab, arrows, Enter, Space, Esc and letters; force needs the name of the host."""
    async def does(desk, window, url):
        page = await opened(window, url)
        focus = "document.activeElement"

        async def tab_to(selector, *, shift=False):
            for _ in range(40):
                if await page.js(f"{focus}.matches('{selector}')"):
                    return
                await page.press("Tab", shift=shift)
            raise AssertionError(f"Tab does not lead to {selector}")

        await tab_to("#racks *")
        ring = f"(s => [s.outlineStyle, parseFloat(s.outlineWidth)])(getComputedStyle({focus}))"
        assert await page.js(ring) == ["solid", 3]
        await page.press("ArrowRight")
        await page.until(f"{focus}.dataset.gpu === '{A}'")
        assert await page.js(ring) == ["solid", 3]
        await page.press("ArrowDown")
        await page.until(f"{focus}.dataset.gpu === '{C}'")
        await page.press("Enter")
        await page.until(f"{focus}.textContent === 'Attach…'")
        await page.press("Enter")
        await page.until(f"{focus}.matches('select')")
        await page.type(H1)
        await page.until(f"{focus}.value === '{H1}'")
        await tab_to("button.go")
        await page.press("Enter")
        await eventually(lambda: desk.cards(0x101) == {C})
        await page.until(is_in(C, "attached"))
        await page.until(f"!document.querySelector('{QUESTION}')")
        await page.press("Escape")
        await page.until(f"!document.querySelector('dialog') && {focus}.dataset.gpu === '{C}'")
        # Two more, selected.
        await page.press("ArrowRight")
        await page.press(" ")
        await page.press("ArrowUp")
        await page.press(" ")
        await page.until("document.querySelectorAll('[aria-selected=true]').length === 2")
        await tab_to("#chosen button")
        await page.press("Enter")
        await page.until(f"{focus}.matches('select')")
        await page.type(H1)
        await page.press("Enter")
        await tab_to("button.go")
        await page.press("Enter")
        await eventually(lambda: desk.cards(0x101) == {B, C, D})
        # By force, as the host does not let go.
        desk.nodes.do(f"refuse {H1}")
        await page.until("!document.querySelector('dialog')")
        await page.until(f"{is_in(B, 'attached')} && {is_in(D, 'attached')}")
        await tab_to("#chosen button")
        await page.press("Enter")
        await page.until(f"{focus}.matches('select')")
        await page.press("ArrowDown")
        await page.until(f"{focus}.value === 'force'")
        assert await page.js("document.querySelector('dialog .go').disabled")
        await page.press("Tab")
        await page.type(H1[:-1])
        assert await page.js("document.querySelector('dialog .go').disabled")
        await page.press("Enter")
        assert desk.cards(0x101) == {B, C, D}
        await page.type(H1[-1])
        await page.press("Enter")
        await eventually(lambda: desk.cards(0x101) == {C})
        await page.until("!document.querySelector('dialog')")
        await page.press("Escape")
        await page.until("document.querySelector('#chosen').hidden")
        # What had the focus has gone, and the focus with it only into the grid.
        await page.until(f"{focus}.closest('#racks') !== null")
        await page.press("/")
        assert await page.js(f"{focus}.id") == "search"
        assert page.errors == []

    in_a_browser(tmp_path, does)


def test_states_that_an_operator_gives(tmp_path, chromium):
    async def does(desk, window, url):
        page = await opened(window, url)
        await page.click(slot(A))
        for action, verb, state in (
                ("Keep as a spare…", "Keep as a spare", "spare"),
                ("No spare any more…", "No spare any more", "free"),
                ("Set aside…", "Set aside", "quarantined"), ("Admit…", "Admit", "free"),
                ("Set aside…", "Set aside", "quarantined")):
            await push(page, action)
            await push(page, verb)
            await page.until(is_in(A, state))
            await page.until(f"!document.querySelector('{QUESTION}')")
            assert desk.pool.gpu(A).state == state
            await page.until("document.activeElement.closest('dialog.detail') !== null")
        await push(page, "Model…")
        await page.type("V100")
        await push(page, "Say so")
        await eventually(lambda: desk.pool.gpu(A).model == "V100")
        await page.until(f"!document.querySelector('{QUESTION}')")
        await push(page, "Back")
        await page.click('[data-box="00010000"]')
        await push(page, "Kind…")
        await page.press("ArrowDown")
        await push(page, "Say so")
        await eventually(lambda: desk.service.node("00010000").kind == "joined")
        await page.until(f"!document.querySelector('{QUESTION}')")
        await push(page, "Back")
        # A broken one.
        await desk.attach(H0, B)
        await page.until(is_in(B, "attached"))
        await page.click(slot(B))
        await push(page, "Give up as broken…")
        await page.type("fan stands still")
        assert await page.js("document.querySelector('dialog .go').disabled")
        await page.press("Tab")
        await page.type(B)
        await push(page, "Give up")
        await page.until(is_in(B, "failed"))
        assert desk.cards(0x100) == set() and desk.pool.gpu(B).broken == "fan stands still"
        await push(page, "Retire…")
        desk.nodes.do("pull 00010000 2")
        await push(page, "Retire")
        await page.until(is_in(B, "absent"))
        await push(page, "Back")
        # Nodes.
        await page.click('[data-host="00000100"]')
        await push(page, "Close the host…")
        await push(page, "Close")
        await page.until("document.querySelector('.host.closed')")
        assert desk.service.node(H0).closed
        await push(page, "Name…")
        await page.js("document.querySelector('input[name=label]').value = ''")
        await page.type("<b>one</b>")
        await push(page, "Name")
        assert await page.until("document.querySelector('dialog.question .error').textContent") == (
            "a label has up to 64 characters, without space and slash")
        await page.js("document.querySelector('input[name=label]').value = '<b>one'")
        await push(page, "Name")
        await page.until("document.querySelector('.host .name').textContent === '<b>one'")
        assert page.errors == [] or all("400" in error for error in page.errors)

    in_a_browser(tmp_path, does)


def test_requests_and_tasks(tmp_path, chromium):
    async def does(desk, window, url):
        page = await opened(window, url)
        queue = "document.querySelector('#requests').textContent"
        await page.click("#request")
        await page.until(f"document.querySelector('{QUESTION}')")
        await page.js("document.querySelector('input[name=count]').value = 2")
        await push(page, "Request")
        await eventually(lambda: len(desk.cards(0x100)) == 2)
        await page.until(f"{queue}.includes('holding')")
        await page.click('[aria-label="End request 1"]')
        await page.until(f"document.querySelector('{QUESTION}')")
        assert await page.js("document.querySelector('dialog .go').disabled")
        await page.click("input[name=word]")
        await page.type(H0)
        await push(page, "End the request")
        await eventually(lambda: desk.cards(0x100) == set())
        await page.until("document.querySelector('#requests').children.length === 0")
        await page.until("document.activeElement.contains(document.querySelector('#requests')) "
                         "&& document.activeElement !== document.body")
        # Kept, taken up, and for a time.
        await page.click("#request")
        await page.js("document.querySelector('select[name=keep]').value = 'keep'")
        await push(page, "Request")
        await page.until(f"{queue}.includes('reserved')")
        assert desk.cards(0x100) == set()
        await page.click('[aria-label="Take up request 2"]')
        await push(page, "Take up")
        await page.until(f"{queue}.includes('holding')")
        await page.click('[aria-label="Lease request 2"]')
        await page.type("5")
        await push(page, "Renew")
        await page.until(f"/holding until \\d\\d:/.test({queue})")
        assert desk.pool.request(2).lease == 300 and len(desk.cards(0x100)) == 1
        await desk.ask("DELETE", "CompositionService/Oem/DxPU/Requests/2", status=204)
        await page.until("document.querySelector('#requests').children.length === 0")
        # One that waits says for what, and leaves.
        await page.click("#request")
        await page.js("document.querySelector('input[name=count]').value = 4")
        await page.js("document.querySelector('select[name=where]').value = 'box'")
        await push(page, "Request")
        await page.until(f"{queue}.includes('waiting')")
        assert re.search(r"^300000100: 4 GPUs in one box: never; .*waiting", await page.js(queue))
        await page.click('[aria-label="End request 3"]')
        await push(page, "End the request")
        await page.until("document.querySelector('#requests').children.length === 0")
        # A task that waits for a box is given up.
        desk.nodes.do("cut 00010001")
        await page.click(slot(C))
        await push(page, "Attach…")
        await push(page, "Attach")
        await page.until(f"!document.querySelector('{QUESTION}')")
        await push(page, "Back")
        task, = [one for one in desk.service.tasks() if not one.progress.ended]
        await page.click(f'[aria-label="Cancel task {task.number}"]')
        await push(page, "Cancel the task")
        await eventually(lambda: desk.pool.task(task.number).progress == "rolling back")
        desk.nodes.do("join 00010001")
        await page.until("document.querySelector('#said.bad')")
        await page.until(is_in(C, "free"))
        assert desk.pool.gpu(C).binding is None and desk.cards(0x100) == set()
        assert page.errors == []

    in_a_browser(tmp_path, does)


def test_errors_are_one_line(tmp_path, chromium):
    async def does(desk, window, url):
        page = await opened(window, url)
        # Somebody was faster.
        await page.click(slot(A))
        await push(page, "Attach…")
        await page.until(f"document.querySelector('{QUESTION}')")
        await desk.attach(H1, A)
        await push(page, "Attach")
        line = "document.querySelector('dialog.question .error').textContent"
        assert await page.until(line) == f"GPU {A} is attached, not free or reserved or spare"
        assert await page.js("document.activeElement.matches('button.go')")
        await push(page, "Leave it")
        await page.until(is_in(A, "attached"))
        # A task that fails later.
        desk.nodes.do(f"refuse {H1}")
        await push(page, "Detach…")
        await push(page, "Detach")
        await page.until("document.querySelector('#said.bad')")
        said = await page.js("document.querySelector('#said span').textContent")
        assert re.fullmatch(r"task \d+ failed: .*let go.*", said), said
        assert desk.cards(0x101) == {A}
        await page.click("#said button")
        assert await page.js("document.querySelector('#said').textContent") == ""
        assert page.errors and all("409" in error for error in page.errors)

    in_a_browser(tmp_path, does)
