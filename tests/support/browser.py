"""A headless Chromium that a test drives by the DevTools protocol, over two pipes and without another package."""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--mute-audio",
    "--disable-extensions", "--disable-background-networking", "--hide-scrollbars", "--remote-debugging-pipe",
    "--autoplay-policy=no-user-gesture-required",
)  # fmt: skip
_SECONDS = 30.0


@dataclass(kw_only=True)
class Tab:
    """A page of the browser. problems: exceptions of scripts, and messages of the content security policy."""

    reads: int
    writes: int
    session: str = ""
    problems: list[str] = field(default_factory=list[str])
    _number: int = 0
    _received: bytes = b""

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result. Raises RuntimeError for an error or a timeout."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.writes, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + _SECONDS
        while True:
            answer = self._next(until)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._received:
            ready, _, _ = select.select([self.reads], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise RuntimeError("the browser did not answer in time")
            self._received += os.read(self.reads, 1 << 20)
        text, _, self._received = self._received.partition(b"\0")
        message = json.loads(text)
        if message.get("method") == "Runtime.exceptionThrown":
            details = message["params"]["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.problems.append(message["params"]["entry"]["text"])
        return message

    def value(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript; a promise is waited for."""
        result = self.ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["exception"]["description"])
        return result["result"].get("value")

    def wait(self, expression: str, seconds: float = _SECONDS) -> Any:
        """Wait until an expression is true, and return its value. Raises RuntimeError with the problems so far."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if value := self.value(expression):
                return value
            time.sleep(0.03)
        raise RuntimeError(f"{expression} did not become true; {self.problems}")

    def open(self, page: Path, width: int = 1280, height: int = 900, *, dark: bool = False) -> None:
        """Open a file in a window of this size; wait until it and its frames are loaded and its script is ready."""
        self.resize(width, height)
        scheme = "dark" if dark else "light"
        calm = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.ask("Emulation.setEmulatedMedia", features=calm)
        self.ask("Page.navigate", url=page.resolve().as_uri())
        self.wait("document.readyState === 'complete' && document.documentElement?.dataset.ready === 'true'")

    def resize(self, width: int, height: int) -> None:
        """Give the window a size; a width of less than 600 is a phone's."""
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of an element."""
        x, y = self.value(
            f"(() => {{ const one = document.querySelector({selector!r}); one.scrollIntoView({{ block: 'center' }});"
            "const box = one.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        self.drag([(x, y)])

    def drag(self, points: Sequence[tuple[float, float]]) -> None:
        """Press the mouse at the first point, move it over the others, and release it."""
        (x, y), *others = points
        self.ask("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, button="left", clickCount=1)
        for x, y in others:
            self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y, button="left", buttons=1)
        self.ask("Input.dispatchMouseEvent", type="mouseReleased", x=x, y=y, button="left", clickCount=1)

    def text(self, selector: str) -> str:
        """Return the text of an element."""
        return self.value(f"document.querySelector({selector!r}).textContent")

    def choose_files(self, selector: str, *files: Path) -> None:
        """Give files to an input element."""
        root = self.ask("DOM.getDocument")["root"]["nodeId"]
        node = self.ask("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.ask("DOM.setFileInputFiles", nodeId=node, files=[str(file.resolve()) for file in files])

    def picture(self, file: Path, *, whole: bool = False) -> None:
        """Write a picture of the window, or of the whole page."""
        shown: dict[str, Any] = {"format": "png", "captureBeyondViewport": whole}
        if whole:
            size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
            shown["clip"] = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        file.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", **shown)["data"]))


@contextmanager
def browser(*flags: str, program: str = "chromium") -> Iterator[Tab]:
    """Start Chromium with an empty profile, and end it and everything it started."""
    with tempfile.TemporaryDirectory(prefix="tvm_ext_browser_", ignore_cleanup_errors=True) as profile:
        to_browser, writes = os.pipe()
        reads, from_browser = os.pipe()
        # The protocol is spoken on descriptors 3 and 4, which a shell can name.
        command = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        process = subprocess.Popen(
            ["bash", "-c", command, program, *_FLAGS, *flags, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        tab = Tab(reads=reads, writes=writes)
        try:
            pages = [one for one in tab.ask("Target.getTargets")["targetInfos"] if one["type"] == "page"]
            target = pages[0]["targetId"] if pages else tab.ask("Target.createTarget", url="about:blank")["targetId"]
            tab.session = tab.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "DOM"):
                tab.ask(f"{domain}.enable")
            yield tab
        finally:
            os.close(writes)
            try:
                process.wait(timeout=10)  # the end of the pipe ends the browser
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()
            os.close(reads)
