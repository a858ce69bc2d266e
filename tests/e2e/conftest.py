"""What the end-to-end tests share: they start real programs, talk to them as a client would, and stop them.

DELTAD_BUILD names the folder with deltad and deltactl. Servers listen on a free loopback port.
"""
import contextlib
import http.client
import json
import os
import pathlib
import random
import resource
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

import certificates
from ports import free_port

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("DELTAD_BUILD", ROOT / "build" / "release"))
GOLDEN = ROOT / "tests" / "golden"
EXAMPLES = ROOT / "examples" / "variants"
MODEL = ROOT / ".cache" / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
VARIANTS = ROOT / ".cache" / "variants"
TINY = GOLDEN / "models" / "llama"
SLOW = float(os.environ.get("DELTAD_SLOW", "1"))  # sanitizers: multiplies every bound on time
PASSING = min(SLOW, 2)  # the same for bounds that a test lets pass: it waits as long


class Server:
    """A running deltad."""

    def __init__(self, arguments, log: pathlib.Path, env=None, descriptors=None, program="deltad"):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_path = log
        self.log_file = open(log, "w")
        self.process = subprocess.Popen(
            [str(BUILD / program), "--listen", f"127.0.0.1:{self.port}", *map(str, arguments)],
            stderr=self.log_file, stdout=self.log_file, env={**os.environ, **(env or {})},
            preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, descriptors)) if descriptors else None)

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def wait_ready(self, seconds: float = 120):
        end = time.monotonic() + seconds * SLOW
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise AssertionError(f"deltad ended with {self.process.returncode}:\n{self.log()}")
            if self.get("/ready")[0] == 200:
                return self
            time.sleep(0.05)
        raise AssertionError(f"not ready:\n{self.log()}")

    def request(self, method: str, path: str, body=None, headers=None, raw: bytes | None = None, timeout=60, url=None):
        """(status, headers, text); status 0 if there was no connection. url: another listener's."""
        data = raw if raw is not None else (json.dumps(body).encode() if body is not None else None)
        request = urllib.request.Request((url or self.url) + path, data=data, method=method,
                                         headers={"Content-Type": "application/json", **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=timeout * SLOW) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read().decode()
        except (urllib.error.URLError, ConnectionError):
            return 0, {}, ""

    def get(self, path: str):
        return self.request("GET", path)

    def post(self, path: str, body=None, **kwargs):
        status, headers, text = self.request("POST", path, body, **kwargs)
        return status, json.loads(text)

    def metric(self, name: str, **labels) -> float:
        """The sum of a metric's samples that carry these labels."""
        total = 0.0
        for line in self.get("/metrics")[2].splitlines():
            if line.startswith((name + "{", name + " ")) and all(f'{k}="{v}"' in line for k, v in labels.items()):
                total += float(line.rsplit(" ", 1)[1])
        return total

    def client(self, **options):
        import openai  # not there where tests run on a machine with a card (scripts/gpu_check)
        return openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0, timeout=120 * SLOW, **options)

    def begin_stream(self, body: dict):
        """A connection and its answer: a streamed completion that runs. A second step has begun, so the engine's figures tell of the first."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30 * SLOW)
        connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        seen = set()
        for line in answer:
            if line.startswith(b"data: {"):
                index = json.loads(line[6:])["choices"][0]["index"]
                if index in seen:
                    break
                seen.add(index)
        return connection, answer

    def wait_for(self, condition, seconds: float = 10, what: str = "condition"):
        end = time.monotonic() + seconds * SLOW
        while not condition():
            assert time.monotonic() < end, f"{what} did not come true:\n{self.log()}"
            time.sleep(0.02)

    def stop(self, seconds: float = 60) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(seconds * SLOW)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"deltad did not stop:\n{self.log()}") from None
        finally:
            self.log_file.close()
        return code


@contextlib.contextmanager
def running(arguments, folder: pathlib.Path, ready: bool = True, env=None, descriptors=None, program="deltad", ends: int = 0):
    """A deltad for one test; whatever happens it is stopped, and must end with the code `ends`. descriptors: its soft and hard limit."""
    server = Server(arguments, folder / "deltad.log", env, descriptors, program)
    try:
        yield server.wait_ready() if ready else server
    except BaseException:
        server.process.kill()
        server.process.wait()
        print(server.log())
        raise
    assert server.stop() == ends, server.log()


def tiny_arguments(*more):
    """The tiny model with three of its variants."""
    v = GOLDEN / "variants"
    return ["--base", TINY, "--variant", f"row={v}/llama/llama-row-1.delta.safetensors",
            "--variant", f"two={v}/llama/llama-matrix-2.delta.safetensors",
            "--variant", f"wide={v}/llama_vocab/llama_vocab-row-1.delta.safetensors", *more]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    with running(tiny_arguments(), tmp_path_factory.mktemp("tiny")) as server:
        yield server


@pytest.fixture(scope="session")
def pki(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pki")
    certificates.make_all(folder)
    return folder


class Versions:
    """Variant files for the tiny model, prompts to which all their greedy answers differ, and those answers."""
    TOKENS = 24
    PROMPTS = 4
    FILES = [*sorted((GOLDEN / "variants" / "llama").glob("*.delta.safetensors")),
             *sorted((GOLDEN / "variants" / "llama_vocab").glob("*.delta.safetensors"))]

    def __init__(self, server):
        # Which prompts tell them apart depends on how this CPU rounds.
        self.prompts, self.base, self.answers = [], [], [[] for _ in self.FILES]
        rng = random.Random(1)
        for _ in range(100):
            self.prompts.append([rng.randrange(512) for _ in range(rng.randint(4, 10))])
            base, *answers = [self.ask(server, model, len(self.prompts) - 1) for model in ("llama", *(f"v{i}" for i in range(len(self.FILES))))]
            if len({tuple(a) for a in (base, *answers)}) <= len(self.FILES):
                self.prompts.pop()
                continue
            self.base.append(base)
            for of_file, answer in zip(self.answers, answers):
                of_file.append(answer)
            if len(self.prompts) == self.PROMPTS:
                return
        raise AssertionError("too few prompts tell the versions apart")

    def body(self, model: str, prompt: int, tokens: int = 0) -> dict:
        return {"model": model, "prompt": self.prompts[prompt], "temperature": 0, "max_tokens": tokens or self.TOKENS, "ignore_eos": True,
                "return_token_ids": True}

    def ask(self, server, model: str, prompt: int = 0) -> list[int]:
        status, answer = server.post("/v1/completions", self.body(model, prompt))
        assert status == 200, answer
        return answer["choices"][0]["token_ids"]

    def which(self, server, model: str) -> int:
        """The version that answers under this name."""
        answer = self.ask(server, model)
        found = [i for i, answers in enumerate(self.answers) if answers[0] == answer]
        assert len(found) == 1, f"{model} answers as no version does: {answer}"
        return found[0]


@pytest.fixture(scope="session")
def versions(tmp_path_factory):
    arguments = [a for i, file in enumerate(Versions.FILES) for a in ("--variant", f"v{i}={file}")]
    with running(["--base", TINY, *arguments], tmp_path_factory.mktemp("versions")) as server:
        return Versions(server)


def ctl(*arguments, check: bool = True, **options) -> subprocess.CompletedProcess:
    """Runs deltactl."""
    result = subprocess.run([str(BUILD / "deltactl"), *map(str, arguments)], capture_output=True, text=True,
                            timeout=300 * SLOW, **options)
    if check:
        assert result.returncode == 0, f"deltactl {arguments}: {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result
