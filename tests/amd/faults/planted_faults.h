// Faults that are planted in a chip (planted.h), each with the kernels that have it, by the self-test's trials.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

namespace lumen::run {

struct PlantedFault {
  std::string what;   // "KIND WORDS"
  std::string trial;  // of those whose names begin so
  bool row = true;    // a row of the table is to blame; no: the device is
};

// Which instruction a trial's product goes through, by its name in the machine's table.
inline std::string instruction_of(const std::string& chip, const char* kind) {
  const bool wmma = chip.starts_with("gfx11") || chip.starts_with("gfx12");
  const std::string k = kind;
  if (wmma) return "v_wmma_" + std::string(k == "i8" ? "i32_16x16x16_iu8" : "f32_16x16x16_" + k);
  return "v_mfma_" + std::string(k == "i8" ? "i32_" : "f32_");
}

inline std::vector<PlantedFault> planted_faults(const std::string& chip) {
  std::vector<PlantedFault> out;
  const bool cdna = chip.starts_with("gfx9");
  for (const auto& [kind, trial] : {std::pair{"bf16", "product 48x80x96 bf16"}, {"f16", "product 48x80x96 f16"}}) {
    for (const char* fault : {"lanes", "rows", "halves", "registers", "off", "dropped", "operands", "gone"})
      out.push_back({fmt::format("{} {}", fault, instruction_of(chip, kind)), trial});
  }
  for (const char* fault : {"lanes", "rows", "halves", "registers", "off", "dropped", "operands", "bit"})
    out.push_back({fmt::format("{} {}", fault, instruction_of(chip, "i8")), "product 64x64x128 codes int8"});
  if (cdna)
    for (const char* fault : {"lanes", "registers", "off", "short", "dropped", "operands"})
      out.push_back({fmt::format("{} v_mfma_f32_16x16x4", fault), "product 48x80x96 f32"});
  if (chip == "gfx942" || chip == "gfx950" || chip == "gfx1201") {
    const std::string code = cdna ? "v_mfma_f32_16x16x32_fp8_fp8" : "v_wmma_f32_16x16x16_fp8_fp8";
    for (const char* fault : {"lanes", "rows", "halves", "registers", "off", "dropped", "short", "code"})
      out.push_back({fmt::format("{} {}", fault, code), "product 64x64x128 codes"});
    if (cdna) out.push_back({"generation " + code, "product 64x64x128 codes"});
  }
  const std::string dot = cdna ? "v_dot4" : "v_dot4_i32_iu8";
  for (const char* fault : {"off", "bit", "gone", "short"})
    out.push_back({fmt::format("{} {}", fault, dot), "product 1x64x256"});
  // What has no row in the table: the device is refused.
  for (const auto& [fault, trial] : {std::pair{"sign v_mul_f32", "reduce: norm"},

                                     {"lanes v_pk_mul_f32", "map"},
                                     {"off v_pk_add_f32", "map"},

                                     {"short v_pk_fma_f32", "map"},
                                     {"registers v_pk_mul_f32", "map"},
                                     {"off v_pk_fma_f32", "step"},
                                     {"lanes v_mul_f32", "map"},
                                     {"operands v_sub_f32", "reduce: softmax"},
                                     {"sign v_sub_f32", "reduce: softmax"},
                                     {"short v_add_f32", "reduce: norm"},
                                     {"off v_add_f32", "reduce: norm"},
                                     {"dpp v_add_f32", "reduce: norm"},
                                     {"short v_sqrt_f32", "reduce: norm"},
                                     {"lanes v_sqrt_f32", "reduce: norm"},
                                     {"short v_rsq_f32", "reduce: norm"},
                                     {"lanes v_rcp_f32", "reduce: softmax"},
                                     {"off v_rcp_f32", "reduce: norm"},
                                     {"short v_div_fixup_f32", "reduce: norm"},
                                     {"gone v_div_fixup_f32", "reduce: norm"},
                                     {"off v_div_fmas_f32", "reduce: norm"},
                                     {"lanes v_ldexp_f32", "reduce: softmax"},
                                     {"off v_ldexp_f32", "map"},
                                     {"lanes v_exp_f32", "attend bf16"},
                                     {"short v_exp_f32", "attend f32"},
                                     {"off v_exp_f32", "attend bf16"},
                                     {"lanes v_rndne_f32", "reduce: softmax"},
                                     {"bit v_cvt_i32_f32", "reduce: softmax"},
                                     {"lanes ds_bpermute_b32", "attend f32"},
                                     {"lanes v_max_f32", "reduce: softmax"},
                                     {"off v_max_f32", "reduce: softmax"},
                                     {"operands v_cndmask_b32", "reduce: softmax"},
                                     {"bit v_and_b32", "encode fp8"},
                                     {"bit v_or_b32", "encode fp8"},
                                     {"bit v_perm_b32", "encode"},

                                     {"off v_med3_f32", "encode"},
                                     {"bit v_lshlrev_b32", "encode fp8"},
                                     {"bit v_cvt_u32_f32", "encode"},
                                     {"lanes v_cvt_pk_fp8_f32", "encode"},
                                     {"operands v_cvt_pk_fp8_f32", "encode"},
                                     {"generation v_cvt_pk_fp8_f32", "encode"},

                                     {"gone v_add3_u32", "encode bf16"},
                                     {"bit v_bfe_u32", "encode bf16"},
                                     {"operands v_sub_f32", "update"},
                                     {"sign v_fma_f32", "update"},
                                     {"off v_floor_f32", "step"},
                                     {"lanes v_floor_f32", "step"},
                                     {"short v_fma_f32", "step"},
                                     {"offset ds_read", "reduce: norm"},
                                     {"offset ds_read2", "step"},
                                     {"offset ds_load", "reduce: norm"},
                                     {"offset ds_write", "product 48x80x96 bf16"},
                                     {"lanes v_cvt_f32_i32", "product 64x64x128 codes int8"},
                                     {"unwaited s_waitcnt vmcnt", "map"},
                                     {"unwaited s_waitcnt lgkmcnt", "product 48x80x96 bf16"},
                                     {"unwaited s_waitcnt lgkmcnt", "reduce: norm"},
                                     {"unwaited s_waitcnt vmcnt", "reduce: softmax"},
                                     {"unwaited s_waitcnt vmcnt", "attend f32"},
                                     {"unwaited s_waitcnt lgkmcnt", "attend bf16"},
                                     {"unwaited s_waitcnt lgkmcnt", "attend gradient"},
                                     {"unwaited s_waitcnt vmcnt", "encode fp8"},
                                     {"unwaited s_waitcnt vmcnt", "move: scatter"},
                                     {"unwaited s_waitcnt vmcnt", "update"},
                                     {"unwaited s_waitcnt vmcnt", "step"},
                                     {"unwaited s_waitcnt vmcnt", "product 1x64x256"},
                                     {"offset global_load", "map"},
                                     {"offset global_store", "map"},
                                     {"lanes v_cvt_f16_f32", "map: rounded"},
                                     {"bit v_cvt_f16_f32", "product 48x80x96 f16"},
                                     {"off v_cvt_f16_f32", "product 48x80x96 f16"},
                                     {"operands v_lshl_or_b32", "product 48x80x96 bf16"},
                                     {"bit v_add_u32", "move: scatter"},
                                     {"gone v_add_u32", "move: scatter"},
                                     {"sign v_sub_f32", "attend gradient"},
                                     {"off v_mul_f32", "attend gradient"}})
    out.push_back({fault, trial, false});
  return out;
}

}  // namespace lumen::run
