"""Merging methods written down again, in numpy and fp64: the oracle of the merge tests.

  merge.py OUT.safetensors    writes the matrices and expected results of tests/unit/merge

Sources: MonoSoup arXiv 2602.09689, OPCM 2501.09522, TIES 2306.01708, DARE 2311.03099.
"""
import sys

import numpy as np

MASK = (1 << 64) - 1


def leading(sigma, rule) -> int:
    """How many singular values a rule keeps: a share of the energy, "effective" or ("rank", r)."""
    if rule == "effective":
        p = sigma[sigma > 0] / sigma.sum()
        return int(np.ceil(np.exp(-(p * np.log(p)).sum()) - 1e-6))
    if isinstance(rule, tuple):
        return min(rule[1], len(sigma))
    kept = np.cumsum(sigma ** 2) / (sigma ** 2).sum()
    return int(np.argmax(kept >= rule - 1e-12)) + 1


def truncated(delta, rule):
    """(trunc_k(Δ), k, P)"""
    u, s, vt = np.linalg.svd(delta, full_matrices=False)
    if s[0] == 0:
        return np.zeros_like(delta), 0, 0.0
    k = leading(s, rule)
    return (u[:, :k] * s[:k]) @ vt[:k], k, (s[:k] ** 2).sum() / (s ** 2).sum()


def monosoup(delta, base_norm, rule):
    """(λ_high Δ_high + λ_low Δ_low, k, P, λ_low)"""
    if np.linalg.norm(delta) < 1e-6 * base_norm or not delta.any():
        return delta, 0, 0.0, 1.0
    s = np.linalg.svd(delta, compute_uv=False)
    high, k, energy = truncated(delta, rule)
    rho = (s[k] / s[0]) ** 2 if k < len(s) else 0.0
    low = rho + (1 - rho) * np.sqrt(max(0.0, 1 - energy))
    return (1 - low) * high + low * (delta - high), k, energy, low


def opcm_projected(merged, tau, share):
    """(P(τ), r)"""
    if not merged.any() or not tau.any():
        return tau, 0
    u, s, vt = np.linalg.svd(merged, full_matrices=False)
    r = int(np.argmax(np.cumsum(s) > share * s.sum() * (1 + 1e-12))) + 1 if share < 1 else len(s)
    middle = u.T @ tau @ vt.T
    mask = np.eye(len(s), dtype=bool)
    mask[:r, :r] = True
    return tau - u @ (middle * mask) @ vt, r


def opcm(task_vectors, share, is_matrix):
    """(Δ, λ) of a sequence of {name: Δ}; is_matrix(name): whether it is projected."""
    merged, factor, norms = {}, 1.0, []
    for step, tau in enumerate(task_vectors):
        norms.append(np.sqrt(sum((t ** 2).sum() for t in tau.values())))
        if step == 0:
            merged = dict(tau)
            continue
        scaled = {}
        for name in merged.keys() | tau.keys():
            old = merged.get(name, np.zeros_like(tau[name]) if name in tau else None)
            new = tau.get(name, np.zeros_like(old))
            scaled[name] = factor * old + (opcm_projected(old, new, share)[0] if is_matrix(name) else new)
        size = np.sqrt(sum((t ** 2).sum() for t in scaled.values()))
        factor = size / np.mean(norms)
        merged = {name: t / factor for name, t in scaled.items()}
    return merged, factor


def soup(deltas, weights):
    return sum(w * d for w, d in zip(weights, deltas)) / sum(weights)


def task_arithmetic(deltas, weights, scale):
    return scale * sum(w * d for w, d in zip(weights, deltas))


def ties(deltas, weights, scale, density):
    trimmed = []
    for d in deltas:
        k = max(1, int(np.floor(density * d.size + 0.5)))
        limit = np.sort(np.abs(d.astype(np.float32)), axis=None)[-k]
        trimmed.append(np.where(np.abs(d.astype(np.float32)) >= limit, d, 0))
    sign = np.sign(sum(w * t for w, t in zip(weights, trimmed)))
    agree = [np.sign(t) * sign > 0 for t in trimmed]
    total = sum(w * t * a for w, t, a in zip(weights, trimmed, agree))
    count = sum(w * a for w, a in zip(weights, agree))
    return scale * np.where(count > 0, total / np.where(count > 0, count, 1), 0)


def mix(seed: int, index: int) -> int:
    """splitmix64's finalizer"""
    z = (seed + 0x9E3779B97F4A7C15 * (index + 1)) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def dare_mask(seed, source, tensor, shape, drop):
    name = 0xCBF29CE484222325
    for byte in tensor.encode():
        name = ((name ^ byte) * 0x100000001B3) & MASK
    stream = mix(mix(seed, source), name)
    count = int(np.prod(shape))
    return np.array([(mix(stream, i) >> 11) * 2.0 ** -53 >= drop for i in range(count)]).reshape(shape)


def dare(deltas, weights, scale, drop, seed, tensor):
    return scale * sum(w * d * dare_mask(seed, i, tensor, d.shape, drop) / (1 - drop)
                       for i, (w, d) in enumerate(zip(weights, deltas)))


def cosine(x, y):
    size = np.linalg.norm(x) * np.linalg.norm(y)
    return (x * y).sum() / size if size else 0.0


def with_spectrum(rng, m, n, sigma):
    """A matrix whose singular values are known."""
    u = np.linalg.qr(rng.standard_normal((m, len(sigma))))[0]
    v = np.linalg.qr(rng.standard_normal((n, len(sigma))))[0]
    return (u * sigma) @ v.T


def main(path: str) -> None:
    from safetensors.numpy import save_file
    rng = np.random.default_rng(7)
    falling = lambda p: 0.7 ** np.arange(p)
    matrices = {
        "square": with_spectrum(rng, 24, 24, falling(24)),
        "wide": with_spectrum(rng, 12, 40, falling(12)),
        "tall": with_spectrum(rng, 40, 17, falling(17)),
        "deficient": with_spectrum(rng, 21, 30, np.array([3.0, 2.0, 0.5])),
        "equal": with_spectrum(rng, 18, 18, np.ones(18)),
        "zero": np.zeros((9, 6)),
        "row": rng.standard_normal((1, 11)),
        "column": rng.standard_normal((11, 1)),
        "zero_rows": np.where(np.arange(20)[:, None] % 3 == 0, with_spectrum(rng, 20, 26, falling(20)), 0),
        "tiny": 1e-12 * with_spectrum(rng, 20, 22, falling(20)),
    }
    out = {}
    # What is stored is fp32, so that both sides begin with the very same values.
    put = lambda name, value: out.__setitem__(name, np.ascontiguousarray(np.asarray(value, dtype=np.float32)))
    for name, exact in matrices.items():
        delta = exact.astype(np.float32).astype(np.float64)
        put(f"{name}.delta", delta)
        put(f"{name}.sigma", np.linalg.svd(delta, compute_uv=False))
        for label, rule in (("energy", 0.8), ("effective", "effective"), ("rank", ("rank", 5))):
            merged, k, energy, low = monosoup(delta, 1e-8 if name == "tiny" else 10.0, rule)
            put(f"{name}.monosoup.{label}", merged)
            put(f"{name}.monosoup.{label}.figures", [k, energy, low])
            part, k, energy = truncated(delta, rule)
            put(f"{name}.truncated.{label}", part)
        tau = (rng.standard_normal(delta.shape) * (0.5 if name != "tiny" else 1e-12)).astype(np.float32).astype(np.float64)
        put(f"{name}.tau", tau)
        for share in (0.2, 0.5):
            projected, r = opcm_projected(delta, tau, share)
            put(f"{name}.opcm.{share}", delta + projected)
            put(f"{name}.opcm.{share}.rank", [r])
    # Adapters of different ranks; the third is like the first, the fourth is zero.
    factors = []
    for rank in (4, 3, 6, 2):
        factors.append([rng.standard_normal((26, rank)).astype(np.float32), rng.standard_normal((rank, 19)).astype(np.float32)])
    factors[2][0][:, :4] = factors[0][0] + 0.1 * factors[2][0][:, :4]
    factors[2][1][:4] = factors[0][1]
    factors[3][0][:] = 0
    for i, (b, a) in enumerate(factors):
        put(f"lora.{i}.b", b)
        put(f"lora.{i}.a", a)
    products = [b.astype(np.float64) @ a.astype(np.float64) for b, a in factors]
    put("lora.cosine", [[cosine(x, y) for y in products] for x in products])
    # The average of 0 and 1, then with 2 as the third, each time cut to rank 5.
    first, _, kept_first = truncated((products[0] + products[1]) / 2, ("rank", 5))
    second, _, kept_second = truncated(first * 2 / 3 + products[2] / 3, ("rank", 5))
    put("lora.average.1", first)
    put("lora.average.2", second)
    put("lora.average.kept", [kept_first, kept_second])
    save_file(out, path)


if __name__ == "__main__":
    main(sys.argv[1])
