"""How good the variants are: exact match on held-out questions, and deltad's answers against transformers'.

  quality.py reference MODEL_FOLDER NAME OUT.jsonl                    greedy answers by transformers in fp32, with margins;
      [--gguf BASE.gguf] [--adapter LORA [--unmerged]]                weights from a GGUF (rounded to bf16); plus an adapter
  quality.py served URL MODEL NAME OUT.jsonl                          greedy answers by a running deltad
  quality.py mixed URL OUT FORM=SUFFIX …                              all tasks at once, in mixed batches, of models NAME+SUFFIX: OUT/FORM/NAME.jsonl
  quality.py compare SERVED.jsonl REFERENCE.jsonl …                   verdicts that changed, and whether each began at a close call
  quality.py base MODEL_FOLDER --gguf BASE.gguf                       puts the GGUF's weights, in bf16, into a model folder
  quality.py table FOLDER                                             exact match of every FORM/NAME.jsonl in a folder, in per cent

NAME is a task in examples/variants; its 60 questions are asked as the only user message, greedy, 64 tokens at most. An answer is right
if it equals the expected text exactly. A line of OUT: {prompt, expected, text, ids, margins}.
"""
import argparse
import concurrent.futures
import json
import pathlib
import random
import sys
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LIMIT = 64
CLOSE = 0.7  # logits of best and second token nearer than this: rounding may choose otherwise


def questions(name: str) -> list[dict]:
    return [json.loads(line) for line in (ROOT / "examples" / "variants" / name / "questions.jsonl").open()]


def write(path: str, rows: list[dict]) -> None:
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))


def read(path) -> list[dict]:
    return [json.loads(line) for line in pathlib.Path(path).open()]


def right(row: dict) -> bool:
    return row["text"] == row["expected"]


def gguf_model(path: str):
    """The weights as deltad holds them: rounded to bf16."""
    import torch
    from transformers import AutoModelForCausalLM
    at = pathlib.Path(path)
    return AutoModelForCausalLM.from_pretrained(at.parent, gguf_file=at.name, dtype=torch.float32).to(torch.bfloat16)


def put_base(folder: str, gguf: str) -> None:
    from safetensors.torch import save_file
    model = gguf_model(gguf)
    tensors = model.state_dict()
    if model.config.tie_word_embeddings:
        del tensors["lm_head.weight"]
    save_file({name: t.contiguous() for name, t in tensors.items()}, pathlib.Path(folder) / "model.safetensors", {"format": "pt"})


def reference(folder: str, name: str, out: str, gguf: str | None, adapter: str | None, unmerged: bool) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    if gguf:
        model = gguf_model(gguf).to(torch.float32).eval()
    else:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    if adapter:
        from peft import PeftModel
        model = PeftModel.from_pretrained(model, adapter).eval()
        if not unmerged:
            model = model.merge_and_unload()
    asked, rows = questions(name), []
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    for at in range(0, len(asked), 20):
        part = asked[at:at + 20]
        texts = [tokenizer.apply_chat_template([{"role": "user", "content": q["prompt"]}], add_generation_prompt=True, tokenize=False)
                 for q in part]
        tokenizer.pad_token_id = pad
        inputs = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        with torch.no_grad():
            result = model.generate(**inputs, max_new_tokens=LIMIT, do_sample=False, pad_token_id=pad, output_logits=True,
                                    return_dict_in_generate=True)
        new = result.sequences[:, inputs.input_ids.shape[1]:]
        margins = torch.stack([(t := step.topk(2).values)[:, 0] - t[:, 1] for step in result.logits], 1)
        for i, q in enumerate(part):
            ids = new[i].tolist()
            if tokenizer.eos_token_id in ids:
                ids = ids[:ids.index(tokenizer.eos_token_id) + 1]
            rows.append({"prompt": q["prompt"], "expected": q["answer"], "text": tokenizer.decode(ids, skip_special_tokens=True),
                         "ids": ids, "margins": [round(m, 4) for m in margins[i, :len(ids)].tolist()]})
    write(out, rows)
    print(f"{name}: {sum(map(right, rows))} of {len(rows)} right")


def ask(url: str, model: str, question: dict) -> dict:
    body = {"model": model, "messages": [{"role": "user", "content": question["prompt"]}], "temperature": 0, "max_tokens": LIMIT,
            "return_token_ids": True}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        choice = json.load(answer)["choices"][0]
    return {"prompt": question["prompt"], "expected": question["answer"], "text": choice["message"]["content"], "ids": choice["token_ids"]}


def served(url: str, model: str, name: str, out: str) -> None:
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        rows = list(pool.map(lambda q: ask(url, model, q), questions(name)))
    write(out, rows)
    print(f"{name}: {sum(map(right, rows))} of {len(rows)} right")


def mixed(url: str, out: str, forms: list[str], streams: int = 64, alone: int = 4) -> int:
    """Shuffled, so that a batch holds rows of many models; then some of each model again, one after the other, which must not differ."""
    suffixes = dict(form.split("=", 1) for form in forms)
    names = sorted(p.name for p in (ROOT / "examples" / "variants").iterdir())
    asked = [(form, name, i, q) for form in suffixes for name in names for i, q in enumerate(questions(name))]
    random.Random(1).shuffle(asked)
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        answers = pool.map(lambda a: ask(url, a[1] + suffixes[a[0]], a[3]), asked)
        rows = {(form, name, i): row for (form, name, i, _), row in zip(asked, answers, strict=True)}
    for form in suffixes:
        for name in names:
            write(f"{out}/{form}/{name}.jsonl", [rows[form, name, i] for i in range(len(questions(name)))])
    taken = {(form, name): 0 for form in suffixes for name in names}
    differ = 0
    for form, name, i, q in asked:
        if taken[form, name] < alone:
            taken[form, name] += 1
            if ask(url, name + suffixes[form], q) != rows[form, name, i]:
                differ += 1
                print(f"{form} {name}: another answer alone than in the mixed batch: {q['prompt']}")
    print(f"{len(asked)} questions, {streams} at a time; {sum(taken.values())} asked again alone, {differ} differ")
    return 1 if differ else 0


def compare(pairs: list[str]) -> int:
    ours_right = theirs_right = total = bad = 0
    for served_path, reference_path in zip(pairs[::2], pairs[1::2], strict=True):
        name = pathlib.Path(served_path).stem
        ours, theirs = read(served_path), read(reference_path)
        a, b = sum(map(right, ours)), sum(map(right, theirs))
        ours_right, theirs_right, total = ours_right + a, theirs_right + b, total + len(ours)
        if abs(a - b) > 3:
            bad += 1
            print(f"{name}: {a} right, reference {b}: more than 3 apart")
        for x, y in zip(ours, theirs, strict=True):
            if right(x) == right(y):
                continue
            step = next((i for i, (p, q) in enumerate(zip(x["ids"], y["ids"])) if p != q), min(len(x["ids"]), len(y["ids"])))
            margin = y["margins"][step] if step < len(y["margins"]) else float("inf")
            bad += margin >= CLOSE
            print(f"{name}: verdict changed at step {step}, margin {margin:.3f}{'' if margin < CLOSE else ' (NOT a close call)'}")
    print(f"deltad {ours_right} of {total} right ({100 * ours_right / total:.1f} %), transformers {theirs_right} "
          f"({100 * theirs_right / total:.1f} %)")
    if abs(ours_right - theirs_right) > total / 100:
        bad += 1
        print("more than 1 point apart")
    return 1 if bad else 0


def table(folder: str) -> None:
    forms = sorted(p for p in pathlib.Path(folder).iterdir() if p.is_dir() and any(p.glob("*.jsonl")))
    names = sorted({f.stem for form in forms for f in form.glob("*.jsonl")})
    print("| task | " + " | ".join(f.name for f in forms) + " |\n|---" + "|---" * len(forms) + "|")
    sums = {f.name: [0, 0] for f in forms}
    for name in names:
        cells = []
        for form in forms:
            file = form / f"{name}.jsonl"
            if not file.exists():
                cells.append("")
                continue
            rows = read(file)
            got = sum(map(right, rows))
            sums[form.name][0] += got
            sums[form.name][1] += len(rows)
            cells.append(f"{100 * got / len(rows):.0f}")
        print(f"| {name} | " + " | ".join(cells) + " |")
    print("| all | " + " | ".join(f"{100 * a / max(b, 1):.1f}" for a, b in sums.values()) + " |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    p = commands.add_parser("reference")
    p.add_argument("folder"), p.add_argument("name"), p.add_argument("out"), p.add_argument("--gguf"), p.add_argument("--adapter")
    p.add_argument("--unmerged", action="store_true")
    p = commands.add_parser("served")
    p.add_argument("url"), p.add_argument("model"), p.add_argument("name"), p.add_argument("out")
    p = commands.add_parser("mixed")
    p.add_argument("url"), p.add_argument("out"), p.add_argument("forms", nargs="+")
    p = commands.add_parser("base")
    p.add_argument("folder"), p.add_argument("--gguf", required=True)
    p = commands.add_parser("compare")
    p.add_argument("pairs", nargs="+")
    p = commands.add_parser("table")
    p.add_argument("folder")
    a = parser.parse_args()
    if a.command == "reference":
        reference(a.folder, a.name, a.out, a.gguf, a.adapter, a.unmerged)
    elif a.command == "served":
        served(a.url, a.model, a.name, a.out)
    elif a.command == "mixed":
        return mixed(a.url, a.out, a.forms)
    elif a.command == "base":
        put_base(a.folder, a.gguf)
    elif a.command == "compare":
        return compare(a.pairs)
    else:
        table(a.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
