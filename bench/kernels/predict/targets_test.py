#!/usr/bin/env python3
"""That the check of the predicted tables fails for each thing that it is there for, and for nothing else."""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import prefill
import resources
import sass
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
        for line in ("84.9%", "84%"):
            for column in (targets.PEAK, targets.IN_A_BLOCK):
                self.assertIn(line, self.missed(with_cell(TEXT, column, line, rows="512", variants="1", weight="q, k, v")))

    def test_a_table_that_is_gone(self):
        for columns in (("| layer of rows |",), ("| rows |", "| H100: share of its rate |"), (f"| {targets.PEAK} |",)):
            blocks = [b for b in TEXT.split("\n\n") if not all(c in b for c in columns)]
            self.assertEqual(len(blocks), len(TEXT.split("\n\n")) - 1, columns)
            text = "\n\n".join(blocks)
            with self.assertRaises(SystemExit):
                targets.problems(text, text, FITS)


def kernel(cycles=512, once=0, outputs=128, rows=128):
    k = object.__new__(prefill.Kernel)
    k.outputs, k.rows, k.levels, k.most_cluster = outputs, rows, 1, 8
    k.cycles = k.tensor = k.header_cycles = cycles
    k.once, k.apart_cycles = once, 2 * cycles
    return k


LISTING = """.text.deltad_kernel:
.L_x_0:
        /*0000*/                   IADD3 R1, R1, 0x1, RZ ;
        /*0010*/               @P0 BRA `(.L_x_2) ;
        /*0020*/               @P1 BRA `(.L_x_1) ;
        /*0030*/                   IADD3 R2, R2, 0x1, RZ ;
.L_x_1:
        /*0040*/                   UBLKCP.S.G.MULTICAST [UR6], [UR14], UR9 ;
.L_x_2:
        /*0050*/                   HGMMA.64x128x16.F32 R24, R88, gdesc[UR4], R24 ;
        /*0060*/               @P2 BRA `(.L_x_0) ;
        /*0070*/                   EXIT ;
"""


class Prompts(unittest.TestCase):
    """The model: 4096 outputs × 512 rows are 128 blocks of 128 × 128, all at once."""

    def peak(self, k, cluster, levels=1, **kinds):
        return prefill.Prediction(k, cluster, [512], 4096, 4096, levels, **kinds)

    def test_l2_bounds_a_turn(self):
        whole = 128 / prefill.MULTIPROCESSORS
        for cluster, kib in ((1, 33), (2, 25), (4, 21), (8, 19)):
            p = self.peak(kernel(), cluster)
            self.assertAlmostEqual(p.l2, 128 * kib * 1024 / 512)
            self.assertAlmostEqual(p.peak, whole * min(1, prefill.L2 / p.l2))
        self.assertEqual(self.peak(kernel(), 8).peak, whole)
        self.assertLess(self.peak(kernel(), 4).peak, whole)
        self.assertEqual(self.peak(kernel(), 4, levels=0).peak, whole)  # without signs it just fits
        self.assertEqual(self.peak(kernel(), 1, apart=True).peak, whole / 2)  # twice the products, no more bytes

    def test_what_a_block_does_once_is_not_bound_by_l2(self):
        p = self.peak(kernel(once=1000), 1)
        self.assertAlmostEqual(p.of_block, 64 * 512 / (64 * 128 * 33 * 1024 / prefill.L2 + 1000))

    def test_blocks_without_outputs_count(self):
        p = prefill.Prediction(kernel(), 8, [512], 128 * 31, 4096, 1)
        self.assertEqual(p.blocks, 128)
        self.assertAlmostEqual(p.of_tiles, 31 / 32)

    def test_clusters_leave_multiprocessors_idle(self):
        self.assertEqual([prefill.width_of(c) for c in (1, 2, 4, 8)], [132, 132, 128, 128])
        p = prefill.Prediction(kernel(), 4, [512 * 33], 128, 4096, 1)  # 132 tiles of rows
        self.assertAlmostEqual(p.of_processors, 132 * 4 / (5 * 132))

    def test_the_choice_is_the_headers(self):
        small, large = kernel(), kernel(cycles=1024, rows=256)
        chosen = lambda outputs, rows, levels: prefill.choose([large, small], [rows], outputs, levels)
        self.assertEqual(chosen(4096, 2048, 1), (large, 2))
        self.assertEqual(chosen(4096, 512, 1), (small, 8))
        self.assertEqual(chosen(4096, 512, 0), (small, 4))
        self.assertEqual(chosen(128 * 31, 512, 1), (small, 8))
        self.assertEqual(chosen(128, 512, 1), (small, 1))

    def test_copies_are_of_one_warp(self):
        code = sass.parse(LISTING)[0]
        loop = code.loops()[0]
        self.assertEqual([i.opcode for i in prefill.copying(code, loop)], ["BRA", "IADD3", "UBLKCP.S.G.MULTICAST"])
        self.assertEqual(prefill.busy_of(code, loop, 1, "sm_90a")["issue"], 7)
        self.assertEqual(prefill.busy_of(code, loop, 2, "sm_90a")["issue"], 2 * 7 - 3)

    def test_a_share_never_reads_as_more(self):
        self.assertEqual([prefill.share(x) for x in (0.8499, 0.85, 0.84999, 1)], ["84.9%", "85.0%", "84.9%", "100.0%"])


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
