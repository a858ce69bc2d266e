#!/usr/bin/env python3
"""What the machine code of the CUDA kernels says, without a GPU.

  predict.py spills BUILD/cuda              fails if a kernel spills registers
  predict.py table BUILD/cuda --nvdisasm X  a table of every kernel: registers, shared memory, occupancy, and how long each pipe
                                            is busy with one turn of the hot loop, all of its branches taken;
                                            then how far the decode kernel is bound by device memory, what variants add to a
                                            layer, and how busy the prefill kernels keep the tensor cores
  predict.py check BUILD/cuda FILE --nvdisasm X  fails if FILE does not end with just those tables, if they fall short of
                                                 what is owed (targets.py), or if a kernel spills
"""
import argparse
import pathlib
import re
import sys

import decode
import prefill
import resources
import sass
import targets

COLUMNS = ("issue", "tensor", "alu", "fma", "double", "special", "memory", "uniform", "branch")


def threads_of(folder, r):
    """The block's size that the PTX was compiled for."""
    text = (pathlib.Path(folder) / r.arch / f"{r.file}.ptx").read_text()
    m = re.search(r"\.entry " + r.kernel + r"\(.*?\.(?:maxntid|reqntid) (\d+)", text, re.S)
    return int(m[1]) if m else 256


def row(folder, r, kernels):
    threads = threads_of(folder, r)
    blocks, limit = resources.blocks_resident(r, threads, 0)
    cells = [f"`{r.kernel}`", r.arch, r.registers, r.stack, f"{blocks} × {threads} ({limit})"]
    loop = kernels[r.kernel].hot_loop()
    if loop is None:
        return cells + ["no loop"] + [""] * (len(COLUMNS) + 1)
    cycles = sass.busy(kernels[r.kernel], loop, r.arch)
    code = kernels[r.kernel].code[loop.begin:loop.end + 1]
    cells += [len(code), sum(map(sass.bytes_of, code))]
    return cells + [f"{cycles[c]:g}" if cycles[c] else "" for c in COLUMNS]


def table(folder, nvdisasm):
    head = ("kernel", "for", "registers", "stack", "blocks by registers", "loop", "bytes") + COLUMNS
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    disassembled = {}
    for r in sorted(resources.read(folder), key=lambda r: (r.kernel, r.arch)):
        cubin = pathlib.Path(folder) / r.arch / f"{r.file}.cubin"
        if cubin not in disassembled:
            disassembled[cubin] = {k.name: k for k in sass.disassemble(nvdisasm, cubin)}
        lines.append("| " + " | ".join(map(str, row(folder, r, disassembled[cubin]))) + " |")
    generated = {**disassembled[pathlib.Path(folder) / "sm_90a/linear_decode.cubin"],
                 **disassembled[pathlib.Path(folder) / "sm_90a/sign_planes.cubin"]}
    prompts = [list(disassembled[pathlib.Path(folder) / file].values())
               for file in ("sm_90a/linear_prefill_sm_90a.cubin", "sm_80/linear_prefill.cubin")]
    return "\n".join(lines) + "\n\n" + decode.table(generated) + "\n\n" + prefill.table(*prompts)


def tell(problems):
    for problem in problems:
        print(problem)
    return 1 if problems else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("spills", "table", "check"))
    parser.add_argument("folder")
    parser.add_argument("file", nargs="?")
    parser.add_argument("--nvdisasm", default="nvdisasm")
    args = parser.parse_args()
    if args.command == "spills":
        return tell(targets.spills(resources.read(args.folder)))
    text = table(args.folder, args.nvdisasm)
    if args.command == "table":
        print(text)
        return 0
    if args.file is None:
        parser.error("check needs the file that holds the table")
    return tell(targets.problems(pathlib.Path(args.file).read_text(), text, resources.read(args.folder)))


if __name__ == "__main__":
    sys.exit(main())
