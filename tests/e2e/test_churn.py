"""Variants come, change, break and go every 100 ms under 200 clients, a third of which leave: every answer is that of one version.

A run ends when enough has happened, however long that takes. DELTAD_SEED replays the choices of a run, DELTAD_CHURN_ROUNDS makes it
longer.
"""
import asyncio
import collections
import json
import os
import random

from conftest import TINY, Versions, running

SEED = int(os.environ.get("DELTAD_SEED", random.randrange(1 << 32)))
CLIENTS = 200
ROUNDS = int(os.environ.get("DELTAD_CHURN_ROUNDS", 1))
CHANGES, ANSWERS, LEFT = 80 * ROUNDS, 2 * CLIENTS * ROUNDS, CLIENTS * ROUNDS
HANG = 600  # seconds after which what has not happened never will
NAMES = [f"team/v{i}" for i in range(len(Versions.FILES))]
# The versions that a name ever has: two of all, so that a mix-up of names shows too.
VERSIONS = {name: (i, (i + 1) % len(NAMES)) for i, name in enumerate(NAMES)}
# Room for about three of the six; short times, so that much happens.
CONFIG = """
variant_watch: {folder: watch, settle_seconds: 0.03}
variant_loading: {threads: 2, retry_seconds: 0.02}
variant_cache: {memory: 500KiB, age_bound_seconds: 0.2, half_life_seconds: 2}
queue: {max_requests: 150, max_requests_per_variant: 60}
engine: {max_running: 64}
"""


class Folder:
    """The watched folder, and who stirs in it."""

    def __init__(self, path, rng):
        self.path, self.rng = path, rng
        self.data = [file.read_bytes() for file in Versions.FILES]
        self.done = collections.Counter()

    def file(self, name):
        return self.path / (name + ".delta.safetensors")

    def rename(self, name, data):
        self.file(name).parent.mkdir(parents=True, exist_ok=True)
        aside = self.file(name).with_suffix(".tmp")
        aside.write_bytes(data)
        os.replace(aside, self.file(name))

    def damaged(self, data) -> bytes:
        data = bytearray(data)
        if self.rng.random() < 0.3:
            return bytes(data[:self.rng.randrange(len(data))])
        if self.rng.random() < 0.3:
            data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
            return bytes(data)
        # So many weights that the answer would be another, and the header as it was.
        for _ in range(1000):
            data[self.rng.randrange(len(data) // 5, len(data))] ^= 1 << self.rng.randrange(8)
        return bytes(data)

    async def stir(self):
        name = self.rng.choice(NAMES)
        data = self.data[self.rng.choice(VERSIONS[name])]
        what = self.rng.choice(["rename"] * 4 + ["copy", "overwrite", "remove", "remove", "damage", "damage in place"])
        self.done[what] += 1
        if what == "rename":
            self.rename(name, data)
        elif what == "copy":  # with a pause in the middle
            self.file(name).parent.mkdir(parents=True, exist_ok=True)
            with open(self.file(name), "wb", buffering=0) as out:
                half = self.rng.randrange(len(data))
                out.write(data[:half])
                await asyncio.sleep(self.rng.choice([0.001, 0.02]))
                out.write(data[half:])
        elif what == "remove":
            self.file(name).unlink(missing_ok=True)
        elif what == "damage":
            self.rename(name, self.damaged(data))
        elif self.file(name).exists():
            if what == "damage in place":
                data = self.damaged(self.file(name).read_bytes())
            with open(self.file(name), "r+b") as out:
                out.write(data)
                out.truncate(len(data))


class Outcome:
    """What all clients got, and what must not come."""

    def __init__(self):
        self.counts, self.wrong = collections.Counter(), []


class Client:
    """Asks one thing after another."""

    def __init__(self, server, versions, rng, outcome):
        self.server, self.versions, self.rng = server, versions, rng
        self.counts, self.wrong = outcome.counts, outcome.wrong

    async def run(self, enough):
        while not enough():
            name = self.rng.choice(NAMES + ["llama"])
            prompt = self.rng.randrange(Versions.PROMPTS)
            leaves = self.rng.random() < 1 / 3
            streamed = leaves or self.rng.random() < 0.5
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
                body = json.dumps({**self.versions.body(name, prompt), "stream": streamed}).encode()
                writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
                             b"Content-Length: %d\r\n\r\n" % len(body) + body)
                if leaves:
                    status = await reader.readline()
                    await reader.read(self.rng.choice([1, 1, 400, 1500]))
                    self.counts["left" if b" 200 " in status else "left a refusal"] += 1
                else:
                    self.judge(name, prompt, streamed, await reader.read())
                writer.close()
            except OSError as error:
                self.wrong.append(f"{name}: {error!r}")

    def judge(self, name, prompt, streamed, answer):
        head, _, rest = answer.partition(b"\r\n\r\n")
        if not head:
            self.wrong.append(f"{name}: the connection was closed without an answer")
            return
        status = int(head.split()[1])
        if status != 200:
            error = json.loads(unchunked(head, rest))["error"]
            clean = status in (404, 503) or (status == 429 and b"retry-after" in head.lower())
            self.counts[status] += 1
            if not clean or not error["message"] or name == "llama" and status != 429:
                self.wrong.append(f"{name}: {status} {error}")
            return
        body, ids = unchunked(head, rest), []
        if streamed:
            events = [e[6:] for e in body.decode().split("\n\n") if e]
            if events[-1] != "[DONE]":
                self.wrong.append(f"{name}: the stream ends with {events[-1]}")
                return
            chunks = [json.loads(e) for e in events[:-1]]
        else:
            chunks = [json.loads(body)]
        for chunk in chunks:
            if "error" in chunk:
                self.counts["error in a stream"] += 1
                self.wrong.append(f"{name}: {chunk}")
                return
            for choice in chunk["choices"]:
                ids += choice.get("token_ids") or []
        self.counts[200] += 1
        expected = [self.versions.base[prompt]] if name == "llama" else [self.versions.answers[v][prompt] for v in VERSIONS[name]]
        if ids not in expected:
            whose = [v for v, answers in enumerate(self.versions.answers) if answers[prompt] == ids]
            self.wrong.append(f"{name}, prompt {prompt}: {ids}, the answer of {whose or 'nobody'}; expected {expected}")


def unchunked(head: bytes, body: bytes) -> bytes:
    if b"chunked" not in head.lower():
        return body
    out = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        out, body = out + body[:length], body[length + 2:]
        if length == 0:
            break
    return out


async def churn(server, versions, folder, rng) -> Outcome:
    outcome = Outcome()

    def enough() -> bool:
        counts = outcome.counts
        return bool(outcome.wrong) or (folder.done.total() >= CHANGES and counts[200] >= ANSWERS and counts["left"] >= LEFT)

    async def change():
        while not enough():
            await folder.stir()
            await asyncio.sleep(0.1)

    clients = [Client(server, versions, random.Random(rng.random()), outcome) for _ in range(CLIENTS)]
    try:
        await asyncio.wait_for(asyncio.gather(change(), *(c.run(enough) for c in clients)), HANG)
    except asyncio.TimeoutError:
        outcome.wrong.append(f"it hangs: {dict(outcome.counts)}, {dict(folder.done)}")
    return outcome


def good(server, versions, name: str, version: int) -> bool:
    status, _, text = server.request("POST", "/v1/completions", versions.body(name, 0))
    return status == 200 and json.loads(text)["choices"][0]["token_ids"] == versions.answers[version][0]


def test_every_answer_is_that_of_one_version(tmp_path, versions):
    print(f"DELTAD_SEED={SEED}")
    rng = random.Random(SEED)
    folder = Folder(tmp_path / "watch", rng)
    for name in NAMES:
        folder.rename(name, folder.data[VERSIONS[name][0]])
    config = tmp_path / "churn.yaml"
    config.write_text(f"base: {TINY}\n" + CONFIG)
    with running(["--config", config], tmp_path) as server:
        server.wait_for(lambda: server.metric("deltad_cache_used_bytes") == 0 and all(
            f'"{name}"' in server.get("/v1/models")[2] for name in NAMES), what="all variants are known")
        pid = server.process.pid
        outcome = asyncio.run(churn(server, versions, folder, rng))
        print(dict(outcome.counts), dict(folder.done))
        assert not outcome.wrong, f"seed {SEED}: {len(outcome.wrong)} wrong, first: {outcome.wrong[:3]}"

        # Quiet again: all of them good, and nothing of the rest is left.
        def comes_true(condition, what):
            server.wait_for(condition, seconds=30, what=f"seed {SEED}: {what}")

        for name in NAMES:
            folder.rename(name, folder.data[VERSIONS[name][1]])
        for name in NAMES:
            comes_true(lambda: good(server, versions, name, VERSIONS[name][1]), f"{name} is good again")
        in_use = ("vllm:num_requests_running", "vllm:num_requests_waiting", "deltad_kv_blocks_used")
        comes_true(lambda: not any(map(server.metric, in_use)), "all requests are gone")
        for name in NAMES:
            folder.file(name).unlink()
        comes_true(lambda: server.metric("deltad_cache_used_bytes") == 0, "all memory is given back")
        assert server.process.pid == pid and server.process.poll() is None
