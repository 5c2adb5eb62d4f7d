// `lumen quantize --strategy`: rounding layer by layer, by what layers read of a text.
#pragma once

#include <filesystem>

#include "cli/command.h"
#include "cli/convert/experts/experts.h"
#include "cli/layer_text.h"
#include "cli/names.h"
#include "model/compress/layers/by_layers.h"
#include "model/compress/quantize.h"
#include "model/file/own_input.h"
#include "model/report/compression/compression_report.h"

namespace lumen::cli {

// Formats that activations and caches are held in while the model runs.
struct ActivationFlags {
  std::string format, scales = "dynamic", reach = "largest";
  std::string kept;  // format of projections whose activations have spikes; empty: like all others
  double spike_ratio = 20;
  double spike_gain = 0;     // nats, for less than which a projection is not worth keeping; 0: all are kept
  int64_t random_seed = -1;  // as many others are kept instead, drawn by this seed; -1: none
  CacheTypes cache;
  std::string cache_scales = "dynamic";
  bool drops = false;  // --activations none: what the model says of them and of caches is left out
  // Whether formats or scales are calibrated on a text.
  bool need_text() const { return !format.empty() || cache_scales == "static"; }
  bool are_given() const { return !format.empty() || !cache.keys.empty() || !cache.values.empty(); }
};

struct CalibratedFlags : LayerTextFlags {
  std::string strategy, folder;
  model::ByLayersOptions options;
  int64_t low_rank = 0;  // of the branch beside every rounded weight; 0: none
  std::string low_rank_method = "svdquant", low_rank_format = "bf16";
  // Where the report goes; and with a budget what formats are chosen among, and windows that scores are computed on.
  std::string budget, json, html, criteria = "loss", as_fast_as;
  std::vector<std::string> candidates;
  std::vector<std::string> beside;  // formats and mixtures that the report shows, too
  int64_t score_chunks = 32;
  ActivationFlags activations;
  // Columns apart (high_impact.h): formats, ratios as they are written, and what is known of the columns once they are
  // cut, which is part of the run's key.
  std::vector<std::string> high, high_ratios;
  std::string cut;
  // Experts by class (experts/experts.h).
  ExpertFlags experts;
  std::vector<model::CompressionReport::Expert> classes;  // once they are chosen
};

void add_calibrated_flags(CLI::App& sub, CalibratedFlags& flags);
// Error (usage) for an unknown strategy or precision; nothing is read.
void check_calibrated(const Shared& shared, const CalibratedFlags& flags);
// What the flags say, once they have read the text; the model begins to be read for its identity.
model::ByLayersOptions by_layers_options(const model::Model& model, const CalibratedFlags& flags);
// With progress and a time that is left; false when it was interrupted, and then says how to go on.
bool run_by_layers(model::ByLayers& run, const std::filesystem::path& folder);
// The document of a model without what was done to its weights.
model::CompressionReport begin_report(const model::Model& model, const std::string& in);
// The document of weights rounded one by one.
model::CompressionReport report_of(const model::Model& model, const std::string& in, const std::string& out,
                                   const model::QuantizeReport& rounded);
// Numbers before and after, of the tensors of a document that lost most. Those that `after` has not have none.
void draw_histograms(run::Engine& engine, const model::Model& before, const model::Model& after,
                     const model::WeightSource& source, model::CompressionReport* report);
// As a document and as a page, where flags name files.
void write_reports(const CalibratedFlags& flags, const model::CompressionReport& report);
// What was done to each weight, as a table.
std::string table_of(const std::vector<model::RoundedTensor>& tensors);

// Rounds and writes. Exit code.
int quantize_by_layers(const Shared& shared, model::Model model, const std::string& in, model::Destination to,
                       const model::QuantizeOptions& what, CalibratedFlags& flags);
// Weights stay as they are; formats of activations and caches are written with them. Exit code.
int quantize_activations(const Shared& shared, model::Model model, const std::string& in, const model::Destination& to,
                         CalibratedFlags& flags);

}  // namespace lumen::cli
