#!/usr/bin/env python3
"""What one variant's flood does to the time to first token of the others, on a real server.

fairness.py BASE VARIANT… [--pairs 3] [--seconds 45] [--prompt 32:128] [--output 8:24] [--capacity REQUESTS_PER_SECOND]

Ten tenants, nine variants and the base, with Poisson arrivals. Nine of them together ask for --load (half) of what the server can
answer; the tenth for as much as each of these (1 x), or for --flood times that. `deltactl bench-serve` replays both as traces, in turns,
the nine's arrivals and lengths the same in both runs of a pair. The capacity is measured first, unless it is given. Reports the p99 and
the median of the nine's time to first token, each pair and the median ratio; every answer of the nine must be whole.
"""
import argparse
import json
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from many_registered import Server  # noqa: E402


def limits(text: str) -> tuple[int, int]:
    low, _, high = text.partition(":")
    return int(low), int(high or low)


def write_trace(path: pathlib.Path, tenants: list[str], rate: float, o, seed: int) -> None:
    """Poisson arrivals of `rate` requests a second of each tenant."""
    rng, lines = random.Random(seed), []
    for tenant in tenants:
        at = rng.expovariate(rate)
        while at < o.seconds:
            lines.append({"at": at, "model": tenant, "prompt_tokens": rng.randint(*limits(o.prompt)),
                          "max_tokens": rng.randint(*limits(o.output))})
            at += rng.expovariate(rate)
    lines.sort(key=lambda line: line["at"])
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


class Bench:
    def __init__(self, o, server: Server):
        self.o, self.server, self.seed = o, server, 0

    def start(self, *arguments) -> subprocess.Popen:
        self.seed += 1  # so that no prompt comes twice: the second would find the first one's blocks in the prefix cache
        return subprocess.Popen([self.o.build / "deltactl", "bench-serve", "--url", self.server.url, "--json", "--endpoint", "completions",
                                 "--seed", str(self.seed),
                                 "--prompt-ids", "3:5000", "--ignore-eos", *map(str, arguments)], stdout=subprocess.PIPE, text=True)

    @staticmethod
    def report(process: subprocess.Popen) -> dict:
        text = process.communicate()[0]
        report = json.loads(text) if text else {}
        if process.returncode != 0 and not (report.get("stopped") and report["faults"] == 0):
            raise SystemExit(f"bench-serve ended with {process.returncode}: {text}")
        return report

    def capacity(self, tenants: list[str]) -> float:
        """Requests a second when all tenants always want more."""
        total = self.report(self.start("--models", ",".join(tenants), "--zipf", 0, "--concurrency", 64, "--duration", 20, "--prompt",
                                       self.o.prompt, "--output", self.o.output, "--warmup", 2))["total"]
        return total["requests_per_s"]

    def replay(self, others: pathlib.Path, first: pathlib.Path) -> tuple[dict, dict]:
        """The tenth's requests that still wait when the nine are done are given up."""
        both = [self.start("--trace", path) for path in (others, first)]
        nine = self.report(both[0])["total"]
        both[1].send_signal(signal.SIGINT)
        return nine, self.report(both[1])["total"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base")
    parser.add_argument("variants", nargs="+", help="nine of them are used")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=45)
    parser.add_argument("--prompt", default="32:128")
    parser.add_argument("--output", default="8:24")
    parser.add_argument("--load", type=float, default=0.5)
    parser.add_argument("--flood", type=float, default=50)
    parser.add_argument("--capacity", type=float)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--build", type=pathlib.Path, default="build/release")
    o = parser.parse_args()
    variants = {pathlib.Path(path).name.split(".")[0]: path for path in o.variants[:9]}
    if len(variants) < 9:
        raise SystemExit("nine variants with different names are needed")
    base = pathlib.Path(o.base).name.removesuffix(".gguf")
    first, *others = [*variants, base]
    server = Server(o.build, o.base, variants)
    try:
        bench = Bench(o, server)
        capacity = o.capacity or bench.capacity([first, *others])
        rate = o.load * capacity / len(others)
        bench.report(bench.start("--models", ",".join([first, *others]), "--zipf", 0, "--concurrency", 10, "--requests", 40, "--prompt",
                                 o.prompt, "--output", o.output, "--warmup", 2))
        print(f"{capacity:.1f} requests/s at most; nine tenants ask for {o.load * capacity:.1f} in all, the tenth for {rate:.2f} or "
              f"{o.flood * rate:.1f}; prompts of {o.prompt} tokens, answers of {o.output}\n", flush=True)
        print("| pair | TTFT of the nine, p50 / p99, at 1 x | with the flood | p99 ratio | answered to the tenth |\n|---|---|---|---|---|")
        ratios = []
        with tempfile.TemporaryDirectory() as folder:
            traces = [pathlib.Path(folder) / name for name in ("others", "fair", "flood")]
            for pair in range(o.pairs):
                for path, tenants, of_each, seed in zip(traces, (others, [first], [first]), (rate, rate, o.flood * rate), (0, 1, 2)):
                    write_trace(path, tenants, of_each, o, 10 * (o.seed + pair) + seed)
                seen = {}
                for which in (1, 2) if (o.seed + pair) % 2 == 0 else (2, 1):
                    nine, tenth = seen[which] = bench.replay(traces[0], traces[which])
                    if nine["completed"] != nine["requests"]:
                        raise SystemExit(f"answers of the nine were lost: {nine['errors']}")
                at_1, at_flood = seen[1][0]["ttft_ms"], seen[2][0]["ttft_ms"]
                ratios.append(at_flood["p99"] / at_1["p99"])
                tenth = seen[2][1]
                print(f"| {o.seed + pair} ({seen[1][0]['requests']} requests) | {at_1['p50']:.0f} / {at_1['p99']:.0f} ms "
                      f"| {at_flood['p50']:.0f} / {at_flood['p99']:.0f} ms | {ratios[-1]:.2f} "
                      f"| {tenth['completed']} of {tenth['requests']} |", flush=True)
        print(f"\nmedian ratio: {statistics.median(ratios):.2f}")
    finally:
        server.stop()


if __name__ == "__main__":
    main()
