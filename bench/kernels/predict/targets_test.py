#!/usr/bin/env python3
"""That the check of the predicted tables fails for each thing that it is there for, and for nothing else."""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import resources
import targets

PAGE = (pathlib.Path(__file__).parents[3] / "docs/kernels_predicted.md").read_text()
TEXT = targets.generated_part(PAGE)
FITS = [resources.Resources("deltad_kernel", "sm_90a", "kernel", 128, 0, 0, 0)]
PTXAS = """ptxas info    : Compiling entry function 'deltad_kernel' for 'sm_90a'
    {stack} bytes stack frame, {spilled} bytes spill stores, {spilled} bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 16 bytes smem
"""


def with_cell(text, column, value, **where):
    """text with `value` in the first line of a table with the column whose other cells are as in `where`."""
    for block in text.split("\n\n"):
        lines = block.splitlines()
        head = [cell.strip() for cell in lines[0].strip("|").split("|")]
        for line in lines[2:]:
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            named = dict(zip(head, cells))
            if column in named and all(named.get(k.replace("_", " ")) == v for k, v in where.items()):
                cells[head.index(column)] = value
                return text.replace(line, "| " + " | ".join(cells) + " |", 1)
    raise AssertionError(f"no line with {column} where {where}")


class Page(unittest.TestCase):
    def test_is_right_as_it_is(self):
        self.assertEqual(targets.problems(PAGE, TEXT, FITS), [])

    def test_without_a_line_is_found(self):
        line = TEXT.splitlines()[7]
        found = targets.problems(PAGE.replace(line + "\n", "", 1), TEXT, FITS)
        self.assertIn("+" + line, found)

    def test_with_a_line_of_a_kernel_that_is_gone_is_found(self):
        line = TEXT.splitlines()[7]
        gone = line.replace("deltad_", "deltad_gone_", 1)
        found = targets.problems(PAGE.replace(line, gone + "\n" + line, 1), TEXT, FITS)
        self.assertEqual([f for f in found if f[:2] not in ("--", "++")], ["-" + gone])

    def test_with_a_line_twice_or_after_the_tables_is_found(self):
        last = TEXT.splitlines()[-1]
        self.assertNotEqual(targets.problems(PAGE + last + "\n", TEXT, FITS), [])

    def test_with_a_changed_line_is_found(self):
        line = TEXT.splitlines()[2]
        changed = re.sub(r"\d+ \|", "1 |", line, count=1)
        self.assertNotEqual(targets.problems(PAGE.replace(line, changed, 1), TEXT, FITS), [])

    def test_without_tables_is_found(self):
        self.assertNotEqual(targets.problems("# Nothing", TEXT, FITS), [])


class Targets(unittest.TestCase):
    """Page and code agree, and owe more than they hold."""

    def missed(self, text):
        found = targets.problems(text, text, FITS)
        self.assertEqual(len(found), 1, found)
        return found[0]

    def test_memory_rate_of_a_turn(self):
        for device in ("H100", "H200"):
            for rows, variants in (("1", "1"), ("16", "4"), ("16", "14")):
                text = with_cell(TEXT, f"{device}: share of its rate", "84.9%", rows=rows, variants=variants)
                self.assertIn("84.9%", self.missed(text))

    def test_memory_rate_of_a_layer(self):
        self.assertIn("84.9%", self.missed(with_cell(TEXT, "H200: share of its rate", "84.9%", layer_of_rows="8", variants="4")))

    def test_memory_rate_is_not_owed_beyond_16_rows(self):
        text = with_cell(TEXT, "H100: share of its rate", "10.0%", rows="32", variants="1")
        self.assertEqual(targets.problems(text, text, FITS), [])

    def test_time_with_a_variant(self):
        column = "H200: time / without variants"
        self.assertIn("1.101", self.missed(with_cell(TEXT, column, "1.101", layer_of_rows="1", variants="1")))
        text = with_cell(TEXT, column, "1.100", layer_of_rows="1", variants="1")
        self.assertEqual(targets.problems(text, text, FITS), [])
        self.assertIn("1.401", self.missed(with_cell(TEXT, column, "1.401", layer_of_rows="16", variants="4", levels="1")))

    def test_tensor_pipe_of_prompts(self):
        for line in targets.rows_with(TEXT, "weight", targets.PEAK):
            text = with_cell(TEXT, targets.PEAK, "10%", rows=line["rows"], variants=line["variants"], weight=line["weight"])
            if line["variants"] == "1" and int(line["rows"]) >= targets.LEAST_ROWS:
                self.assertIn("10%", self.missed(text))
            else:
                self.assertEqual(targets.problems(text, text, FITS), [])
        line = next(l for l in targets.rows_with(TEXT, "weight", targets.PEAK) if l["rows"] == "2048" and l["variants"] == "1")
        self.assertIn("84%", self.missed(with_cell(TEXT, targets.PEAK, "84%", rows="2048", variants="1", weight=line["weight"])))

    def test_prompts_that_cannot_fill_a_device_owe_less_but_not_nothing(self):
        for (rows, weight), (least, reason) in targets.NOT_FILLED.items():
            self.assertTrue(reason)
            self.assertLess(least, targets.SHARE)
            text = with_cell(TEXT, targets.PEAK, f"{least - 0.01:.0%}", rows=str(rows), variants="1", weight=weight)
            self.assertIn(weight, self.missed(text))
            text = with_cell(TEXT, targets.IN_A_BLOCK, "84%", rows=str(rows), variants="1", weight=weight)
            self.assertIn(weight, self.missed(text))

    def test_a_table_that_is_gone(self):
        for columns in (("| layer of rows |",), ("| rows |", "| H100: share of its rate |"), (f"| {targets.PEAK} |",)):
            blocks = [b for b in TEXT.split("\n\n") if not all(c in b for c in columns)]
            self.assertEqual(len(blocks), len(TEXT.split("\n\n")) - 1, columns)
            text = "\n\n".join(blocks)
            with self.assertRaises(SystemExit):
                targets.problems(text, text, FITS)


class Spills(unittest.TestCase):
    def test_are_a_problem(self):
        found = targets.problems(PAGE, TEXT, [resources.Resources("deltad_kernel", "sm_90a", "kernel", 255, 8, 16, 0)])
        self.assertEqual(len(found), 1)
        self.assertIn("deltad_kernel for sm_90a spills: 8 bytes", found[0])

    def test_fail_the_program(self):
        program = [sys.executable, str(pathlib.Path(__file__).with_name("predict.py")), "spills"]
        for spilled, status in ((0, 0), (4, 1)):
            with tempfile.TemporaryDirectory() as folder:
                (pathlib.Path(folder) / "sm_90a").mkdir()
                (pathlib.Path(folder) / "sm_90a/kernel.resources").write_text(PTXAS.format(stack=8, spilled=spilled))
                self.assertEqual(subprocess.run(program + [folder], capture_output=True, check=False).returncode, status)


if __name__ == "__main__":
    unittest.main()
