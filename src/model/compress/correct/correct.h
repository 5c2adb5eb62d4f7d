// Low-rank correction: what rounding took from a model's matrices, given back by an adapter of low rank beside them,
// W ~ W' + B A, whatever W was rounded to and however. Of each matrix alone (LQER, Zhang et al. 2024; SVDQuant, Li et
// al. 2024), or by what the model reads of a text (EoRA, Liu et al. 2024). Proved by
// tests/model/compress/correct/correct_test.cpp.
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
#include "model/compress/correct/factors.h"

namespace lumen::model {

struct CorrectOptions {
  FactorOptions factors;
  bool weighted = true;  // by what is read of the text
  LayerRunOptions run;
  std::filesystem::path folder;  // of what goes from layer to layer meanwhile; empty: memory
};

struct CorrectedTensor {
  std::string name, format;  // GGUF name
  int64_t rank = 0;          // 0: it is left as it is rounded, the remark says why
  ErrorFigures before, after;
  std::string remark;
};

struct CorrectProgress {
  size_t done = 0, all = 0;  // matrices
  std::string doing;         // "reads 3/128", windows; or a matrix's name
};

struct Correction {
  Adapter adapter;  // for the rounded model
  std::vector<CorrectedTensor> tensors;
  std::string text() const;  // a table
};

// Every matrix of `rounded` that products read and that is not what it is in `original`. Weighted: layer by layer; what
// a layer reads is what the layers before give as they are rounded and corrected, and one layer's numbers are held at a
// time. Nothing where `stop` said so between two matrices. Error (user) when `rounded` is no rounded form of
// `original`, or nothing is to be corrected.
std::optional<Correction> correct(run::Engine& engine, const Model& original, const Model& rounded,
                                  std::span<const TokenId> text, const CorrectOptions& options,
                                  const std::function<void(const CorrectProgress&)>& progress = {},
                                  const std::function<bool()>& stop = {});

}  // namespace lumen::model
