"""How far the decode kernel is bound by device memory, from its loop's cycles.

A turn of the loop is a chunk of 256 columns for a warp's 8 outputs: 4096 bytes of W and, for each group of rows with signs, 256
bytes. What it costs is that of the dearest path through the loop's basic blocks (paths.py) with as many 1-bit products as rows
have signs, and as many pieces of signs read, and copied, as there are groups (of one level). Memory at its full rate brings a quarter of a
multiprocessor's bytes in `bytes / rate` cycles; the busiest pipe (or the issue slot) may take longer:
share = memory cycles / max(memory cycles, busiest pipe's cycles). Latencies are taken to be hidden by what is under way.
"""
import functools

import paths

# Bytes a second, multiprocessors, clock in Hz (boost). Data sheets of the SXM parts.
DEVICES = {"H100": (3.35e12, 132, 1.755e9), "H200": (4.8e12, 132, 1.755e9)}
ROWS = (1, 2, 4, 8, 14, 16, 32)
VARIANTS = (0, 1, 4, 14)
# What is owed up to 16 rows: the share of memory's rate, and what each variant adds to the time without.
SHARE, OF_A_VARIANT = 0.85, 0.10


def is_product(i):
    return i.opcode.startswith("BMMA")


def is_sign_copy(i):
    return i.opcode.startswith("LDGSTS") and ".64" in i.opcode


def is_8_byte_load(i):
    """Of a piece of signs, or of where the next one to copy lies."""
    return i.opcode == "LDS.64"


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
        return paths.dearest(kernel, loop, "sm_90a", (is_product, is_sign_copy, is_8_byte_load), turns)

    def cycles(self, rows, variants):
        """Of each pipe, for a turn with that many rows, all of variants with one level of signs, or none."""
        name = f"deltad_linear_r{16 if rows <= 16 else 32}"
        return self.paths(name + "_signs1")[rows, variants, 2 * variants] if variants else self.paths(name)[0, 0, 0]


def memory_cycles(device, variants):
    rate, count, clock = DEVICES[device]
    return (4096 + 256 * variants) / (rate / count / clock / 4)


def seconds(turns, device, rows, variants):
    """In cycles, of a turn."""
    return max(memory_cycles(device, variants), *turns.cycles(rows, variants).values())


def cases():
    return [(rows, variants) for rows in ROWS for variants in VARIANTS if variants <= rows]


def table(kernels):
    turns = Turns(kernels)
    head = ["rows", "variants", "bytes", "issue", "tensor", "busiest", "cycles"]
    for device in DEVICES:
        head += [f"{device}: memory's cycles", "share of its rate", "time / without variants"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for rows, variants in cases():
        busy = turns.cycles(rows, variants)
        pipe = max(busy, key=busy.get)
        cells = [rows, variants, 4096 + 256 * variants, busy["issue"], f"{busy['tensor']:.0f}", pipe, f"{busy[pipe]:.0f}"]
        for device in DEVICES:
            memory, time = memory_cycles(device, variants), seconds(turns, device, rows, variants)
            cells += [f"{memory:.0f}", f"{memory / time:.0%}", f"{time / seconds(turns, device, rows, 0):.3f}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def shortfalls(kernels):
    """What is owed and not predicted, in words."""
    turns, found = Turns(kernels), []
    for rows, variants in cases():
        if rows > 16 or variants == 0:
            continue
        for device in DEVICES:
            time = seconds(turns, device, rows, variants)
            share, added = memory_cycles(device, variants) / time, time / seconds(turns, device, rows, 0) - 1
            if share < SHARE:
                found.append(f"{rows} rows of {variants} variants reach {share:.0%} of the {device}'s memory rate, not {SHARE:.0%}")
            if added > OF_A_VARIANT * variants:
                found.append(f"{rows} rows of {variants} variants take {added:.0%} longer on the {device} than without")
    return found
