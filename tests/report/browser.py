"""A real browser by the WebDriver protocol, with nothing but the standard library: chromium and chromedriver."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
]  # fmt: skip


def found() -> tuple[str, str] | None:
    """Browser and driver, or None where either is missing."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


class Browser:
    def __init__(self, address: str) -> None:
        self.address = address

    def call(self, way: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(f"{self.address}{path}", data, {"Content-Type": "application/json"}, method=way)
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as problem:
            with problem:
                raise RuntimeError(f"{way} {path}: {problem.read().decode()[:600]}") from None

    def open(self, page: Path) -> None:
        self.call("POST", "/url", {"url": page.resolve().as_uri()})

    def ask(self, script: str) -> Any:
        return self.call("POST", "/execute/sync", {"script": script, "args": []})

    def log(self, kind: str) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self.call("POST", "/se/log", {"type": kind})
        return entries

    def requests(self) -> list[str]:
        """Every address that was asked for on behalf of a file, itself included; the browser's own pages aside."""
        said = [json.loads(one["message"])["message"] for one in self.log("performance")]
        sent = [one["params"] for one in said if one["method"] == "Network.requestWillBeSent"]
        return [one["request"]["url"] for one in sent if one["documentURL"].startswith("file:")]

    def devtools(self, command: str, **params: Any) -> Any:
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def screenshot(self, to: Path, width: int) -> None:
        """The whole page, however long."""
        height = self.ask("return document.documentElement.scrollHeight")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = self.devtools("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        to.write_bytes(base64.b64decode(shot["data"]))

    def printed(self) -> bytes:
        return base64.b64decode(self.call("POST", "/print", {"page": {"width": 21.0, "height": 29.7}}))


@contextmanager
def browser(folder: Path, width: int, height: int = 800) -> Iterator[Browser]:
    """A window of that width, as a phone has it: the layout follows the width and nothing is zoomed."""
    places = found()
    assert places is not None
    log = folder / "driver.log"
    with log.open("w") as said:
        driver = subprocess.Popen([places[1], "--port=0"], stdout=said, stderr=subprocess.STDOUT)
    try:
        port = _port(log, driver)
        options = {
            "binary": places[0],
            "args": [*FLAGS, f"--user-data-dir={folder / 'profile'}"],
            "mobileEmulation": {"deviceMetrics": {"width": width, "height": height, "pixelRatio": 1.0}},
        }
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        one = Browser(f"http://127.0.0.1:{port}")
        session = one.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        one.address += f"/session/{session}"
        try:
            yield one
        finally:
            one.call("DELETE", "")
    finally:
        driver.terminate()
        driver.wait(timeout=20)


def _port(log: Path, driver: subprocess.Popen[bytes]) -> int:
    for _ in range(300):
        text = log.read_text()
        if "on port " in text and "successfully" in text:
            return int(text.rsplit("on port ", 1)[1].split(".")[0].split()[0])
        if driver.poll() is not None:
            break
        time.sleep(0.1)
    raise RuntimeError(f"chromedriver did not start: {log.read_text()[:600]}")
