#include "model/compress/equivalent_transform/apply.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "base/threads/team.h"
#include "graph/match/uses.h"
#include "model/arch/function.h"
#include "model/arch/split_weights.h"
#include "model/compress/equivalent_transform/rotated_lines.h"

namespace lumen::model::compress {

namespace {

std::vector<float> values_to_change(const arch::Model& model, const std::string& name) {
  const auto w = model.weights.find(name);
  LUMEN_CHECK(w != model.weights.end(), "'{}' is no weight of the model", name);
  if (!w->second.is_f32())
    throw Error(
        Exit::user,
        fmt::format("'{}' is held as {}: weights are changed in f32", name, w->second.type.element.format->name),
        "decode the model first");
  return {w->second.f32().begin(), w->second.f32().end()};
}

void put(arch::Model& model, const std::string& name, std::span<const float> values) {
  arch::Weight& w = model.weights.at(name);
  w = arch::f32_weight(w.type.shape, values);
}

// Rows, columns and matrices of a parameter [E, N, K]; vectors are one row.
struct Extents {
  int64_t matrices = 1, rows = 1, columns = 1;
  explicit Extents(const graph::Shape& s) {
    columns = s.back().number();
    if (s.size() > 1) rows = s[s.size() - 2].number();
    for (size_t d = 0; d + 2 < s.size(); ++d) matrices *= s[d].number();
  }
  // The index of an element along an axis.
  size_t at(graph::Along along, int64_t element) const {
    if (along == graph::Along::rows) return (element / columns);
    if (along == graph::Along::elements) return element;
    return (element / (rows * columns) * columns + element % columns);
  }
};

void scale(arch::Model& model, const graph::ScaledParameter& change, std::span<const double> s) {
  std::vector<float> values = values_to_change(model, change.parameter);
  const Extents extents(model.weights.at(change.parameter).type.shape);
  const int64_t count = std::ssize(values);
  parallel_for(0, count, {.is_worth = count > 65536}, [&](int64_t i) {
    const graph::Power power = change.powers[extents.at(change.along, i)];
    if (power == 0) return;
    const double by = s[std::abs(power) - 1];
    float& v = values[i];
    v = (v + change.offset) * (power > 0 ? by : 1 / by) - change.offset;
  });
  put(model, change.parameter, values);
}

void turn(arch::Model& model, const graph::RotatedParameter& change, std::span<const Rotation> rotations) {
  std::vector<float> values = values_to_change(model, change.parameter);
  const RotatedLines turn(change, model.weights.at(change.parameter).type.shape, rotations[0].width());
  turn.apply(values, rotations);
  put(model, change.parameter, values);
}

bool is_ones(const arch::Model& model, const std::string& name) {
  const std::vector<float> values = values_to_change(model, name);
  return std::all_of(values.begin(), values.end(), [](float v) { return v == 1; });
}

// The norm's weight, where it alone absorbs a site's scale, channel by channel.
const graph::ScaledParameter* gain_of(const graph::ScaleSite& site) {
  const graph::ScaledParameter* gain = nullptr;
  if (!site.is_whole()) return nullptr;
  for (const graph::ScaledParameter& c : site.changes) {
    if (c.along == graph::Along::columns) continue;
    if (gain || c.along != graph::Along::elements || c.offset != 0) return nullptr;
    gain = &c;
  }
  if (!gain || gain->powers.size() != site.powers.size()) return nullptr;
  std::set<graph::Power> seen(gain->powers.begin(), gain->powers.end());
  return seen.size() == gain->powers.size() && *seen.rbegin() < 0 ? gain : nullptr;
}

}  // namespace

graph::Graph transform_graph(const arch::Model& model) {
  return graph::with_numbers(function_of(model, "forward"));
}

void apply_scales(arch::Model& model, const graph::ScaleSite& site, std::span<const double> s) {
  LUMEN_CHECK(std::ssize(s) == site.free, "{} numbers for a site of {}", s.size(), site.free);
  for (const double x : s)
    if (!(x > 0) || !std::isfinite(x)) throw user_error("a channel cannot be scaled by {}", x);
  for (const graph::ScaledParameter& change : site.changes) scale(model, change, s);
}

std::vector<std::string> fold_norms(arch::Model& model, std::span<const graph::ScaleSite> sites) {
  std::vector<std::string> folded;
  for (const graph::ScaleSite& site : sites) {
    const graph::ScaledParameter* const gain = gain_of(site);
    if (!gain) continue;
    const std::vector<float> was = values_to_change(model, gain->parameter);
    // The gain is divided by itself. Unlike other scales it may be negative or 0, so only columns are multiplied.
    std::vector<double> s(site.free, 1);
    for (size_t i = 0; i < was.size(); ++i) s[-gain->powers[i] - 1] = was[i];
    for (const graph::ScaledParameter& change : site.changes)
      if (&change != gain) scale(model, change, s);
    put(model, gain->parameter, std::vector<float>(was.size(), 1));
    folded.push_back(gain->parameter);
  }
  return folded;
}

bool untie(arch::Model& model) {
  for (const arch::Parameter& p : all_own_parameters(model)) {
    if (model.find(p.name) || p.absent_if.empty()) continue;
    const auto key = model.config.find(p.absent_if);
    if (key == model.config.end() || key->second == 0) continue;
    // The tied embedding is the matrix of its shape that both row lookups and products read.
    const graph::Graph g = transform_graph(model);
    const graph::Users users = graph::users_of(g);
    for (const graph::ValueId v : g.inputs()) {
      if (g[v].type.shape != p.shape) continue;
      const auto read_by = [&](graph::Op op) {
        return std::any_of(users[v].begin(), users[v].end(), [&](graph::ValueId u) { return u >= 0 && g[u].op == op; });
      };
      if (!read_by(graph::Op::gather_) || !read_by(graph::Op::contract_)) continue;
      const arch::Weight shared = model.weights.at(g[v].attributes.name);
      model.config[p.absent_if] = 0;
      model.parameters = own_parameters(model);
      model.weights[p.name] = shared;
      return true;
    }
  }
  return false;
}

void rotate(arch::Model& model, const graph::RotationSite& site, std::span<const Rotation> rotations) {
  if (!site.reason.empty()) throw user_error("'{}' cannot be rotated: {}", site.value, site.reason);
  LUMEN_CHECK(rotations.size() == 1 || std::ssize(rotations) == site.blocks);
  for (const Rotation& r : rotations) LUMEN_CHECK(r.width() == site.width);
  for (const std::string& gain : site.gains)
    if (!is_ones(model, gain))
      throw Error(Exit::user, fmt::format("'{}' is not 1 everywhere: its operand cannot be rotated", gain),
                  site.tied.empty() ? "fold norms first"
                                    : fmt::format("'{}' must be untied and norms folded first", site.tied[0]));
  for (const graph::RotatedParameter& change : site.changes) turn(model, change, rotations);
}

void rotate_online(arch::Model& model, const std::vector<std::string>& weights) {
  std::vector<std::string> named;
  if (model.metadata.has(arch::kOnlineRotations)) named = model.metadata.texts(arch::kOnlineRotations);
  arch::Model changed = model;
  for (const std::string& name : weights) {
    const arch::Parameter* const p = model.find(name);
    if (!p || p->gguf.empty()) throw user_error("'{}' is no weight that a file could name", name);
    if (std::find(named.begin(), named.end(), p->gguf) != named.end())
      throw user_error("the input of '{}' is rotated already", name);
    graph::RotatedParameter change{name, graph::Along::columns, {}};
    const Extents e(p->shape);
    for (int64_t i = 0; i < e.matrices * e.columns; ++i) change.places.push_back(i % e.columns);
    const Rotation h = Rotation::plain_hadamard(e.columns);
    turn(changed, change, {&h, 1});
    named.push_back(p->gguf);
  }
  changed.metadata.set(arch::kOnlineRotations, file::GgufArray(named));
  (void)function_of(changed, "forward");  // an Error where no product reads one
  model = std::move(changed);
}

void inject_outliers(arch::Model& model, const graph::ScaleSite& site, std::span<const int64_t> channels,
                     double factor) {
  std::vector<double> s(site.free, 1);
  for (const int64_t c : channels) {
    LUMEN_CHECK(c >= 0 && c < std::ssize(site.powers));
    const graph::Power power = site.powers[c];
    if (power == 0) throw user_error("channel {} of '{}' cannot be scaled: {}", c, site.value, site.reason);
    s[std::abs(power) - 1] = 1 / factor;
  }
  apply_scales(model, site, s);
}

}  // namespace lumen::model::compress
