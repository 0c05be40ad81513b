"""A real Chromium, and runs of examples/flow/09_keyed_wordcount whose page it opens: for check_page, and
for the pictures of the guide."""
import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

chromium = shutil.which("chromium") or shutil.which("chromium-browser")
if chromium is None:
    print("chromium is not installed")
    sys.exit(77)

work = tempfile.mkdtemp(prefix="amalgam_page.")
config = os.path.join(work, "config.json")
groups = {group: {"endpoint": "shm://"} for group in ("R0", "R1", "C0", "C1", "C2")}
with open(config, "w") as to:
    json.dump({"groups": groups}, to)


def url_in(process, output):
    """The page's address, which a command prints; and what it printed before."""
    for line in process.stdout:
        output += line
        found = re.search(r"https?://\S+token=\S+", line)
        if found:
            return found.group(), output
    raise AssertionError(output)


class Top:
    """An `amalgam top --web`."""

    def __init__(self, amalgam, *arguments):
        self.process = subprocess.Popen([amalgam, "top", *arguments], stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)
        self.url, self.output = url_in(self.process, "")

    def kill(self):
        self.process.kill()
        self.process.wait()


class Run:
    """An `amalgam run --web`, and the thread that writes its text."""

    def __init__(self, amalgam, program, address, text):
        self.text = text
        os.mkfifo(self.text)
        self.process = subprocess.Popen(
            [amalgam, "run", "-c", config, "--web", address, "--", program, self.text],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.url, self.output = url_in(self.process, "")
        self.over = threading.Event()
        self.writer = threading.Thread(target=self.write, daemon=True)
        self.writer.start()

    def write(self):
        lines = "it was the best of times it was the worst of times\n" * 200
        try:
            with open(self.text, "w") as to:
                while not self.over.wait(0.01):  # A pace, so that the page has something to draw.
                    to.write(lines)
                    to.flush()
        except BrokenPipeError:
            pass

    def end(self):
        """Reads the rest of the output, and returns the exit code."""
        self.output += self.process.stdout.read()
        code = self.process.wait()
        self.over.set()
        os.close(os.open(self.text, os.O_RDONLY | os.O_NONBLOCK))  # If nobody has opened it.
        self.writer.join()
        return code

    def kill(self):
        self.process.kill()
        self.end()


class Checkpointed:
    """The same with checkpoints, of a program whose sources do not end soon."""

    def __init__(self, amalgam, program):
        own = os.path.join(work, "summing.json")
        with open(own, "w") as to:
            json.dump({"groups": {group: {"endpoint": "shm://"} for group in ("G0", "G1", "G2")}}, to)
        self.process = subprocess.Popen(
            [amalgam, "run", "-c", own, "--web", "--checkpoints", os.path.join(work, "saved"), "--restarts", "1",
             "--grace", "1", "--", program, "summing", "100000000", work],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.url, self.output = url_in(self.process, "")

    def end(self):
        """Reads the rest of the output, and returns the exit code."""
        self.output += self.process.stdout.read()
        return self.process.wait()

    def kill(self):
        self.process.kill()
        self.end()


class Browser:
    """Chromium, over the pipe of its DevTools."""

    def __init__(self):
        read_by_it, self.to = os.pipe()
        self.come_from, written_by_it = os.pipe()
        self.log = open(os.path.join(work, "chromium.log"), "w")

        # Above 4 first: one of them may be 3 or 4 already.
        def place():
            high = [os.dup2(read_by_it, 103), os.dup2(written_by_it, 104)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", "--disable-extensions", "--disable-background-networking",
             f"--user-data-dir={work}/profile", "--remote-debugging-pipe", "about:blank"],
            preexec_fn=place, close_fds=False, stdout=self.log, stderr=self.log,
            start_new_session=True, env=dict(os.environ, HOME=work, XDG_CONFIG_HOME=work, XDG_CACHE_HOME=work))
        os.close(read_by_it)
        os.close(written_by_it)
        self.buffer = b""
        self.number = 0
        self.faults = []
        self.asked = []
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(each for each in targets if each["type"] == "page")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    session = None

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.buffer:
                some = os.read(self.come_from, 1 << 16)
                assert some, "chromium has ended: " + open(self.log.name).read()[-2000:]
                self.buffer += some
            text, self.buffer = self.buffer.split(b"\0", 1)
            answer = json.loads(text)
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]
            self.take(answer)

    def take(self, event):
        parameters = event.get("params", {})
        if event["method"] == "Runtime.exceptionThrown":
            self.faults.append(parameters["exceptionDetails"])
        elif event["method"] == "Log.entryAdded" and "favicon" not in parameters["entry"].get("url", ""):
            self.faults.append(parameters["entry"])
        elif event["method"] == "Network.requestWillBeSent":
            self.asked.append(parameters["request"]["url"])

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, expression):
        """Waits until it is true, for as long as the watchdog of the tests allows."""
        while not self.value(expression):
            time.sleep(0.05)

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.until(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if len(key) == 1 and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **text)

    def look(self, width, scheme, name, pictures=None, height=1000, whole=True):
        """Sets a width and colors; keeps a picture in that folder."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.until(f"innerWidth === {width}")
        # Two frames: the page draws again at its next one.
        self.call("Runtime.evaluate", awaitPromise=True,
                  expression="new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        # Nothing but the graph's own pane may be wider.
        wide = self.value("document.documentElement.scrollWidth")
        assert wide <= width, f"{name}: the page is {wide} wide"
        if pictures:
            shot = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
            with open(os.path.join(pictures, name + ".png"), "wb") as to:
                to.write(base64.b64decode(shot["data"]))

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


