"""Chromium without a window, driven as a user drives it: by mouse and keys.

Ref: Chrome DevTools Protocol; Chromium talks over two pipes (``--remote-debugging-pipe``), a zero
byte behind each message.
"""

import asyncio
import base64
import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

__all__ = ["CHROMIUM", "Browser", "Page", "browser"]

#: The browser of this machine, if it has one.
CHROMIUM = shutil.which("chromium")

#: Keys without a character: code of Windows, which the protocol wants.
_KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowLeft": 37,
         "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
_SHIFT, _CTRL = 8, 2


class Browser:
    """A browser's process, and what it says."""

    def __init__(self, reader, writer):
        self._reader, self._writer, self._number = reader, writer, 0
        self._answers: dict[int, asyncio.Future] = {}
        self.pages: dict[str, Page] = {}
        self._reads = asyncio.create_task(self._read())

    async def _read(self):
        while True:
            try:
                said = json.loads((await self._reader.readuntil(b"\0"))[:-1])
            except asyncio.IncompleteReadError:
                return
            answer = self._answers.pop(said.get("id"), None)
            if answer is not None and not answer.done():
                answer.set_result(said)
            elif said.get("sessionId") in self.pages and "method" in said:
                self.pages[said["sessionId"]].came(said["method"], said["params"])

    async def ask(self, method, session=None, **parameters):
        """Ask for something, and wait for the answer."""
        self._number += 1
        answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
        asked = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            asked["sessionId"] = session
        self._writer.write(json.dumps(asked).encode() + b"\0")
        said = await asyncio.wait_for(answer, 30)
        assert "error" not in said, (method, said["error"])
        return said["result"]

    async def page(self, url, *, width=1280, height=800, dark=False):
        """A tab with a storage of its own."""
        context = (await self.ask("Target.createBrowserContext"))["browserContextId"]
        target = (await self.ask("Target.createTarget", url="about:blank",
                                 browserContextId=context))["targetId"]
        session = (await self.ask("Target.attachToTarget", targetId=target,
                                  flatten=True))["sessionId"]
        page = self.pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            await page.ask(f"{domain}.enable")
        await page.look(width, height, dark=dark)
        await page.ask("Page.navigate", url=url)
        await page.until("document.readyState === 'complete'")
        return page

    def end(self):
        """Read nothing more."""
        self._reads.cancel()


class Page:
    """A tab.

    Attributes
    ----------
    errors : list of str
        What the console has as an error, and what the policy of the page has forbidden.
    asked : list of str
        Addresses that were asked for.
    """

    def __init__(self, browser, session):
        self._browser, self._session = browser, session
        self.errors: list[str] = []
        self.asked: list[str] = []

    def came(self, method, said):
        """Something happened in the tab."""
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(said["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning"):
            self.errors.append(json.dumps(said["args"]))
        elif method == "Log.entryAdded" and said["entry"]["level"] == "error":
            self.errors.append(said["entry"]["text"] + " " + said["entry"].get("url", ""))
        elif method == "Network.requestWillBeSent":
            self.asked.append(said["request"]["url"])

    async def ask(self, method, **parameters):
        """A command of the protocol."""
        return await self._browser.ask(method, self._session, **parameters)

    async def look(self, width, height, *, dark=False, calm=True):
        """Change the size of the window, and what the user prefers."""
        await self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height,
                       deviceScaleFactor=1, mobile=False)
        await self.ask("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if calm else "no-preference"}])

    async def reload(self):
        """Load the page again."""
        await self.js("window.isOld = true")
        await self.ask("Page.reload")
        await self.until("!window.isOld && document.readyState === 'complete'")

    async def js(self, expression):
        """The value of an expression in the tab."""
        said = await self.ask("Runtime.evaluate", expression=expression, returnByValue=True,
                              awaitPromise=True)
        assert "exceptionDetails" not in said, said["exceptionDetails"]
        return said["result"].get("value")

    async def until(self, expression, seconds=20.0):
        """What an expression says at last that counts as true."""
        end = asyncio.get_running_loop().time() + seconds
        asked = f"(value => value instanceof Node || value)({expression})"
        while not (value := await self.js(asked)):
            if asyncio.get_running_loop().time() >= end:
                text = await self.js("document.body.innerText")
                raise AssertionError(f"{expression} has not become so; errors {self.errors}; the "
                                     f"page says:\n{text}")
            await asyncio.sleep(0.03)
        return value

    async def click(self, selector):
        """Click at the first element that fits, when it is there."""
        await self.click_at(f"document.querySelector({json.dumps(selector)})")

    async def click_at(self, element):
        """Click into the middle of the element that an expression gives, when it is there, and
        nothing is before it: a question that was answered goes when its answer has come."""
        x, y = await self.until(
            "(e => { if (!e?.getClientRects().length || e.disabled) return null; "
            "e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect(); "
            "const [x, y] = [r.left + r.width / 2, r.top + r.height / 2]; "
            f"return e.contains(document.elementFromPoint(x, y)) && [x, y]; }})({element})")
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            await self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, clickCount=1,
                           button="none" if kind == "mouseMoved" else "left")

    async def press(self, name, *, shift=False, times=1):
        """Press a key: a name, or a character."""
        text = {"Enter": "\r"}.get(name, name if len(name) == 1 else "")
        code = _KEYS.get(name) or (ord(name.upper()) if name.isalnum() else 0)
        key = dict(key=name, windowsVirtualKeyCode=code, modifiers=_SHIFT if shift else 0)
        for _ in range(times):
            await self.ask("Input.dispatchKeyEvent", type="keyDown", **key,
                           **({"text": text} if text else {}))
            await self.ask("Input.dispatchKeyEvent", type="keyUp", **key)

    async def type(self, text):
        """Type a text."""
        for letter in text:
            await self.press(letter)

    async def picture(self, path: Path):
        """Write what is seen as PNG."""
        said = await self.ask("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(said["data"]))


@contextlib.asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Browser]:
    """A browser with an empty profile in a folder; the network has this machine alone."""
    assert CHROMIUM is not None
    # Chromium reads from 3 and writes to 4. Higher numbers here, so that none is in the way.
    ends = [end for pair in (os.pipe(), os.pipe()) for end in pair]
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in ends]
    for end in ends:
        os.close(end)
    asked, asks, answers, answered = high

    def place() -> None:
        os.dup2(asked, 3)
        os.dup2(answered, 4)

    process = subprocess.Popen(
        [CHROMIUM, "--headless", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu",
         "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
         # Its sandbox does not work for root, as which containers run.
         *(["--no-sandbox"] if os.geteuid() == 0 else []),
         f"--user-data-dir={folder}", "about:blank"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        pass_fds=(3, 4), preexec_fn=place, start_new_session=True)
    os.close(asked)
    os.close(answered)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 26)
    read, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader),
                                           os.fdopen(answers, "rb", 0))
    writer, _ = await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(asks, "wb", 0))
    there = Browser(reader, writer)
    try:
        yield there
    finally:
        there.end()
        read.close()
        writer.abort()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.to_thread(process.wait)
