// Low-rank correction: an adapter approximates the rounding error of a model's matrices, W ~ W' + B A, for any format
// and method of rounding. From each matrix alone (LQER, Zhang et al. 2024; SVDQuant, Li et al. 2024), or weighted by
// the model's activations on a text (EoRA, Liu et al. 2024). Proved by
// tests/model/compress/low_rank_correction/low_rank_correction_test.cpp.
//
// May include: base, base/threads, graph/transform, model/arch, model/arch/adapter, model/calibrate, model/compress,
// model/compress/round, model/linear.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/arch/adapter/adapter.h"
#include "model/calibrate/layer_run.h"
#include "model/compress/low_rank_correction/factors.h"

namespace lumen::model::compress {

struct LowRankCorrectionOptions {
  FactorOptions factors;
  bool weighted = true;  // by activations on the text
  calibrate::LayerRunOptions run;
  std::filesystem::path folder;  // of values between layers; empty: memory
};

struct CorrectedTensor {
  std::string name, format;  // GGUF name
  int64_t rank = 0;          // 0: not corrected, for the reason in `remark`
  ErrorFigures before, after;
  std::string remark;
};

struct LowRankCorrectionProgress {
  size_t done = 0, all = 0;  // matrices
  std::string doing;         // "reads 3/128", windows; or a matrix's name
};

struct LowRankCorrection {
  arch::Adapter adapter;  // for the rounded model
  std::vector<CorrectedTensor> tensors;
  std::string text() const;  // a table
};

// Corrects every matrix of `rounded` that products read and that differs from `original`. Weighted: layer by layer; a
// layer's inputs are the outputs of rounded and corrected earlier layers, and one layer's numbers are in memory at a
// time. nullopt when `stop` returned true between two matrices. Error (user) when `rounded` is not a rounded form of
// `original`, or there is nothing to correct.
std::optional<LowRankCorrection> correct_low_rank(
    run::Engine& engine, const arch::Model& original, const arch::Model& rounded, std::span<const text::TokenId> text,
    const LowRankCorrectionOptions& options, const std::function<void(const LowRankCorrectionProgress&)>& progress = {},
    const std::function<bool()>& stop = {});

}  // namespace lumen::model::compress
