"""The table of what bench/quality/calibrated left in a folder: exact match and KL of each form, and how far it is from the fine-tune, question by question.

bench/quality/calibrated_table.py OUT_FOLDER
"""
import json
import math
import sys
from pathlib import Path

FORMS = ["plain", "one", "two", "budget"]


def right(path):
    """1 for each question that was answered with exactly the expected text, else 0."""
    return [int(a["text"] == a["expected"]) for a in map(json.loads, path.read_text().splitlines())]


def mean_interval(values):
    n, mean = len(values), sum(values) / len(values)
    return mean, 1.96 * math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1) / n)


def wilson(hits, n, z=1.96):
    p = hits / n
    middle, half = (p + z * z / (2 * n)) / (1 + z * z / n), z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def main():
    folders = sorted(p for p in Path(sys.argv[1]).iterdir() if (p / "tuned.jsonl").exists())
    forms = [f for f in FORMS if all((p / (f + ".jsonl")).exists() for p in folders)]
    print("| | tuned | " + " | ".join(forms) + " |\n|" + "---|" * (len(forms) + 2))
    means, differences = {f: [] for f in ["tuned", *forms]}, {f: [] for f in forms}
    for folder in folders:
        tuned = right(folder / "tuned.jsonl")
        scores = json.loads((folder / "kl.json").read_text())["results"]
        low, high = wilson(sum(tuned), len(tuned))
        means["tuned"].append(sum(tuned) / len(tuned))
        cells = [f"{means['tuned'][-1]:.3f} ({low:.3f} – {high:.3f})"]
        for form in forms:
            answers = right(folder / (form + ".jsonl"))
            difference = [a - b for a, b in zip(answers, tuned, strict=True)]
            differences[form].append(difference)
            mean, half = mean_interval(difference)
            kl = next(r["answers"]["kl"] for r in scores if r["model"] == form)
            means[form].append(sum(answers) / len(answers))
            cells.append(f"{means[form][-1]:.3f}, {100 * mean:+.1f} ± {100 * half:.1f}; {kl:.4f}")
        print(f"| `{folder.name}` | " + " | ".join(cells) + " |")
    # Questions are drawn anew within each task; the tasks are those there are.
    cells = [f"{sum(means['tuned']) / len(folders):.3f}"]
    for form in forms:
        parts = [mean_interval(d) for d in differences[form]]
        mean = sum(m for m, _ in parts) / len(parts)
        half = math.sqrt(sum(h * h for _, h in parts)) / len(parts)
        cells.append(f"{sum(means[form]) / len(folders):.3f}, {100 * mean:+.2f} ± {100 * half:.2f}")
    print(f"| mean of the {len(folders)} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
