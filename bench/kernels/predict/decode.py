"""How far the decode kernel is bound by device memory, from its loop's cycles.

A turn of the loop is a chunk of 256 columns for a warp's 8 outputs: 4096 bytes of W and, for each group of rows with signs, 256
bytes for each level. What it costs is that of the dearest path through the loop's basic blocks (paths.py) with as many 1-bit
products as rows have levels of signs, and as many pieces of signs read, and copied, as groups have. Memory at its full rate brings a quarter of a
multiprocessor's bytes in `bytes / rate` cycles; the busiest pipe (or the issue slot) may take longer:
share = memory cycles / max(memory cycles, busiest pipe's cycles). Latencies are taken to be hidden by what is under way.
"""
import functools
import typing

import paths

# Bytes a second, multiprocessors, clock in Hz (boost). Data sheets of the SXM parts.
DEVICES = {"H100": (3.35e12, 132, 1.755e9), "H200": (4.8e12, 132, 1.755e9)}
ROWS = (1, 2, 4, 8, 14, 16, 32)
VARIANTS = (0, 1, 4, 14)
LEVELS = (1, 2)
# What is owed up to 16 rows: the share of memory's rate, and what each level of a variant adds to the time without.
SHARE, OF_A_LEVEL = 0.85, 0.10


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
        # A piece that is copied is one that was read: two loads. Whoever has more has read without copying, at the end.
        return paths.dearest(kernel, loop, "sm_90a", (is_product, is_sign_copy, is_8_byte_load), turns,
                             lambda times: times[2] <= 2 * times[1] + 1)

    def cycles(self, case):
        """Of each pipe, for a turn with that many rows, all of variants, or none."""
        name = f"deltad_linear_r{16 if case.rows <= 16 else 32}"
        pieces = case.variants * case.levels
        return self.paths(f"{name}_signs{case.levels}")[case.rows * case.levels, pieces, 2 * pieces] if pieces else self.paths(name)[0, 0, 0]

    def time(self, device, case):
        """In cycles."""
        return max(case.memory_cycles(device), *self.cycles(case).values())


class Case(typing.NamedTuple):
    rows: int
    variants: int
    levels: int

    def bytes(self):
        return 4096 + 256 * self.variants * self.levels

    def memory_cycles(self, device):
        rate, count, clock = DEVICES[device]
        return self.bytes() / (rate / count / clock / 4)

    def without_variants(self):
        return Case(self.rows, 0, 0)


def cases():
    return [Case(rows, variants, levels) for rows in ROWS for variants in VARIANTS if variants <= rows
            for levels in (LEVELS if variants else (0,))]


def table(kernels):
    turns = Turns(kernels)
    head = ["rows", "variants", "levels", "bytes", "issue", "tensor", "busiest", "cycles"]
    for device in DEVICES:
        head += [f"{device}: memory's cycles", "share of its rate", "time / without variants"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for case in cases():
        busy = turns.cycles(case)
        pipe = max(busy, key=busy.get)
        cells = [case.rows, case.variants, case.levels or "", case.bytes(), busy["issue"], f"{busy['tensor']:.0f}", pipe, f"{busy[pipe]:.0f}"]
        for device in DEVICES:
            memory, time = case.memory_cycles(device), turns.time(device, case)
            cells += [f"{memory:.0f}", f"{memory / time:.0%}", f"{time / turns.time(device, case.without_variants()):.3f}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def shortfalls(kernels):
    """What is owed and not predicted, in words."""
    turns, found = Turns(kernels), []
    for case in cases():
        if case.rows > 16 or case.variants == 0:
            continue
        for device in DEVICES:
            time = turns.time(device, case)
            share, added = case.memory_cycles(device) / time, time / turns.time(device, case.without_variants()) - 1
            if share < SHARE:
                found.append(f"{case} reaches {share:.0%} of the {device}'s memory rate, not {SHARE:.0%}")
            if added > OF_A_LEVEL * case.variants * case.levels:
                found.append(f"{case} takes {added:.0%} longer on the {device} than without variants")
    return found
