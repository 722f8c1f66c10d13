"""A browser for tests: Chromium, driven through the W3C WebDriver protocol with the standard library alone.

https://www.w3.org/TR/webdriver2/ lists the commands. Clicks are real ones: WebDriver scrolls to the element and presses
the mouse there, and refuses when something else lies on top. Every look waits: a page is drawn piece by piece.
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.patience import looks

__all__ = ["Browser", "missing", "running"]

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key under which the protocol names an element
# The page is on this machine: nothing is asked of any other one, and no proxy stands between.
_FLAGS = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-proxy-server"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-extensions", "--hide-scrollbars", "--force-device-scale-factor=1"),
]
# Without a graphics card, the processor draws each frame of an animation.
_STILL = """
const still = document.createElement('style');
still.textContent = '*, *::before, *::after {animation: none !important}';
new MutationObserver((_, observer) => {
  if (document.documentElement) { observer.disconnect(); document.documentElement.append(still); }
}).observe(document, {childList: true});
"""
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_TEXT = "return document.body.innerText"
_ROWS = "return [...document.querySelectorAll('tr')].map(row => [...row.cells].map(cell => cell.innerText.trim()))"


class Refused(Exception):
    """The browser's answer to a command that it could not do."""


class Browser:
    """One window.

    Args:
        session: address of the WebDriver session.
        page: where paths begin, `http://HOST:PORT`.
        pictures: folder of the screenshots.
    """

    def __init__(self, session: str, page: str, pictures: Path) -> None:
        self._session, self._page, self._pictures = session, page, pictures

    def open(self, path: str) -> None:
        self._do("POST", "url", url=f"{self._page}{path}")

    def blank(self) -> None:
        """Leave the page: nothing is drawn until the next one is opened."""
        self._do("POST", "url", url="about:blank")

    def sees(self, *texts: str, path: str | None = None, seconds: float = 300) -> str:
        """Wait until the page says all of these, and give what it says then.

        Args:
            texts: regular expressions; `^` and `$` are a line's.
            path: open this page first, and again every 15 s: not every page renews itself.
            seconds: longest wait.
        """
        opened = -math.inf

        def said() -> str:
            nonlocal opened
            if path is not None and time.monotonic() - opened > 15:
                self.open(path)
                opened = time.monotonic()
            text = str(self._script(_TEXT))
            return text if all(re.search(one, text, re.M) for one in texts) else ""

        return str(self._until(said, " and ".join(texts), seconds))

    def rows(self, *names: str) -> dict[str, list[str]]:
        """Tables of the page: further cells of each row by its first cell, as soon as it has these rows."""

        def found() -> dict[str, list[str]]:
            rows = {first: more for first, *more in self._script(_ROWS) if more}
            return rows if set(names) <= set(rows) else {}

        return dict(self._until(found, f"rows {', '.join(names)}"))

    def turned(self, xpath: str, on: bool) -> None:
        """Wait until this checkbox, or the input of this switch, is on or off."""
        self._until(lambda: self._do("GET", f"element/{self._last(xpath)}/selected") is on, f"{xpath} {'on' if on else 'off'}")

    def turn(self, xpath: str, on: bool) -> None:
        """Click the switch until its input is on or off: while a page is being drawn, a click may be lost."""
        clicked = -math.inf

        def done() -> bool:
            nonlocal clicked
            if self._do("GET", f"element/{self._last(f'{xpath}/input')}/selected") is on:
                return True
            if time.monotonic() - clicked > 10:
                self._do("POST", f"element/{self._last(xpath)}/click")
                clicked = time.monotonic()
            return False

        self._until(done, f"{xpath} {'on' if on else 'off'}")

    def click(self, xpath: str) -> None:
        """Press the mouse on the last such element (a dialog comes behind the page) as soon as it is there and free."""
        self._until(lambda: self._do("POST", f"element/{self._last(xpath)}/click") is None, f"a click on {xpath}")

    def show(self, xpath: str) -> None:
        """Scroll until such an element stands at the top."""
        self._until(lambda: self._script("arguments[0].scrollIntoView()", {_ELEMENT: self._last(xpath)}) is None, xpath)

    def picture(self, name: str) -> None:
        """A screenshot of the window, NAME.png."""
        (self._pictures / f"{name}.png").write_bytes(base64.b64decode(self._do("GET", "screenshot")))

    def size(self, width: int, height: int) -> None:
        """Of the window, frame included."""
        self._do("POST", "window/rect", width=width, height=height)

    def _until(self, what: Callable[[], Any], told: str, seconds: float = 300) -> Any:
        for _ in looks(seconds, 0.2):
            with suppress(Refused):  # still being drawn; the limit tells that from a page that stays wrong
                if found := what():
                    return found
        self.picture("failed")
        raise AssertionError(f"{told}: not seen in {seconds:.0f} s. The page says:\n{self._script(_TEXT)}")

    def _last(self, xpath: str) -> str:
        found = self._do("POST", "elements", using="xpath", value=xpath)
        if not found:
            raise Refused(f"no {xpath}")
        return str(found[-1][_ELEMENT])

    def _script(self, script: str, *arguments: Any) -> Any:
        return self._do("POST", "execute/sync", script=script, args=arguments)

    def _do(self, method: str, command: str, **body: Any) -> Any:
        return _ask(method, f"{self._session}/{command}", body)


def missing() -> str:
    """Why no browser can be had; empty when one can. A chromedriver drives a Chromium of its own version only."""
    versions = {}
    for name in ("chromium", "chromedriver"):
        try:
            done = subprocess.run([name, "--version"], capture_output=True, text=True, timeout=600, check=True)
            versions[name] = re.findall(r"(\d+)\.\d", done.stdout)[0]
        except (OSError, subprocess.SubprocessError, IndexError) as error:
            return f"{name} cannot be run ({type(error).__name__}) -> make browser"
    return "" if len(set(versions.values())) == 1 else f"versions do not fit: {versions} -> make browser"


@contextmanager
def running(page: str, pictures: Path) -> Iterator[Browser]:
    """A window with a profile of its own. Afterwards no process and no file of it is left but the pictures."""
    folder = tempfile.mkdtemp(prefix="kpipe-browser-")  # of a short path, since a socket's is limited
    driver = subprocess.Popen(
        # Its standard input closes however pytest ends, and everything in its process group with it.
        ["sh", "-c", "chromedriver --port=0 & read _; kill -9 0"],
        env={**os.environ, "HOME": folder, "TMPDIR": folder},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        assert driver.stdout is not None
        port = next(found[1] for line in driver.stdout if (found := re.search(r"successfully on port (\d+)", line)))
        options = {"binary": shutil.which("chromium"), "args": [*_FLAGS, f"--user-data-dir={folder}/profile"]}
        wanted = {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}}
        sessions = f"http://127.0.0.1:{port}/session"
        session = f"{sessions}/{_ask('POST', sessions, wanted)['sessionId']}"
        try:
            command = {"cmd": "Page.addScriptToEvaluateOnNewDocument", "params": {"source": _STILL}}
            _ask("POST", f"{session}/goog/cdp/execute", command)
            yield Browser(session, page, pictures)
        finally:
            with suppress(OSError, Refused):
                _ask("DELETE", session)
    finally:
        driver.communicate()
        shutil.rmtree(folder, ignore_errors=True)


def _ask(method: str, address: str, body: Any = None) -> Any:
    data = json.dumps(body).encode() if method == "POST" else None
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"}, method=method)
    try:
        with _DIRECT.open(request, timeout=600) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        with error:
            raise Refused(json.load(error)["value"]["message"]) from None
