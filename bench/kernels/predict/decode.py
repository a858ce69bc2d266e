"""How far the decode kernel is bound by device memory, from its loop's cycles; and how long a layer's linear weights take with it,
with all launches that a step with variants adds.

A turn of the loop is a chunk of 256 columns for a warp's 8 outputs: 4096 bytes of W and, for each group of rows with signs, 256
bytes for each level. What it costs is that of the dearest path through the loop's basic blocks (paths.py) with as many 1-bit
products as rows have levels of signs, and as many pieces of signs read, and copied, as groups have. Memory at its full rate brings
a quarter of a multiprocessor's bytes in `bytes / rate` cycles; the busiest pipe (or the issue slot, or the L2 cache) may take longer:
share = memory cycles / max(memory cycles, L2's, busiest pipe's cycles). Latencies are taken to be hidden by what is under way.

More rows than a block takes are further blocks of the same outputs, beside the first in the grid: W and signs come from device
memory for one of them, from L2 for the others, and each costs its turns.
"""
import functools
import pathlib
import re
import typing

import paths

# Bytes a second, multiprocessors, clock in Hz (boost). Data sheets of the SXM parts.
DEVICES = {"H100": (3.35e12, 132, 1.755e9), "H200": (4.8e12, 132, 1.755e9)}
# Bytes that L2 gives a multiprocessor in a cycle: half of what its port takes. Neither data sheets nor white papers of Hopper say.
L2_RATE = 32
# Cycles: of a launch's start, its first loads and the last stores' way out; of a load that L2 has, that L1 has.
LAUNCH, L2_LATENCY, L1_LATENCY = 1755, 300, 40
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
VARIANTS = (0, 1, 4, 14)
# Two levels as a sample: at the most rows of one block.
LEVELS, SAMPLED_LEVELS, SAMPLED_ROWS = (1,), (1, 2), 16
# Outputs and columns of an 8B model's fused weights: what a layer launches.
LAYER = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336))
CUDA = pathlib.Path(__file__).parents[3] / "kernels/cuda"


@functools.cache
def constant(header, name):
    """A number of kernels/cuda/HEADER."""
    found = re.search(rf"\b{name} = (\d+);", (CUDA / header).read_text())
    if found is None:
        raise SystemExit(f"{header}: no number {name}")
    return int(found[1])


def ceil(a, b):
    return -(-a // b)


def is_product(i):
    return i.opcode.startswith("BMMA")


def is_sign_copy(i):
    return i.opcode.startswith("LDGSTS") and ".64" in i.opcode


def is_8_byte_load(i):
    """Of a piece of signs, or of where the next one to copy lies."""
    return i.opcode == "LDS.64"


class Case(typing.NamedTuple):
    rows: int
    variants: int
    levels: int

    def block_rows(self):
        """As linear_decode_kernel: what the daemon launches for any number of rows."""
        return 16 if self.rows <= 16 or self.levels > 2 else 32

    def kernel(self):
        return f"deltad_linear_r{self.block_rows()}" + (f"_signs{self.levels}" if self.variants else "")

    def tiles(self):
        """Of rows: how many, and how many groups with signs they belong to; variants have about as many rows each."""
        ends = [self.rows * (v + 1) // self.variants for v in range(self.variants)]
        found = []
        for first in range(0, self.rows, self.block_rows()):
            end = min(self.rows, first + self.block_rows())
            found.append((end - first, sum(first < e and (ends[v - 1] if v else 0) < end for v, e in enumerate(ends))))
        return found

    def bytes(self):
        return 4096 + 256 * self.variants * self.levels

    def l2_bytes(self):
        """All that a warp's turns of all tiles read: W, signs; of x and, with signs, its bit planes an eighth of 512 bytes a row."""
        kinds = 2 if self.variants else 1
        return sum(4096 + 256 * groups * self.levels + 64 * kinds * rows for rows, groups in self.tiles())

    def memory_cycles(self, device):
        rate, count, clock = DEVICES[device]
        return self.bytes() / (rate / count / clock / 4)

    def without_variants(self):
        return Case(self.rows, 0, 0)


class Turns:
    def __init__(self, kernels):
        self.kernels = kernels

    @functools.cache
    def paths(self, name):
        kernel = self.kernels[name]
        loop = kernel.hot_loop()
        # Steps that are not unrolled: a chunk has 16 products of the base for each 16 rows.
        counted = sum(i.opcode.startswith("HMMA") for i in kernel.code[loop.begin:loop.end + 1])
        turns, rest = divmod(32 if "_r32" in name else 16, counted)
        if rest != 0:
            raise SystemExit(f"{name}: {counted} products of the base in the hot loop")
        # A piece that is copied is one that was read: two loads. Whoever has more has read without copying, at the end.
        return paths.dearest(kernel, loop, "sm_90a", (is_product, is_sign_copy, is_8_byte_load), turns,
                             lambda times: times[2] <= 2 * times[1] + 1)

    def cycles(self, case):
        """Of each pipe, for the turns of all tiles of rows, all of variants or none."""
        found = {}
        for rows, groups in case.tiles():
            pieces = groups * case.levels
            for pipe, c in self.paths(case.kernel())[(rows * case.levels, pieces, 2 * pieces) if pieces else (0, 0, 0)].items():
                found[pipe] = found.get(pipe, 0) + c
        found["L2"] = case.l2_bytes() / (L2_RATE / 4)
        return found

    def time(self, device, case):
        """In cycles."""
        return max(case.memory_cycles(device), *self.cycles(case).values())

    def launches(self, case):
        """The launches of a layer's weights that variants add: how many, bytes, and cycles of each weight's."""
        if case.variants == 0:
            return 0, 0, [0] * len(LAYER)
        planes = [self.planes(case.rows, columns) for _, columns in LAYER]
        return len(planes), sum(b for b, _ in planes), [c for _, c in planes]

    def planes(self, rows, columns):
        """Bytes and cycles of sign_planes (kernels/cuda/sign_planes.cu): each block of a row reads all of it from L2."""
        words = 8 * constant("sign_planes.h", "kSignPlanesChunks")
        chunks, threads = ceil(columns, 256), constant("sign_planes.h", "kSignPlanesThreads")
        blocks = rows * (ceil(8 * chunks, words) + 1)
        kernel = self.kernels["deltad_sign_planes"]
        inner = [l for l in kernel.loops() if not any(l is not m and l.begin <= m.begin and m.end <= l.end for m in kernel.loops())]
        code = instructions = waits = 0
        for loop in inner:
            names = [i.opcode for i in kernel.code[loop.begin:loop.end + 1]]
            code += len(names)
            if votes := sum(n.startswith("VOTE") for n in names):  # a warp's words, from the row that L1 has by then
                turns, latency = ceil(words * 16, votes * (threads // 32)), L1_LATENCY
            else:  # the row, 16 bytes a load
                loads = sum(n.startswith("LDG") and ".128" in n for n in names)
                turns, latency = (ceil(ceil(columns, 8), threads * loads) if loads else 1), L2_LATENCY
            instructions += turns * len(names)
            waits += turns * latency
        instructions += len(kernel.code) - code
        warps = threads // 128 * ceil(blocks, DEVICES["H100"][1])  # of a quarter
        return 2 * blocks * columns + 512 * rows * chunks, LAUNCH + waits + warps * instructions

    def layer(self, device, case):
        """Seconds that a layer's weights take one after the other, and bytes from device memory. While a launch waits for those before
        it, device memory brings what the linear layer's resident blocks asked L2 for."""
        rate, count, clock = DEVICES[device]
        added = self.launches(case)[2]
        seconds = total = 0
        for (outputs, columns), planes in zip(LAYER, added):
            chunks, blocks_of_outputs = ceil(columns, 256), ceil(outputs, 64)
            splits = max(1, min(2 * 132 // blocks_of_outputs, chunks // 4))  # linear_decode_splits
            turns = ceil(outputs, 8) * chunks
            pipes = self.cycles(case)
            if splits > 1:  # parts of sums, written and read again
                pipes["L2"] += 2 * case.rows * 8 * 4 * (1 + case.levels) * splits / chunks / (L2_RATE / 4)
            cycles = max(case.memory_cycles(device), *pipes.values())
            busy = turns * cycles / (4 * count)
            two_fit = case.variants == 0 or (case.block_rows() == 16 and case.levels == 1)
            resident = min(len(case.tiles()) * blocks_of_outputs * splits, count * (2 if two_fit else 1)) / len(case.tiles())
            asked = resident * 8 * 4096 * min(constant("linear_decode.h", "kLinearPrefetch"), chunks // splits)
            all_bytes = turns * case.bytes()
            chain = LAUNCH + planes
            seconds += max(busy, chain + busy * (1 - min(1, asked / all_bytes))) / clock
            total += all_bytes
        return seconds, total


def cases():
    return [Case(rows, variants, levels) for rows in ROWS for variants in VARIANTS if variants <= rows
            for levels in ((SAMPLED_LEVELS if rows == SAMPLED_ROWS else LEVELS) if variants else (0,))]


def markdown(head, lines):
    return "\n".join("| " + " | ".join(map(str, cells)) + " |" for cells in [head]) + "\n|" + "---|" * len(head) + "\n" + "\n".join(
        "| " + " | ".join(map(str, cells)) + " |" for cells in lines)


def turns_table(turns):
    head = ["rows", "variants", "levels", "kernel of the rows", "bytes", "issue", "tensor", "L2", "busiest", "cycles"]
    for device in DEVICES:
        head += [f"{device}: memory's cycles", f"{device}: share of its rate"]
    lines = []
    for case in cases():
        busy = turns.cycles(case)
        pipe = max(busy, key=busy.get)
        cells = [case.rows, case.variants, case.levels or "", f"`{case.kernel()}`", case.bytes(), busy["issue"], f"{busy['tensor']:.0f}",
                 f"{busy['L2']:.0f}", pipe, f"{busy[pipe]:.0f}"]
        for device in DEVICES:
            memory = case.memory_cycles(device)
            cells += [f"{memory:.0f}", f"{memory / turns.time(device, case):.1%}"]
        lines.append(cells)
    return markdown(head, lines)


def layer_table(turns):
    head = ["layer of rows", "variants", "levels", "launches added", "their MB", "their µs"]
    for device in DEVICES:
        head += [f"{device}: µs", f"{device}: share of its rate", f"{device}: time / without variants"]
    lines = []
    for case in cases():
        count, size, cycles = turns.launches(case)
        cells = [case.rows, case.variants, case.levels or "", count, f"{size / 1e6:.2f}", f"{sum(cycles) / DEVICES['H100'][2] * 1e6:.1f}"]
        for device, (rate, _, _) in DEVICES.items():
            seconds, size = turns.layer(device, case)
            base, _ = turns.layer(device, case.without_variants())
            cells += [f"{seconds * 1e6:.1f}", f"{size / rate / seconds:.1%}", f"{seconds / base:.3f}"]
        lines.append(cells)
    return markdown(head, lines)


def table(kernels):
    """kernels: of linear_decode and sign_planes, by name."""
    turns = Turns(kernels)
    return turns_table(turns) + "\n\n" + layer_table(turns)
