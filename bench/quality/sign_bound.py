"""What any code of one or two bits a weight could leave of a fine-tune's effect on the outputs, beside what plain signs leave.

  sign_bound.py BASE_FOLDER TUNED_FOLDER [TEXT]

For Δ of independent Gaussian weights, equal in variance within a row, and an error measured by the activations X of the text (random tokens without one),
the least error at R bits a weight is the rate-distortion function of the eigenvalues of XᵀX (reverse water-filling). `power` is the entropy power of the
weights, each row scaled to variance 1: 1 if they are Gaussian; the bound goes down in proportion.
"""
import math
import sys

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def least_error(eigenvalues, bits):
    """As a share of the energy."""
    values = np.sort(np.maximum(eigenvalues, 1e-12))[::-1]
    low, high = 1e-30, values.max()
    for _ in range(200):
        level = math.sqrt(low * high)
        rate = np.maximum(0, 0.5 * np.log2(values / level)).mean()
        low, high = (level, high) if rate > bits else (low, level)
    return np.minimum(level, values).sum() / values.sum()


def entropy_power(delta):
    scaled = (delta / np.sqrt(np.square(delta).mean(1, keepdims=True)).clip(1e-12)).ravel()
    scaled = scaled[scaled != 0]
    counts, edges = np.histogram(scaled, bins=60, range=(-6, 6))
    p = counts[counts > 0] / counts.sum()
    entropy = -(p * np.log2(p)).sum() + np.log2(edges[1] - edges[0])
    return 2 ** (2 * entropy) / (2 * math.pi * math.e) / np.square(scaled).mean()


def main():
    base = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
    tuned = AutoModelForCausalLM.from_pretrained(sys.argv[2], dtype=torch.float32)
    if len(sys.argv) > 3:
        ids = AutoTokenizer.from_pretrained(sys.argv[1])(open(sys.argv[3]).read()[:3000])["input_ids"]
    else:
        ids = torch.randint(0, base.config.vocab_size, (2000,), generator=torch.Generator().manual_seed(0)).tolist()
    inputs = {}
    for name, module in tuned.named_modules():
        if isinstance(module, torch.nn.Linear) and "layers" in name:
            module.register_forward_pre_hook(lambda _, x, name=name: inputs.setdefault(name, []).append(x[0][0]))
    with torch.no_grad():
        for first in range(0, len(ids), 128):
            tuned(torch.tensor([ids[first : first + 128]]))
    rows = []
    for name, parts in inputs.items():
        x = torch.cat(parts).double().numpy()
        delta = (tuned.get_submodule(name).weight - base.get_submodule(name).weight).detach().double().numpy()
        if not delta.any():
            continue
        energy = lambda left: np.square(x @ left.T).sum()
        plain = delta - np.abs(delta).mean(1, keepdims=True) * np.where(delta >= 0, 1, -1)
        eigenvalues = np.linalg.eigvalsh(x.T @ x)
        rows.append([energy(plain) / energy(delta), least_error(eigenvalues, 1), least_error(eigenvalues, 2), entropy_power(delta)])
    plain, one, two, power = np.array(rows).mean(0)
    print(f"plain signs leave {plain:.3f} of the energy; at best {one:.3f} at 1 bit ({one / plain:.2f} of plain), {two:.4f} at 2 bits ({two / plain:.3f}); power {power:.2f}")


if __name__ == "__main__":
    main()
