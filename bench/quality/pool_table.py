"""How much of their quality the fourteen adapters of examples/variants keep in a pool of K adapters' bytes.

  pool_table.py run OUT [--build build/release] [--base MODEL.gguf]    3 orders x K = 3, 5, 7 x each way; one .jsonl a run
  pool_table.py table OUT                                              the table of docs/merging.md
  pool_table.py plot OUT FILE.svg                                      the same as a picture

A run is skipped if its file is there. Share: score in the pool / score alone on the 60 held-out questions of its task; an adapter that the pool refused is answered by the base. The gate asks 24 other questions of the same task.
Scores are shared by all runs in OUT/scores.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys

import tasks

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ADAPTERS = ROOT / "examples" / "variants"
NAMES = sorted(p.name for p in ADAPTERS.iterdir())
GATE_QUESTIONS = 24
SIZES = (7, 5, 3)
ORDERS = {str(seed): random.Random(seed).sample(NAMES, len(NAMES)) for seed in (1, 2, 3)}
WAYS = {  # name: arguments
    "shrink-first": ["--policy", "shrink-first"],
    "average": ["--policy", "kmerge", "--merge-by", "average", "--keep-share", "0"],
    "opcm": ["--policy", "kmerge", "--merge-by", "opcm", "--keep-share", "0"],
    "merge-best": ["--policy", "kmerge", "--merge-by", "best", "--keep-share", "0.9"],
}
LABELS = {
    "shrink-first": "shrink first (default)",
    "merge-best": "merge at once, behind the gate",
    "average": "merge at once: running average",
    "opcm": "merge at once: OPCM",
    "first": "keep the first K",
    "1-bit": "1-bit form of all (size)",
}


def adapter_bytes() -> int:
    return max((ADAPTERS / n / "adapter_model.safetensors").stat().st_size for n in NAMES)


def gate_folder(out: pathlib.Path) -> pathlib.Path:
    """Questions of the evaluation split that are not among the 60 held out."""
    folder = out / "gate"
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        held = {json.loads(line)["prompt"] for line in (ADAPTERS / name / "questions.jsonl").open()}
        fresh = [(p, a) for p, a in tasks.examples(name, "eval", 60 + 4 * GATE_QUESTIONS) if p not in held][-GATE_QUESTIONS:]
        assert len(fresh) == GATE_QUESTIONS, f"{name}: only {len(fresh)} fresh questions"
        (folder / f"{name}.jsonl").write_text("".join(json.dumps({"prompt": p, "answer": a}) + "\n" for p, a in fresh))
    return folder


def run(out: pathlib.Path, build: str, base: str) -> None:
    gate = gate_folder(out)
    common = [f"{build}/bench_pool", "--base", base, "--cache", str(out / "scores")]

    def bench(file: pathlib.Path, arguments: list[str]) -> None:
        if file.exists():
            return
        part = file.with_suffix(".part")
        with part.open("w") as to:
            subprocess.run(common + arguments, stdout=to, check=True)
        part.rename(file)
        print(file.name, flush=True)

    forms = {"adapter": str(ADAPTERS / "{}"), "1-bit": str(ROOT / ".cache/variants/row-1/{}.delta.safetensors"), "base": ""}

    def ask(form: str) -> None:
        bench(out / f"{form}.jsonl",
              [x for n in NAMES for x in ("--score", f"{forms[form].format(n)}={ADAPTERS / n / 'questions.jsonl'}")])

    # What tells most comes first: a table can be made before all is there.
    ask("adapter")
    for order, names in ORDERS.items():
        for way, arguments in WAYS.items():
            for k in SIZES:
                bench(out / f"{way}.{k}.{order}.jsonl",
                      ["--adapters", str(ADAPTERS), "--gate", str(gate), "--order", ",".join(names), "--budget", str(k * adapter_bytes()),
                       "--work", str(out / "pool"), *arguments])
        ask("1-bit")
        ask("base")


def scores_of(out: pathlib.Path, form: str) -> dict[str, float]:
    file = out / f"{form}.jsonl"
    rows = [json.loads(line) for line in file.open()] if file.exists() else []
    return {pathlib.Path(row["questions"]).parent.name: row["score"] for row in rows}


def share(score: float, single: float) -> float:
    return score / single if single else 1.0


def mean(values) -> float:
    values = list(values)
    return sum(values) / len(values)


def shares(out: pathlib.Path, way: str, k: int) -> list[float]:
    """Mean share of each order that is there."""
    single = scores_of(out, "adapter")
    if way == "1-bit":
        bits = scores_of(out, "1-bit")
        return [mean(share(bits[n], single[n]) for n in NAMES)] if bits else []
    found, base = [], scores_of(out, "base")
    for order, names in ORDERS.items():
        if way == "first":
            if not base:
                continue
            found.append(mean(share(single[n] if i < k else base[n], single[n]) for i, n in enumerate(names)))
            continue
        file = out / f"{way}.{k}.{order}.jsonl"
        if file.exists():
            last = json.loads(file.read_text().splitlines()[-1])["adapters"]
            found.append(mean(share(a["score"], a["single"]) for a in last.values()))
    return found


def table(out: pathlib.Path) -> None:
    sizes = sorted(SIZES)
    print("| way | " + " | ".join(f"K = {k}" for k in sizes) + " |\n|---" + "|---" * len(sizes) + "|")
    for way, label in LABELS.items():
        cells = []
        for k in sizes:
            s = shares(out, way, k)
            cells.append(f"{mean(s):.3f} ({min(s):.3f} to {max(s):.3f})" if len(s) > 1 else f"{s[0]:.3f}" if s else "")
        print(f"| {label} | " + " | ".join(cells) + " |")
    print(f"\nBytes of one adapter: {adapter_bytes()}; of the 1-bit forms: "
          f"{sum((ROOT / '.cache/variants/row-1' / f'{n}.delta.safetensors').stat().st_size for n in NAMES)} for all fourteen.")


def plot(out: pathlib.Path, to: str) -> None:
    width, height, left, top = 640, 360, 50, 20
    colours = ["#1b6ca8", "#d1495b", "#edae49", "#66a182", "#8d6a9f", "#444444"]
    x = lambda k: left + (k - 2.5) / 5 * (width - left - 210)
    y = lambda s: top + (1 - s) * (height - top - 40)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
             f'<rect width="{width}" height="{height}" fill="white"/>']
    for tenth in range(0, 11, 2):
        s = tenth / 10
        parts.append(f'<line x1="{left}" x2="{width - 210}" y1="{y(s):.1f}" y2="{y(s):.1f}" stroke="#ddd"/>'
                     f'<text x="{left - 8}" y="{y(s) + 4:.1f}" text-anchor="end">{s:.1f}</text>')
    for k in SIZES:
        parts.append(f'<text x="{x(k):.1f}" y="{height - 22}" text-anchor="middle">K = {k}</text>')
    parts.append(f'<text x="{left}" y="{height - 6}">budget, in full adapters; mean share of the single score kept by 14 tasks</text>')
    for i, ((way, label), colour) in enumerate(zip(LABELS.items(), colours)):
        points = [(k, mean(s)) for k in sorted(SIZES) if (s := shares(out, way, k))]
        if not points:
            continue
        line = " ".join(f"{x(k):.1f},{y(min(s, 1.0)):.1f}" for k, s in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x(k):.1f}" cy="{y(min(s, 1.0)):.1f}" r="3" fill="{colour}"/>' for k, s in points]
        parts.append(f'<text x="{width - 200}" y="{top + 14 + 18 * i}" fill="{colour}">{label}</text>')
    pathlib.Path(to).write_text("\n".join(parts + ["</svg>"]) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    p = commands.add_parser("run")
    p.add_argument("out"), p.add_argument("--build", default="build/release")
    p.add_argument("--base", default=str(ROOT / ".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf"))
    commands.add_parser("table").add_argument("out")
    p = commands.add_parser("plot")
    p.add_argument("out"), p.add_argument("file")
    a = parser.parse_args()
    out = pathlib.Path(a.out)
    if a.command == "run":
        out.mkdir(parents=True, exist_ok=True)
        run(out, a.build, a.base)
    elif a.command == "table":
        table(out)
    else:
        plot(out, a.file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
