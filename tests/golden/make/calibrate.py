"""Reference for the calibrated fit of signs and scales, straight from its definition in numpy (fp64, from X itself; X and Δ are bf16 values):
tests/golden/make/calibrate.py tests/golden/calibrate/fits.safetensors"""
import itertools
import sys

import numpy as np
from safetensors.numpy import save_file

# Of both kinds: what compress takes, and so little that the data alone decide.
DAMPING = {0: 0, 1: 5, 3: 0.01}  # by sweeps


def plain(row, levels):
    """Signs of what is left and means of its absolute values."""
    left, signs, scales = row.astype(np.float64).copy(), [], []
    for _ in range(levels):
        sign = np.where(left >= 0, 1.0, -1.0)
        scale = np.float64(np.float32(np.abs(left).mean()))
        signs.append(sign), scales.append(scale)
        left -= scale * sign
    return np.array(signs), np.array(scales)


def error(x, row, signs, scales):
    return np.square(x @ (row - scales @ signs)).sum()


def fit_scales(x, row, signs):
    return np.linalg.lstsq((x @ signs.T), x @ row, rcond=None)[0]


def narrow(values):
    """Rounded to bf16, to even."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return (((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16).view(np.float32).astype(np.float64)


def sweep(x, row, signs, scales, damping):
    """Each column in turn gets the value that leaves the least damped error, the others as they are. What is left of the output is
    rounded to bf16 where a block of 64 columns begins."""
    signs = signs.copy()
    penalty = damping * np.square(x).sum(0).mean()
    unit = np.abs(scales).max()
    choices = [np.array(choice) for choice in itertools.product([-1.0, 1.0], repeat=len(scales))]
    output = x @ (row - scales @ signs)
    for first in range(0, len(row), 64):
        block = slice(first, min(first + 64, len(row)))
        before, rounded = scales @ signs[:, block], narrow(output)
        for column in range(block.start, block.stop):
            now = scales @ signs[:, column]
            # Of the error in this column's value alone: slope and curvature.
            moved = scales @ signs[:, block] - before
            slope = x[:, column] @ (rounded - x[:, block] @ moved) + penalty * (row[column] - now)
            best = now + slope / (np.square(x[:, column]).sum() + penalty)
            signs[:, column] = min(choices, key=lambda choice: abs(best - scales @ choice))
        output -= unit * (x[:, block] @ narrow((scales @ signs[:, block] - before) / unit))
    return signs


def fit(x, row, levels, sweeps):
    signs, scales = plain(row, levels)
    best = error(x, row, signs, scales)
    fitted = fit_scales(x, row, signs)
    if error(x, row, signs, fitted) < best:
        scales, best = fitted, error(x, row, signs, fitted)
    for _ in range(sweeps):
        moved = sweep(x, row, signs, scales, DAMPING[sweeps])
        fitted = fit_scales(x, row, moved)
        if not error(x, row, moved, fitted) < best:
            break
        signs, scales, best = moved, fitted, error(x, row, moved, fitted)
    return signs, scales, best


def main():
    random = np.random.default_rng(7)
    tensors = {}
    for case, (tokens, columns, rows) in {"tall": (60, 21, 9), "short": (7, 40, 6), "wide": (90, 150, 17)}.items():
        # Activations with a few strong directions, and Δ of which half is zero, as a fine-tune saved in bf16 leaves it.
        x = (random.normal(size=(tokens, 3)) @ random.normal(size=(3, columns)) * 2 + random.normal(size=(tokens, columns))).astype(np.float32)
        delta = random.normal(size=(rows, columns)).astype(np.float32) * 0.01
        delta[np.abs(delta) < 0.006] = 0
        x, delta = narrow(x), narrow(delta)
        x[np.abs(x) < 1e-3] = 0  # so that fp16 holds them all
        for name, values in ((".x", x), (".delta", delta)):
            tensors[case + name] = values.astype(np.float16)
            assert (tensors[case + name] == values).all()
        for levels, sweeps in itertools.product((1, 2, 3), DAMPING):
            fits = [fit(x, row, levels, sweeps) for row in delta]
            key = f"{case}.{levels}.{sweeps}"
            tensors[key + ".signs"] = np.array([f[0] for f in fits]).astype(np.int8)  # [rows, levels, columns]
            tensors[key + ".alpha"] = np.array([f[1] for f in fits]).astype(np.float32)
            tensors[key + ".error"] = np.array([f[2] for f in fits]).astype(np.float32)
    save_file(tensors, sys.argv[1])


if __name__ == "__main__":
    main()
