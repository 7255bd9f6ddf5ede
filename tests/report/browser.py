"""A headless Chromium, driven over its DevTools pipe: load a page, ask it questions, press keys, take its picture."""

import base64
import fcntl
import json
import os
import queue
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-extensions", "--disable-background-networking", "--remote-debugging-pipe", "--hide-scrollbars"),
)
# seconds for an answer on a slow and busy machine
PATIENCE = 300
# the number of the answer that nobody will give
ENDED = -1
# a promise that the page has drawn its first run
DRAWN = """new Promise((done) => {
  const look = () => (window.kernbench?.ready ? window.kernbench.ready.then(() => done(1)) : setTimeout(look, 20));
  look();
})"""
KEYS = {
    "ArrowRight": 39,
    "ArrowLeft": 37,
    "Tab": 9,
    "+": 187,
    "-": 189,
    "0": 48,
    "n": 78,
    "p": 80,
    "/": 191,
    "Enter": 13,
    "Escape": 27,
}


def find_browser() -> str | None:
    """The Chromium of this machine; the environment's KERNBENCH_CHROMIUM goes first."""
    chosen = os.environ.get("KERNBENCH_CHROMIUM")
    return chosen or next((path for name in NAMES if (path := shutil.which(name))), None)


def _pipe() -> tuple[int, int]:
    """A pipe whose ends have high numbers, so that they can become 3 and 4 of the browser."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in ends]
    for end in ends:
        os.close(end)
    return high[0], high[1]


class NoBrowserError(Exception):
    """The program does not run here, or has ended."""


class Browser:
    """One browser with one page."""

    def __init__(self, program: str, folder: Path):
        there, self._out = _pipe()
        self._in, back = _pipe()
        argv = [program, *OPTIONS, f"--user-data-dir={folder}", "about:blank"]
        nothing = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
        ends = [(os.POSIX_SPAWN_DUP2, there, 3), (os.POSIX_SPAWN_DUP2, back, 4)]
        self.pid = os.posix_spawn(program, argv, os.environ, file_actions=[*nothing, *ends], setpgroup=0)
        os.close(there)
        os.close(back)
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._number = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        # what the page asked for beside itself
        self.fetched: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()
        (target,) = [t for t in self("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        self._session = self("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self(f"{domain}.enable")

    def _listen(self) -> None:
        rest = b""
        while chunk := os.read(self._in, 1 << 20):
            *messages, rest = (rest + chunk).split(b"\0")
            for message in messages:
                self._take(json.loads(message))
        self._answers.put({"id": ENDED})

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            self._answers.put(message)
        elif message["method"] == "Network.requestWillBeSent":
            self.fetched.append(message["params"]["request"]["url"])
        elif message["method"] == "Runtime.exceptionThrown":
            details = message["params"]["exceptionDetails"]
            self.complaints.append(str(details.get("exception", details).get("description", details)))
        elif message["method"] == "Log.entryAdded" and message["params"]["entry"]["level"] in ("error", "warning"):
            self.complaints.append(message["params"]["entry"]["text"])
        elif message["method"] == "Runtime.consoleAPICalled" and message["params"]["type"] in ("error", "warning"):
            self.complaints.append(str([a.get("value", a) for a in message["params"]["args"]]))

    def __call__(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the DevTools protocol, and its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        left = json.dumps(message).encode() + b"\0"
        try:
            while left:
                left = left[os.write(self._out, left) :]
        except BrokenPipeError:
            raise NoBrowserError("it has ended") from None
        while (answer := self._answers.get(timeout=PATIENCE))["id"] != self._number:
            if answer["id"] == ENDED:
                raise NoBrowserError("it has ended")
        assert "error" not in answer, f"{method}: {answer['error']}"
        return dict(answer["result"])

    def ask(self, expression: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        answer = self("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, f"{expression}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def show(self, file: Path, width: int = 1280, height: int = 900, dark: bool = False, mobile: bool = False) -> None:
        """Load a page and wait until it is drawn; what it complains of is kept in `complaints`."""
        self.complaints.clear()
        self.fetched.clear()
        self("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self.media(dark)
        self("Page.navigate", url=file.resolve().as_uri())
        # the page may still be turning: an answer from the one before is asked for again
        for _ in range(200):
            if self.ask("location.href").startswith(file.resolve().as_uri()):
                break
        self.ask(DRAWN)
        self.frame()

    def frame(self) -> None:
        """Wait until the page has painted."""
        self.ask("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def media(self, dark: bool = False, kind: str = "") -> None:
        """Light or dark, on a screen or on paper."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self("Emulation.setEmulatedMedia", media=kind, features=[scheme])

    def press(self, key: str) -> None:
        """Press a key where the focus is."""
        text = key if len(key) == 1 else {"Enter": "\r"}.get(key, "")
        down = "keyDown" if text else "rawKeyDown"
        held = {"key": key, "windowsVirtualKeyCode": KEYS[key], "text": text}
        self("Input.dispatchKeyEvent", type=down, **held)
        self("Input.dispatchKeyEvent", type="keyUp", **held)

    def picture(self, file: Path, whole: bool = True) -> None:
        """A screenshot, of the whole page or of what is in view."""
        shot = self("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(shot["data"]))

    def print(self, file: Path) -> None:
        """The page as PDF, as a printer gets it."""
        file.write_bytes(base64.b64decode(self("Page.printToPDF", printBackground=False)["data"]))

    def close(self) -> None:
        """End the browser."""
        os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._out)
