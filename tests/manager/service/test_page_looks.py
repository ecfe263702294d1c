"""The manager's page with many GPUs, and for everybody's eyes, ears and hands."""

import asyncio
import re
from dataclasses import replace

import pytest

from dxpu_manager import Gpu, State
from tests.support.page_bench import is_in, large_pool, of_records, opened, push, slot

pytestmark = pytest.mark.machine


# Many -------------------------------------------------------------------------------------------


def test_512_gpus(tmp_path, chromium):
    """All boxes and hosts fit on a large screen; a storm of changes is read at once."""
    records = large_pool()
    gpus = [one for one in records if isinstance(one, Gpu)]
    bound = [gpu for gpu in gpus if gpu.binding]

    async def does(service, window, url):
        page = await opened(window, url, width=1920, height=1080)
        assert await page.js("document.querySelectorAll('#racks .slot').length") == 512
        assert await page.js("document.querySelectorAll('#hosts .host').length") == 128
        for gpu in gpus:
            assert await page.js(is_in(gpu.name, str(gpu.state))), gpu
        bottom = ("Math.max(...[...document.querySelectorAll('.box, .host')].map(e => "
                  "e.getBoundingClientRect().bottom))")
        assert await page.js(bottom) < 1080
        lines = "document.querySelectorAll('#lines path').length"
        assert await page.js(lines) == 0
        await page.js(f"document.querySelector('{slot(bound[0].name)}').focus()")
        await page.until(f"{lines} === 1")
        await page.click("#all-lines")
        await page.until(f"{lines} === {len(bound)}")
        await page.click("#all-lines")
        # All have an event; what is read is not one by one.
        page.asked.clear()
        with service.pool.change() as change:
            for gpu in gpus:
                if gpu.state is State.FREE:
                    change.put(replace(gpu, model="B200"), f"{gpu.name} is a B200")
        free = sum(gpu.state is State.FREE for gpu in gpus)
        await page.until("[...document.querySelectorAll('.slot[aria-label$=B200]')].length === "
                         f"{free}")
        assert len(page.asked) < 30, len(page.asked)
        # Search and filter.
        await page.click("#search")
        await page.type("r03 b200")
        boxes = "document.querySelectorAll('.box:not([hidden])').length"
        await page.until(f"{boxes} <= 8")
        assert await page.js("document.querySelector('#hosts + .none').hidden") is False
        await page.press("Enter")
        assert await page.js("document.activeElement.closest('.box') !== null")
        await page.js("document.querySelector('#search').value = ''; "
                      "document.querySelector('#search').dispatchEvent(new Event('input'))")
        await push(page, f"Xfailed{sum(gpu.state is State.FAILED for gpu in gpus)}", "#states")
        await page.until("document.querySelectorAll('.slot:not(.dim)').length < 30")
        for width in (1280, 800, 400):
            await page.look(width, 800)
            await asyncio.sleep(0.2)
            assert await page.js("document.documentElement.scrollWidth <= "
                                 "document.documentElement.clientWidth"), width
        assert page.errors == []

    of_records(tmp_path, records, does)


# For everybody ----------------------------------------------------------------------------------

#: Contrast of the text of elements to what is behind them (WCAG 2.2, 1.4.3).
_CONTRAST = """
(() => {
  const light = text => {
    const part = text.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
  };
  const behind = e => {
    for (; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (!/, 0\\)$/.test(colour)) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const worst = {};
  const looks = [...document.querySelectorAll('body *')].filter(e => e.getClientRects().length
    && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()));
  for (const e of looks) {
    const [a, b] = [light(getComputedStyle(e).color), light(behind(e))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) worst[e.tagName + '.' + e.className + ' ' + e.textContent.slice(0, 20)] =
      contrast;
  }
  return {worst, states: new Set(looks.map(e => e.dataset.state)).size, seen: looks.length};
})()
"""
#: What is wrong with the structure.
_STRUCTURE = """
(() => {
  const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
  const wrong = ids.filter((id, n) => ids.indexOf(id) !== n).map(id => `twice: ${id}`);
  for (const name of ['aria-labelledby', 'aria-describedby']) {
    for (const e of document.querySelectorAll(`[${name}]`)) {
      if (!document.getElementById(e.getAttribute(name))) wrong.push(`${name} of ${e.id}`);
    }
  }
  for (const row of document.querySelectorAll('[role=row]')) {
    if (row.parentElement.getAttribute('role') !== 'grid') wrong.push('row outside of a grid');
  }
  for (const list of ['#racks', '#hosts']) {
    const stops = document.querySelectorAll(`${list} [tabindex='0']`).length;
    if (stops !== 1) wrong.push(`${stops} tab stops in ${list}`);
  }
  if (document.querySelector('[tabindex]:not([tabindex="0"]):not([tabindex="-1"])')) {
    wrong.push('an order of its own');
  }
  if (!document.documentElement.lang || !document.title) wrong.push('language or title');
  return wrong;
})()
"""


def test_for_eyes_and_screen_readers(tmp_path, chromium):
    """Contrast in light and dark, names of all that can be used, one tab stop for each grid, no
    movement for who wants none, and no text that becomes markup."""
    async def does(service, window, url):
        page = await opened(window, url, width=1920, height=1080)
        await page.ask("Accessibility.enable")

        async def nameless():
            tree = (await page.ask("Accessibility.getFullAXTree"))["nodes"]
            wanted = {"button", "gridcell", "rowheader", "textbox", "searchbox", "combobox",
                      "checkbox", "dialog", "grid", "list", "region", "spinbutton", "link", "log"}
            nodes = [node for node in tree if not node["ignored"]
                     and node["role"]["value"] in wanted]
            assert len(nodes) > 3
            slots = [node["name"]["value"] for node in nodes if node["role"]["value"] == "gridcell"]
            assert all(re.match(r"GPU 000100..\.\d, \w+|Slot \d of ", name) for name in slots)
            return [node["role"]["value"] for node in nodes
                    if not node.get("name", {}).get("value")]

        for dark in (False, True):
            await page.look(1920, 1080, dark=dark)
            seen = await page.js(_CONTRAST)
            assert seen["worst"] == {} and seen["seen"] > 100
            assert seen["states"] == len(State) + 1, seen
        assert await page.js(_STRUCTURE) == []
        assert await nameless() == []
        await page.click(slot("00010000.1"))
        await page.until("document.querySelector('dialog')")
        assert await nameless() == []
        await page.press("Escape")
        await page.click("#request")
        await page.until("document.querySelector('dialog')")
        assert await nameless() == [] and await page.js(_STRUCTURE) == []
        seen = await page.js(_CONTRAST)
        assert seen["worst"] == {}
        await page.press("Escape")
        line = "getComputedStyle(document.querySelector('#lines path')).animationName"
        await page.click("#all-lines")
        await page.until("document.querySelector('#lines path[data-state=attaching]')")
        line = line.replace("path'", "path[data-state=attaching]'")
        assert await page.js(line) == "none"
        await page.look(1920, 1080, calm=False)
        assert await page.js(line) == "flows"
        assert page.errors == []
        refused = await page.js(
            "(() => { try { document.body.innerHTML = '<b>'; } catch (error) { return error.name; }"
            " })()")
        assert refused == "TypeError"

    records = large_pool(boxes=8, hosts=16)
    order = [State.ATTACHING, State.DRAINING]
    ends = iter(order)
    for number, one in enumerate(records):
        if isinstance(one, Gpu) and one.binding and (state := next(ends, None)):
            records[number] = replace(one, state=state)
    of_records(tmp_path, records, does)
