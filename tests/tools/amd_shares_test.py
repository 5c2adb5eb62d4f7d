#!/usr/bin/env python3
"""tools/amd_shares.py itself: loops are found, matrix units without anything to wait for are busy all the time, what waits for memory or LDS
within the loop is not.

Usage: tests/tools/amd_shares_test.py
"""
import importlib.util
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("amd_shares", ROOT / "tools" / "amd_shares.py")
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)
PEAK = tool.PEAKS["gfx942"]
PRODUCTS = [f"v_mfma_f32_16x16x16_bf16 v[{n}:{n + 3}], v[80:81], v[82:83], v[{n}:{n + 3}]" for n in range(0, 64, 4)]
LOAD, WAIT, STORE, BARRIER = "global_load_dwordx4 v[90:93], v[0:1], off", "s_waitcnt vmcnt(0)", "ds_write_b128 v1, v[90:93]", "s_barrier"


class Shares(unittest.TestCase):
    def share(self, body, waves=8, blocks=1):
        return tool.simulate([*body, "s_cbranch_scc1 .L1"], PEAK, waves, blocks)

    def test_loops_are_found(self):
        text = "f:\n.LBB0_1:\n\tv_mov_b32 v0, 1 ; comment\n\ts_cbranch_scc1 .LBB0_1\n\ts_branch .LBB0_2\n.LBB0_2:\n\ts_endpgm\n"
        self.assertEqual(tool.loops(text), [["v_mov_b32 v0, 1", "s_cbranch_scc1 .LBB0_1"]])

    def test_cycles_are_those_of_the_peak(self):
        self.assertEqual(tool.matrix_cycles(PRODUCTS[0], PEAK), 16)
        self.assertEqual(tool.matrix_cycles("v_mfma_f32_16x16x32_fp8_fp8 v[0:3], v[4:5], v[6:7], v[0:3]", PEAK), 16)
        wide = "v_mfma_f32_32x32x64_f8f6f4 v[0:15], v[16:23], v[24:31], v[0:15]"
        self.assertEqual(tool.matrix_cycles(wide, tool.PEAKS["gfx950"]), 64)

    def test_products_alone_fill_the_time(self):
        self.assertGreater(self.share(PRODUCTS), 0.95)

    def test_memory_that_is_waited_for_shows(self):
        early = self.share([LOAD, WAIT, STORE, *PRODUCTS, BARRIER])
        late = self.share([LOAD, *PRODUCTS, *PRODUCTS, *PRODUCTS, WAIT, STORE, BARRIER])
        self.assertLess(early, 0.6)
        self.assertGreater(late, early + 0.2)

    def test_lds_binds_where_all_read_more_than_it_gives(self):
        reads = ["ds_read_b128 v[84:87], v1"] * 24 + ["s_waitcnt lgkmcnt(0)"]
        self.assertLess(self.share([*reads, *PRODUCTS]), 0.45)


unittest.main()
