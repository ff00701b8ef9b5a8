"""Chromium without a window, told what to do by its own protocol, through a pipe."""

import base64
import contextlib
import json
import os
import subprocess
import tempfile

# The looks of a page: its width and height in pixels, and the media that the browser says it is.
LOOKS = {
    "light": (1280, 900, {"media": "screen", "scheme": "light"}),
    "dark": (1280, 900, {"media": "screen", "scheme": "dark"}),
    "phone": (390, 844, {"media": "screen", "scheme": "light"}),
    # A4 within margins of 14 mm, at 96 pixels an inch.
    "print": (688, 1017, {"media": "print", "scheme": "light"}),
    "grey": (1280, 900, {"media": "screen", "scheme": "light", "grey": True}),
}


class Browser:
    """A browser with one tab."""

    def __init__(self, process, read, write):
        self.process, self.read, self.write = process, read, write
        self.number, self.session = 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.write.write(json.dumps(message).encode() + b"\0")
        self.write.flush()
        return self.until(lambda told: told.get("id") == self.number)

    def until(self, wanted):
        """What is told next that is wanted."""
        while True:
            told = bytearray()
            while (byte := self.read.read(1)) != b"\0":
                if not byte:
                    raise RuntimeError(f"the browser ended: {self.process.wait(10)}")
                told += byte
            told = json.loads(told)
            if wanted(told):
                if "error" in told:
                    raise RuntimeError(told["error"]["message"])
                return told.get("result", told)

    def open(self, file):
        self.call("Page.navigate", url=f"file://{os.path.abspath(file)}")
        self.until(lambda told: told.get("method") == "Page.loadEventFired")

    def look(self, name):
        """Shows the page that is open as one of LOOKS."""
        width, height, what = LOOKS[name]
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=name == "phone",
        )
        self.call(
            "Emulation.setEmulatedMedia",
            media=what["media"], features=[{"name": "prefers-color-scheme", "value": what["scheme"]}],
        )
        grey = "achromatopsia" if what.get("grey") else "none"
        self.call("Emulation.setEmulatedVisionDeficiency", type=grey)

    def run(self, script):
        """What a script in the page comes to."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def picture(self):
        """The whole page, as PNG."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(shot["data"])


@contextlib.contextmanager
def browser():
    to_read, their_write = os.pipe()
    their_read, to_write = os.pipe()

    def pipes():
        # The numbers that the browser reads and writes; first out of each other's way.
        read, write = os.dup(their_read), os.dup(their_write)
        os.dup2(read, 3)
        os.dup2(write, 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [
                "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
                "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}", "--remote-debugging-pipe",
            ],
            preexec_fn=pipes, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(their_read)
        os.close(their_write)
        try:
            with os.fdopen(to_read, "rb") as read, os.fdopen(to_write, "wb") as write:
                tab = Browser(process, read, write)
                yield tab
                tab.session = None
                tab.call("Browser.close")
                process.wait(10)
        finally:
            process.kill()
            process.wait()
