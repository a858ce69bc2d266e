"""What the gap_while_* benchmarks share: a deltad of its own with streams kept going beside what is measured, and the gaps between tokens
in the time that something ran beside them and in the quiet time."""
import asyncio
import contextlib
import json
import pathlib
import random
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import defaultdict

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[2] / "tests" / "e2e")]
from load import Client, percentile  # noqa: E402
from ports import free_port  # noqa: E402

LOOK = 0.1  # seconds between two looks at what goes on
WINDOW = 5  # seconds


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

    def gaps_beside(self, start: float, busy: list[tuple[float, float]]) -> tuple[list[tuple], list[tuple]]:
        """The gaps that began after `start`, as (begin, end): in quiet times, and where one of `busy` went on."""
        if self.lost:
            raise SystemExit(f"{self.lost} answers were not whole")
        quiet, during = [], []
        for begin, finish in self.spans:
            if begin >= start:
                beside = any(begin < stop and finish > go for go, stop in busy)
                (during if beside else quiet).append((begin, finish))
        return quiet, during


def p99_of_windows(spans: list[tuple[float, float]]) -> list[float]:
    """The p99 gap of each window that has a second of gaps or more: one burst of somebody else's work spoils one window, not all."""
    windows = defaultdict(list)
    for begin, finish in spans:
        windows[int(begin / WINDOW)].append((begin, finish - begin))
    return [percentile([gap for _, gap in window], .99) for window in windows.values() if max(window)[0] - min(window)[0] >= 1]


def growth(quiet: list[float], during: list[float]) -> str:
    """By how much the median of `during` is above that of `quiet`, with a 95 % interval (bootstrap)."""
    if not quiet or not during:
        return "-"
    rng = random.Random(1)
    ratio = lambda a, b: 100 * (statistics.median(b) / statistics.median(a) - 1)
    drawn = sorted(ratio(rng.choices(quiet, k=len(quiet)), rng.choices(during, k=len(during))) for _ in range(2000))
    return f"{ratio(quiet, during):+.0f} % ({drawn[50]:+.0f} to {drawn[-51]:+.0f})"


def columns(quiet: list[tuple[float, float]], during: list[tuple[float, float]]) -> str:
    """| quiet | meanwhile | p99 | p99 of a window, median: quiet / meanwhile | growth | gaps counted |"""
    lengths = lambda spans: [finish - begin for begin, finish in spans]
    p = lambda spans, q: 1e3 * percentile(lengths(spans), q)
    windows = [p99_of_windows(spans) for spans in (quiet, during)]
    medians = " / ".join(f"{1e3 * statistics.median(each):.1f}" if each else "-" for each in windows)
    return (f"| {p(quiet, .5):.1f} / {p(quiet, .99):.1f} | {p(during, .5):.1f} / {p(during, .99):.1f} "
            f"| {100 * (p(during, .99) / p(quiet, .99) - 1):+.0f} % | {medians} | {growth(*windows)} | {len(quiet)} / {len(during)} |")


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
