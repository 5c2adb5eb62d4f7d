// Folds adapters into their base model: W + scale * B A, rounded to the weight's format, to another format or mixture,
// or to floats. One weight at a time is in f32, and the merged model is never whole in memory: weights are computed
// while they are written. Proved by tests/model/compress/merge_test.cpp.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "model/arch/adapter/adapter_sum.h"
#include "model/arch/checkpoint/write.h"
#include "model/compress/quantize.h"

namespace lumen::model::compress {

struct MergeOptions {
  std::string type = kBaseType;  // of the result: each weight's own type, a format, or a mixture
  static constexpr const char* kBaseType = "base";
  bool hugging_face = false;                  // a folder instead of a GGUF file
  std::vector<std::string> fallbacks;         // as QuantizeOptions
  std::map<std::string, std::string> record;  // metadata of the result, by key
};

struct MergedTensor {
  std::string name;  // GGUF name
  std::string from, to;
  bool changed = false;  // by an adapter
  double change = 0;     // |W' - W| / |W|, before rounding
  double error = 0;      // |result - W'| / |W'|; 0 where nothing is rounded
};

struct MergeReport {
  std::vector<MergedTensor> tensors;
  std::string text() const;  // a table of the weights that were changed or rounded again
};

class Merge {
 public:
  // Error when an adapter does not fit, a weight's format cannot be written, or the file type cannot represent the
  // result. `base` and `adapters` must outlive this.
  Merge(run::Engine& engine, const arch::Model& base, std::span<const arch::ScaledAdapter> adapters,
        MergeOptions options);

  // Computes and writes the weights one by one.
  MergeReport write(const std::filesystem::path& path, const std::function<void(const MergedTensor&)>& progress = {});

 private:
  arch::Weight make(const arch::Parameter& p, MergedTensor* line);

  run::Engine& engine_;
  const std::span<const arch::ScaledAdapter> adapters_;
  const MergeOptions options_;
  arch::Model base_;    // with adapters' whole replacement weights
  arch::Model result_;  // recomputed weights have only their type
  int file_type_ = -1;
};

}  // namespace lumen::model::compress
