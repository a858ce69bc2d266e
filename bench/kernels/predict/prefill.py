"""How busy the prefill kernels keep the tensor cores of a Hopper device, from their loops' cycles.

A turn of the loop is 64 columns of a block: two warps on each quarter of a multiprocessor, which take twice the busiest pipe's
cycles of one warp. Then come what a block does once (its instructions outside of the loop, and a memory latency), the
multiprocessors that have no block in the last turn of blocks, and the rows of tiles that no group fills.
"""
import pathlib
import re

import sass

MULTIPROCESSORS, LATENCY = 132, 1755  # cycles: a µs
OUTPUTS = 128  # of a block
ROWS = (512, 2048)
VARIANTS = (0, 1, 4, 14)
# Outputs and columns of an 8B model's fused weights.
SHAPES = (("q, k, v", 6144, 4096), ("o", 4096, 4096), ("gate, up", 28672, 4096), ("down", 4096, 14336))
HEADER = pathlib.Path(__file__).parents[3] / "kernels/cuda/linear_prefill.h"


class Kernel:
    """One of the header's tables, with what its loop says."""

    def __init__(self, fields, code, arch):
        self.name, rows, levels, threads, cycles = fields
        self.rows, self.levels, self.threads = int(rows), int(levels), int(threads)
        # Of W + α·S: a loop that multiplies W and α·S apart has twice its products, one of few rows less.
        wanted = self.rows * 64 * OUTPUTS / (self.threads // 32) / sass.TENSOR_RATES[arch]["HGMMA" if arch == "sm_90a" else "HMMA"]
        loop = next(l for l in code.loops() if sass.busy(code, l, arch)["tensor"] == wanted)
        self.busy = sass.busy(code, loop, arch)
        self.pipe = max(self.busy, key=self.busy.get)
        if self.busy["tensor"] >= self.busy[self.pipe]:
            self.pipe = "tensor"
        warps = self.threads // 128  # a quarter's
        self.cycles = warps * self.busy[self.pipe]
        self.tensor = warps * self.busy["tensor"]
        self.once = warps * (len(code.code) - (loop.end - loop.begin + 1)) + LATENCY
        self.l2 = (OUTPUTS + self.rows) * 64 * 2 / self.cycles
        if abs(int(cycles) / self.cycles - 1) > 0.03:  # the header's choose between kernels; the table's are exact
            raise SystemExit(f"{HEADER.name} says {cycles} cycles for {self.name} ({arch}), its code {self.cycles:g}")


def kernels_of(disassembled, arch):
    named = {k.name: k for k in disassembled}
    fields = re.findall(r'\{"(\w+)", (\d+), (\d+), (\d+), (\d+)\}', HEADER.read_text())
    return [Kernel(f, named[f[0]], arch) for f in fields if f[0] in named]


def groups(rows, variants):
    count = max(variants, 1)
    return [rows // count + (i < rows % count) for i in range(count)]


def predict(k, sizes, outputs, columns):
    """Tiles, blocks, and the shares: of the tensor cores' time in a block, of multiprocessors, of tiles' rows."""
    tiles = sum(-(-size // k.rows) for size in sizes)
    blocks = tiles * -(-outputs // OUTPUTS)
    turns = -(-columns // 64)
    of_block = turns * k.tensor / (turns * k.cycles + k.once)
    of_processors = blocks / (-(-blocks // MULTIPROCESSORS) * MULTIPROCESSORS)
    return blocks, of_block, of_processors, sum(sizes) / (tiles * k.rows)


def time(k, sizes, outputs):
    """As linear_prefill_kernel in the header chooses."""
    blocks = sum(-(-size // k.rows) for size in sizes) * -(-outputs // OUTPUTS)
    return -(-blocks // MULTIPROCESSORS) * k.cycles


def table(hopper, ampere):
    """hopper: of linear_prefill_sm_90a; ampere: of linear_prefill for sm_80."""
    wgmma, mma = kernels_of(hopper, "sm_90a"), kernels_of(ampere, "sm_80")
    head = ("kernel", "for", "rows of a tile", "levels", "tensor", "busiest", "cycles a turn", "tensor pipe busy",
            "L2: bytes a cycle")
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for arch, some in (("sm_90a", wgmma), ("sm_80", mma)):
        for k in some:
            cells = (f"`{k.name}`", arch, k.rows, k.levels, f"{k.tensor:g}", k.pipe, f"{k.cycles:g}",
                     f"{k.tensor / k.cycles:.0%}", f"{k.l2:.0f}")
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    head = ("rows", "variants", "weight", "outputs × columns", "kernel", "blocks", "tensor pipe busy in a block",
            "multiprocessors with a block", "rows in tiles", "of the tensor cores' peak")
    lines += ["", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for rows in ROWS:
        for variants in VARIANTS:
            sizes = groups(rows, variants)
            for name, outputs, columns in SHAPES:
                fitting = [k for k in wgmma if k.levels >= min(variants, 1)]
                k = min(fitting, key=lambda k: time(k, sizes, outputs))  # the first of equals, as in the header
                blocks, busy, processors, filled = predict(k, sizes, outputs, columns)
                cells = (rows, variants, name, f"{outputs} × {columns}", f"`{k.name}`", blocks, f"{busy:.0%}",
                         f"{processors:.0%}", f"{filled:.0%}", f"{busy * processors * filled:.0%}")
                lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)
