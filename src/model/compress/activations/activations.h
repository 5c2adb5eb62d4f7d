// Quantization of activations to few bits: the ranges of products' inputs on a text, layer by layer, how far single
// tokens stand out (spikes), and the formats and scales that follow. Spikes: arXiv 2504.21553; their ratio: arXiv
// 2405.14428. Proved by tests/model/compress/activations/activations_test.cpp.
//
// May include: base, graph/transform, model/arch, model/arch/checkpoint, model/calibrate, model/compress, number/codec,
// number/facts.
// Offers: kept_by_loss.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "graph/transform/encode_inputs.h"
#include "model/arch/checkpoint/write.h"
#include "model/calibrate/layer_run.h"

namespace lumen::model::compress {

// The range of an activation that some weights read.
struct ActivationRange {
  std::vector<std::string> weights;  // parameters: projections that read the same value
  double largest = 0;                // max |x|
  // With m = max |x| of a token: max m / median m over the tokens of a window, averaged over windows. A format with one
  // scale for all of x rounds half of the tokens to 0 when this is twice the number of the format's steps.
  double ratio = 1;
  std::vector<double> spread = {};  // count of numbers with magnitude >= graph::spread_edge(k)
};

// Input ranges of a model's projections: the rounded matrices of layers (no routers), grouped by input. Weights come
// from `source` where the model has only their type; values between layers are kept in `folder` (empty: memory).
// Activations are floats in this run, whatever the model's metadata; weights have their rounded values.
std::vector<ActivationRange> activation_ranges(run::Engine& engine, arch::Model model, const arch::WeightSource& source,
                                               std::span<const text::TokenId> text,
                                               const calibrate::LayerRunOptions& options,
                                               const std::filesystem::path& folder,
                                               const std::function<void(size_t part, size_t parts)>& progress = {});

// Which projections are kept at a higher precision.
struct SpikeRule {
  double ratio = 20;                    // keeps those that read an activation with a larger ratio
  std::optional<uint32_t> random_seed;  // a control: keeps as many random projections
};
std::set<std::string> kept_projections(std::span<const ActivationRange> ranges, const SpikeRule& rule);

// The scale with which a format holds numbers up to `largest`, as its own fit would choose it. Error where the format
// has no such scale (tensor_scale).
double static_scale(const Format& f, double largest);

// The largest magnitude that a static scale should cover for the least squared error on the observed values: less than
// the maximum where outliers are few, which are then clipped. Candidates are four per octave, down to 2^-6 of the
// largest; errors are those of the format's own encoding at four points between two edges of the spread.
double best_reach(const Format& f, const ActivationRange& range);

struct ActivationFormats {
  FormatRef format, kept_format;   // of all, and of kept projections
  bool has_static_scales = false;  // else fields are fitted at run time
  std::set<std::string> kept;      // parameters
  bool clips = false;              // static scales cover best_reach(), else the largest number
};
// For model/arch/held_formats.h. A kept projection gets a scale of its own where its format has one.
std::vector<graph::EncodedInput> encodings_of(std::span<const ActivationRange> ranges,
                                              const ActivationFormats& formats);

}  // namespace lumen::model::compress
