// `lumen quantize --strategy`: layer-by-layer quantization, calibrated on the layers' inputs for a text.
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

// Formats of activations and caches when the model runs.
struct ActivationFlags {
  std::string format, scales = "dynamic", reach = "largest";
  std::string kept;  // format of projections whose activations have spikes; empty: the same as all others
  double spike_ratio = 20;
  double spike_gain = 0;     // nats; a projection is kept only when it gains at least this much; 0: all are kept
  int64_t random_seed = -1;  // seed for keeping as many random projections instead; -1: off
  CacheTypes cache;
  std::string cache_scales = "dynamic";
  bool drops = false;  // --activations none: removes formats of activations and caches from the model
  // Whether formats or scales are calibrated on a text.
  bool need_text() const { return !format.empty() || cache_scales == "static"; }
  bool are_given() const { return !format.empty() || !cache.keys.empty() || !cache.values.empty(); }
};

struct CalibratedFlags : LayerTextFlags {
  std::string strategy, folder;
  model::compress::ByLayersOptions options;
  int64_t low_rank = 0;  // rank of a low-rank branch added to every quantized weight; 0: none
  std::string low_rank_method = "svdquant", low_rank_format = "bf16";
  // Paths of the report (json, html); with a budget the scoring criteria, candidate formats and score windows.
  std::string budget, json, html, criteria = "loss", as_fast_as;
  std::vector<std::string> candidates;
  std::vector<std::string> compared;  // formats and mixtures that the report also measures
  int64_t score_chunks = 32;
  ActivationFlags activations;
  bool no_measure = false;
  // Column split (high_impact.h): formats, ratios as written, and the resulting split, which is part of the run's key.
  std::vector<std::string> high, high_ratios;
  std::string cut;
  // Expert classes (experts/experts.h).
  ExpertFlags experts;
  std::vector<model::report::CompressionReport::Expert> classes;  // set once they are chosen
};

void add_calibrated_flags(CLI::App& sub, CalibratedFlags& flags);
// Error (usage) for an unknown strategy or precision; no file is read.
void check_calibrated(const Shared& shared, const CalibratedFlags& flags);
// The options, after the text was read. Starts hashing the model in the background for its identity.
model::compress::ByLayersOptions by_layers_options(const model::arch::Model& model, const CalibratedFlags& flags);
// Runs with a progress line and remaining time; false when interrupted, after a note on how to resume.
bool run_by_layers(model::compress::ByLayers& run, const std::filesystem::path& folder);
// A report on the model before quantization.
model::report::CompressionReport begin_report(const model::arch::Model& model, const std::string& in);
// A report on weights quantized one by one.
model::report::CompressionReport report_of(const model::arch::Model& model, const std::string& in,
                                           const std::string& out, const model::compress::QuantizeReport& rounded);
// Adds histograms before and after for the tensors with the largest errors. Tensors missing in `after` get none.
void draw_histograms(run::Engine& engine, const model::arch::Model& before, const model::arch::Model& after,
                     const model::arch::WeightSource& source, model::report::CompressionReport* report);
// Writes the JSON document and the HTML page where the options name files.
void write_reports(const CalibratedFlags& flags, const model::report::CompressionReport& report);
// A table of what was done to each weight.
std::string table_of(const std::vector<model::compress::RoundedTensor>& tensors);

// Quantizes and writes the model. Returns the exit code.
int quantize_by_layers(const Shared& shared, model::arch::Model model, const std::string& in,
                       model::arch::Destination to, const model::compress::QuantizeOptions& what,
                       CalibratedFlags& flags);
// Writes the model with unchanged weights and with formats of activations and caches. Returns the exit code.
int quantize_activations(const Shared& shared, model::arch::Model model, const std::string& in,
                         const model::arch::Destination& to, CalibratedFlags& flags);

}  // namespace lumen::cli
