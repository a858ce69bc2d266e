"""Two replicas behind an endpoint picker: from their metrics alone a request finds the replica that holds its variant, and the other
one when that has too much to do."""
import concurrent.futures
import contextlib
import threading

import pytest

from conftest import GOLDEN, TINY, running
from endpoint_picker import Figures, pick

FILES = sorted((GOLDEN / "variants" / "llama").glob("*-1.delta.safetensors"))
NAMES = ["coder", "legal", "math", "sql"]


class Replicas:
    def __init__(self, servers):
        self.servers = servers

    def pages(self) -> list[str]:
        return [s.get("/metrics")[2] for s in self.servers]

    def figures(self) -> list[Figures]:
        return [Figures.read(page) for page in self.pages()]

    def ask(self, model: str, to: int | None = None) -> int:
        """Sends a request where the picker says (or to one), and says where that was."""
        chosen = pick(model, self.pages()) if to is None else to
        answered = lambda: self.servers[chosen].metric("deltad_model_requests_total", model=model)
        before = answered()
        status, answer = self.servers[chosen].post("/v1/completions", body(model, 4))
        assert status == 200 and answer["model"] == model
        self.servers[chosen].wait_for(lambda: answered() > before, what="the request counted where it was sent")
        return chosen

    def count(self, metric: str, model: str = "") -> list[float]:
        labels = {"model": model} if model else {}
        return [s.metric(metric, **labels) for s in self.servers]


def body(model: str, tokens: int) -> dict:
    return {"model": model, "prompt": [5, 6, 7], "max_tokens": tokens, "ignore_eos": True}


@pytest.fixture
def start(tmp_path):
    """start(config): two replicas with the same variants."""
    with contextlib.ExitStack() as stack:
        def make(config: str) -> Replicas:
            servers = []
            for name in ("first", "second"):
                folder = tmp_path / name
                folder.mkdir()
                (folder / "deltad.yaml").write_text(config)
                variants = [a for n, name in enumerate(NAMES) for a in ("--variant", f"{name}={FILES[n % len(FILES)]}")]
                servers.append(stack.enter_context(running(["--base", TINY, "--config", folder / "deltad.yaml", *variants], folder)))
            return Replicas(servers)
        yield make


@contextlib.contextmanager
def flood(server, model: str, requests: int, tokens: int):
    """So many requests at once, again and again: one is over before anybody can look."""
    over = threading.Event()

    def keep_asking():
        while not over.is_set():
            assert server.post("/v1/completions", body(model, tokens))[0] == 200

    with concurrent.futures.ThreadPoolExecutor(requests) as pool:
        clients = [pool.submit(keep_asking) for _ in range(requests)]
        try:
            yield
        finally:
            over.set()
        for client in clients:
            client.result()


def test_a_request_reaches_the_replica_that_holds_its_variant(start):
    # Each replica has room for two variants.
    replicas = start("variant_cache: {memory: 250KiB}\n")
    for model, place in (("coder", 0), ("legal", 1), ("math", 0), ("sql", 1)):
        assert replicas.ask(model, to=place) == place
    assert [f.loaded for f in replicas.figures()] == [{"coder", "math"}, {"legal", "sql"}]
    assert [f.most_adapters for f in replicas.figures()] == [2, 2]
    # Nothing runs: the variants are idle in memory, and found there.
    for _ in range(3):
        assert [replicas.ask(model) for model in NAMES] == [0, 1, 0, 1]
    assert replicas.count("deltad_load_seconds_count") == [2, 2]  # nothing was loaded again
    assert replicas.count("deltad_cache_evictions_total") == [0, 0]


def test_a_variant_that_nobody_holds_goes_where_there_is_room(start):
    replicas = start("variant_cache: {memory: 250KiB}\n")
    replicas.ask("coder", to=0)
    replicas.ask("legal", to=0)  # full
    replicas.ask("math", to=1)
    assert replicas.ask("sql") == 1
    assert replicas.ask("sql") == 1
    assert replicas.count("deltad_cache_evictions_total") == [0, 0]


def test_a_long_queue_sends_a_request_to_the_other_replica(start):
    replicas = start("engine: {max_running: 1, prefix_cache: false}\n")
    assert replicas.ask("coder", to=0) == 0 and replicas.ask("coder") == 0
    pages = []

    def busy() -> bool:
        pages[:] = replicas.pages()
        return Figures.read(pages[0]).saturated()

    with flood(replicas.servers[0], "coder", 12, 200):
        replicas.servers[0].wait_for(busy, what="a long queue on the page")
        assert replicas.ask("coder", to=pick("coder", pages)) == 1
    assert [f.loaded for f in replicas.figures()] == [{"coder"}, {"coder"}]
    replicas.ask("sql", to=0)
    assert replicas.ask("sql") == 0  # it is over: the variant counts again


def test_a_full_kv_cache_sends_a_request_to_the_other_replica(start):
    replicas = start("engine: {kv_cache: 256KiB, prefix_cache: false}\n")  # 42 blocks; a request below grows to 29
    assert replicas.ask("coder", to=0) == 0 and replicas.ask("coder") == 0
    pages = []

    def full() -> bool:
        pages[:] = replicas.pages()
        figures = Figures.read(pages[0])
        return figures.kv_usage > 0.8 and figures.waiting <= 5

    with flood(replicas.servers[0], "coder", 5, 450):
        replicas.servers[0].wait_for(full, what="a full KV cache on the page")
    assert pick("coder", pages) == 1
    assert pick("coder", replicas.pages()) == 0  # it is over: back to where the variant lies
