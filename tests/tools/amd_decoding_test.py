#!/usr/bin/env python3
"""tools/amd_decoding.py itself: what waves executed is counted, work-groups are dealt out to units and waves to SIMDs, the product's kernel is
the one that is executed.

Usage: tests/tools/amd_decoding_test.py BUILD
"""
import re
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import amd_decoding as tool  # noqa: E402

BUILD = Path(sys.argv.pop(1))
PEAK = tool.PEAKS["gfx942"]
# A loop of three rounds, which the second wave of a group does not enter.
WAVES = "i v_mov_b32_e32 v0, 0\ni v_add_u32_e32 v0, 1, v0\ni v_rcp_f32_e32 v0, v0\ni s_endpgm\nw 0 1 1 3 2 3 3 1\nw 0 1 3 1\n"


class Decoding(unittest.TestCase):
    def test_what_was_executed_is_counted_by_name(self):
        launch = tool.Launch(WAVES + "g 0 1\ng 0 1\n")
        self.assertEqual(launch.totals(), {"v_mov_b32": 4, "v_add_u32": 6, "v_rcp_f32": 6, "s_endpgm": 4})
        self.assertEqual((launch.lds, tool.Launch(WAVES + "g 0 1\nl 12\n").lds), (0, 12))

    def test_slots_are_those_of_the_simd_with_most_to_do(self):
        # A first wave has 4 + 3 * 4 + 3 * 16 cycles, a second one 4.
        self.assertEqual(tool.busiest(tool.Launch(WAVES + "g 0 1\n"), 1, PEAK), (64, 17))
        self.assertEqual(tool.busiest(tool.Launch(WAVES + "g 0 1\n" * 2), 1, PEAK)[0], 64)
        self.assertEqual(tool.busiest(tool.Launch(WAVES + "g 0 1\n" * 4), 2, PEAK)[0], 64)
        self.assertEqual(tool.busiest(tool.Launch(WAVES + "g 0 0 0 0\n" * 5), 4, PEAK), (128, 80))

    def test_matrix_units_bind_where_they_take_longer(self):
        text = "i v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[6:7], v[0:3]\nw 0 10\ng 0\n"
        self.assertEqual(tool.busiest(tool.Launch(text), 1, PEAK)[0], 160)

    def test_the_kernel_of_a_plan_is_found(self):
        text = "# rounds\nkernel r(@0 x: 4 bytes align 4) {\n}\n# dot 1x2 a.b\nkernel dot_1x2_a.b_c0(@0 a: 8 bytes align 4, @1 b: 16 bytes align 4) {\n}\n"
        self.assertEqual(tool.buffers(text, "dot 1x2 a.b"), ("lumen_dot_1x2_a_b_c0", [8, 16]))

    # Rows in straight code behind a kernel that rounds activations: four codes of a weight take a v_dot4, and little else.
    def test_a_product_is_executed_whole(self):
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / "product.lum"
            model.write_text(tool.PRODUCT)
            said = tool.decode(BUILD, model, "gfx950", "q8_0", 8.5, False)
        found = re.search(r" ([\d.]+) times memory's pace .* vector ([\d.]+) .*  dot 1x8192x8192 ", said)
        self.assertTrue(found, said)
        self.assertGreater(float(found[1]), 2, said)
        self.assertTrue(0.25 <= float(found[2]) <= 2, said)


unittest.main()
