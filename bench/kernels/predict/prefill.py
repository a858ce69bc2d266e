"""How busy the prefill kernels keep the tensor cores of a Hopper device, from their loops' cycles.

A turn of the loop is 64 columns of a block: some warps on each quarter of a multiprocessor, which take as many times the busiest
pipe's cycles of one warp, or as long as L2 takes to send all blocks that run what they read. Then come what a block does once (its instructions outside of the loop, the epilogue's as often as it has
outputs, and a memory latency), the multiprocessors that have no block in the last turn of blocks, and the rows of tiles that no
group fills. Where W and α·S are multiplied apart, half of the products are useful.
"""
import math
import pathlib
import re

import sass

MULTIPROCESSORS, LATENCY = 132, 1755  # cycles: a µs
HEADER = pathlib.Path(__file__).parents[3] / "kernels/cuda/linear_prefill.h"
L2 = int(re.search(r"kL2Bytes = (\d+);", HEADER.read_text())[1])  # bytes a cycle, all multiprocessors together: of the A100
CLUSTERS = (2, 4, 8, 1)
ROWS = (512, 2048)
VARIANTS = (0, 1, 4, 14)
# Outputs and columns of an 8B model's fused weights, and of a 70B model's.
SHAPES = (("q, k, v", 6144, 4096), ("o", 4096, 4096), ("gate, up", 28672, 4096), ("down", 4096, 14336))
LARGE_SHAPES = (("q, k, v", 10240, 8192), ("o", 8192, 8192), ("gate, up", 57344, 8192), ("down", 8192, 28672))
RANKS, SHARD_ROWS = (1, 2, 4, 8), (512, 1024, 2048)
MOST_SUMS = 128 * 256  # of a block: half of the registers


class Kernel:
    """One of the header's tables, with what its loops say."""

    def __init__(self, fields, code, arch):
        self.name, outputs, rows, levels, threads, cycles, most_cluster = fields
        self.most_cluster = int(most_cluster)
        self.outputs, self.rows, self.levels, self.threads = int(outputs), int(rows), int(levels), int(threads)
        warps = self.threads // 128  # a quarter's
        loops = product_loops(code)
        # Of W + α·S; a loop that multiplies W and α·S apart has twice its products, one of few rows less.
        wanted = self.rows * 64 * self.outputs / (self.threads // 32) / sass.TENSOR_RATES[arch]["HGMMA" if arch == "sm_90a" else "HMMA"]
        loop = next(l for l in loops if sass.busy(code, l, arch)["tensor"] == wanted)
        self.busy = busy_of(code, loop, warps, arch)
        self.pipe = max(self.busy, key=self.busy.get)
        if self.busy["tensor"] >= self.busy[self.pipe]:
            self.pipe = "tensor"
        self.cycles = self.busy[self.pipe]
        self.tensor = self.busy["tensor"]
        apart = [l for l in loops if sass.busy(code, l, arch)["tensor"] == 2 * wanted] if self.levels else []
        self.apart_cycles = max(busy_of(code, apart[0], warps, arch).values()) if apart else None
        self.once = warps * self.outside(code, loops) + LATENCY
        self.header_cycles = int(cycles)
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

    def bytes(self, levels, cluster):
        """From L2, for a turn: W, signs, the block's part of the rows. As linear_prefill_bytes in the header."""
        return self.outputs * (64 * 2 + 8 * levels) + self.rows * 64 * 2 / cluster


def busy_of(code, loop, warps, arch):
    """Cycles of each pipe of a quarter with a turn of its warps. Bulk copies are for one warp of the block: what is jumped over by
    the others is counted once."""
    busy = sass.busy(code, loop, arch)
    once = sass.cycles_of(copying(code, loop), arch)
    return {pipe: warps * cycles - (warps - 1) * once[pipe] for pipe, cycles in busy.items()}


def copying(code, loop):
    """The instructions of the loop that a jump over all bulk copies leaves out."""
    copies = [at for at in range(loop.begin, loop.end + 1) if code.code[at].opcode.startswith("UBLKCP")]
    for at in range(loop.begin, copies[0] if copies else loop.begin):
        i = code.code[at]
        to = code.labels.get(i.target, 0) if i.opcode.startswith("BRA") and i.conditional else 0
        if copies[-1] < to <= loop.end:
            return code.code[at + 1:to]
    return []


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
    fields = re.findall(r'\{"(\w+)", (\d+), (\d+), (\d+), (\d+), (\d+), (\d+)\}', HEADER.read_text())
    return [Kernel(f, named[f[0]], arch) for f in fields if f[0] in named]


def groups(rows, variants):
    count = max(variants, 1)
    return [rows // count + (i < rows % count) for i in range(count)]


def blocks_of(k, cluster, sizes, outputs):
    """With those that have no outputs and fill clusters."""
    return sum(-(-size // k.rows) for size in sizes) * -(-outputs // (k.outputs * cluster)) * cluster


def width_of(cluster):
    """Multiprocessors that clusters can be on, as cluster_multiprocessors in the header."""
    in_groups = (MULTIPROCESSORS + 17) // 18 * 16
    usable = MULTIPROCESSORS if cluster <= 2 else min(MULTIPROCESSORS, in_groups)
    return usable // cluster * cluster


class Prediction:
    """Blocks, and the shares: of the tensor cores' time in a block, of multiprocessors, of tiles' rows and outputs."""

    def __init__(self, k, cluster, sizes, outputs, columns, levels, apart=False):
        turns = -(-columns // 64)
        self.blocks = blocks_of(k, cluster, sizes, outputs)
        waves = -(-self.blocks // width_of(cluster))
        asked = k.bytes(levels, cluster) * min(self.blocks, width_of(cluster))
        self.l2 = asked / k.turn(apart)
        block_cycles = turns * max(k.turn(apart), asked / L2) + k.once
        self.of_block = turns * k.tensor / block_cycles
        self.of_processors = self.blocks / (waves * MULTIPROCESSORS)
        self.of_tiles = sum(sizes) * outputs / (self.blocks * k.rows * k.outputs)
        self.peak = self.of_block * self.of_processors * self.of_tiles


def choose(kernels, sizes, outputs, levels):
    """As linear_prefill_kernel in the header; the first of equals. A kernel and its clusters' size."""
    def time(choice):
        k, cluster = choice
        blocks, width = blocks_of(k, cluster, sizes, outputs), width_of(cluster)
        return -(-blocks // width) * max(k.header_cycles, k.bytes(levels, cluster) * min(blocks, width) // L2)
    padded = lambda k, cluster: -(-outputs // k.outputs) % cluster != 0
    return min(((k, cluster) for k in kernels if k.levels >= levels for pads in (False, True) for cluster in CLUSTERS
                if cluster <= k.most_cluster and padded(k, cluster) == pads), key=time)


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


def share(x):
    """Of one, cut off after a decimal: what falls short of a target must not read as the target."""
    return f"{math.floor(1000 * x + 1e-9) / 10:.1f}%"


def kernel_rows(kernels, arch):
    for k in kernels:
        apart = ("", "") if k.apart_cycles is None else (f"{k.apart_cycles:g}", share(k.tensor / k.apart_cycles))
        l2 = ", ".join(f"{k.bytes(k.levels, c) / k.cycles:.0f}" for c in sorted(CLUSTERS) if c <= k.most_cluster)
        yield (f"`{k.name}`", arch, f"{k.outputs} × {k.rows}", k.levels, f"{k.tensor:g}", k.pipe, f"{k.cycles:g}",
               share(k.tensor / k.cycles), *apart, l2)


def batch_rows(wgmma):
    for rows in ROWS:
        for variants in VARIANTS:
            sizes, levels = groups(rows, variants), min(variants, 1)
            for name, outputs, columns in SHAPES:
                k, cluster = choose(wgmma, sizes, outputs, levels)
                p = Prediction(k, cluster, sizes, outputs, columns, levels)
                apart = share(Prediction(k, cluster, sizes, outputs, columns, levels, True).peak) if variants else ""
                yield (rows, variants, name, f"{outputs} × {columns}", f"`{k.name}`", cluster, p.blocks, f"{p.l2:.0f}",
                       share(p.of_block), share(p.of_processors), share(p.of_tiles), share(p.peak), apart)


def shard_rows(wgmma):
    """A variant's rows on the ranks of tensor parallelism: q, k, v and gate, up by outputs, the others by columns."""
    for model, shapes in (("8B", SHAPES), ("70B", LARGE_SHAPES)):
        for ranks in RANKS:
            for name, outputs, columns in shapes:
                by_outputs = name in ("q, k, v", "gate, up")
                outputs, columns = (outputs // ranks, columns) if by_outputs else (outputs, columns // ranks)
                cells = []
                for rows in SHARD_ROWS:
                    k, cluster = choose(wgmma, [rows], outputs, 1)
                    p = Prediction(k, cluster, [rows], outputs, columns, 1)
                    filled = p.of_processors * p.of_tiles
                    cells.append(f"**{share(p.peak)}**" if p.peak >= 0.85 else
                                 f"{share(p.peak)}: {share(filled)} of {share(most_filled(outputs, rows))}, {share(p.of_block)}")
                yield (model, ranks, name, f"{outputs} × {columns}", *cells)


def table(hopper, ampere):
    """hopper: of linear_prefill_sm_90a; ampere: of linear_prefill for sm_80."""
    wgmma, mma = kernels_of(hopper, "sm_90a"), kernels_of(ampere, "sm_80")
    lines = lines_of(("kernel", "for", "outputs × rows of a tile", "levels", "tensor", "busiest", "cycles a turn", "tensor pipe busy",
                      "apart: cycles a turn", "useful", "bytes a cycle of L2, in clusters of 1, 2, 4, 8"),
                     list(kernel_rows(wgmma, "sm_90a")) + list(kernel_rows(mma, "sm_80")))
    lines += [""] + lines_of(("rows", "variants", "weight", "outputs × columns", "kernel", "in clusters of", "blocks",
                              "bytes a cycle of L2, all together", "tensor pipe busy in a block", "multiprocessors with a block",
                              "rows in tiles", "of the tensor cores' peak", "useful if all is apart"), batch_rows(wgmma))
    lines += [""] + lines_of(("model", "ranks", "weight", "outputs × columns", *(f"{rows} rows" for rows in SHARD_ROWS)),
                             shard_rows(wgmma))
    return "\n".join(lines)
