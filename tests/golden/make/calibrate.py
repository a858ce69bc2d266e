"""Reference for the calibrated fit of signs and scales, straight from its definition in numpy (fp64, from X itself):
tests/golden/make/calibrate.py tests/golden/calibrate/fits.safetensors"""
import itertools
import sys

import numpy as np
from safetensors.numpy import save_file

DAMPING = 0.01


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


def sweep(x, row, signs, scales):
    """Each column in turn gets the value that leaves the least damped error, the others as they are."""
    signs = signs.copy()
    penalty = DAMPING * np.square(x).sum(0).mean()
    for column in range(len(row)):
        best = None
        for choice in itertools.product([1.0, -1.0], repeat=len(scales)):
            trial = signs.copy()
            trial[:, column] = choice
            left = row - scales @ trial
            cost = np.square(x @ left).sum() + penalty * np.square(left).sum()
            if best is None or cost < best[0]:
                best = (cost, choice)
        signs[:, column] = best[1]
    return signs


def fit(x, row, levels, sweeps):
    signs, scales = plain(row, levels)
    best = error(x, row, signs, scales)
    fitted = fit_scales(x, row, signs)
    if error(x, row, signs, fitted) < best:
        scales, best = fitted, error(x, row, signs, fitted)
    for _ in range(sweeps):
        moved = sweep(x, row, signs, scales)
        fitted = fit_scales(x, row, moved)
        if not error(x, row, moved, fitted) < best:
            break
        signs, scales, best = moved, fitted, error(x, row, moved, fitted)
    return signs, scales, best


def main():
    random = np.random.default_rng(7)
    tensors = {}
    for case, (tokens, columns, rows) in {"tall": (60, 21, 9), "short": (7, 40, 6)}.items():
        # Activations with a few strong directions, and Δ of which half is zero, as a fine-tune saved in bf16 leaves it.
        x = (random.normal(size=(tokens, 3)) @ random.normal(size=(3, columns)) * 2 + random.normal(size=(tokens, columns))).astype(np.float32)
        delta = random.normal(size=(rows, columns)).astype(np.float32) * 0.01
        delta[np.abs(delta) < 0.006] = 0
        tensors[case + ".x"], tensors[case + ".delta"] = x, delta
        for levels, sweeps in itertools.product((1, 2), (0, 1, 3)):
            fits = [fit(x.astype(np.float64), row.astype(np.float64), levels, sweeps) for row in delta]
            key = f"{case}.{levels}.{sweeps}"
            tensors[key + ".signs"] = np.array([f[0] for f in fits]).astype(np.int8)  # [rows, levels, columns]
            tensors[key + ".alpha"] = np.array([f[1] for f in fits]).astype(np.float32)
            tensors[key + ".error"] = np.array([f[2] for f in fits]).astype(np.float32)
    save_file(tensors, sys.argv[1])


if __name__ == "__main__":
    main()
