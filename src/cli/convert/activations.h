// `lumen quantize --activations`: formats of activations and of the cache, as flags say and a text shows.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/convert/calibrated.h"
#include "model/calibrate/cache_ranges.h"
#include "model/compress/activations/activations.h"
#include "model/report/compression/compression_report.h"

namespace lumen::cli {

// Error (usage) for names nobody knows, and flags that need others; nothing is read.
void check_activations(const Shared& shared, const ActivationFlags& flags);

// What is done about activations around rounding.
class ActivationWork {
 public:
  ActivationWork(run::Engine& engine, const ActivationFlags& flags, const FormatLibrary& formats);

  // Before rounding: projections that are kept at a higher precision get its format among `formats`.
  void keep_spikes(const model::Model& model, const model::WeightSource& source,
                   const std::vector<model::TokenId>& text, const model::LayerRunOptions& run,
                   std::map<std::string, FormatRef>* formats);
  // Behind it: the model says what its activations and caches are held in, calibrated with its weights as they are now.
  void calibrate(model::Model* model, const model::WeightSource& source, const std::vector<model::TokenId>& text,
                 const model::LayerRunOptions& run);
  // A line for each projection: what it reads, and in what that is held; the report gets it, too.
  void tell(const model::Model& model, const std::string& out, model::CompressionReport* report) const;

 private:
  std::vector<model::ActivationRange> observe(const model::Model& model, const model::WeightSource& source,
                                              const std::vector<model::TokenId>& text,
                                              const model::LayerRunOptions& run);
  void calibrate_caches(model::Model* model, const model::WeightSource& source, const std::vector<model::TokenId>& text,
                        const model::LayerRunOptions& run);
  void tell_caches(const std::string& out, model::CompressionReport* report) const;
  run::Engine& engine_;
  const ActivationFlags& flags_;
  const FormatLibrary& library_;
  model::ActivationFormats formats_;
  std::vector<model::ActivationRange> ranges_;
  std::vector<graph::EncodedInput> encodings_;
  model::CacheRanges caches_;
};

}  // namespace lumen::cli
