"""What the gap_while_* benchmarks share: a deltad of its own with streams kept going beside what is measured, and the gaps between tokens
in the time that something ran beside them and in the quiet time."""
import asyncio
import contextlib
import json
import pathlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from load import Client, percentile  # noqa: E402

LOOK = 0.1  # seconds between two looks at what goes on


def call(url: str, method: str = "GET", body=None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, method=method, data=data, headers={"Content-Type": "application/json"} if data else {})
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read() or b"{}")


class Stream(Client):
    """A client that also notes when each token came."""

    def __init__(self, url: str):
        super().__init__(url)
        self.spans: list[tuple[float, float]] = []

    async def keep(self, model: str, end) -> None:
        while not end.is_set():
            self.gaps = []
            before = time.monotonic()
            await self.stream(model, [5 + len(self.spans) % 1000, 6, 7], 200, self.spans.append)
            if time.monotonic() - before < 0.01:
                raise SystemExit("a stream ended at once")

    def gaps_beside(self, start: float, busy: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
        """The gaps that began after `start`: in quiet times, and where one of `busy` went on."""
        if self.lost:
            raise SystemExit(f"{self.lost} answers were not whole")
        quiet, during = [], []
        for begin, finish in self.spans:
            if begin >= start:
                beside = any(begin < stop and finish > go for go, stop in busy)
                (during if beside else quiet).append(finish - begin)
        return quiet, during


def columns(quiet: list[float], during: list[float]) -> str:
    """| quiet | meanwhile | p99 | gaps counted |"""
    p = lambda values, q: 1e3 * percentile(values, q)
    return (f"| {p(quiet, .5):.1f} / {p(quiet, .99):.1f} | {p(during, .5):.1f} / {p(during, .99):.1f} "
            f"| {100 * (percentile(during, .99) / percentile(quiet, .99) - 1):+.0f} % | {len(quiet)} / {len(during)} |")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextlib.asynccontextmanager
async def serving(build: pathlib.Path, config: pathlib.Path, url: str):
    """A deltad that is ready at `url`, ended in any case."""
    server = subprocess.Popen([str(build / "deltad"), "--config", str(config)])
    try:
        for _ in range(600):
            try:
                call(url + "/ready")
                break
            except urllib.error.URLError:
                await asyncio.sleep(0.1)
        yield
    finally:
        server.terminate()
        server.wait(60)


@contextlib.asynccontextmanager
async def streams(url: str, models: list[str]):
    """A stream of each model, kept going until the block ends; yields the client that notes the gaps of all."""
    client, end = Stream(url), asyncio.Event()
    tasks = [asyncio.create_task(client.keep(model, end)) for model in models]
    yield client
    end.set()
    await asyncio.gather(*tasks)
