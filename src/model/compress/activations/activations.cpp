#include "model/compress/activations/activations.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "base/check.h"
#include "base/error.h"
#include "base/ordinal.h"
#include "model/arch/held_formats.h"
#include "model/arch/low_rank_weights.h"
#include "model/compress/quantize.h"
#include "number/codec/codec.h"
#include "number/facts/facts.h"

namespace lumen::model::compress {
namespace {

constexpr double kMostRatio = 1e9;  // of windows whose tokens are mostly zeros

// The window's largest token relative to its median.
double ratio_of(std::vector<float> tokens) {
  const double most = *std::ranges::max_element(tokens);
  const auto middle = tokens.begin() + tokens.size() / 2;
  std::ranges::nth_element(tokens, middle);
  if (most == 0) return 1;
  return *middle == 0 ? kMostRatio : std::min(most / *middle, kMostRatio);
}

ActivationRange range_of(const calibrate::TapSums& sums, int64_t windows) {
  ActivationRange out;
  out.weights = sums.tap.weights;
  const std::vector<float>& rows = sums.row_largest;
  const int64_t each = std::max<int64_t>(1, std::ssize(rows) / windows);
  int64_t seen = 0;
  double all = 0;
  for (auto at = rows.begin(); rows.end() - at >= each; at += each, ++seen) all += ratio_of({at, at + each});
  if (seen > 0) out.ratio = all / seen;
  for (const float m : rows) {
    if (!std::isfinite(m))
      throw Error(Exit::numeric, fmt::format("the inputs of '{}' on the text contain {}", out.weights.at(0), m),
                  "the model's activations broke; find out where");
    out.largest = std::max<double>(out.largest, m);
  }
  out.spread.assign(sums.spread.begin(), sums.spread.end());
  return out;
}

// Sum of squared errors of `counts` numbers with magnitudes `at`, held with a scale that covers `reach`.
double error_of(const Format& f, std::span<const double> at, std::span<const double> counts, double reach) {
  const int64_t count = std::ssize(at) + 2, columns = (count + f.block - 1) / f.block * f.block;
  std::vector<float> x(columns);
  x[0] = reach;  // makes the fit cover exactly this range
  x[1] = -reach;
  for (int64_t i = 0; i < std::ssize(at); ++i) x[i + 2] = std::min(at[i], reach) * (i % 2 == 0 ? 1 : -1);
  const std::vector<float> held = decode(f, encode(f, x, 1, columns), 1, columns);
  double out = 0;
  for (int64_t i = 0; i < std::ssize(at); ++i) {
    const double error = at[i] - std::abs(double{held[i + 2]});
    out += counts[i] * error * error;
  }
  return out;
}

bool is_projection(const arch::Model& model, const std::string& name) {
  const arch::Parameter* const p = model.find(name);
  return p && !p->gguf.empty() && graph::layer_of(name) >= 0 && !stays_f32(*p) && p->role != arch::kBranchRole;
}

}  // namespace

std::vector<ActivationRange> activation_ranges(run::Engine& engine, arch::Model model, const arch::WeightSource& source,
                                               std::span<const text::TokenId> text,
                                               const calibrate::LayerRunOptions& options,
                                               const std::filesystem::path& folder,
                                               const std::function<void(size_t part, size_t parts)>& progress) {
  set_encoded_inputs(model, {});
  calibrate::LayerRun run(engine, model, text, options);
  calibrate::CarriedValues stream(folder, "activations");
  graph::TapKinds kinds;
  kinds.rows = kinds.spread = true;
  std::vector<ActivationRange> out;
  for (size_t k = 0; k < run.parts(); ++k) {
    if (progress) progress(k, run.parts());
    std::map<std::string, std::vector<float>> held;
    const calibrate::LayerRun::WeightOf weight = [&](const std::string& name) -> std::span<const float> {
      const auto [at, is_new] = held.try_emplace(name);
      if (is_new) at->second = values_of(engine, fetched(model, *model.find(name), source));
      return at->second;
    };
    const calibrate::PartRun seen = run.run(k, weight, &stream, k + 1 < run.parts() ? &stream : nullptr, kinds);
    for (const calibrate::TapSums& sums : seen.taps) {
      ActivationRange range = range_of(sums, run.windows());
      std::erase_if(range.weights, [&](const std::string& name) { return !is_projection(model, name); });
      if (!range.weights.empty()) out.push_back(std::move(range));
    }
    run.drop_read(k, &stream);
  }
  return out;
}

std::set<std::string> kept_projections(std::span<const ActivationRange> ranges, const SpikeRule& rule) {
  std::set<std::string> spiky;
  std::vector<std::string> others;
  for (const ActivationRange& r : ranges)
    for (const std::string& name : r.weights)
      if (r.ratio > rule.ratio)
        spiky.insert(name);
      else
        others.push_back(name);
  if (!rule.random_seed) return spiky;
  std::ranges::sort(others);
  std::mt19937 random(*rule.random_seed);
  std::set<std::string> drawn;
  for (size_t left = std::min(spiky.size(), others.size()); left > 0; --left) {
    const size_t at = random() % others.size();
    drawn.insert(others[at]);
    std::swap(others[at], others.back());
    others.pop_back();
  }
  return drawn;
}

double static_scale(const Format& f, double largest) {
  const int field = tensor_scale(f);
  if (field < 0)
    throw Error(
        Exit::user,
        fmt::format("format '{}' has no scale to calibrate: one number per tensor in addition to its codes", f.name),
        "choose another format, or scales that are fitted while the model runs");
  if (!(largest > 0)) largest = 1;  // only zeros were seen
  std::vector<float> x(f.block * 2, 0);
  x.front() = largest;
  x.back() = -largest;
  const std::vector<uint8_t> blob = encode(f, x, 1, std::ssize(x));
  const int64_t record = blob_layout(f, 1, std::ssize(x)).section[ordinal(Level::tensor)];
  return field_decode(f.fields[field].type, f.fields[field].layout.read(blob.data() + record, 0));
}

double best_reach(const Format& f, const ActivationRange& range) {
  constexpr int kPlaces = 4, kEachOctave = 4, kOctaves = 6;
  if (!(range.largest > 0)) return range.largest;
  std::vector<double> at, counts;
  for (int64_t k = 0; k < std::ssize(range.spread); ++k) {
    const bool last = k + 1 == std::ssize(range.spread);
    const double inside = range.spread[k] - (last ? 0 : range.spread[k + 1]), low = graph::spread_edge(k);
    const double high = std::min(graph::spread_edge(k + 1), range.largest);
    for (int p = 0; p < kPlaces && inside > 0; ++p) {
      at.push_back(std::min(low + (high - low) * (p + 0.5) / kPlaces, range.largest));
      counts.push_back(inside / kPlaces);
    }
  }
  double best = range.largest, least = error_of(f, at, counts, best);
  for (int j = 1; j <= kOctaves * kEachOctave; ++j) {
    const double reach = range.largest * std::exp2(-j / (1.0 * kEachOctave)), error = error_of(f, at, counts, reach);
    if (error < least) {
      least = error;
      best = reach;
    }
  }
  return best;
}

std::vector<graph::EncodedInput> encodings_of(std::span<const ActivationRange> ranges,
                                              const ActivationFormats& formats) {
  std::vector<graph::EncodedInput> out;
  for (const ActivationRange& r : ranges)
    for (const std::string& name : r.weights) {
      const bool kept = formats.kept.contains(name);
      const FormatRef& f = kept ? formats.kept_format : formats.format;
      if (!f) continue;
      graph::EncodedInput input{name, f, {}};
      if (formats.has_static_scales && (!kept || tensor_scale(*f) >= 0))
        input.scale = static_scale(*f, formats.clips ? best_reach(*f, r) : r.largest);
      out.push_back(std::move(input));
    }
  return out;
}

}  // namespace lumen::model::compress
