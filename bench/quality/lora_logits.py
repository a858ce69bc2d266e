"""The logits of the adapters in examples/variants: deltad's against peft's, merged and unmerged. See docs/measurements.md.

  lora_logits.py BASE_FOLDER MODEL [--build build/release] [--isa ISA] [NAME …]

BASE_FOLDER is the base as transformers loads it (quality.py base), MODEL the same for deltactl. For each adapter the first questions of
its task with their answers: transformers and peft in fp32 against `deltactl logits`. Fails if peft's own two forms differ by more than
1e-3 (the tolerance of tests/golden/make/lora.py), or if deltad is off by more than twice what it is off by for the base alone (rms), or
anywhere by more than 3 % of the largest change that the adapter makes.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from quality import ROOT, questions

QUESTIONS = 2


def deltad(arguments, ids: list[int], adapter) -> torch.Tensor:
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "logits"
        delta = ["--delta", str(adapter)] if adapter else []
        isa = ["--isa", arguments.isa] if arguments.isa else []
        subprocess.run([f"{arguments.build}/deltactl", "logits", "--base", arguments.model, *delta, *isa, "--ids", ",".join(map(str, ids)),
                        "-o", str(out)], check=True, stdout=subprocess.DEVNULL)
        return load_file(out)["logits"].float()


def of(model, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float()


def apart(a, b) -> float:
    return (a - b).abs().max().item()


def off(ours, theirs) -> tuple[float, float, int]:
    """Largest and root of the mean square difference, and at how many tokens the likeliest one is another."""
    return apart(ours, theirs), (ours - theirs).square().mean().sqrt().item(), int((ours.argmax(-1) != theirs.argmax(-1)).sum())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder"), parser.add_argument("model"), parser.add_argument("names", nargs="*")
    parser.add_argument("--build", default="build/release"), parser.add_argument("--isa")
    arguments = parser.parse_intermixed_args()
    names = arguments.names or sorted(p.name for p in (ROOT / "examples" / "variants").iterdir())
    tokenizer = AutoTokenizer.from_pretrained(arguments.folder)
    print("| adapter | tokens | largest change of a logit | peft merged − unmerged | deltad − peft: largest | rms | the base's: largest | rms | "
          "another top token |\n|---" + "|---" * 8 + "|")
    bad, total = 0, [0, 0]
    for name in names:
        adapter = ROOT / "examples" / "variants" / name
        model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(arguments.folder, dtype=torch.float32), adapter).eval()
        prompts = [tokenizer(tokenizer.apply_chat_template([{"role": "user", "content": q["prompt"]}], add_generation_prompt=True,
                                                           tokenize=False) + q["answer"])["input_ids"] for q in questions(name)[:QUESTIONS]]
        unmerged = torch.cat([of(model, ids) for ids in prompts])
        with model.disable_adapter():
            plain = torch.cat([of(model, ids) for ids in prompts])
        merged = model.merge_and_unload()
        merged = torch.cat([of(merged, ids) for ids in prompts])
        ours = torch.cat([deltad(arguments, ids, adapter) for ids in prompts])
        base = torch.cat([deltad(arguments, ids, None) for ids in prompts])
        worst, mean, other = off(ours, unmerged)
        base_worst, base_mean, _ = off(base, plain)
        forms = apart(merged, unmerged)
        total[0] += other
        total[1] += len(ours)
        change = apart(unmerged, plain)
        print(f"| {name} | {len(ours)} | {change:.1f} | {forms:.1e} | {worst:.3f} | {mean:.4f} | {base_worst:.3f} | "
              f"{base_mean:.4f} | {other} |", flush=True)
        bad += forms > 1e-3 or worst > 0.03 * change or mean > 2 * base_mean
    print(f"{total[0]} of {total[1]} tokens have another likeliest next token; {bad} adapters out of tolerance")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
