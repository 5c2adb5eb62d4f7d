// `lumen quantize --activations`: chooses the formats of activations and the key-value cache and calibrates them on a
// text.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/convert/calibrated.h"
#include "model/calibrate/cache_ranges.h"
#include "model/compress/activations/activations.h"
#include "model/report/compression/compression_report.h"

namespace lumen::cli {

// Error (usage) for unknown names, and for options that need others; no file is read.
void check_activations(const Shared& shared, const ActivationFlags& flags);

// The work on activations before and after the weights are quantized.
class ActivationWork {
 public:
  ActivationWork(run::Engine& engine, const ActivationFlags& flags, const FormatLibrary& formats);

  // Before the weights are quantized: adds to `formats` the projections that are kept at a higher precision.
  void keep_spikes(const model::arch::Model& model, const model::arch::WeightSource& source,
                   const std::vector<model::text::TokenId>& text, const model::calibrate::LayerRunOptions& run,
                   std::map<std::string, FormatRef>* formats);
  // After the weights are quantized: stores the formats of activations and caches in the model, calibrated with the
  // quantized weights.
  void calibrate(model::arch::Model* model, const model::arch::WeightSource& source,
                 const std::vector<model::text::TokenId>& text, const model::calibrate::LayerRunOptions& run);
  // Prints one line per projection with its input and the input's format; they are added to the report, too.
  void tell(const model::arch::Model& model, const std::string& out, model::report::CompressionReport* report) const;

 private:
  std::vector<model::compress::ActivationRange> observe(const model::arch::Model& model,
                                                        const model::arch::WeightSource& source,
                                                        const std::vector<model::text::TokenId>& text,
                                                        const model::calibrate::LayerRunOptions& run);
  void calibrate_caches(model::arch::Model* model, const model::arch::WeightSource& source,
                        const std::vector<model::text::TokenId>& text, const model::calibrate::LayerRunOptions& run);
  void tell_caches(const std::string& out, model::report::CompressionReport* report) const;
  run::Engine& engine_;
  const ActivationFlags& flags_;
  const FormatLibrary& library_;
  model::compress::ActivationFormats formats_;
  std::vector<model::compress::ActivationRange> ranges_;
  std::vector<graph::EncodedInput> encodings_;
  model::calibrate::CacheRanges caches_;
};

}  // namespace lumen::cli
