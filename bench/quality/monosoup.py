"""What MonoSoup keeps of a fine-tune and what it gives back of the base: the table of docs/merging.md.

  monosoup.py MODEL OUT_FOLDER TASK=TUNED_FOLDER …      [--build build/release]

MODEL is the base, TUNED_FOLDER a fine-tune of all its weights for TASK of tasks.py (bench/quality/run_finetune makes them). For the base,
the fine-tune and two merges of it (published form, 80 % of the energy and effective rank): exact match on 200 questions of the task that
training did not see; how near it stays to the base on what the base says to the prompts of general.txt (KL from the base over its greedy
answers of at most 96 tokens); and perplexity on English prose (README.md and CONTRIBUTING.md).
"""
import argparse
import json
import pathlib
import subprocess
import sys

from tasks import examples

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
QUESTIONS, ANSWER_TOKENS = 200, 96
MERGES = {"energy 0.8": "0.8", "effective rank": "effective"}


def lines(path: pathlib.Path, rows) -> pathlib.Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model"), parser.add_argument("out"), parser.add_argument("tuned", nargs="+")
    parser.add_argument("--build", default=str(ROOT / "build" / "release"))
    arguments = parser.parse_args()
    out = pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)

    def ctl(*more) -> dict:
        done = subprocess.run([f"{arguments.build}/deltactl", *map(str, more), "--json"], stdout=subprocess.PIPE, text=True, check=True)
        return json.loads(done.stdout)

    prompts = [{"prompt": p, "answer": ""} for p in (HERE / "general.txt").read_text().splitlines()]
    said = out / "base-says.jsonl"
    ctl("eval", "--base", arguments.model, "--questions", lines(out / "general.jsonl", prompts), "--max-tokens", ANSWER_TOKENS, "--answers", said)
    kept = lines(out / "general.jsonl", ({"prompt": r["prompt"], "answer": r["text"]} for r in map(json.loads, said.open())))
    text = out / "text.txt"
    text.write_text((ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text())

    print("| task | model | exact match of 200 | 95 % | KL from the base | 95 % | perplexity of prose | 95 % |\n" + "|---" * 8 + "|")
    for pair in arguments.tuned:
        task, tuned = pair.split("=", 1)
        held = lines(out / f"{task}.jsonl", ({"prompt": p, "answer": a} for p, a in examples(task, "eval", QUESTIONS)))
        models = {"base": arguments.model, "fine-tune": tuned}
        for name, keep in MERGES.items():
            models[f"MonoSoup, {name}"] = str(out / f"{task}-{keep}")
            report = ctl("merge", "monosoup", "--base", arguments.model, tuned, "--keep", keep, "-o", out / f"{task}-{keep}")
            changed = [t for t in report["tensors"] if t["changed"]]
            low = sum(t["lambda_low"] for t in changed) / len(changed)
            print(f"{task}, {name}: k {min(t['k'] for t in changed)} to {max(t['k'] for t in changed)}, mean λ_low {low:.2f}", file=sys.stderr)
        for name, model in models.items():
            found = ctl("eval", "--base", model, "--questions", held)
            near = ctl("eval", "--base", model, "--questions", kept, "--max-tokens", 1, "--text", text, "--reference", arguments.model)
            low, high = found["exact_match_interval"]
            kl, kl_range = near["answers"]["kl"], near["answers"]["kl_interval"]
            prose, prose_range = near["text"]["perplexity"], near["text"]["perplexity_interval"]
            print(f"| {task} | {name} | {100 * found['exact_match']:.1f} % | {100 * low:.0f}–{100 * high:.0f} | {kl:.4f} | "
                  f"{kl_range[0]:.4f}–{kl_range[1]:.4f} | {prose:.2f} | {prose_range[0]:.2f}–{prose_range[1]:.2f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
