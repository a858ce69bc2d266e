#!/usr/bin/env python3
"""Throughput of a deltad with as many variants registered as are in use, and of one with a thousand.

many_registered.py BASE VARIANT… [--registered 1000] [--pairs 25] [--requests 400] [--build build/release]

Two servers, one with the given variants, the other with --registered names for the same files; `deltactl bench-serve` asks both, in
turns, for the same requests to the same variants, all of them in memory. Checks that every answer was whole, and that no request had
to wait for a variant. Reports medians, and of the pairs' ratios the median and the quartiles: of the throughput, and of the
processor time that the server took, which other work on the machine disturbs less.
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests" / "e2e"))
from ports import free_port  # noqa: E402


class Server:
    def __init__(self, build: pathlib.Path, base: str, variants: dict[str, str]):
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        arguments = [a for name, path in variants.items() for a in ("--variant", f"{name}={path}")]
        self.process = subprocess.Popen([build / "deltad", "--listen", f"127.0.0.1:{port}", "--base", base, *arguments],
                                        stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        while not self.ready():
            if self.process.poll() is not None:
                raise SystemExit(f"deltad ended with {self.process.returncode}")
            time.sleep(0.05)

    def ready(self) -> bool:
        try:
            return urllib.request.urlopen(self.url + "/ready").status == 200
        except OSError:
            return False

    def metric(self, name: str) -> float:
        page = urllib.request.urlopen(self.url + "/metrics").read().decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith((name + "{", name + " ")))

    def processor_seconds(self) -> float:
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("base")
    parser.add_argument("variants", nargs="+")
    parser.add_argument("--registered", type=int, default=1000)
    parser.add_argument("--pairs", type=int, default=25)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--output", type=int, default=32)
    parser.add_argument("--concurrency", type=int, default=28)
    parser.add_argument("--build", type=pathlib.Path, default="build/release")
    o = parser.parse_args()

    in_use = {f"in-use-{i}": path for i, path in enumerate(o.variants)}
    many = in_use | {f"variant-{i}": o.variants[i % len(o.variants)] for i in range(o.registered - len(in_use))}
    servers = [Server(o.build, o.base, in_use), Server(o.build, o.base, many)]

    def bench(server: Server, requests: int, seed: int) -> dict:
        out = subprocess.run([o.build / "deltactl", "bench-serve", "--url", server.url, "--json", "--endpoint", "completions",
                              "--models", ",".join(in_use), "--zipf", "0", "--concurrency", str(o.concurrency), "--requests",
                              str(requests), "--seed", str(seed), "--prompt-ids", "3:500", "--prompt", str(o.prompt), "--output",
                              str(o.output), "--ignore-eos"], capture_output=True, text=True, check=True).stdout
        report = json.loads(out)
        if report["faults"] or report["total"]["completed"] != requests:
            raise SystemExit("an answer was not whole")
        return report["total"]

    try:
        for server, expected in zip(servers, (len(in_use), o.registered)):
            if server.metric("deltad_variants") != expected:
                raise SystemExit(f"{server.metric('deltad_variants'):.0f} variants are registered, not {expected}")
            bench(server, 4 * len(in_use), 1)
        misses = [s.metric("deltad_cache_misses_total") for s in servers]
        rates, first, processor = ([], []), ([], []), ([], [])
        for pair in range(o.pairs):
            for which in (0, 1) if pair % 2 == 0 else (1, 0):
                before = servers[which].processor_seconds()
                total = bench(servers[which], o.requests, 100 + pair)
                processor[which].append(servers[which].processor_seconds() - before)
                rates[which].append(total["output_tokens_per_s"])
                first[which].append(total["ttft_ms"]["p50"])
        if [s.metric("deltad_cache_misses_total") for s in servers] != misses:
            raise SystemExit("a request had to wait for its variant")
    finally:
        for server in servers:
            server.stop()
    for which, registered in enumerate((len(in_use), o.registered)):
        print(f"{registered:5} registered, {len(in_use)} in use: {statistics.median(rates[which]):8.1f} tokens/s "
              f"({min(rates[which]):.1f} to {max(rates[which]):.1f}), TTFT p50 {statistics.median(first[which]):.2f} ms")
    print(f"{o.pairs} pairs of {o.requests} requests, {o.concurrency} at once; ratios, and their quartiles:")
    for what, values in (("throughput", rates), ("processor time", processor)):
        low, middle, high = statistics.quantiles((b / a for a, b in zip(*values)), n=4)
        print(f"{what:15} {middle:.3f} ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
