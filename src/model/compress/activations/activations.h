// Activations in few bits: what products read of a text, layer by layer, how far single tokens stand out of it
// (spikes), and the formats and scales that follow. Spikes: arXiv 2504.21553; their ratio: arXiv 2405.14428. Proved by
// tests/model/compress/activations/activations_test.cpp.
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

namespace lumen::model {

// What some weights read of a text.
struct ActivationRange {
  std::vector<std::string> weights;  // parameters: projections that read the same value
  double largest = 0;                // max |x|
  // With m = max |x| of a token: max m / median m over the tokens of a window, the mean over windows. A format with one
  // scale for all of x loses half of the tokens where it is twice as large as the format has steps.
  double ratio = 1;
  std::vector<double> spread = {};  // how many numbers are at least graph::spread_edge(k) in size
};

// A model's projections: matrices of layers that are rounded (no routers), by what they read. Weights come from
// `source` where the model has their type alone; what goes from layer to layer is kept in `folder` (empty: memory).
// Activations are floats there, whatever the model's metadata says; weights are as they are rounded.
std::vector<ActivationRange> activation_ranges(run::Engine& engine, Model model, const WeightSource& source,
                                               std::span<const TokenId> text, const LayerRunOptions& options,
                                               const std::filesystem::path& folder,
                                               const std::function<void(size_t part, size_t parts)>& progress = {});

// Which projections are kept at a higher precision.
struct SpikeRule {
  double ratio = 20;                    // those that read something with a larger one
  std::optional<uint32_t> random_seed;  // a control: as many others, drawn by this seed
};
std::set<std::string> kept_projections(std::span<const ActivationRange> ranges, const SpikeRule& rule);

// The scale with which a format holds numbers of up to `largest`, as its own fit would find it. Error where the format
// has no such scale (tensor_scale).
double static_scale(const Format& f, double largest);

// Up to which size a static scale is to reach, so that the squared errors of what was seen are least: less than the
// largest where few numbers stand out, which are then clipped. Candidates are four an octave, down to 2^-6 of the
// largest; errors are those of the format's own encoding at four places between two edges of the spread.
double best_reach(const Format& f, const ActivationRange& range);

struct ActivationFormats {
  FormatRef format, kept_format;   // of all, and of what is kept
  bool has_static_scales = false;  // else fields are fitted while the model runs
  std::set<std::string> kept;      // parameters
  bool clips = false;              // static scales reach as far as best_reach() says, else to the largest number
};
// For model/arch/held_formats.h. What is kept gets a scale of its own where its format has one.
std::vector<graph::EncodedInput> encodings_of(std::span<const ActivationRange> ranges,
                                              const ActivationFormats& formats);

}  // namespace lumen::model
