"""How far the decode kernel is bound by device memory, from its loops' cycles.

A turn of the loop is a chunk of 256 columns for a warp's 8 outputs: 4096 bytes of W and, for each group of rows with signs, 256
bytes. A row with signs costs what the loop with signs has more than the one without, over its rows. Memory at its full rate
brings a quarter of a multiprocessor's bytes in `bytes / rate` cycles; the busiest pipe (or the issue slot) may take longer:
share = memory cycles / max(memory cycles, busiest pipe's cycles). Latencies are taken to be hidden by the 16 stages under way.
"""
import sass

# Bytes a second, multiprocessors, clock in Hz (boost). Data sheets of the SXM parts.
DEVICES = {"H100": (3.35e12, 132, 1.755e9), "H200": (4.8e12, 132, 1.755e9)}
ROWS = (1, 2, 4, 8, 14, 16, 32)
VARIANTS = (0, 1, 4, 14)


def cycles(kernels, rows, signs):
    """Of each pipe, for a turn with that many rows of which all have one level of signs, or none."""
    size = 16 if rows <= 16 else 32
    of = {}
    for name in (f"deltad_linear_r{size}", f"deltad_linear_r{size}_signs1"):
        of[name] = sass.busy(kernels[name], kernels[name].hot_loop(), "sm_90a")
    plain, with_signs = of.values()
    if not signs:
        return plain
    return {p: plain[p] + (with_signs[p] - plain[p]) * rows / size for p in set(plain) | set(with_signs)}


def table(kernels):
    head = ["rows", "variants", "bytes", "busiest", "cycles"]
    for device in DEVICES:
        head += [f"{device}: memory's cycles", "share of its rate"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for rows in ROWS:
        for variants in VARIANTS:
            if variants > rows:
                continue
            busy = cycles(kernels, rows, variants > 0)
            pipe = max(busy, key=busy.get)
            size = 4096 + 256 * variants
            cells = [rows, variants, size, pipe, f"{busy[pipe]:.0f}"]
            for rate, count, clock in DEVICES.values():
                memory = size / (rate / count / clock / 4)
                cells += [f"{memory:.0f}", f"{min(1, memory / busy[pipe]):.0%}"]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)
