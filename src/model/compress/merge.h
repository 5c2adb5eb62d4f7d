// Folds adapters into the model they were made for: W + scale * B A, rounded to what the weight is held in, to another
// format or mixture, or to floats. One weight at a time is held in f32, and the merged model is never held as a whole:
// its weights are made as they are written. Proved by tests/model/compress/merge_test.cpp.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "model/arch/adapter/adapter_sum.h"
#include "model/arch/checkpoint/write.h"
#include "model/compress/quantize.h"

namespace lumen::model {

struct MergeOptions {
  std::string type = kBaseType;  // of the result: what each weight is held in, a format, or a mixture
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
  std::string text() const;  // a table of those that an adapter changed or that were rounded anew
};

class Merge {
 public:
  // Error when an adapter does not fit, a weight's format cannot be written, or the result has no place in such files.
  // `base` and `adapters` must live as long.
  Merge(run::Engine& engine, const Model& base, std::span<const ScaledAdapter> adapters, MergeOptions options);

  // Makes the weights one by one and writes them.
  MergeReport write(const std::filesystem::path& path, const std::function<void(const MergedTensor&)>& progress = {});

 private:
  Weight make(const Parameter& p, MergedTensor* line);

  run::Engine& engine_;
  const std::span<const ScaledAdapter> adapters_;
  const MergeOptions options_;
  Model base_;    // with whole weights of adapters in place
  Model result_;  // those that are made anew have their type alone
  int file_type_ = -1;
};

}  // namespace lumen::model
