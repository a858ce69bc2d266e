#!/usr/bin/env python3
"""The adapter pool written down again, in numpy and fp64: the oracle of tests/unit/merge/pool_reference_test.cc.

  pool.py    writes tests/golden/merge/pool.json: what was tried, similarities and merged factors of some pools

The adapters are made from the formula of tests/support/small_adapter.h, so that only results are stored. An adapter's score is
how much of its own delta a candidate still does: <x, c> / max(<x, x>, <c, c>), not below 0.
"""
import json
import math
import pathlib

import numpy as np

import merge

OUT = pathlib.Path(__file__).resolve().parent.parent / "merge" / "pool.json"
HIDDEN, KV, ATTENTION, INNER, LAYERS = 24, 8, 16, 40, 2
SHAPES = {  # of a layer, [outputs, inputs]
    "mlp.down_proj": (HIDDEN, INNER), "mlp.gate_proj": (INNER, HIDDEN), "mlp.up_proj": (INNER, HIDDEN),
    "self_attn.k_proj": (KV, HIDDEN), "self_attn.o_proj": (HIDDEN, ATTENTION), "self_attn.q_proj": (ATTENTION, HIDDEN),
    "self_attn.v_proj": (KV, HIDDEN)}
MODULES = {f"model.layers.{i}.{name}": SHAPES[name] for i in range(LAYERS) for name in sorted(SHAPES)}


def generated(seed, rank, scale=2.0, like=0, alike=0, falling=1.0):
    """{module: (A, B, scale)}, fp32 values."""
    def values(stream, count, width):
        rows = []
        for i in range(count):
            other = merge.mix(merge.mix(seed, 1000 + stream), i) % 100 < alike
            bits = merge.mix(merge.mix(like if other else seed, stream), i) >> 56
            rows.append(np.float32((bits - 128) / 64) * np.float32(falling ** (i // width if width else 0)))
        return np.array(rows, dtype=np.float32)

    out = {}
    for m, (outputs, inputs) in enumerate(MODULES.values()):
        a = values(2 * m, rank * inputs, inputs).reshape(rank, inputs)
        b = values(2 * m + 1, outputs * rank, 0).reshape(outputs, rank)
        out[list(MODULES)[m]] = (a, b, scale)
    return out


def quantised(bits, vector):
    """One rank vector, as it comes back."""
    most = np.float32(np.abs(vector).max())
    if bits == 8:
        scale = most / np.float32(127)
        return (np.clip(np.rint(vector / scale), -127, 127) * scale).astype(np.float32) if scale else vector
    best, least = None, None
    for percent in range(100, 59, -5):
        scale = most * (np.float32(percent) / np.float32(100)) / np.float32(7)
        q = np.clip(np.rint(vector / scale), -7, 7) if scale else np.zeros_like(vector)
        error = ((vector.astype(np.float64) - np.float64(scale) * q) ** 2).sum()
        if least is None or error < least:
            best, least = (q * scale).astype(np.float32), error
    return best


def bf16(x):
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16
    return bits.astype(np.uint32).view(np.float32)


class Member:
    def __init__(self, factors, bits, adapters, held=1, factor=1.0, norm_sum=0.0):
        self.bits, self.adapters, self.held, self.factor, self.norm_sum = bits, adapters, held, factor, norm_sum
        self.factors = {}
        for name, (a, b, scale) in factors.items():
            if bits == 16:
                a, b = bf16(a), bf16(b)
            else:
                a = np.array([quantised(bits, row) for row in np.asarray(a, dtype=np.float32)])
                b = np.array([quantised(bits, row) for row in np.asarray(b, dtype=np.float32).T]).T
            self.factors[name] = (a, b, scale)
        self.delta = {n: s * b.astype(np.float64) @ a.astype(np.float64) for n, (a, b, s) in self.factors.items()}
        self.rank = max(a.shape[0] for a, _, _ in self.factors.values())

    def size(self):
        """Bytes of the file."""
        half = lambda n: (n + 1) // 2
        row = {16: lambda o, i: 2 * (o + i), 8: lambda o, i: 8 + o + i, 4: lambda o, i: 8 + half(o) + half(i)}[self.bits]
        scales = [s for _, _, s in self.factors.values()]
        text = lambda s: f"{s:.17g}" if s != int(s) else str(int(s))
        header = {"__metadata__": {"base_digest": "base", "bits": str(self.bits), "digest": "0" * 32, "format": "deltad.lora",
                                   "scale": text(scales[0]), "version": "1"}}
        at = 0
        for name, (a, _, _) in self.factors.items():
            n = row(*MODULES[name])
            header[name] = {"dtype": "U8", "shape": [a.shape[0], n], "data_offsets": [at, at + a.shape[0] * n]}
            at += a.shape[0] * n
        return 8 + (len(json.dumps(header, separators=(",", ":"))) + 7) // 8 * 8 + at


def norm(delta):
    return math.sqrt(sum((d ** 2).sum() for d in delta.values()))


def dot(x, y):
    return sum((x[n] * y[n]).sum() for n in x)


def similarity(x, y):
    return float(np.mean([merge.cosine(x.delta[n], y.delta[n]) for n in MODULES]))


def halves(delta, rank):
    """Factors of the best approximation, of one size: (A, B, 1)."""
    u, s, vt = np.linalg.svd(delta, full_matrices=False)
    root = np.sqrt(s[:rank])
    return root[:, None] * vt[:rank], u[:, :rank] * root, 1.0


def cut(member, most_dropped):
    out, kept, whole, changed = {}, 0.0, 0.0, False
    for name, d in member.delta.items():
        s = np.linalg.svd(d, compute_uv=False) ** 2
        rank = 1 + int(np.argmax(np.cumsum(s) >= (1 - most_dropped) * s.sum() * (1 - 1e-12)))
        changed |= rank < member.factors[name][0].shape[0]
        kept, whole = kept + s[:rank].sum(), whole + s.sum()
        out[name] = halves(d, rank)
    return out, kept / whole, changed


def average(x, y):
    n = x.held + y.held
    out = {m: halves((x.held * x.delta[m] + y.held * y.delta[m]) / n, x.factors[m][0].shape[0]) for m in MODULES}
    return out, dict(held=n, factor=float(n), norm_sum=x.norm_sum + y.norm_sum)


def opcm(x, y, share=0.5):
    out = {}
    for m in MODULES:
        u, s, vt = np.linalg.svd(x.delta[m], full_matrices=False)
        there = s > 1e-6 * s[0]
        u, s, vt = u[:, there], s[there], vt[there]
        r = int(np.argmax(np.cumsum(s) > share * s.sum())) + 1
        mask = np.eye(len(s), dtype=bool)
        mask[:r, :r] = True
        projected = y.delta[m] - u @ ((u.T @ y.delta[m] @ vt.T) * mask) @ vt
        out[m] = halves(x.factor * x.delta[m] + projected, x.factors[m][0].shape[0])
    n, norms = x.held + y.held, x.norm_sum + y.norm_sum
    factor = norm({m: b @ a for m, (a, b, _) in out.items()}) / (norms / n)
    return {m: (a, b / factor, 1.0) for m, (a, b, _) in out.items()}, dict(held=n, factor=factor, norm_sum=norms)


class Pool:
    def __init__(self, budget, policy, merge_by, keep_share, most_dropped):
        self.budget, self.policy, self.merge_by = budget, policy, merge_by
        self.keep_share, self.most_dropped = keep_share, most_dropped
        self.members, self.original = [], {}

    def score(self, name, member):
        x, c = self.original[name], member.delta
        return max(0.0, dot(x, c) / max(dot(x, x), dot(c, c)))

    def bytes(self, members):
        return sum(m.size() for m in members)

    def trial(self, step, member, **more):
        scores = {}
        for name in member.adapters:
            scores[name] = self.score(name, member)
            if scores[name] < self.keep_share - 1e-9:
                break
        ok = all(s >= self.keep_share - 1e-9 for s in scores.values())
        # Decisions must not hang on rounding.
        assert all(abs(s - self.keep_share) > 1e-4 for s in scores.values()), scores
        self.trials.append({"step": step, "adapters": member.adapters, "bits": member.bits, "rank": member.rank, "bytes": member.size(),
                            "scores": list(scores.values()), "accepted": ok, **more})
        return ok, min(scores.values())

    def add(self, name, factors):
        """The trials; whether it was accepted."""
        self.trials = []
        new = Member(factors, 16, [name])
        new.norm_sum = norm(new.delta)
        self.original[name] = new.delta
        self.trial("store", new)
        members = self.members + [new]
        if self.policy == "shrink-first":
            for step in ("8 bits", "rank", "4 bits"):
                members, new = self.shrink(step, members, new)
        if self.bytes(members) > self.budget:
            members = self.merge_newcomer(members, new)
        if members is None:
            return self.trials, False
        self.members = members
        return self.trials, True

    def shrink(self, step, members, new):
        tried = set()
        while self.bytes(members) > self.budget:
            able = [m for m in members if id(m) not in tried and
                    (m.bits > 8 if step == "8 bits" else m.bits > 4 if step == "4 bits" else m.rank > 1)]
            if not able:
                break
            sizes = sorted((m.size() for m in able), reverse=True)
            assert len(sizes) < 2 or sizes[0] != sizes[1], "equal sizes: which is first is not determined"
            old = max(able, key=Member.size)
            tried.add(id(old))
            history = dict(held=old.held, factor=old.factor, norm_sum=old.norm_sum)
            if step == "rank":
                factors, kept, changed = cut(old, self.most_dropped)
                if not changed:
                    continue
                small = Member(factors, old.bits, old.adapters, **history)
                ok, _ = self.trial(step, small, kept_energy=kept)
            else:
                small = Member(old.factors, 8 if step == "8 bits" else 4, old.adapters, **history)
                ok, _ = self.trial(step, small)
            if ok:
                members = [small if m is old else m for m in members]
                tried.add(id(small))
                new = small if new is old else new
        return members, new

    def merge_newcomer(self, members, new):
        others = sorted((m for m in members if m is not new), key=lambda m: -similarity(new, m))
        for x in others:
            rest = [m for m in members if m is not x and m is not new]
            room, best, best_worst = self.budget - self.bytes(rest), None, None
            for step, way in (("average", average), ("opcm", opcm)):
                if self.merge_by not in ("best", step):
                    continue
                factors, history = way(x, new)
                for bits in (16, 8, 4):
                    merged = Member(factors, bits, x.adapters + new.adapters, **history)
                    if merged.size() <= room or self.policy == "kmerge":
                        break
                ok, worst = self.trial(step, merged, similarity=similarity(new, x))
                if ok and best is not None:
                    assert abs(worst - best_worst) > 1e-4
                if ok and (best is None or worst > best_worst):
                    if best is not None:
                        best_trial["accepted"] = False
                    best, best_worst, best_trial = merged, worst, self.trials[-1]
                elif ok:
                    self.trials[-1]["accepted"] = False
            if best is not None:
                return rest + [best]
        return None


def rounded(value):
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return [rounded(v) for v in value] if isinstance(value, list) else value


# Ranks differ, so that no two files have the same size.
ADAPTERS = [dict(seed=11, rank=4), dict(seed=12, rank=6), dict(seed=13, rank=5, like=11, alike=60), dict(seed=14, rank=3, like=12, alike=75),
            dict(seed=15, rank=7, falling=0.4), dict(seed=16, rank=2, like=11, alike=80)]
POOLS = [dict(budget=34000, policy="shrink-first", merge_by="best", keep_share=0.93, most_dropped=0.1),
         dict(budget=21000, policy="shrink-first", merge_by="best", keep_share=0.3, most_dropped=0.1),
         dict(budget=19000, policy="kmerge", merge_by="average", keep_share=0.2, most_dropped=0.1),
         dict(budget=19000, policy="kmerge", merge_by="opcm", keep_share=0.2, most_dropped=0.1),
         dict(budget=19000, policy="kmerge", merge_by="best", keep_share=0.45, most_dropped=0.1)]


def main() -> None:
    results = []
    for settings in POOLS:
        pool, adds = Pool(**settings), []
        for i, adapter in enumerate(ADAPTERS):
            trials, accepted = pool.add(f"a{i}", generated(**adapter))
            adds.append({"accepted": accepted, "trials": trials, "bytes": pool.bytes(pool.members)})
        members = []
        for m in pool.members:
            # The merged deltas: their size, and their products with every adapter's own.
            members.append({"adapters": m.adapters, "bits": m.bits, "held": m.held, "norm": norm(m.delta), "lambda": m.factor,
                            "products": [dot(m.delta, pool.original[n]) for n in sorted(pool.original)]})
        results.append({**settings, "adds": adds, "members": members})
        print([(a["accepted"], [(t["step"], t["accepted"]) for t in a["trials"]]) for a in adds])
    vectors = {str(bits): [float(x) for x in quantised(bits, np.array([((i * 37) % 101 - 50) / 32 for i in range(33)], dtype=np.float32))]
               for bits in (8, 4)}
    OUT.write_text(json.dumps(rounded({"adapters": ADAPTERS, "pools": results, "vectors": vectors}), separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
