"""Load on a running deltad: streams over mixed variants while long prompts keep arriving, and idle connections beside them.

load.py URL [--streams 64] [--tokens 128] [--prompt 512] [--arrivals 1.0] [--idle 1000] [--seconds 60]

--streams sequences generate all the time, each of the next model in /v1/models and --tokens long on average; new requests with
--prompt tokens arrive --arrivals times a second. Checks first that every answer is whole (as many tokens as asked for), then reports
the gaps between a stream's tokens (ITL), time to first token, tokens a second, and the server's own time on the HTTP path from /metrics.
"""
import argparse
import asyncio
import json
import random
import time
import urllib.parse


class Client:
    def __init__(self, url: str):
        parts = urllib.parse.urlsplit(url)
        self.host, self.port = parts.hostname, parts.port or 80
        self.gaps: list[float] = []
        self.first: list[float] = []
        self.tokens = 0
        self.lost = 0
        self.requests = 0

    async def get(self, path: str) -> str:
        reader, writer = await asyncio.open_connection(self.host, self.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        data = await reader.read()
        writer.close()
        return data.decode().split("\r\n\r\n", 1)[1]

    async def stream(self, model: str, prompt: list[int], tokens: int, span=lambda times: None) -> None:
        """One streamed completion; every token is one event. span gets the times of two tokens in turn."""
        body = json.dumps({"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
                           "return_token_ids": True}).encode()
        self.requests += 1
        start = last = time.monotonic()
        got, gaps = 0, []
        try:
            reader, writer = await asyncio.open_connection(self.host, self.port)
            writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
                         b"Content-Length: %d\r\n\r\n" % len(body) + body)
            done = False
            while line := await reader.readline():
                if line.startswith(b"data: [DONE]"):
                    done = True
                elif line.startswith(b"data: "):
                    ids = json.loads(line[6:])["choices"][0].get("token_ids") or []
                    if ids:
                        now = time.monotonic()
                        if got == 0:
                            self.first.append(now - start)
                        else:
                            gaps.append(now - last)
                            span((last, now))
                        last = now
                        got += len(ids)
            writer.close()
            if not done or got != tokens:
                self.lost += 1
        except OSError:
            self.lost += 1
        self.tokens += got
        self.gaps += gaps


def percentile(values: list[float], p: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(p * len(ordered)))] if ordered else float("nan")


def histogram_p99(text: str, name: str, part: str) -> float:
    """Upper bound of the bucket that holds the 99th percentile."""
    buckets = []
    for line in text.splitlines():
        if line.startswith(name + "_bucket") and part in line:
            bound = line.split('le="')[1].split('"')[0]
            buckets.append((float(bound.replace("+Inf", "inf")), float(line.rsplit(" ", 1)[1])))
    total = buckets[-1][1] if buckets else 0
    return next((bound for bound, count in buckets if total and count >= 0.99 * total), float("nan"))


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--arrivals", type=float, default=1.0)
    parser.add_argument("--idle", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60)
    a = parser.parse_args()
    client = Client(a.url)
    models = [m["id"] for m in json.loads(await client.get("/v1/models"))["data"]]
    idle = [await asyncio.open_connection(client.host, client.port) for _ in range(a.idle)]
    rng = random.Random(0)
    prompt = lambda n: [rng.randrange(100, 40000) for _ in range(n)]
    for model in models:  # every variant is loaded before the clock starts
        await client.stream(model, prompt(8), 2)
    client.gaps.clear(), client.first.clear()
    client.tokens = client.requests = 0
    start = time.monotonic()
    end = start + a.seconds

    async def keep_streaming(i: int) -> None:
        turn = 0
        while time.monotonic() < end:
            length = rng.randrange(a.tokens // 2, a.tokens * 3 // 2)  # so that streams do not end all at once
            await client.stream(models[(i + turn) % len(models)], prompt(16), length)
            turn += 1

    async def keep_arriving() -> None:
        tasks, i = [], 0
        while time.monotonic() < end:
            tasks.append(asyncio.create_task(client.stream(models[i % len(models)], prompt(a.prompt), 16)))
            i += 1
            await asyncio.sleep(1 / a.arrivals)
        await asyncio.gather(*tasks)

    await asyncio.gather(keep_arriving(), *(keep_streaming(i) for i in range(a.streams)))
    took = time.monotonic() - start
    metrics = await client.get("/metrics")
    for _, writer in idle:
        writer.close()
    print(f"{client.requests} requests, {client.lost} lost; {client.tokens / took:.0f} tokens/s over {len(models)} models")
    if client.lost:
        return 1
    ms = lambda values, p: f"{1e3 * percentile(values, p):.0f}"
    print(f"between tokens, ms: p50 {ms(client.gaps, .5)}, p90 {ms(client.gaps, .9)}, p99 {ms(client.gaps, .99)}, "
          f"max {1e3 * max(client.gaps):.0f}")
    print(f"first token, ms: p50 {ms(client.first, .5)}, p99 {ms(client.first, .99)}")
    for part in ("submit", "write"):
        bound = histogram_p99(metrics, "deltad_http_path_seconds", f'"{part}"')
        print(f"HTTP path, {part}: p99 at most {1e3 * bound:.2f} ms, with {a.idle} idle connections")
    return 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
