"""What any code of one or two bits a weight could leave of a fine-tune's effect on the outputs, beside what plain signs leave.

  sign_bound.py BASE_FOLDER TUNED_FOLDER [TEXT]

For Δ of independent Gaussian weights, equal in variance within a row, and an error measured by the activations X of the text (random tokens without one),
the least error at R bits a weight is the rate-distortion function of the eigenvalues of XᵀX (reverse water-filling). `power` is the entropy power of the
weights, each row scaled to variance 1: 1 if they are Gaussian; the bound goes down in proportion.

The KL divergence weighs outputs unequally, and a code that knows that may do better. To second order it is ½ tr(G·E·A·Eᵀ) of an error E of a matrix, with A the
mean of x·xᵀ of what enters it and G that of g·gᵀ, g being the gradient of log p at what leaves it, labels drawn from the model (K-FAC: errors of two matrices, and A and G,
taken to be independent). The same water-filling over the products of their eigenvalues bounds KL: with a bit for each weight of each matrix, or as many as one likes
for one matrix at the cost of others.
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


def least_kl(values, bits):
    """values: of each matrix, all products of eigenvalues; matrices share the bits."""
    values = np.concatenate(values)
    return least_error(values / values.max(), bits) * values.sum()


def fisher_factors(model, ids, labels_each=8):
    """A and G of each linear layer in the blocks."""
    layers = {n: m for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and "layers" in n}
    inputs, gradients = {}, {}
    flat = lambda t: t.detach().double().flatten(0, 1)
    hooks = [m.register_forward_pre_hook(lambda _, x, n=n: inputs.__setitem__(n, flat(x[0]))) for n, m in layers.items()]
    hooks += [m.register_full_backward_hook(lambda _, __, g, n=n: gradients.__setitem__(n, flat(g[0]))) for n, m in layers.items()]
    a, g = dict.fromkeys(layers, 0), dict.fromkeys(layers, 0)
    for first in range(0, len(ids), 128):
        part = torch.tensor([ids[first : first + 128]])
        for label in range(labels_each):
            logits = model(part).logits[0]
            drawn = torch.distributions.Categorical(logits=logits.detach()).sample()
            torch.nn.functional.cross_entropy(logits, drawn, reduction="sum").backward()
            model.zero_grad()
            for n in layers:
                a[n] = a[n] + (inputs[n].T @ inputs[n] / len(ids) if label == 0 else 0)
                g[n] = g[n] + gradients[n].T @ gradients[n] / (labels_each * len(ids))
    for hook in hooks:
        hook.remove()
    return {n: (a[n].numpy(), g[n].numpy()) for n in layers}


def kl_bound(base, tuned, ids):
    torch.manual_seed(0)
    values, plain = [], 0
    for name, (a, g) in fisher_factors(tuned, ids).items():
        delta = (tuned.get_submodule(name).weight - base.get_submodule(name).weight).detach().double().numpy()
        if not delta.any():
            continue
        left = delta - np.abs(delta).mean(1, keepdims=True) * np.where(delta >= 0, 1, -1)
        plain += 0.5 * np.trace(g @ left @ a @ left.T)
        eigenvalues = np.outer(np.linalg.eigvalsh(g).clip(0), np.linalg.eigvalsh(a).clip(0)).ravel()
        values.append(0.5 * np.square(delta).mean() * eigenvalues)
    print(f"KL to second order: plain signs {plain:.5f}; at best, as a share of it,", end="")
    for bits in (1, 2):
        alone = sum(least_kl([v], bits) for v in values)
        print(f" {least_kl(values, bits) / plain:.3f} at {bits} bits ({alone / plain:.3f} with as many in each matrix)", end=";" if bits == 1 else "\n")


def main():
    base = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
    tuned = AutoModelForCausalLM.from_pretrained(sys.argv[2], dtype=torch.float32)
    if len(sys.argv) > 3:
        ids = AutoTokenizer.from_pretrained(sys.argv[1])(open(sys.argv[3]).read()[:3000])["input_ids"]
    else:
        ids = torch.randint(0, base.config.vocab_size, (2000,), generator=torch.Generator().manual_seed(0)).tolist()
    inputs, hooks = {}, []
    for name, module in tuned.named_modules():
        if isinstance(module, torch.nn.Linear) and "layers" in name:
            hooks.append(module.register_forward_pre_hook(lambda _, x, name=name: inputs.setdefault(name, []).append(x[0][0])))
    with torch.no_grad():
        for first in range(0, len(ids), 128):
            tuned(torch.tensor([ids[first : first + 128]]))
    for hook in hooks:
        hook.remove()
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
    kl_bound(base, tuned, ids)


if __name__ == "__main__":
    main()
