"""deltactl bench beside llama.cpp on the same model, threads and machine, in turns; prints medians and paired ratios.

compare.py MODEL.gguf VARIANT… [--pairs 5] [--threads 2] [--build build/release] [--json]

Each pair runs both programs once, the order changing from pair to pair; a ratio is the median over the pairs' ratios, so a
drift of the machine's speed cancels. Prompt 512, generation 128 after it. The base in bf16 in both.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LLAMA = pathlib.Path(os.environ.get("LLAMA_CPP_DIR", pathlib.Path.home() / ".cache" / "llama.cpp-baseline")) / "build" / "bin"
PROMPT, GENERATE, MIXED = 512, 128, 14


def output(*command) -> str:
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout


def llama_cpp(model: str, threads: int) -> dict:
    """prefill and generation (at depth 512) of one sequence, generation of 14 at once; tokens a second."""
    single = json.loads(output(LLAMA / "llama-bench", "-m", model, "-t", threads, "-r", 1, "-o", "json", "-p", PROMPT, "-n", 0))
    depth = json.loads(output(LLAMA / "llama-bench", "-m", model, "-t", threads, "-r", 1, "-o", "json", "-p", 0, "-n", GENERATE,
                              "-d", PROMPT))
    lines = output(LLAMA / "llama-batched-bench", "-m", model, "-t", threads, "-tb", threads, "-c", MIXED * (PROMPT + GENERATE),
                   "-b", 2048, "-ub", 512, "-npp", PROMPT, "-ntg", GENERATE, "-npl", MIXED, "--output-format", "jsonl")
    batch = [json.loads(line) for line in lines.splitlines() if line.startswith("{")][-1]
    return {"prefill": single[0]["avg_ts"], "generate": depth[0]["avg_ts"], "generate_14": batch["speed_tg"]}


def deltad(build: pathlib.Path, model: str, variants: list[str], threads: int) -> dict:
    command = [build / "deltactl", "bench", "--base", model, "--prompt", PROMPT, "--generate", GENERATE, "--batch", f"1,{MIXED}",
               "--threads", threads, "--repeat", 1, "--json"]
    for variant in variants:
        command += ["--delta", variant]
    result = json.loads(output(*command))
    base = next(r for r in result["runs"] if r["variants"] == ["base"] and r["batch"] == 1)
    base_14 = next(r for r in result["runs"] if r["variants"] == ["base"] and r["batch"] == MIXED)
    single = [r for r in result["runs"] if r["batch"] == 1 and r["variants"] != ["base"]]
    mixed = next(r for r in result["runs"] if len(r["variants"]) == MIXED)
    return {"prefill": base["prefill_tokens_per_s"], "generate": base["generate_tokens_per_s"],
            "variant_prefill": statistics.median(r["prefill_tokens_per_s"] for r in single),
            "variant_generate": statistics.median(r["generate_tokens_per_s"] for r in single),
            "generate_14": mixed["generate_tokens_per_s"], "base_generate_14": base_14["generate_tokens_per_s"],
            "bandwidth_share": base["weight_bytes_per_s"] / result["memory_bytes_per_s"],
            "memory_gb_per_s": result["memory_bytes_per_s"] / 1e9, "resident_bytes": result["resident_bytes"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("variants", nargs="+")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    if len(a.variants) < MIXED:
        parser.error(f"{MIXED} variants are needed")
    bf16 = output(ROOT / "bench" / "baseline" / "build_llama_cpp", a.model).strip()

    ours, theirs = [], []
    for pair in range(a.pairs):
        runs = [lambda: ours.append(deltad(a.build, a.model, a.variants, a.threads)),
                lambda: theirs.append(llama_cpp(bf16, a.threads))]
        for run in runs if pair % 2 == 0 else reversed(runs):
            run()
        print(f"pair {pair + 1} of {a.pairs}", file=sys.stderr)

    mid = lambda rows, key: statistics.median(row[key] for row in rows)
    ratio = lambda f: statistics.median(f(o, t) for o, t in zip(ours, theirs, strict=True))
    figures = {
        "deltad": {key: mid(ours, key) for key in ours[0]},
        "llama.cpp": {key: mid(theirs, key) for key in theirs[0]},
        "ratios": {
            "base generation / llama.cpp": ratio(lambda o, t: o["generate"] / t["generate"]),
            "base prefill / llama.cpp": ratio(lambda o, t: o["prefill"] / t["prefill"]),
            "variant generation / base": ratio(lambda o, t: o["variant_generate"] / o["generate"]),
            "variant prefill / base": ratio(lambda o, t: o["variant_prefill"] / o["prefill"]),
            "14 variants / one base stream": ratio(lambda o, t: o["generate_14"] / o["generate"]),
            "llama.cpp: 14 base rows / one": ratio(lambda o, t: t["generate_14"] / t["generate"]),
            "14 variants / llama.cpp's 14 base rows": ratio(lambda o, t: o["generate_14"] / t["generate_14"]),
        }}
    if a.json:
        print(json.dumps(figures, indent=1))
        return
    print(f"tokens/s, medians of {a.pairs} pairs, {a.threads} threads, prompt {PROMPT}, generation {GENERATE}")
    for name in ("deltad", "llama.cpp"):
        print(f"\n{name}")
        for key, value in figures[name].items():
            print(f"  {key:<20} {value:>14.2f}")
    print("\nratios (medians of paired ratios)")
    for key, value in figures["ratios"].items():
        print(f"  {key:<40} {value:.3f}")


if __name__ == "__main__":
    main()
