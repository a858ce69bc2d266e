"""The table of what bench/quality/calibrated left in a folder: exact match of each form; how far it is from the fine-tune's, question by question, in points; KL.

bench/quality/calibrated_table.py OUT_FOLDER
"""
import json
import math
import sys
from pathlib import Path

FORMS = ["plain", "one", "two", "budget", "levels", "rank11", "rank23"]


def right(path):
    """1 for each question that was answered with exactly the expected text, else 0; None if it has not been asked."""
    if not path.exists():
        return None
    return [int(a["text"] == a["expected"]) for a in map(json.loads, path.read_text().splitlines())]


def mean_interval(values):
    n, mean = len(values), sum(values) / len(values)
    return mean, 1.96 * math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1) / n)


def wilson(hits, n, z=1.96):
    p = hits / n
    middle, half = (p + z * z / (2 * n)) / (1 + z * z / n), z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def cell(folder, form, tuned, differences):
    answers = right(folder / f"{form}.jsonl")
    if answers is None:
        return ""
    low, high = wilson(sum(answers), len(answers))
    text = f"{sum(answers) / len(answers):.3f} ({low:.3f} – {high:.3f})"
    if form == "tuned":
        return text
    if tuned is not None:
        difference = [a - b for a, b in zip(answers, tuned, strict=True)]
        differences.append(difference)
        mean, half = mean_interval(difference)
        text += f", {100 * mean:+.1f} ± {100 * half:.1f}"
    score = folder / f"{form}.kl.json"
    return text + (f"; {json.loads(score.read_text())['answers']['kl']:.4f}" if score.exists() else "")


def main():
    folders = sorted(p for p in Path(sys.argv[1]).iterdir() if p.is_dir())
    differences = {form: [] for form in ["tuned", *FORMS]}
    print("| | " + " | ".join(differences) + " |\n|" + "---|" * (len(differences) + 1))
    for folder in folders:
        tuned = right(folder / "tuned.jsonl")
        print(f"| `{folder.name}` | " + " | ".join(cell(folder, form, tuned, differences[form]) for form in differences) + " |")
    # Questions are drawn within each task; the tasks are those there are.
    cells = []
    for form in FORMS:
        parts = [mean_interval(d) for d in differences[form]]
        if parts:
            mean = sum(m for m, _ in parts) / len(parts)
            half = math.sqrt(sum(h * h for _, h in parts)) / len(parts)
            cells.append(f"{100 * mean:+.2f} ± {100 * half:.2f} (of {len(parts)})")
        else:
            cells.append("")
    print("| mean difference | | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
