#include "model/arch/adapter/adapter_sum.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "graph/transform/low_rank.h"
#include "graph/transform/rounded_sum.h"

namespace lumen::model::arch {
namespace {

using graph::Builder;
using graph::Graph;
using graph::Role;
using graph::ValueId;

// A graph over one weight, run once.
class OneWeight {
 public:
  OneWeight(run::Engine& engine, const Weight& w) : engine_(engine), build_(graph_) {
    options_.exact = true;
    weight_ = input("w", w);
    if (!w.is_f32()) options_.assignments = {{graph::FormatAssignment::What::stored, "w", w.type.element.format}};
  }

  Builder& build() { return build_; }
  ValueId weight() const { return weight_; }

  ValueId input(const std::string& name, const Weight& w) {
    bound_[name] = run::DeviceTensor::parameter(engine_.device(), w.type, w.bytes.data(), w.bytes.keeper());
    return build_.input(name, Role::parameter, {w.type.shape, {Scalar::f32, nullptr}});
  }

  std::vector<float> run(ValueId result) {
    const size_t count = graph::elements(build_.type(result).shape).number();
    graph_.results = {result};
    graph_.result_names = {kResult};
    const auto program = engine_.compile(graph_, options_);
    for (const std::string& name : program->input_names()) program->bind(name, bound_.at(name));
    program->run();
    std::vector<float> out(count);
    program->result(kResult)->download(out.data(), count * sizeof(float));
    return out;
  }

 private:
  run::Engine& engine_;
  Graph graph_;
  Builder build_;
  run::CompileOptions options_;
  std::map<std::string, run::DeviceTensorRef> bound_;
  ValueId weight_ = -1;
};

Weight scaled(const Weight& w, double scale) {
  std::vector<float> values(w.f32().begin(), w.f32().end());
  for (float& v : values) v = static_cast<float>(scale * v);
  return f32_weight(w.type.shape, values);
}

}  // namespace

std::vector<float> magnitude_gain(run::Engine& engine, const Parameter& p, const Weight& w, const AdapterPart& part) {
  LUMEN_CHECK(part.magnitude.has_value());
  const bool looked_up = is_looked_up(p), stacked = w.type.shape.size() == 3;
  const auto letters = [&](const char* text) { return (stacked ? "e" : "") + std::string(text); };
  OneWeight one(engine, w);
  Builder& build = one.build();
  const ValueId v = one.weight();
  const ValueId a = one.input("a", part.a), b = one.input("b", scaled(part.b, part.scale));
  // |w + b a|^2 = |w|^2 + b . (2 w a + b (a a)): needs no matrix of the weight's size.
  const ValueId wa = looked_up ? build.contract(v, a, "nk", "nr", "kr")
                               : build.contract(v, a, letters("nk"), letters("rk"), letters("nr"));
  const ValueId aa = looked_up ? build.contract(a, a, "nr", "ns", "rs")
                               : build.contract(a, a, letters("rk"), letters("sk"), letters("rs"));
  const ValueId inner =
      build.add(build.mul(wa, build.scalar(2)), build.contract(b, aa, letters("nr"), letters("rs"), letters("ns")));
  const graph::Dim count = graph::elements(graph::low_rank_rows(p.shape, looked_up));
  const ValueId own =
      build.reshape(build.reduce(build.mul(v, v), graph::Reduction::sum, {looked_up ? 0 : -1}), {count});
  const ValueId more = build.reshape(build.reduce(build.mul(b, inner), graph::Reduction::sum, {-1}), {count});
  std::vector<float> gain = one.run(build.add(own, more));
  for (size_t n = 0; n < gain.size(); ++n) {
    const double length = std::sqrt(std::max<double>(0.0, gain[n]));
    gain[n] = static_cast<float>(part.magnitude->f32()[n] / length);
    if (std::isfinite(gain[n])) continue;
    throw Error(Exit::numeric,
                fmt::format("row {} of parameter {} has the norm {} with the adapter, so that its magnitude has no "
                            "direction",
                            n, p.name, length),
                "the adapter was made for another model");
  }
  return gain;
}

Weight rows_scaled(const Weight& w, std::span<const float> by) {
  std::vector<float> values(w.f32().begin(), w.f32().end());
  const size_t columns = w.columns();
  for (size_t i = 0; i < values.size(); ++i) values[i] *= by[i / columns];
  return f32_weight(w.type.shape, values);
}

bool is_adapted(const std::string& parameter, std::span<const ScaledAdapter> adapters) {
  return std::any_of(adapters.begin(), adapters.end(),
                     [&](const ScaledAdapter& s) { return s.adapter.parts.contains(parameter); });
}

std::vector<float> adapted_values(run::Engine& engine, const Parameter& p, const Weight& w,
                                  std::span<const ScaledAdapter> adapters) {
  const bool looked_up = is_looked_up(p);
  std::vector<std::pair<const ScaledAdapter*, const AdapterPart*>> parts;
  std::vector<float> gain;                // of the weight itself
  std::vector<std::vector<float>> gains;  // of each update
  for (const ScaledAdapter& s : adapters) {
    require_scale(s);
    const auto found = s.adapter.parts.find(p.name);
    if (found == s.adapter.parts.end()) continue;
    parts.emplace_back(&s, &found->second);
    gains.emplace_back();
    if (!found->second.magnitude) continue;
    gains.back() = magnitude_gain(engine, p, w, found->second);
    if (gain.empty()) gain.assign(gains.back().size(), 1);
    for (size_t n = 0; n < gain.size(); ++n) gain[n] += gains.back()[n] - 1;
  }
  OneWeight one(engine, w);
  Builder& build = one.build();
  ValueId sum = one.weight();
  if (!gain.empty()) {
    graph::Shape rows = graph::low_rank_rows(p.shape, looked_up);
    const ValueId g = one.input("gain", f32_weight(rows, gain));
    rows.emplace_back(1);
    sum = build.mul(sum, looked_up ? g : build.reshape(g, rows));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto& [s, part] = parts[i];
    const Weight b = gains[i].empty() ? part->b : rows_scaled(part->b, gains[i]);
    sum = graph::low_rank_sum(build, sum, one.input(fmt::format("a{}", i), part->a),
                              one.input(fmt::format("b{}", i), b), s->scale * part->scale, looked_up);
  }
  return one.run(sum);
}

}  // namespace lumen::model::arch
