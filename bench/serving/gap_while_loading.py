"""How much a large variant that loads from a cold disk widens the gaps between other streams' tokens.

gap_while_loading.py BUILD MODEL [--caps 0,fio,fio-direct,50MiB] [--streams 16] [--loads 10] [--evicted] [--work FOLDER]

Makes two variants of about 500 MB (the base with a vocabulary nine times as large, its weights from the base's), starts deltad once for
each cap on the loaders' rate (0: none), keeps --streams streams of the base going, and lets it load the one and the other in turns out of
a cold page cache, each load between two quiet times as long. There is memory for one of them, so that each load evicts the other, as where
memory is full. With --evicted that has happened seconds before: a virtual machine may have given the freed pages back to its host by then,
and getting others costs many times what clearing them does. Checks that every answer is whole. Reports the loads' rate (median, lowest and
highest) and the p99 gap between tokens while it loads, against that of the quiet times of the same run: over all gaps, and as the median
over windows of 5 s, with a 95 % interval of its growth, which a burst of somebody else's work does not spoil. BUILD holds deltad and deltactl.
With `fio` (through the page cache) or `fio-direct` in place of a cap, fio reads the files instead of deltad: what the disk gives beside
the same streams, and what that costs them.
"""
import argparse
import asyncio
import json
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from gaps import LOOK, call, columns, free_port, serving, streams  # noqa: E402

QUIET = 2.0  # seconds, at least


def make_variant(build: pathlib.Path, model: str, work: pathlib.Path, adapter: str) -> pathlib.Path:
    out = work / f"{adapter}.large.delta.safetensors"
    if out.exists():
        return out
    work.mkdir(parents=True, exist_ok=True)
    tuned, base = work / "model", work / "base.delta.safetensors"
    run = lambda *words: subprocess.run([str(build / "deltactl"), *map(str, words)], check=True, stdout=subprocess.DEVNULL)
    adapter = pathlib.Path(__file__).resolve().parents[2] / "examples/variants" / adapter
    run("compress", "--calibrate", "none", "--base", model, "--adapter", adapter, "-o", base)
    run("apply", "--base", model, "--delta", base, "-o", tuned, "--dtype", "bf16")
    rows = repeat_embeddings(tuned / "model.safetensors", 9)
    config = json.loads((tuned / "config.json").read_text())
    config["vocab_size"] = rows
    (tuned / "config.json").write_text(json.dumps(config))
    run("compress", "--calibrate", "none", "--base", model, "--model", tuned, "-o", out, "--weights-only")
    return out


def repeat_embeddings(path: pathlib.Path, times: int) -> int:
    """Rewrites a safetensors file (8 bytes of length, a JSON header, the data) with more rows of embeddings; returns how many."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8:8 + length]), memoryview(data)[8 + length:]
    at, parts = 0, []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        count = times if name == "model.embed_tokens.weight" else 1
        parts += [body[begin:end]] * count
        entry["data_offsets"] = [at, at + (end - begin) * count]
        entry["shape"][0] *= count
        at += (end - begin) * count
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.writelines(parts)
    return header["model.embed_tokens.weight"]["shape"][0]


def read_with_fio(path: pathlib.Path, direct: bool) -> float:
    """Reads the file once; the seconds that it takes."""
    out = subprocess.run(["fio", "--name=read", f"--filename={path}", "--readonly", "--rw=read", "--bs=4m", "--ioengine=psync",
                          f"--direct={int(direct)}", "--output-format=json"], check=True, capture_output=True, text=True).stdout
    read = json.loads(out[out.index("{"):])["jobs"][0]["read"]
    if read["io_bytes"] < path.stat().st_size - (4 << 20):  # the last piece is left out
        raise SystemExit(f"fio read {read['io_bytes']} bytes")
    return path.stat().st_size / read["bw_bytes"]


def drop_from_page_cache(path: pathlib.Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fdatasync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


async def measure(a, files: list[pathlib.Path], cap: str) -> None:
    port, admin = free_port(), free_port()
    config = a.work / "config.yaml"
    config.write_text(f"base: {os.path.abspath(a.model)}\nbase_name: base\nlog: warning\n"
                      f"variants: {{{', '.join(f'{i}: {file}' for i, file in enumerate(files))}}}\n"
                      f"server: {{listen: 127.0.0.1:{port}, admin: {{listen: 127.0.0.1:{admin}}}}}\n"
                      f"variant_cache: {{memory: {files[0].stat().st_size * 3 // 2}}}\n"
                      f"variant_loading: {{bytes_per_second: {0 if cap.startswith('fio') else cap}}}\n")
    url, loads = f"http://127.0.0.1:{port}", []
    variants = f"http://127.0.0.1:{admin}/admin/v1/variants/"
    step = lambda path, method="POST": asyncio.to_thread(call, variants + path, method)

    async def look(name: str) -> dict:
        await asyncio.sleep(LOOK)
        return await step(name, "GET")

    async def load(name: str) -> float:
        await step(name + "/prefetch")
        while (state := await look(name))["state"] != "resident":
            if state["state"] == "failed":
                raise SystemExit(f"the load failed: {state}")
        return state["load_seconds"]

    async with serving(a.build, config, url):
        async with streams(url, ["base"] * a.streams) as client:
            if cap.startswith("fio"):  # not counted: the first finds memory that nobody has used for long
                await asyncio.to_thread(read_with_fio, files[1], cap == "fio-direct")
            else:
                await load("1")
            await asyncio.sleep(QUIET)
            start = time.monotonic()
            for i in range(a.loads):
                file, name = files[i % 2], str(i % 2)
                for other in files:
                    drop_from_page_cache(other)
                if a.evicted:
                    await step(str((i + 1) % 2) + "/evict")
                    await asyncio.sleep(2 * QUIET)
                begin = time.monotonic()
                if cap.startswith("fio"):
                    took = await asyncio.to_thread(read_with_fio, file, cap == "fio-direct")
                    loads.append((time.monotonic() - took, time.monotonic()))
                else:
                    loads.append((begin, begin + await load(name)))
                rest = time.monotonic() + max(QUIET, time.monotonic() - begin)
                while time.monotonic() < rest:  # looking costs as much here as above
                    await look(name)
    rates = sorted(files[0].stat().st_size / (stop - go) / 1e6 for go, stop in loads)
    name = "none" if cap == "0" else cap if cap.startswith("fio") else cap + "/s"
    print(f"| {name} | {rates[len(rates) // 2]:.0f} ({rates[0]:.0f} to {rates[-1]:.0f}) {columns(*client.gaps_beside(start, loads))}",
          flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("model")
    parser.add_argument("--caps", default="0,fio,fio-direct,50MiB")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--loads", type=int, default=10)
    parser.add_argument("--evicted", action="store_true")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path(".cache/gap_while_loading"))
    a = parser.parse_args()
    a.work = a.work.absolute()
    files = [make_variant(a.build, a.model, a.work, adapter) for adapter in ("commit", "dates")]
    print(f"variants of {files[0].stat().st_size / 1e6:.0f} MB; {a.streams} streams of the base; gaps between tokens in ms, p50 / p99\n")
    print("| cap | MB/s, median (all) | quiet | while it loads | p99 | windows of 5 s, median p99: quiet / then | growth | gaps counted |\n|---|---|---|---|---|---|---|---|")
    for cap in a.caps.split(","):
        asyncio.run(measure(a, files, cap))


if __name__ == "__main__":
    main()
