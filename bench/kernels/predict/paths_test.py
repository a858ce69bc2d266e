#!/usr/bin/env python3
"""paths.py on a listing whose paths are known."""
import unittest

import paths
import sass

# A loop of two rows. Always: LDS, HMMA, the counter, its comparison and the branch back. Row 0: a test and a branch around, then,
# if it begins a group, a wait and a load; a product. Row 1 the same with a conditional copy. Idle warps take the branch to the end.
LISTING = """
.text.kernel:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/              @!P6 BRA `(.L_x_9) ;
        /*0020*/                   LDS.128 R4, [R8] ;
        /*0030*/                   HMMA.16816.F32.BF16 R12, R4, R8, R12 ;
        /*0040*/                   LOP3.LUT P0, RZ, R2, 0x1, RZ, 0xc0, !PT ;
        /*0050*/              @!P0 BRA `(.L_x_2) ;
        /*0060*/               @P1 BRA `(.L_x_1) ;
        /*0070*/                   DEPBAR.LE SB0, 0xe ;
        /*0080*/                   LDS.64 R20, [R9] ;
.L_x_1:
        /*0090*/                   BMMA.168256.AND.POPC R24, R4.ROW, R20.COL, R24 ;
.L_x_2:
        /*00a0*/                   LOP3.LUT P0, RZ, R2, 0x2, RZ, 0xc0, !PT ;
        /*00b0*/              @!P0 BRA `(.L_x_5) ;
        /*00c0*/               @P1 BRA `(.L_x_4) ;
        /*00d0*/                   DEPBAR.LE SB0, 0xe ;
        /*00e0*/                   BSSY B0, `(.L_x_3) ;
        /*00f0*/               @P2 BRA `(.L_x_6) ;
        /*0100*/                   LDGSTS.E.64 [R9], desc[UR4][R10.64] ;
.L_x_6:
        /*0110*/                   BSYNC B0 ;
.L_x_3:
        /*0120*/                   LDS.64 R20, [R9] ;
.L_x_4:
        /*0130*/                   BMMA.168256.AND.POPC R28, R4.ROW, R20.COL, R28 ;
.L_x_5:
        /*0140*/                   NOP ;
.L_x_9:
        /*0150*/                   VIADD R3, R3, 0x1 ;
        /*0160*/                   ISETP.GE.AND P3, PT, R3, R2, PT ;
        /*0170*/              @!P3 BRA `(.L_x_0) ;
        /*0180*/                   EXIT ;
"""


def is_product(i):
    return i.opcode.startswith("BMMA")


def is_wait(i):
    return i.opcode.startswith("DEPBAR")


def costs(listing, inner_turns=None):
    kernel = sass.parse(listing)[0]
    return paths.dearest(kernel, kernel.hot_loop(), "sm_90a", (is_product, is_wait), inner_turns)


class Paths(unittest.TestCase):
    def test_issue_slots_by_rows_and_groups(self):
        issue = {key: cycles["issue"] for key, cycles in costs(LISTING).items()}
        # Without rows: all instructions of the head, the rows' tests and the tail. A row: one branch more, its product. A wait in
        # the second row is dearer than in the first: its copy.
        self.assertEqual(issue, {(0, 0): 11, (1, 0): 13, (2, 0): 15, (1, 1): 19, (2, 1): 21, (2, 2): 23})

    def test_pipes(self):
        two = costs(LISTING)[2, 1]
        self.assertEqual(two["memory"], 6)  # LDS.128, LDGSTS, LDS.64
        self.assertAlmostEqual(two["tensor"], 16 * 8 * 16 / (0.629 * 512) + 2 * 16 * 8 * 256 / 2048)

    def test_a_loop_within_takes_the_turns_that_it_is_said_to(self):
        listing = LISTING.replace("        /*0040*/", "        /*0038*/              @P4 BRA `(.L_x_8) ;\n        /*0040*/")
        listing = listing.replace("        /*0020*/", ".L_x_8:\n        /*0020*/")
        with self.assertRaises(SystemExit):
            costs(listing)
        # LDS, HMMA and the branch, twice.
        self.assertEqual(costs(listing, 2)[0, 0]["issue"], 11 + 1 + 3)

    def test_what_is_counted_must_not_be_in_it(self):
        inner = LISTING.replace(".L_x_5:\n", "        /*0138*/              @P4 BRA `(.L_x_4) ;\n.L_x_5:\n")
        with self.assertRaises(SystemExit):
            costs(inner, 2)


if __name__ == "__main__":
    unittest.main()
