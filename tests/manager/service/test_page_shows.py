"""The manager's page shows the evidence of an attach, the path of each binding, and spares."""

import re
from dataclasses import replace

import pytest

from tests.support.page_bench import A, B, C, H0, H1, in_a_browser, is_in, opened, push, slot
from tests.support.service_bench import LIMITS, block

pytestmark = pytest.mark.machine

FACTS = ("Object.fromEntries([...document.querySelectorAll('dialog.detail dl > div')].map(e => "
         "[e.children[0].textContent, e.children[1].textContent]))")
LABELS = "[...document.querySelectorAll('#lines text')].map(e => e.textContent).sort().join()"
SPARES = ("[...document.querySelectorAll('#spares tr')].map(row => "
          "[...row.children].map(cell => cell.textContent))")
#: A time as the page shows it.
AT = r"\d\d:\d\d:\d\d"


async def begun(desk, host, gpu):
    """Begin to attach a GPU."""
    await desk.ask("POST", f"Systems/{host}/Actions/Oem/DxPU.Attach",
                   {"ResourceBlocks": [block(gpu)]}, status=202)


def test_what_is_seen_of_an_attach_and_what_is_missing(tmp_path, chromium):
    """Each stage comes without a change in the records that would tell it."""
    async def does(desk, window, url):
        desk.service.manager.has_agent(0x100)
        page = await opened(window, url)
        await page.click(slot(A))
        assert "Evidence" not in await page.js(FACTS) and "Missing" not in await page.js(FACTS)
        host = desk.nodes.node(0x100)
        host.software.leaves_room = False
        host.changed()
        await begun(desk, H0, A)
        await page.until(f"({FACTS}).Missing?.includes('no memory window')", 10)
        facts = await page.js(FACTS)
        assert (facts["State"], facts["Evidence"]) == ("attaching", "link")
        assert re.fullmatch(rf"host {H0} has given port 0 no memory window, since {AT}; the attach "
                            rf"fails at {AT}", facts["Missing"])
        host.software.leaves_room = True
        host.changed()
        await page.until(f"({FACTS}).Missing?.includes('agent')", 10)
        facts = await page.js(FACTS)
        assert re.fullmatch(rf"link\nwindows, since {AT}", facts["Evidence"])
        assert re.fullmatch(rf"the agent of host {H0} has not said that it sees the GPU, since "
                            rf"{AT}; the attach fails at {AT}", facts["Missing"])
        shown = (await desk.get(f"CompositionService/ResourceBlocks/{A}"))["Oem"]["DxPU"]
        assert shown["MissingSince"] == shown["WindowsSince"] < shown["MissingUntil"]
        await desk.ask("POST", f"Systems/{H0}/Actions/Oem/DxPU.Confirm", {"Gpu": A})
        await page.until(is_in(A, "attached"))
        await page.until(f"!('Missing' in {FACTS})")
        facts = await page.js(FACTS)
        assert re.fullmatch(rf"link\nwindows, since {AT}\nword of the agent, since {AT}",
                            facts["Evidence"])
        await push(page, "Back")
        # Of a broken one nothing is seen.
        desk.nodes.do("break 00010000 2")
        await page.click(slot(B))
        await begun(desk, H1, B)
        await page.until(f"({FACTS}).Missing?.startsWith('its link does not come up, since ')")
        assert (await page.js(FACTS))["Evidence"] == "none yet"
        await page.until(is_in(B, "failed"))
        await page.until(f"!('Missing' in {FACTS}) && !('Evidence' in {FACTS})")
        assert page.errors == []

    in_a_browser(tmp_path, does)


def test_the_path_of_each_binding_and_one_that_dies(tmp_path, chromium):
    async def does(desk, window, url):
        page = await opened(window, url, width=1600, height=900)
        await desk.attach(H0, A)
        await desk.attach(H1, B)
        await page.until(f"{LABELS} === 'path 0,path 1'")
        await page.until(is_in(B, "attached"))
        assert await page.js(f"document.querySelector('{slot(B)}').getAttribute('aria-label')") == (
            f"GPU {B}, attached, host {H1}, path 1")
        # No label covers another one, nor a slot or a port.
        assert await page.js("""(() => {
            const covers = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom
              && b.top < a.bottom;
            const labels = [...document.querySelectorAll('#lines text')];
            const boxes = [...labels, ...document.querySelectorAll('.slot, .host')].map(e =>
              e.getBoundingClientRect());
            return labels.filter((_, n) => boxes.some((box, m) => m !== n && covers(boxes[n], box)))
              .length;
        })()""") == 0
        await page.click('[data-box="00010000"]')
        await page.until(f"({FACTS}).Paths === '0: 1 GPU\\n1: 1 GPU'")
        desk.nodes.do("unlink 00010000 1")
        await page.until(f"({FACTS}).Paths === '0: 2 GPUs\\n1: 0 GPUs, no link'")
        await page.until("document.querySelector('.box.unlinked .name').getAttribute('aria-label') "
                         "=== 'Box 00010000, 0 free, path 1 has no link'")
        assert await page.js("[...document.querySelectorAll('#facts .warns')].map(e => "
                             "e.textContent).join()") == "dead paths1"
        await page.until(f"{LABELS} === 'path 0,path 0'")
        await push(page, "Back")
        # Without a path that is left the binding says at which end there is no link.
        desk.nodes.do("unlink 00000100 0")
        await page.until(f"{LABELS} === 'path 0,path 0 ✕'")
        await page.click(slot(A))
        await page.until(f"({FACTS}).Path === '0: no link at {H0}'")
        await push(page, "Back")
        for line in ("link 00000100 0", "link 00010000 1"):
            desk.nodes.do(line)
        await page.until("document.querySelectorAll('.unlinked, #facts .warns').length === 0")
        await page.until(f"{LABELS} === 'path 0,path 1'")
        assert desk.cards(0x100) == {A} and desk.cards(0x101) == {B}
        assert page.errors == []

    in_a_browser(tmp_path, does, paths=2, limits=replace(LIMITS, calm=1.0))



def test_one_path_is_not_said(tmp_path, chromium):
    async def does(desk, window, url):
        page = await opened(window, url)
        await desk.attach(H0, A)
        await page.until("document.querySelectorAll('#lines path').length === 1")
        await page.until(is_in(A, "attached"))
        assert await page.js(LABELS) == ""
        assert await page.js(f"document.querySelector('{slot(A)}').getAttribute('aria-label')") == (
            f"GPU {A}, attached, host {H0}")
        await page.click('[data-box="00010000"]')
        assert "Paths" not in await page.js(FACTS)
        assert page.errors == []

    in_a_browser(tmp_path, does)


def test_spares_are_shown_and_wished_for(tmp_path, chromium):
    """Have, want and why of each model; the manager keeps what is wanted from the page."""
    async def does(desk, window, url):
        desk.service.manager.describe(0x10000, models={1: "V100", 2: "V100"})
        page = await opened(window, url)
        policy = "document.querySelector('#spares-policy').textContent"
        await page.until(f"{SPARES}.length === 2")
        row = (await page.js(SPARES))[1]
        assert row[:3] == ["V100", "0", "1"]
        assert re.fullmatch(r"0\.01 of 2 in repair \(27\.\d % a year at most: 0 failures in 0\.0 "
                            r"GPU-years\); these cover 98\.\d\d %", row[3])
        assert await page.js(policy) == (
            "Kept by hand, for 99.9 % of the time; a repair takes 7 days.")
        await page.click("#change-spares")
        await page.js("document.querySelector('select[name=keep]').value = 'yes'")
        for name, text in (("percent", "95"), ("days", "30"), ("rate", "400")):
            await page.click(f"input[name={name}]")
            await page.js(f"document.querySelector('input[name={name}]').value = ''")
            await page.type(text)
        assert desk.service.requests.spares.policy.keeps is False
        await push(page, "Say so")
        await page.until(f"{policy} === 'Kept by the manager, for 95 % of the time; a repair takes "
                         "30 days.'")
        held = desk.service.requests.spares.policy
        assert (held.keeps, held.probability, held.repair_days, held.rate) == (True, 0.95, 30, 4.0)
        # 2 GPUs x 4 a year x 30 days / 365: 0.66 in repair, so two are wanted.
        await page.until(f"{SPARES}.every(row => row[1] === '2' && row[2] === '2')")
        await page.until(f"{is_in(A, 'spare')} && {is_in(C, 'spare')}")
        assert (await page.js(SPARES))[1][3] == (
            "0.66 of 2 in repair (400.0 % a year); these cover 97.08 %")
        # With too few the row says so; without a rate the measured one counts.
        for old, rate, held in (("400", "5000", 50.0), ("5000", "", None)):
            await page.click("#change-spares")
            await page.until(f"document.querySelector('input[name=rate]').value === '{old}'")
            await page.js(f"document.querySelector('input[name=rate]').value = '{rate}'")
            await push(page, "Say so")
            await page.until("!document.querySelector('dialog')")
            assert desk.service.requests.spares.policy.rate == held
            if rate:
                await page.until(f"{SPARES}.every(row => row[1] === '2, too few')")
                assert await page.js("document.querySelectorAll('#spares tr.failed').length") == 2
        assert page.errors == []

    in_a_browser(tmp_path, does)
