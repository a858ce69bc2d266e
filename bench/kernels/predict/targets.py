"""What the predicted tables owe, read from the tables themselves, and whether a page holds the tables of the code that there is.

Tables are found by the names of their columns. A cell's percentage is taken as it is printed.
"""
import difflib

SHARE = 0.85  # of memory's rate up to MOST_ROWS rows, of the tensor cores' time from LEAST_ROWS on
OF_A_LEVEL = 0.10  # what a level of a variant may add to the time without
MOST_ROWS, LEAST_ROWS = 16, 512
PEAK, IN_A_BLOCK = "of the tensor cores' peak", "tensor pipe busy in a block"  # columns of the prompts' table; L2 bounds both


def tables(text):
    """[{column: cell}] of each table."""
    found = []
    for block in text.split("\n\n"):
        lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in block.splitlines() if line.startswith("|")]
        if len(lines) > 1:
            found.append([dict(zip(lines[0], cells)) for cells in lines[2:]])
    return found


def rows_with(text, *columns):
    """The lines of the tables that have these columns; an error if there is none."""
    found = [line for table in tables(text) if table and set(columns) <= set(table[0]) for line in table]
    if not found:
        raise SystemExit(f"no table has the columns {', '.join(columns)}")
    return found


def number(cell):
    return float(cell.rstrip("%")) / 100 if cell.endswith("%") else float(cell)


def decode(text):
    found = []
    for rows in ("rows", "layer of rows"):
        for line in rows_with(text, rows, "H100: share of its rate", "H200: share of its rate"):
            if int(line[rows]) > MOST_ROWS or line["variants"] == "0":
                continue
            what = f"{rows} {line[rows]}, {line['variants']} variants, levels {line['levels']}"
            for column, cell in line.items():
                if column.endswith("share of its rate") and number(cell) < SHARE:
                    found.append(f"{what}: {column} is {cell}, not {SHARE:.0%}")
                if column.endswith("time / without variants") and number(cell) > 1 + OF_A_LEVEL * int(line["variants"]) * int(line["levels"]):
                    found.append(f"{what}: {column} is {cell}: a level adds more than {OF_A_LEVEL:.0%}")
    rows_with(text, "layer of rows", "H100: time / without variants", "H200: time / without variants")
    return found


def prefill(text):
    found = []
    for line in rows_with(text, "rows", "variants", "weight", PEAK, IN_A_BLOCK):
        rows, weight = int(line["rows"]), line["weight"]
        if rows < LEAST_ROWS or line["variants"] != "1":
            continue
        for column in (PEAK, IN_A_BLOCK):
            if number(line[column]) < SHARE:
                found.append(f"prompts of {rows} rows, {weight}: {column} is {line[column]}, not {SHARE:.0%}")
    return found


def spills(resources):
    return [f"{r.kernel} for {r.arch} spills: {r.spilled} bytes stored and loaded, {r.registers} registers" for r in resources if r.spilled]


def generated_part(page):
    """From the first table on, to the page's end."""
    at = page.find("| kernel |")
    return page[at:] if at >= 0 else ""


def differences(page, text):
    """Lines that the page has and should not have, and the other way round."""
    changes = difflib.unified_diff(generated_part(page).splitlines(), text.rstrip("\n").splitlines(), "the page", "the code", lineterm="", n=0)
    return [line for line in changes if not line.startswith("@@")]


def problems(page, text, resources):
    """All that is wrong. page: what is committed; text: the tables of the code."""
    return differences(page, text) + decode(text) + prefill(text) + spills(resources)
