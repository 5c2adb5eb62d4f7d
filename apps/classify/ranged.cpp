#include "apps/classify/ranged.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "base/structured/json.h"

namespace lumen::classify {
namespace {

constexpr const char* kFolding = "ranges.folding";
constexpr double kMostClipped = 1e-3;
constexpr float kRaise = 1.15F, kLeastAlpha = 0.5F;
constexpr int kMostRaises = 16;

const char* source_name(graph::RangeSource s) {
  return s == graph::RangeSource::fixed ? "static" : s == graph::RangeSource::dynamic ? "dynamic" : "estimate";
}

SeenRanges begun(int64_t channels) {
  SeenRanges out;
  out.low.assign(channels, INFINITY);
  out.high.assign(channels, -INFINITY);
  out.below.assign(channels, 0);
  out.above.assign(channels, 0);
  return out;
}

// The mean over samples of the maximum over channels.
double mean_of_largest(const std::vector<float>& away, int64_t channels) {
  const int64_t rows = std::ssize(away) / channels;
  double mean = 0;
  for (int64_t n = 0; n < rows; ++n)
    mean += double(*std::max_element(away.begin() + n * channels, away.begin() + (n + 1) * channels)) / double(rows);
  return mean;
}

// The published rule: the first batch's value, rounded; then the mean of the previous and the next batch's value.
float whole_alpha_of(double mean, float before, bool is_first) {
  const float own = float(std::nearbyint(mean));
  return is_first ? own : std::nearbyint((before + own) / 2);
}

nlohmann::json seen_json(const SeenRanges& s) {
  return {{"low", s.low},
          {"high", s.high},
          {"below", s.below},
          {"above", s.above},
          {"whole", {s.whole_below, s.whole_above}}};
}

std::vector<float> floats_at(const nlohmann::json& object, const char* key, const std::string& where) {
  const nlohmann::json& value = json_member(object, key, where);
  if (!value.is_array()) throw user_error("{}: \"{}\" is no list", where, key);
  std::vector<float> out;
  for (const nlohmann::json& x : value) {
    if (!x.is_number() || !std::isfinite(x.get<float>())) throw user_error("{}: \"{}\" has no number", where, key);
    out.push_back(x.get<float>());
  }
  return out;
}

SeenRanges seen_of(const nlohmann::json& json, const std::string& where) {
  SeenRanges s{floats_at(json, "low", where), floats_at(json, "high", where), floats_at(json, "below", where),
               floats_at(json, "above", where)};
  const std::vector<float> whole = floats_at(json, "whole", where);
  if (whole.size() != 2) throw user_error("{}: \"whole\" has {} numbers, not 2", where, whole.size());
  s.whole_below = whole[0];
  s.whole_above = whole[1];
  return s;
}

void require_size(const SeenRanges& s, size_t count, const std::string& name) {
  for (const auto* some : {&s.low, &s.high, &s.below, &s.above})
    if (some->size() != count)
      throw user_error("the calibration of '{}' is of {} channels, not {}", name, some->size(), count);
}

}  // namespace

std::string RangeWay::name() const {
  std::string out =
      fmt::format("{} per {}", source_name(source), per == graph::RangePer::tensor ? "tensor" : "channel");
  if (source == graph::RangeSource::estimate) out += fmt::format(", gamma {}", gamma);
  if (whole_alpha) out += ", whole alpha";
  return out;
}

graph::RangeSource range_source(const std::string& name) {
  for (const auto s : {graph::RangeSource::fixed, graph::RangeSource::dynamic, graph::RangeSource::estimate})
    if (name == source_name(s)) return s;
  throw usage_error("there are no ranges '{}'; there are static, dynamic and estimate", name);
}

graph::RangePer range_per(const std::string& name) {
  if (name == "tensor") return graph::RangePer::tensor;
  if (name == "channel") return graph::RangePer::channel;
  throw usage_error("ranges are per tensor or per channel, not per '{}'", name);
}

nlohmann::json to_json(const Calibration& c) {
  nlohmann::json out = {{"products", nlohmann::json::object()}, {"values", nlohmann::json::object()}};
  for (const auto& [name, p] : c.products)
    out["products"][name] = {{"tensor", seen_json(p.tensor)}, {"channel", seen_json(p.channel)}};
  for (const auto& [name, range] : c.values) out["values"][name] = {range.first, range.second};
  return out;
}

Calibration calibration_of(const nlohmann::json& json, const std::string& where) {
  Calibration out;
  const nlohmann::json &products = json_member(json, "products", where), &values = json_member(json, "values", where);
  if (!products.is_object() || !values.is_object()) throw user_error("{}: no calibration", where);
  for (const auto& [name, one] : products.items())
    out.products[name] = {seen_of(json_member(one, "tensor", where), where),
                          seen_of(json_member(one, "channel", where), where)};
  for (const auto& [name, one] : values.items()) {
    const std::vector<float> range = floats_at(values, name.c_str(), where);
    if (range.size() != 2) throw user_error("{}: the range of '{}' has {} numbers", where, name, range.size());
    out.values[name] = {range[0], range[1]};
  }
  return out;
}

RangedNetwork::RangedNetwork(apps::Network& network, std::string function, graph::Bindings symbols,
                             std::vector<std::string> floats)
    : network_(network),
      function_(std::move(function)),
      symbols_(std::move(symbols)),
      floats_(std::move(floats)),
      samples_(symbols_.at("B")) {
  network_.define(kFolding, [this](graph::Graph g) {
    products_ = graph::ranged_products(g, samples_);
    return graph::folded_weights(std::move(g), samples_);
  });
  quantize();
}

void RangedNetwork::keep(const std::string& name, const std::vector<float>& numbers) {
  network_.keep(name, {{graph::Dim(std::ssize(numbers))}, {}}, std::as_bytes(std::span(numbers)));
}

// Symmetric codes, scaled by each channel's largest magnitude; and the moments of the codes.
void RangedNetwork::quantize() {
  apps::NetworkInputs none;
  none.symbols = symbols_;
  const auto folded = network_.results(function_, none, false, kFolding);
  std::erase_if(products_, [&](const graph::RangedProduct& p) {
    return std::find(floats_.begin(), floats_.end(), p.name) != floats_.end();
  });
  for (const graph::RangedProduct& p : products_) {
    const std::vector<float>& w = folded.at(p.name + ".weight");
    std::vector<int8_t> codes;
    std::vector<int32_t> totals;
    std::vector<float> scales, means, deviations;
    double all = 0, squares = 0;
    for (int64_t o = 0; o < p.channels; ++o) {
      const std::span<const float> row(w.data() + o * p.columns, p.columns);
      float most = 0;
      for (const float x : row) most = std::max(most, std::fabs(x));
      const float scale = most > 0 ? most / 127 : 1;
      double sum = 0, square = 0;
      for (const float x : row) {
        const double code = std::nearbyint(x / scale);
        codes.push_back(int8_t(code));
        sum += code;
        square += code * code;
        all += code * scale;
        squares += code * scale * code * scale;
      }
      const double n = p.columns;
      scales.push_back(scale);
      totals.push_back(int32_t(sum));
      means.push_back(sum / n);
      deviations.push_back(std::sqrt(std::max(0.0, square / n - sum / n * (sum / n))));
    }
    const std::vector<float>& shift = folded.at(p.name + ".shift");
    double middle = 0;
    for (const float x : shift) middle += x / double(p.channels);
    const double n = double(p.channels * p.columns);
    network_.keep(p.name + ".codes", {{graph::Dim(p.channels), graph::Dim(p.columns)}, {Scalar::i8, nullptr}},
                  std::as_bytes(std::span(codes)));
    network_.keep(p.name + ".total", {{graph::Dim(p.channels)}, {Scalar::i32, nullptr}},
                  std::as_bytes(std::span(totals)));
    keep(p.name + ".scale", scales);
    keep(p.name + ".shift", shift);
    keep(p.name + ".mean", means);
    keep(p.name + ".deviation", deviations);
    keep(p.name + ".shift_all", {float(middle)});
    keep(p.name + ".mean_all", {float(all / n)});
    keep(p.name + ".deviation_all", {float(std::sqrt(std::max(0.0, squares / n - all / n * (all / n))))});
  }
}

int64_t RangedNetwork::weight_bytes() const {
  int64_t sum = 0;
  for (const graph::RangedProduct& p : products_) sum += p.channels * p.columns + 12 * p.channels;
  return sum;
}

void RangedNetwork::add_seen(bool by_channel, const std::vector<apps::NetworkInputs>& batches) {
  const std::string change = fmt::format("ranges.seen {} of {}", by_channel ? "channel" : "tensor", samples_);
  graph::RangeOptions options;
  options.samples = samples_;
  options.source = graph::RangeSource::dynamic;
  options.per = by_channel ? graph::RangePer::channel : graph::RangePer::tensor;
  options.floats = floats_;
  options.calibrates = true;
  network_.define(change, [options](graph::Graph g) { return graph::with_ranges(std::move(g), options); });
  for (size_t batch = 0; batch < batches.size(); ++batch) {
    const auto results = network_.results(function_, batches[batch], false, change);
    for (const graph::RangedProduct& p : products_) {
      SeenRanges& seen = by_channel ? calibration_.products[p.name].channel : calibration_.products[p.name].tensor;
      const int64_t channels = by_channel ? p.channels : 1;
      if (batch == 0) seen = begun(channels);
      const std::vector<float>&low = results.at(p.name + ".low"), &high = results.at(p.name + ".high");
      const std::vector<float>&below = results.at(p.name + ".below"), &above = results.at(p.name + ".above");
      const double below_mean = mean_of_largest(below, channels), above_mean = mean_of_largest(above, channels);
      for (int64_t i = 0; i < std::ssize(low); ++i) {
        const int64_t c = i % channels;
        seen.low[c] = std::min(seen.low[c], low[i]);
        seen.high[c] = std::max(seen.high[c], high[i]);
      }
      for (float& x : seen.below) x += float(below_mean / double(batches.size()));
      for (float& x : seen.above) x += float(above_mean / double(batches.size()));
      seen.whole_below = whole_alpha_of(below_mean, seen.whole_below, batch == 0);
      seen.whole_above = whole_alpha_of(above_mean, seen.whole_above, batch == 0);
    }
    for (const auto& [name, numbers] : results) {
      if (!name.starts_with("value.") || !name.ends_with(".low")) continue;
      const std::string value = name.substr(0, name.size() - 4);
      auto [at, fresh] = calibration_.values.try_emplace(value, 0.F, 0.F);
      for (const float x : numbers) at->second.first = std::min(at->second.first, x);
      for (const float x : results.at(value + ".high")) at->second.second = std::max(at->second.second, x);
    }
  }
}

void RangedNetwork::calibrate(const std::vector<apps::NetworkInputs>& batches) {
  LUMEN_CHECK(!batches.empty(), "a calibration without inputs");
  calibration_ = {};
  for (const bool by_channel : {false, true}) add_seen(by_channel, batches);
  kept_alpha_ = -1;
  for (const bool by_channel : {false, true}) raise_alpha(by_channel, batches);
}

// Section 6: alpha is raised while more than a thousandth of the results is beyond its range. All layers are measured
// together, because clipping in one changes the inputs of later ones.
void RangedNetwork::raise_alpha(bool by_channel, const std::vector<apps::NetworkInputs>& batches) {
  RangeWay way;
  way.per = by_channel ? graph::RangePer::channel : graph::RangePer::tensor;
  const std::string change = defined(way, true);
  for (int round = 0; round < kMostRaises; ++round) {
    kept_alpha_ = -1;
    keep_ways(false);
    std::map<std::string, double> clipped;
    double samples = 0;
    for (const apps::NetworkInputs& batch : batches) {
      const auto results = network_.results(function_, batch, false, change);
      samples += double(samples_);
      for (const graph::RangedProduct& p : products_)
        for (const float x : results.at(p.name + ".clipped")) clipped[p.name] += x;
    }
    bool raised = false;
    for (const graph::RangedProduct& p : products_) {
      const double of_all = double(p.channels * p.positions) * samples / (p.is_by_sample ? 1 : double(samples_));
      if (clipped[p.name] <= kMostClipped * of_all) continue;
      ProductCalibration& own = calibration_.products.at(p.name);
      SeenRanges& seen = by_channel ? own.channel : own.tensor;
      for (std::vector<float>* some : {&seen.below, &seen.above})
        for (float& x : *some) x = std::max(x, kLeastAlpha) * kRaise;
      raised = true;
    }
    if (!raised) break;
  }
  kept_alpha_ = -1;
}

void RangedNetwork::set_calibration(const Calibration& c) {
  for (const graph::RangedProduct& p : products_) {
    const auto at = c.products.find(p.name);
    if (at == c.products.end()) throw user_error("the calibration has no entry for '{}'", p.name);
    require_size(at->second.tensor, 1, p.name);
    require_size(at->second.channel, p.channels, p.name);
  }
  calibration_ = c;
  kept_alpha_ = -1;
}

void RangedNetwork::keep_ways(bool whole_alpha) {
  if (kept_alpha_ == int(whole_alpha)) return;
  kept_alpha_ = whole_alpha;
  for (const auto& [name, p] : calibration_.products)
    for (const auto& [seen, suffix] : {std::pair(&p.tensor, "_all"), {&p.channel, ""}}) {
      const size_t n = seen->low.size();
      keep(name + ".low" + suffix, seen->low);
      keep(name + ".high" + suffix, seen->high);
      keep(name + ".below" + suffix, whole_alpha ? std::vector<float>(n, seen->whole_below) : seen->below);
      keep(name + ".above" + suffix, whole_alpha ? std::vector<float>(n, seen->whole_above) : seen->above);
    }
  for (const auto& [name, range] : calibration_.values) {
    keep(name + ".low", {range.first});
    keep(name + ".high", {range.second});
  }
}

graph::RangeOptions RangedNetwork::options_of(const RangeWay& way) const {
  graph::RangeOptions options;
  options.samples = samples_;
  options.source = way.source;
  options.per = way.per;
  options.gamma = way.gamma;
  options.floats = floats_;
  options.depthwise_fixed = way.depthwise_fixed;
  options.norms_fixed = way.norms_fixed;
  return options;
}

std::string RangedNetwork::defined(const RangeWay& way, bool counts_clipped) {
  graph::RangeOptions options = options_of(way);
  options.counts_clipped = counts_clipped;
  const std::string change = fmt::format("ranges {} {} {} {} {} {} of {}", source_name(way.source), int(way.per),
                                         way.gamma, way.depthwise_fixed, way.norms_fixed, counts_clipped, samples_);
  if (!defined_.insert(change).second) return change;
  network_.define(change, [options, this](graph::Graph g) {
    graph::Graph out = graph::with_ranges(std::move(g), options);
    for (const graph::ValueId v : out.inputs()) {
      const std::string& name = out[v].attributes.name;
      if (name.starts_with("value.") && !calibration_.values.contains(name.substr(0, name.rfind('.'))))
        throw user_error("the calibration has no entry for '{}'", name);
    }
    return out;
  });
  return change;
}

RangedNetwork::Result RangedNetwork::run(const apps::NetworkInputs& inputs, const RangeWay& way, bool counts_clipped) {
  LUMEN_CHECK(!calibration_.products.empty() || products_.empty(), "ranges are run before they are calibrated");
  keep_ways(way.whole_alpha);
  const auto results = network_.results(function_, inputs, false, defined(way, counts_clipped));
  Result out;
  out.numbers = results.at(model::arch::kResult);
  if (!counts_clipped) return out;
  for (const graph::RangedProduct& p : products_) {
    for (const float x : results.at(p.name + ".clipped")) out.clipped += x;
    out.counted += double(p.channels * p.positions * std::ssize(results.at(p.name + ".clipped")));
  }
  return out;
}

run::PortableProgram RangedNetwork::exported(const RangeWay& way, const std::string& machine) {
  keep_ways(way.whole_alpha);
  const graph::Graph g = network_.graph_of(function_, symbols_, defined(way, false));
  return run::portable_program(g, {}, machine, [&](const std::string& name) { return network_.bytes_of(name); });
}

RangedNetwork::Cost RangedNetwork::cost(const apps::NetworkInputs& inputs, const RangeWay& way) {
  (void)run(inputs, way);
  run::Program& program = network_.program(function_, inputs.symbols, defined(way, false));
  return {program.arena_bytes(), program.measure(5)};
}

}  // namespace lumen::classify
