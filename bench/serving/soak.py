#!/usr/bin/env python3
"""Does a server's memory stay as it is, however many requests it answers?

soak.py BASE VARIANT… [--requests 1000000] [--rounds 20] [--concurrency 64] [--cache 250KiB] [--slack MIB] [--build build/release]

A deltad whose variants do not all fit into memory, so that they are loaded and evicted all the time. In each round `deltactl
bench-serve` asks for its share of the requests, streamed and whole in turns, over all models; beside it clients leave in the middle of
their streams, and the config is read anew with another file under one variant's name. After each round, with nothing to do, what the
server accounts for is looked at: no KV block is held, no request is left, the variants' memory is within its budget, no file stays
open; and its resident memory must be no more than --slack MiB above that of the round after which a quarter of the requests is done.
Prints a line a round; the exit code is 1 if something grew.
"""
import argparse
import contextlib
import http.client
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests" / "e2e"))
from ports import free_port  # noqa: E402


class Server:
    def __init__(self, build: pathlib.Path, base: str, variants: list[str], cache: str, folder: pathlib.Path):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.config, self.base, self.variants, self.cache = folder / "deltad.yaml", base, variants, cache
        self.write_config(0)
        self.process = subprocess.Popen([build / "deltad", "--listen", f"127.0.0.1:{self.port}", "--config", self.config],
                                        stderr=open(folder / "log", "w"))
        while True:
            with contextlib.suppress(OSError):
                if urllib.request.urlopen(self.url + "/ready").status == 200:
                    return
            if self.process.poll() is not None:
                raise SystemExit(f"deltad ended with {self.process.returncode}")
            time.sleep(0.05)

    def write_config(self, turn: int) -> None:
        """The last name stands for another of the files each time."""
        names = {f"v{i}": path for i, path in enumerate(self.variants)} | {"turns": self.variants[turn % len(self.variants)]}
        lines = "".join(f"  {name}: {pathlib.Path(path).resolve()}\n" for name, path in names.items())
        self.config.write_text(f"base: {pathlib.Path(self.base).resolve()}\nvariants:\n{lines}variant_cache: {{memory: {self.cache}}}\n")

    def metrics(self) -> dict[str, float]:
        out: dict[str, float] = {}
        for line in urllib.request.urlopen(self.url + "/metrics").read().decode().splitlines():
            if not line.startswith("#"):
                name = line.split("{", 1)[0].split(" ", 1)[0]
                out[name] = out.get(name, 0) + float(line.rsplit(" ", 1)[1])
        return out

    def idle(self) -> dict[str, float]:
        """The metrics once nothing is left to do."""
        while True:
            m = self.metrics()
            if m["deltad_sequences_running"] == m["deltad_sequences_waiting"] == m["deltad_waiting"] == m["deltad_cache_loading_bytes"] == 0:
                return m
            time.sleep(0.02)


class Disturbance:
    """What goes on beside the load until it is stopped."""

    def __init__(self, server: Server):
        self.server, self.over, self.left, self.reloads = server, threading.Event(), 0, 0
        self.threads = [threading.Thread(target=work) for work in (self.leave, self.reload)]
        for thread in self.threads:
            thread.start()

    def leave(self) -> None:
        body = json.dumps({"model": "", "prompt": [5, 6, 7], "max_tokens": 400, "ignore_eos": True, "stream": True})
        while not self.over.wait(0.05):
            connection = http.client.HTTPConnection("127.0.0.1", self.server.port)
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            connection.getresponse().readline()
            connection.close()
            self.left += 1

    def reload(self) -> None:
        while not self.over.wait(2):
            self.reloads += 1
            self.server.write_config(self.reloads)
            self.server.process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("base")
    parser.add_argument("variants", nargs="+")
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--cache", default="250KiB")
    parser.add_argument("--slack", type=float, default=4)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
    options = parser.parse_args()

    mib, faults, base_rss, base_files = 1 << 20, [], 0.0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        server = Server(options.build, options.base, options.variants, options.cache, pathlib.Path(folder))
        began, disturbance = time.monotonic(), Disturbance(server)
        print(f"{'requests':>9} {'s':>6} {'resident MiB':>13} {'variants KiB':>13} {'KV held':>8} {'KV cached':>10} {'loads':>7} {'files':>6}")
        for turn in range(options.rounds):
            load = subprocess.run([options.build / "deltactl", "bench-serve", "--url", server.url, "--endpoint", "completions",
                                   "--concurrency", str(options.concurrency), "--requests", str(options.requests // options.rounds),
                                   "--prompt-ids", "1:40", "--output", "1:4", "--ignore-eos", "--seed", str(turn),
                                   *(["--no-stream"] if turn % 2 else [])], capture_output=True, text=True)
            if load.returncode != 0:
                faults.append(f"round {turn}: {load.stdout}{load.stderr}")
                break
            if turn == options.rounds - 1:
                disturbance.stop()
            m = server.idle()
            done = sum(m[name] for name in ("deltad_request_seconds_count",))
            rss, files = m["process_resident_memory_bytes"] / mib, m["process_open_fds"]
            print(f"{done:9.0f} {time.monotonic() - began:6.0f} {rss:13.1f} {m['deltad_cache_used_bytes'] / 1024:13.1f} "
                  f"{m['deltad_kv_blocks_used']:8.0f} {m['deltad_kv_blocks_cached']:10.0f} {m['deltad_load_seconds_count']:7.0f} {files:6.0f}",
                  flush=True)
            if m["deltad_cache_used_bytes"] > m["deltad_cache_budget_bytes"]:
                faults.append(f"round {turn}: the variants' memory is above its budget")
            if turn == max(options.rounds // 4 - 1, 0):
                base_rss, base_files = rss, files
            elif base_rss and rss > base_rss + options.slack:
                faults.append(f"round {turn}: {rss:.1f} MiB resident, {base_rss:.1f} after a quarter")
        disturbance.stop()
        m = server.idle()
        if m["deltad_kv_blocks_used"] != 0 or m["deltad_model_running"] != 0 or m["deltad_model_waiting"] != 0:
            faults.append(f"something is held by nobody: {m['deltad_kv_blocks_used']:.0f} KV blocks")
        if m["process_open_fds"] > base_files + options.concurrency:
            faults.append(f"{m['process_open_fds']:.0f} files are open, {base_files:.0f} were")
        refused = m["deltad_config_reloads_total"] - disturbance.reloads
        print(f"{disturbance.left} clients left, {disturbance.reloads} reloads; {refused:+.0f} reloads not counted")
        server.process.send_signal(signal.SIGTERM)
        if server.process.wait() != 0:
            faults.append(f"deltad ended with {server.process.returncode}")
    for fault in faults:
        print(fault)
    raise SystemExit(1 if faults else 0)


if __name__ == "__main__":
    main()
