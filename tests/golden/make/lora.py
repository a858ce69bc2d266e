#!/usr/bin/env python3
"""Makes tests/golden/lora: small LoRA adapters for the tiny models of tests/golden/models, one for each thing
that an adapter may say, with the logits that PEFT gives them (fp32, base weights as the daemon holds them).

Needs torch, transformers, peft, safetensors and gguf. Writes the same files again.
  python tests/golden/make/lora.py
"""
import json
import pathlib
import shutil

import gguf
import numpy as np
import peft
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

GOLDEN = pathlib.Path(__file__).resolve().parent.parent
OUT = GOLDEN / "lora"
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
STEPS = 12

# name: (model, stored type, LoraConfig arguments)
ADAPTERS = {
    "plain": ("llama", torch.bfloat16, dict(r=4, lora_alpha=8, target_modules=ALL)),
    "scales": ("llama", torch.float16,
               dict(r=5, lora_alpha=8, use_rslora=True, target_modules="all-linear",
                    rank_pattern={"up_proj": 3, r"layers\.0\.self_attn\.q_proj": 17, "down_proj": 1},
                    alpha_pattern={r"layers\.[12]\.mlp\.gate_proj": 5, "v_proj": 30})),
    "regex": ("llama", torch.float32,
              dict(r=2, lora_alpha=3, target_modules=r"model\.layers\.[02]\.(self_attn\.(q|v)_proj|mlp\.down_proj)")),
    "layers": ("awkward", torch.bfloat16,
               dict(r=5, lora_alpha=10, fan_in_fan_out=False, target_modules=["k_proj", "gate_proj", "o_proj"],
                    layers_to_transform=[1, 2], layers_pattern="layers")),
    "tables": ("awkward", torch.bfloat16,
               dict(r=2, lora_alpha=6, target_modules=["q_proj", "embed_tokens", "lm_head"])),
    "saved": ("llama", torch.bfloat16,
              dict(r=3, lora_alpha=3, target_modules=["up_proj", "o_proj"],
                   modules_to_save=["norm", "input_layernorm", "lm_head"])),
    # Five tokens more. Their embeddings, which PEFT saves whole and twice as the head is tied, are too large to keep
    # here; tests/contract/golden_model_test.cc adds them by added_rows' formula.
    "added": ("llama", torch.bfloat16, dict(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"])),
}
ADDED = 5


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float()


def continuation(model, ids):
    greedy, margins = [], []
    for _ in range(STEPS):
        top = torch.topk(logits_of(model, ids + greedy)[-1], 2)
        greedy.append(int(top.indices[0]))
        margins.append(float(top.values[0] - top.values[1]))
    return greedy, margins


def added_rows(vocab, columns):
    row, column = torch.arange(vocab, vocab + ADDED)[:, None], torch.arange(columns)[None, :]
    return ((31 * row + 17 * column) % 64 - 32).float() / 128


def add_tokens(base):
    vocab, columns = base.get_input_embeddings().weight.shape
    base.resize_token_embeddings(vocab + ADDED, mean_resizing=False)
    with torch.no_grad():
        base.get_input_embeddings().weight[vocab:] = added_rows(vocab, columns)
    assert base.get_output_embeddings().weight is base.get_input_embeddings().weight


def make(name, base_name, dtype, arguments):
    torch.manual_seed(sum(name.encode()))
    folder = OUT / name
    base = LlamaForCausalLM.from_pretrained(GOLDEN / "models" / base_name, dtype=torch.float32)
    if name == "added":
        add_tokens(base)
    vocab = base.config.vocab_size
    model = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", **arguments))
    with torch.no_grad():
        for key, value in model.named_parameters():
            if not value.requires_grad:
                continue
            if "lora_embedding_A" in key:
                value.normal_(0, 0.3)
            elif "lora_embedding_B" in key:
                value.normal_(0, 0.1)
            elif "lora_A" in key:
                value.normal_(0, value.shape[1] ** -0.5)
            elif "lora_B" in key:
                value.normal_(0, 0.25)
            else:
                value.mul_(1 + 0.2 * torch.randn_like(value))
            # The daemon holds factors and tensors in bf16.
            value.copy_(value.to(torch.bfloat16).float())
    model.eval()
    # A prompt after which the first greedy steps are no close calls.
    for first in range(100):
        ids = [1] + [(37 * i + 11 + first) % (vocab - 3) + 3 for i in range(4)]
        if name == "added":
            ids[2], ids[4] = vocab - 5, vocab - 1
        greedy, margins = continuation(model, ids)
        if min(margins[:4]) > 0.25:
            break
    expected = logits_of(model, ids)
    with model.disable_adapter():
        plain = logits_of(model, ids)

    shutil.rmtree(folder, ignore_errors=True)
    if name == "added":
        model.save_pretrained(folder, save_embedding_layers=True)
        whole = {k for k in load_file(folder / "adapter_model.safetensors") if "lora" not in k}
        assert whole == {"base_model.model.model.embed_tokens.weight", "base_model.model.lm_head.weight"}, whole
    model.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)
    weights = load_file(folder / "adapter_model.safetensors")
    save_file({k: v.to(dtype).contiguous() for k, v in weights.items()}, folder / "adapter_model.safetensors")
    config = json.loads((folder / "adapter_config.json").read_text())
    for key in ("target_modules", "modules_to_save"):
        if isinstance(config.get(key), list):
            config[key].sort()
    config["base_model_name_or_path"] = base_name
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")

    # Merged: W + s·BA in fp32.
    merged = logits_of(model.merge_and_unload(), ids)
    off, effect = (merged - expected).abs().max().item(), (expected - plain).abs().max().item()
    print(f"{name}: merged differs by {off:.2e}, the adapter changes logits by {effect:.2f}, "
          f"margins {min(margins):.3f} to {max(margins):.3f}")
    assert off < 1e-3 and effect > 2, name
    save_file({"input_ids": torch.tensor(ids), "logits": expected, "greedy_ids": torch.tensor(greedy),
               "greedy_margins": torch.tensor(margins)}, folder / "reference.safetensors")


def make_gguf(name, base_name):
    """The adapter as llama.cpp's convert_lora_to_gguf lays it out: rows of q and k paired another way."""
    model = json.loads((GOLDEN / "models" / base_name / "config.json").read_text())
    config = json.loads((OUT / name / "adapter_config.json").read_text())
    heads = {"attn_q": model["num_attention_heads"], "attn_k": model["num_key_value_heads"]}
    names = dict(zip(ALL, ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]))
    writer = gguf.GGUFWriter(OUT / f"{name}.gguf", "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(config["lora_alpha"]))
    for key, value in sorted(load_file(OUT / name / "adapter_model.safetensors").items()):
        parts = key.split(".")  # base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight
        kind, factor = names[parts[-3]], parts[-2][-1].lower()
        array = value.float().numpy()
        if factor == "b" and kind in heads:
            rows = array.shape[0]
            array = array.reshape(heads[kind], 2, rows // heads[kind] // 2, -1).swapaxes(1, 2).reshape(rows, -1)
        writer.add_tensor(f"blk.{parts[4]}.{kind}.weight.lora_{factor}", np.ascontiguousarray(array, np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    for name, (base_name, dtype, arguments) in ADAPTERS.items():
        make(name, base_name, dtype, arguments)
    make_gguf("plain", "llama")
