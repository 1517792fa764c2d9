"""A headless Chromium, driven by the WebDriver protocol (https://www.w3.org/TR/webdriver2)."""

import re
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx

ENTER, SPACE, TAB, CONTROL = "\ue007", " ", "\ue004", "\ue009"
QUIET = ("background-networking", "component-update", "sync", "gpu", "quic", "dev-shm-usage")
ARGUMENTS = [
    *("--headless=new", "--no-sandbox", "--no-first-run", "--window-size=1000,900"),
    *(f"--disable-{name}" for name in QUIET),
]


class Browser:
    def __init__(self, url: str, profile: Path) -> None:
        options = {"args": [*ARGUMENTS, f"--user-data-dir={profile}"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        body = {"capabilities": {"alwaysMatch": wanted}}
        self._client = httpx.Client(base_url=url, timeout=60, trust_env=False)
        self._path = ""
        self._path = f"/{self._ask('session', body)['sessionId']}"

    def _ask(self, command: str, body: dict[str, Any] | None = None) -> Any:
        place = f"/session{self._path}/{command}" if self._path else f"/{command}"
        get, post = partial(self._client.get, place), partial(self._client.post, place, json=body)
        found = (get() if body is None else post()).json()["value"]
        assert not (isinstance(found, dict) and "error" in found), found
        return found

    def open(self, url: str) -> None:
        self._ask("url", {"url": url})

    def run(self, script: str) -> Any:
        """Return what a script returns."""
        return self._ask("execute/sync", {"script": script, "args": []})

    def press(self, keys: str, held: str = "") -> None:
        """Press keys one after another, wherever the focus is, while others are `held`."""
        each = [(kind, key) for key in keys for kind in ("keyDown", "keyUp")]
        each = [*(("keyDown", key) for key in held), *each, *(("keyUp", key) for key in held)]
        pressed = [{"type": kind, "value": key} for kind, key in each]
        self._ask("actions", {"actions": [{"type": "key", "id": "keys", "actions": pressed}]})

    def prefer(self, scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        command = {"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}}
        self._ask("goog/cdp/execute", command)

    def complaints(self) -> list[str]:
        """Return the messages of the console since the last call."""
        return [each["message"] for each in self._ask("se/log", {"type": "browser"})]

    def picture(self) -> bytes:
        return b64decode(self._ask("screenshot"))

    def close(self) -> None:
        self._client.delete(f"/session{self._path}")
        self._client.close()


@contextmanager
def browsing(profile: Path) -> Iterator[Browser]:
    """Run a browser inside the block. Needs `chromedriver` on PATH."""
    driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
    assert driver.stdout
    try:
        ports = (re.search(r"successfully on port (\d+)", line) for line in driver.stdout)
        port = next(found[1] for found in ports if found)
        browser = Browser(f"http://127.0.0.1:{port}", profile)
        try:
            yield browser
        finally:
            browser.close()
    finally:
        driver.terminate()
        driver.wait()
        driver.stdout.close()
