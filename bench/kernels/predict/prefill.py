"""How busy the prefill kernels keep the tensor cores of a Hopper device, from their loops' cycles.

A turn of the loop is 64 columns of a block: some warps on each quarter of a multiprocessor, which take as many times the busiest
pipe's cycles of one warp. Then come what a block does once (its instructions outside of the loop, the epilogue's as often as it has
outputs, and a memory latency), the multiprocessors that have no block in the last turn of blocks, and the rows of tiles that no
group fills. Where W and α·S are multiplied apart, half of the products are useful.
"""
import pathlib
import re

import sass

MULTIPROCESSORS, LATENCY = 132, 1755  # cycles: a µs
A100_L2 = 5120  # bytes a cycle, all multiprocessors together: what NVIDIA says of the A100 (whitepaper); nothing of later ones
ROWS = (512, 2048)
VARIANTS = (0, 1, 4, 14)
# Outputs and columns of an 8B model's fused weights, and of a 70B model's.
SHAPES = (("q, k, v", 6144, 4096), ("o", 4096, 4096), ("gate, up", 28672, 4096), ("down", 4096, 14336))
LARGE_SHAPES = (("q, k, v", 10240, 8192), ("o", 8192, 8192), ("gate, up", 57344, 8192), ("down", 8192, 28672))
RANKS, SHARD_ROWS = (1, 2, 4, 8), (512, 1024, 2048)
MOST_SUMS = 128 * 256  # of a block: half of the registers
HEADER = pathlib.Path(__file__).parents[3] / "kernels/cuda/linear_prefill.h"


class Kernel:
    """One of the header's tables, with what its loops say."""

    def __init__(self, fields, code, arch):
        self.name, outputs, rows, levels, threads, cycles = fields
        self.outputs, self.rows, self.levels, self.threads = int(outputs), int(rows), int(levels), int(threads)
        warps = self.threads // 128  # a quarter's
        loops = product_loops(code)
        # Of W + α·S; a loop that multiplies W and α·S apart has twice its products, one of few rows less.
        wanted = self.rows * 64 * self.outputs / (self.threads // 32) / sass.TENSOR_RATES[arch]["HGMMA" if arch == "sm_90a" else "HMMA"]
        loop = next(l for l in loops if sass.busy(code, l, arch)["tensor"] == wanted)
        self.busy = sass.busy(code, loop, arch)
        self.pipe = max(self.busy, key=self.busy.get)
        if self.busy["tensor"] >= self.busy[self.pipe]:
            self.pipe = "tensor"
        self.cycles = warps * self.busy[self.pipe]
        self.tensor = warps * self.busy["tensor"]
        apart = [l for l in loops if sass.busy(code, l, arch)["tensor"] == 2 * wanted] if self.levels else []
        self.apart_cycles = warps * max(sass.busy(code, apart[0], arch).values()) if apart else None
        self.once = warps * self.outside(code, loops) + LATENCY
        self.bytes = (self.outputs + self.rows) * 64 * 2  # a turn's
        if abs(int(cycles) / self.cycles - 1) > 0.03:  # the header's choose between kernels; the table's are exact
            raise SystemExit(f"{HEADER.name} says {cycles} cycles for {self.name} ({arch}), its code {self.cycles:g}")

    def outside(self, code, loops):
        """Instructions of a warp outside of the loop. Of the epilogues' loops the one that adds to the residual, the longest of those
        that store floats."""
        opcodes = lambda l: [i.opcode for i in code.code[l.begin:l.end + 1]]
        size = lambda l: l.end - l.begin + 1
        stores = lambda l: sum(o.startswith("STG") and ".128" in o for o in opcodes(l))
        tensor_loops = {i for l in loops for i in range(l.begin, l.end + 1)}
        epilogues = [l for l in code.loops() if any(o.startswith("STG") for o in opcodes(l)) and "EXIT" not in opcodes(l) and
                     l.begin not in tensor_loops]
        epilogue = max(filter(stores, epilogues), key=size)
        turns = self.rows * self.outputs / 4 / self.threads / stores(epilogue)
        return len(code.code) - sum(map(size, loops + epilogues)) + turns * size(epilogue)

    def turn(self, apart):
        return self.apart_cycles if apart else self.cycles


def product_loops(code):
    """Loops with tensor instructions, the smallest first. One with an exit in it is none: a wait was put behind the kernel's end."""
    def is_one(l):
        opcodes = {i.opcode.split(".")[0] for i in code.code[l.begin:l.end + 1]}
        return opcodes & sass.TENSOR and "EXIT" not in opcodes
    found = []
    for l in filter(is_one, code.loops()):
        if not any(l.begin <= f.end and f.begin <= l.end for f in found):
            found.append(l)
    return found


def kernels_of(disassembled, arch):
    named = {k.name: k for k in disassembled}
    fields = re.findall(r'\{"(\w+)", (\d+), (\d+), (\d+), (\d+), (\d+)\}', HEADER.read_text())
    return [Kernel(f, named[f[0]], arch) for f in fields if f[0] in named]


def groups(rows, variants):
    count = max(variants, 1)
    return [rows // count + (i < rows % count) for i in range(count)]


def blocks_of(k, sizes, outputs):
    return sum(-(-size // k.rows) for size in sizes) * -(-outputs // k.outputs)


class Prediction:
    """Blocks, and the shares: of the tensor cores' time in a block, of multiprocessors, of tiles' rows and outputs."""

    def __init__(self, k, sizes, outputs, columns, apart=False):
        turns = -(-columns // 64)
        block_cycles = turns * k.turn(apart) + k.once
        self.blocks = blocks_of(k, sizes, outputs)
        self.of_block = turns * k.tensor / block_cycles
        waves = -(-self.blocks // MULTIPROCESSORS)
        self.of_processors = self.blocks / (waves * MULTIPROCESSORS)
        self.of_tiles = sum(sizes) * outputs / (self.blocks * k.rows * k.outputs)
        self.peak = self.of_block * self.of_processors * self.of_tiles
        self.l2 = self.blocks * turns * k.bytes / (waves * block_cycles)
        self.peak_on_a100_l2 = self.peak * min(1, A100_L2 / self.l2)


def choose(kernels, sizes, outputs, levels):
    """As linear_prefill_kernel in the header; the first of equals."""
    return min((k for k in kernels if k.levels >= levels),
               key=lambda k: -(-blocks_of(k, sizes, outputs) // MULTIPROCESSORS) * k.cycles)


def most_filled(outputs, rows):
    """The share of multiprocessors that tiles of any size could have at work, were they of whole columns, of 128 rows and more, and
    of no more sums than a block can hold."""
    def share(o, r):
        blocks = -(-outputs // o) * -(-rows // r)
        return outputs * rows / (-(-blocks // MULTIPROCESSORS) * MULTIPROCESSORS * o * r)
    return max(share(o, r) for o in range(64, 257, 64) for r in range(128, 257, 8) if o * r <= MOST_SUMS)


def lines_of(head, rows):
    return ["| " + " | ".join(map(str, cells)) + " |" for cells in [head]] + ["|" + "---|" * len(head)] + [
        "| " + " | ".join(map(str, cells)) + " |" for cells in rows]


def kernel_rows(kernels, arch):
    for k in kernels:
        apart = ("", "") if k.apart_cycles is None else (f"{k.apart_cycles:g}", f"{k.tensor / k.apart_cycles:.0%}")
        yield (f"`{k.name}`", arch, f"{k.outputs} × {k.rows}", k.levels, f"{k.tensor:g}", k.pipe, f"{k.cycles:g}",
               f"{k.tensor / k.cycles:.0%}", *apart, f"{k.bytes / k.cycles:.0f}")


def batch_rows(wgmma):
    for rows in ROWS:
        for variants in VARIANTS:
            sizes = groups(rows, variants)
            for name, outputs, columns in SHAPES:
                k = choose(wgmma, sizes, outputs, min(variants, 1))
                p = Prediction(k, sizes, outputs, columns)
                apart = f"{Prediction(k, sizes, outputs, columns, True).peak:.0%}" if variants else ""
                yield (rows, variants, name, f"{outputs} × {columns}", f"`{k.name}`", p.blocks, f"{p.of_block:.0%}",
                       f"{p.of_processors:.0%}", f"{p.of_tiles:.0%}", f"{p.peak:.0%}", apart, f"{p.l2:.0f}",
                       f"{p.peak_on_a100_l2:.0%}")


def shard_rows(wgmma):
    """A variant's rows on the ranks of tensor parallelism: q, k, v and gate, up by outputs, the others by columns."""
    for model, shapes in (("8B", SHAPES), ("70B", LARGE_SHAPES)):
        for ranks in RANKS:
            for name, outputs, columns in shapes:
                by_outputs = name in ("q, k, v", "gate, up")
                outputs, columns = (outputs // ranks, columns) if by_outputs else (outputs, columns // ranks)
                cells = []
                for rows in SHARD_ROWS:
                    k = choose(wgmma, [rows], outputs, 1)
                    p = Prediction(k, [rows], outputs, columns)
                    filled = p.of_processors * p.of_tiles
                    share = f"{int(100 * p.peak)}%"
                    cells.append(f"**{share}**" if p.peak >= 0.85 else
                                 f"{share}: {filled:.0%} of {most_filled(outputs, rows):.0%}, {p.of_block:.0%}")
                yield (model, ranks, name, f"{outputs} × {columns}", *cells)


def table(hopper, ampere):
    """hopper: of linear_prefill_sm_90a; ampere: of linear_prefill for sm_80."""
    wgmma, mma = kernels_of(hopper, "sm_90a"), kernels_of(ampere, "sm_80")
    lines = lines_of(("kernel", "for", "outputs × rows of a tile", "levels", "tensor", "busiest", "cycles a turn", "tensor pipe busy",
                      "apart: cycles a turn", "useful", "L2: bytes a cycle"),
                     list(kernel_rows(wgmma, "sm_90a")) + list(kernel_rows(mma, "sm_80")))
    lines += [""] + lines_of(("rows", "variants", "weight", "outputs × columns", "kernel", "blocks", "tensor pipe busy in a block",
                              "multiprocessors with a block", "rows in tiles", "of the tensor cores' peak", "useful if all is apart",
                              "L2: bytes a cycle, all together", "of the peak on the A100's L2"), batch_rows(wgmma))
    lines += [""] + lines_of(("model", "ranks", "weight", "outputs × columns", *(f"{rows} rows" for rows in SHARD_ROWS)),
                             shard_rows(wgmma))
    return "\n".join(lines)
