"""Lists what emulated headers declare, for toolkit_test.cc: toolkit_names.py FILE HEADER…

VALUE(name): an enumerator or a macro; FUNCTION(name); FIELD(struct, name); SIZE(type).
"""
import pathlib
import re
import sys


def names(headers):
    every = "\n".join(re.sub(r"//.*", "", pathlib.Path(h).read_text()) for h in headers)
    every = re.sub(r"(?<!typedef )struct\s*\{[^{}]*\}\s*(\w+);", r"int \1;", every)  # a field's type without a name
    for body in re.findall(r"enum(?: \w+)?\s*\{([^}]*)\}", every):
        for enumerator in filter(None, (e.strip() for e in body.split(","))):
            yield f"VALUE({enumerator.split('=')[0].strip()})"
    for macro in re.findall(r"#define ((?:cuda|NCCL_)\w+) ", every):
        yield f"VALUE({macro})"
    for function in re.findall(r"\b((?:cuda|cublasLt|nccl)[A-Z]\w+)\(", every):
        # Its configuration's type has a version in its name; the fields are compared.
        if function != "ncclCommInitRankConfig":
            yield f"FUNCTION({function})"
    for tag, body, alias in re.findall(r"(?:struct|union) ?(\w*)\s*\{([^{}]*)\}\s*(\w*);", every):
        fields = re.findall(r"(\w+)(?:\[[^\]]*\])?;", body)
        # Types that nobody looks into must have the same size; dim3 has a constructor.
        if tag == "dim3":
            continue
        if fields in (["data"], ["internal"]):
            yield f"SIZE({alias})"
            continue
        for field in fields:
            if field != "pad":
                yield f"FIELD({alias or tag}, {field})"


pathlib.Path(sys.argv[1]).write_text("".join(f"{name}\n" for name in names(sys.argv[2:])))
