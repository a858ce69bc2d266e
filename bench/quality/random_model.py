"""A model folder of any size with random weights, and a fine-tune of it, written layer by layer: for measuring what compression needs.

  random_model.py TOKENIZER_FOLDER OUT [--layers 16] [--hidden 2048] [--mlp 8192]      makes OUT/base and OUT/tuned
"""
import argparse
import json
import pathlib
import shutil

import numpy as np

TEXT_FILES = ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"]


def narrow(values):
    """bf16 bits, rounded to nearest."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def shapes(config):
    hidden, mlp, kv = config["hidden_size"], config["intermediate_size"], config["num_key_value_heads"] * config["head_dim"]
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        yield at + "input_layernorm.weight", (hidden,)
        yield at + "post_attention_layernorm.weight", (hidden,)
        yield at + "self_attn.q_proj.weight", (hidden, hidden)
        yield at + "self_attn.k_proj.weight", (kv, hidden)
        yield at + "self_attn.v_proj.weight", (kv, hidden)
        yield at + "self_attn.o_proj.weight", (hidden, hidden)
        yield at + "mlp.gate_proj.weight", (mlp, hidden)
        yield at + "mlp.up_proj.weight", (mlp, hidden)
        yield at + "mlp.down_proj.weight", (hidden, mlp)
    yield "model.norm.weight", (hidden,)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tokenizer"), parser.add_argument("out")
    for name, default in {"layers": 16, "hidden": 2048, "mlp": 8192}.items():
        parser.add_argument("--" + name, type=int, default=default)
    options = parser.parse_args()
    source = pathlib.Path(options.tokenizer)
    config = json.loads((source / "config.json").read_text())
    config |= {"num_hidden_layers": options.layers, "hidden_size": options.hidden, "intermediate_size": options.mlp, "head_dim": 64,
               "num_attention_heads": options.hidden // 64, "num_key_value_heads": options.hidden // 256, "tie_word_embeddings": True}
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes(config):
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    files = []
    for part in ("base", "tuned"):
        folder = pathlib.Path(options.out) / part
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config))
        for file in TEXT_FILES:
            if (source / file).exists():
                shutil.copy(source / file, folder / file)
        files.append((folder / "model.safetensors").open("wb"))
        files[-1].write(len(text).to_bytes(8, "little") + text)
    # One block of random values serves all rows: what compression costs does not depend on them.
    random = np.random.default_rng(1)
    pool = random.standard_normal(1 << 22, dtype=np.float32)
    for name, shape in shapes(config):
        count = int(np.prod(shape))
        for first in range(0, count, 1 << 22):
            n = min(1 << 22, count - first)
            shift = int(random.integers(1 << 22))
            value = np.ones(n, np.float32) if len(shape) == 1 else np.roll(pool, shift)[:n] * 0.02
            change = 0 if len(shape) == 1 or "embed" in name else np.roll(pool, 2 * shift + 1)[:n] * 0.0005
            files[0].write(narrow(value).tobytes())
            files[1].write(narrow(value + change).tobytes())
    for file in files:
        file.close()
    print(f"{sum(int(np.prod(s)) for _, s in shapes(config)) / 1e9:.2f} billion weights in {options.out}")


if __name__ == "__main__":
    main()
