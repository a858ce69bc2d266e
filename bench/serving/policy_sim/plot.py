"""Draws what policy_sim measures: policy_sim --per-trace | plot.py docs/policies.svg [BUDGET in %, default 30]. Needs matplotlib.

One panel a pattern and number of variants: hit ratio of each policy over the Zipf exponent.
"""
import re
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "policies"
import matplotlib.pyplot as plt  # noqa: E402

ROW = re.compile(r"\| (\d+) (\w+), exponent ([\d.]+), budget (\d+) % \|(.*?)\| [+-][\d.]+ \| \|$")
STYLES = [("ours", "#c1121f", "-", 2.2), ("LRU", "#8d99ae", "--", 1.2), ("LFU-DA", "#3a86ff", "-.", 1.2), ("LRFU", "#2a9d8f", ":", 1.6),
          ("GDSF", "#f4a261", "--", 1.2)]


def main() -> None:
    out, budget = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "30"
    panels: dict[tuple[str, str], list[tuple[float, list[float]]]] = {}
    for line in sys.stdin:
        if (m := ROW.match(line)) and m[4] == budget:
            panels.setdefault((m[2], m[1]), []).append((float(m[3]), [float(x) for x in m[5].split("|") if x.strip()]))
    patterns, counts = list(dict.fromkeys(p for p, _ in panels)), list(dict.fromkeys(c for _, c in panels))
    figure, axes = plt.subplots(len(patterns), len(counts), figsize=(9, 7), sharex=True, sharey=True)
    for row, pattern in zip(axes, patterns):
        for axis, count in zip(row, counts):
            points = sorted(panels[pattern, count])
            for i, (name, colour, line, width) in enumerate(STYLES):
                axis.plot([x for x, _ in points], [y[i] for _, y in points], line, color=colour, linewidth=width, label=name)
            axis.set_title(f"{count} variants, {pattern}", fontsize=9)
            axis.grid(alpha=0.3)
    for axis in axes[-1]:
        axis.set_xlabel("Zipf exponent")
    for row in axes:
        row[0].set_ylabel("hits, %")
    axes[0][0].legend(fontsize=8)
    figure.suptitle(f"Requests whose variant was in memory, with room for {budget} % of the variants", fontsize=11)
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None})


if __name__ == "__main__":
    main()
