"""How much an adapter that comes into the pool widens the gaps between other streams' tokens.

gap_while_pooling.py BUILD MODEL [--shares 0.05,0.1,1] [--streams 8] [--adds 3] [--questions 12] [--budget 1.5] [--longest 600] [--work FOLDER]

Starts deltad once for each engine.background_share with a pool for --budget times the bytes of an adapter, keeps --streams streams going,
half of the base and half of an adapter that is no part of the pool, and lets it add the adapters of examples/variants one after the other:
scored alone, then shrunk or merged, each candidate scored on --questions questions an adapter. Between two adds is a quiet time.
Checks that every answer is whole. Reports the p99 gap between tokens while an add runs, against that of the quiet times of the same run.
BUILD holds deltad.
"""
import argparse
import asyncio
import json
import os
import pathlib
import shutil
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from gaps import LOOK, call, columns, free_port, serving, streams  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUIET = 6.0  # seconds


def questions_of(adapter: pathlib.Path, a) -> pathlib.Path:
    out = a.work / f"{adapter.name}.jsonl"
    out.write_text("".join(line + "\n" for line in (adapter / "questions.jsonl").read_text().splitlines()[:a.questions]))
    return out


async def measure(a, adapters, share: str) -> None:
    port, admin = free_port(), free_port()
    shutil.rmtree(a.work / "pool", ignore_errors=True)
    size = (adapters[0] / "adapter_model.safetensors").stat().st_size
    config = a.work / "config.yaml"
    config.write_text(json.dumps({
        "base": os.path.abspath(a.model), "base_name": "base", "variants": {"other": str(adapters[-1])}, "log": "warning",
        "server": {"listen": f"127.0.0.1:{port}", "admin": {"listen": f"127.0.0.1:{admin}"}},
        "engine": {"background_share": float(share)},
        "adapter_pool": {"folder": str(a.work / "pool"), "budget": int(a.budget * size), "policy": a.policy, "keep_share": a.keep_share}}))
    url, pool = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin}/admin/v1/pool"
    adds, results = [], []
    async with serving(a.build, config, url):
        async with streams(url, ["base" if i % 2 == 0 else "other" for i in range(a.streams)]) as client:
            await asyncio.sleep(QUIET / 2)
            start = time.monotonic()
            await asyncio.sleep(QUIET)
            for adapter in adapters[:a.adds]:
                begin = time.monotonic()
                operation = await asyncio.to_thread(call, pool + "/adapters", "POST",
                                                    {"name": adapter.name, "path": str(adapter), "questions": str(questions_of(adapter, a))})
                while operation["state"] in ("queued", "running"):
                    await asyncio.sleep(LOOK)
                    operation = await asyncio.to_thread(call, f"{pool}/operations/{operation['id']}")
                    if time.monotonic() > begin + a.longest and operation["state"] == "running":
                        await asyncio.to_thread(call, f"{pool}/operations/{operation['id']}", "DELETE")
                adds.append((begin, time.monotonic()))
                scores = sum(len(t["scores"]) for t in operation["report"]["trials"])
                results.append(f"{adapter.name} {operation['state']}, {len(operation['report']['trials'])} candidates, {scores} scores")
                rest = time.monotonic() + QUIET
                while time.monotonic() < rest:  # looking costs as much here as above
                    await asyncio.to_thread(call, f"{pool}/operations/{operation['id']}")
                    await asyncio.sleep(LOOK)
    seconds = ", ".join(f"{stop - go:.0f}" for go, stop in adds)
    print(f"| {share} | {seconds} s {columns(*client.gaps_beside(start, adds))}  <!-- {'; '.join(results)} -->", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("model")
    parser.add_argument("--shares", default="0.05,0.1,1")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--adds", type=int, default=3)
    parser.add_argument("--questions", type=int, default=12)
    parser.add_argument("--budget", type=float, default=1.5)
    parser.add_argument("--longest", type=float, default=600, help="seconds after which an add is cancelled")
    parser.add_argument("--policy", default="shrink-first")
    parser.add_argument("--keep-share", type=float, default=0.9)
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path(".cache/gap_while_pooling"))
    a = parser.parse_args()
    a.work = a.work.absolute()
    a.work.mkdir(parents=True, exist_ok=True)
    adapters = sorted(p for p in (ROOT / "examples" / "variants").iterdir() if p.is_dir())
    print(f"{a.streams} streams, half of the base and half of {adapters[-1].name}; gaps between tokens in ms, p50 / p99\n")
    print("| background_share | an add | quiet | while one runs | p99 | windows of 5 s, median p99: quiet / then | growth | gaps counted |\n|---|---|---|---|---|---|---|---|")
    for share in a.shares.split(","):
        asyncio.run(measure(a, adapters, share))


if __name__ == "__main__":
    main()
