"""A browser for tests: Chromium, driven through the W3C WebDriver protocol with the standard library alone.

https://www.w3.org/TR/webdriver2/ lists the commands. Clicks are real ones: WebDriver scrolls to the element and presses
the mouse there, and refuses when something else lies on top.
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

__all__ = ["Browser", "missing", "running"]

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key under which the protocol names an element
_FLAGS = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-device-scale-factor=1"),
    # The page is on this machine: nothing is asked of any other one, and no proxy stands between.
    *("--disable-quic", "--no-proxy-server", "--no-first-run", "--no-default-browser-check", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-extensions", "--hide-scrollbars"),
]
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Refused(Exception):
    """The browser's answer, as the protocol names it."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(f"{error}: {message}")
        self.error = error


class Browser:
    """One window.

    Attributes:
        page: where paths begin, `http://HOST:PORT`.
        pictures: folder of the screenshots.
    """

    def __init__(self, session: str, page: str, pictures: Path) -> None:
        self._session, self.page, self.pictures = session, page, pictures

    def open(self, path: str) -> None:
        self._do("POST", "url", {"url": f"{self.page}{path}"})

    def text(self) -> str:
        """What a person can read on the page."""
        return str(self._do("POST", "execute/sync", {"script": "return document.body.innerText", "args": []}))

    def find(self, xpath: str) -> list[str]:
        """Elements, in the page's order."""
        return [item[_ELEMENT] for item in self._do("POST", "elements", {"using": "xpath", "value": xpath})]

    def rows(self, *names: str) -> dict[str, list[str]]:
        """Tables of the page: further cells of each row by its first cell, as soon as it has all of these rows."""
        script = "return [...document.querySelectorAll('tr')].map(row => [...row.cells].map(cell => cell.innerText.trim()))"

        def found() -> dict[str, list[str]]:
            rows = {first: more for first, *more in self._do("POST", "execute/sync", {"script": script, "args": []}) if more}
            return rows if set(names) <= set(rows) else {}

        return dict(self.until(found, f"tables with {', '.join(names)}"))

    def turned(self, xpath: str, on: bool) -> None:
        """Wait until this checkbox, or the input of this switch, is on or off."""

        def is_so() -> bool:
            found = self.find(xpath)
            return bool(found) and self._do("GET", f"element/{found[-1]}/selected") is on

        self.until(is_so, f"{xpath} {'on' if on else 'off'}")

    def until(self, what: Callable[[], Any], told: str, seconds: float = 120) -> Any:
        """Wait until it gives something, and give that.

        Raises:
            AssertionError: it did not in time; with what the page says, and a screenshot beside the others.
        """
        deadline, found = time.monotonic() + seconds, None
        while not found:
            with suppress(Refused):  # a page that is being drawn; the deadline tells it from one that stays wrong
                found = what()
            if not found and time.monotonic() > deadline:
                self.picture("failed")
                raise AssertionError(f"{told}: not seen in {seconds:.0f} s. The page says:\n{self.text()}")
            if not found:
                time.sleep(0.2)
        return found

    def sees(self, *texts: str, path: str | None = None, seconds: float = 120) -> str:
        """Wait until the page says all of these, which are regular expressions, and give what it says then.

        Args:
            texts: `^` and `$` are a line's.
            path: open this page first, and again every 15 s: not every page renews itself.
            seconds: longest wait.
        """
        opened = -math.inf

        def all_of_them() -> str:
            nonlocal opened
            if path is not None and time.monotonic() - opened > 15:
                self.open(path)
                opened = time.monotonic()
            text = self.text()
            return text if all(re.search(one, text, re.M) for one in texts) else ""

        return str(self.until(all_of_them, " and ".join(texts), seconds))

    def click(self, xpath: str) -> None:
        """Press the mouse on the last such element (a dialog comes behind the page) as soon as it is there and free."""

        def pressed() -> bool:
            found = self.find(xpath)
            if found:
                self._do("POST", f"element/{found[-1]}/click", {})
            return bool(found)

        self.until(pressed, f"a click on {xpath}")

    def show(self, xpath: str) -> None:
        """Scroll until the first such element stands at the top."""

        def scrolled() -> bool:
            found = self.find(xpath)
            script = "arguments[0].scrollIntoView()"
            return bool(found) and self._do("POST", "execute/sync", {"script": script, "args": [{_ELEMENT: found[0]}]}) is None

        self.until(scrolled, xpath)

    def picture(self, name: str) -> None:
        """A screenshot of the window, NAME.png."""
        (self.pictures / f"{name}.png").write_bytes(base64.b64decode(self._do("GET", "screenshot")))

    def size(self, width: int, height: int) -> None:
        self._do("POST", "window/rect", {"width": width, "height": height})

    def _do(self, method: str, command: str, body: Any = None) -> Any:
        return _ask(method, f"{self._session}/{command}", body)


def missing() -> str:
    """Why no browser can be had; empty when one can."""
    absent = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"no {' and no '.join(absent)} on this machine -> make browser" if absent else ""


@contextmanager
def running(page: str, pictures: Path) -> Iterator[Browser]:
    """A window with a profile of its own. Afterwards no process and no file of it is left but the pictures."""
    folder = tempfile.mkdtemp(prefix="kpipe-browser-")  # of a short path, since a socket's is limited
    driver = subprocess.Popen(
        ["chromedriver", "--port=0"],
        env={**os.environ, "HOME": folder, "TMPDIR": folder},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        assert driver.stdout is not None
        port = next(found[1] for line in driver.stdout if (found := re.search(r"successfully on port (\d+)", line)))
        flags = [*_FLAGS, f"--user-data-dir={folder}/profile"]
        options = {"binary": shutil.which("chromium"), "args": flags}
        wanted = {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}}
        root = f"http://127.0.0.1:{port}/session"
        session = f"{root}/{_ask('POST', root, wanted)['sessionId']}"
        try:
            yield Browser(session, page, pictures)
        finally:
            with suppress(OSError, Refused):
                _ask("DELETE", session)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate()
        shutil.rmtree(folder, ignore_errors=True)


def _ask(method: str, address: str, body: Any = None) -> Any:
    request = urllib.request.Request(
        address, None if body is None else json.dumps(body).encode(), {"Content-Type": "application/json"}, method=method
    )
    try:
        with _DIRECT.open(request, timeout=120) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        with error:
            said = json.load(error)["value"]
        raise Refused(said["error"], said["message"].splitlines()[0]) from None
