#include "model/train/method/ship.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "model/arch/adapter/adapter_sum.h"
#include "model/arch/function.h"
#include "model/compress/quantize.h"

namespace lumen::model::train {
namespace {

constexpr const char* kBase = "base";

// The weight's name, from the name of its rounded sum.
std::string weight_of(const std::string& sum) {
  const size_t ending = graph::rounded_sum("").size();
  LUMEN_CHECK(sum.size() > ending);
  return sum.substr(0, sum.size() - ending);
}

}  // namespace

Shipping::Shipping(const arch::Model& model, const recipe::Recipe& recipe, const std::vector<graph::LowRank>& changes)
    : settings_(recipe.ship) {
  std::map<std::string, FormatRef> chosen;
  if (settings_.type == kBase) {
    for (const auto& [name, w] : model.weights)
      if (!w.is_f32()) chosen[name] = w.type.element.format;
    if (model.metadata.has("general.file_type")) file_type_ = model.metadata.integer("general.file_type");
  } else {
    compress::QuantizeOptions options;
    options.target = settings_.type;
    compress::QuantizeReport report;
    chosen = choose_formats(model, options, &report);
    file_type_ = report.file_type;
  }
  std::set<std::string> changed;
  for (const graph::LowRank& c : changes) {
    if (c.dropout > 0 || c.magnitudes)
      throw Error(Exit::usage,
                  fmt::format("--ship and {} contradict each other: the adapter is inside the quantization",
                              c.dropout > 0 ? "a dropout" : "magnitudes of rows (DoRA)"),
                  c.dropout > 0 ? "leave out the dropout" : "ship.magnitudes gives each group of the format one");
    changed.insert(c.weight);
    graph::RoundedSum sum;
    sum.change = c;
    const auto found = chosen.find(c.weight);
    const bool rounds = found != chosen.end() && !arch::is_plain(*found->second, Scalar::f32);
    if (rounds && !found->second->encodes())
      throw Error(Exit::user,
                  fmt::format("'{}' would be shipped in '{}', which can be read but not written", c.weight,
                              found->second->name),
                  "name another format with --ship");
    if (rounds) {
      if (settings_.magnitudes) {
        sum.group = found->second->block;
        graph::Shape shape = model.find(c.weight)->shape;
        if (const auto groups = graph::divide(shape.back(), graph::Dim(sum.group))) {
          shape.back() = *groups;
          magnitudes_[c.weight] = shape;
        }
      }
      graph::FormatAssignment a;
      a.value = graph::rounded_sum(c.weight);
      a.format = found->second;
      a.source = settings_.learns() ? FieldSource::learned : FieldSource::fitted;
      roundings_.push_back(std::move(a));
    }
    sums_.push_back(std::move(sum));
  }
  for (const auto& [name, format] : chosen) {
    const arch::Weight& w = model.weights.at(name);
    const bool same = w.type.element.format && w.type.element.format->hash == format->hash;
    if (changed.contains(name) || !same) formats_[name] = format;
  }
  graph::Changes all;
  all.sums = sums_;
  all.roundings = roundings_;
  learned_ = learned_fields(graph::changed(function_of(model, "token_loss"), all), roundings_);
  for (LearnedField& f : learned_) f.weight = weight_of(f.weight);
}

graph::Changes Shipping::changes(const graph::Graph& function) const {
  graph::Changes out;
  for (const graph::RoundedSum& s : sums_)
    if (function.find_input(s.change.weight) >= 0) out.sums.push_back(s);
  for (const graph::FormatAssignment& a : roundings_)
    if (function.find_input(weight_of(a.value)) >= 0) out.roundings.push_back(a);
  return out;
}

std::vector<arch::Parameter> Shipping::parameters() const {
  std::vector<arch::Parameter> out;
  for (const LearnedField& f : learned_) out.push_back(f.parameter);
  for (const auto& [weight, shape] : magnitudes_) {
    arch::Parameter p;
    p.name = graph::group_magnitude(weight);
    p.shape = shape;
    p.role = recipe::kRoleGroupMagnitude;
    p.init = "ones";
    p.decays = false;
    out.push_back(std::move(p));
  }
  return out;
}

void Shipping::hold_still(std::vector<arch::Parameter>& trained) const {
  const auto trains = [&](const char* what) {
    return std::find(settings_.trains.begin(), settings_.trains.end(), what) != settings_.trains.end();
  };
  std::set<std::string> fields;
  for (const LearnedField& f : learned_) fields.insert(f.parameter.name);
  for (arch::Parameter& p : trained) {
    const char* kind = p.role == recipe::kRoleGroupMagnitude ? "magnitudes"
                       : fields.contains(p.name)             ? "fields"
                                                             : "adapter";
    if (!trains(kind)) p.rate = 0;
  }
}

FormatRef Shipping::format_of(const std::string& parameter) const {
  const auto found = formats_.find(parameter);
  return found == formats_.end() ? nullptr : found->second;
}

bool Shipping::is_changed(const std::string& parameter) const {
  return std::any_of(sums_.begin(), sums_.end(),
                     [&](const graph::RoundedSum& s) { return s.change.weight == parameter; });
}

void round_unchanged(run::Engine& engine, arch::Model& model, const Shipping& shipping) {
  for (auto& [name, w] : model.weights) {
    const FormatRef format = shipping.format_of(name);
    if (!format || shipping.is_changed(name)) continue;
    const std::vector<float> values = compress::values_of(engine, w);
    if (arch::is_plain(*format, Scalar::f32)) {
      w = arch::f32_weight(w.type.shape, values);
      continue;
    }
    w.type.element = {Scalar::f32, format};
    w.bytes = engine.encode(format, values.data(), w.rows(), w.columns());
  }
}

arch::Weight shipped_weight(run::Engine& engine, const arch::Parameter& p, const arch::Weight& base,
                            const arch::Adapter& adapter, const Shipping& shipping,
                            const std::map<std::string, std::vector<float>>& values) {
  const arch::ScaledAdapter one[] = {{adapter}};
  std::vector<float> sum = adapted_values(engine, p, base, one);
  const FormatRef format = shipping.format_of(p.name);
  if (!format || arch::is_plain(*format, Scalar::f32)) return arch::f32_weight(p.shape, sum);
  const auto magnitudes = values.find(graph::group_magnitude(p.name));
  const auto magnitude = [&](size_t group) { return magnitudes == values.end() ? 1.0F : magnitudes->second[group]; };
  if (magnitudes != values.end()) {
    const size_t block = format->block;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] *= magnitude(i / block);
  }
  std::map<int, std::vector<float>> fields;
  for (const LearnedField& f : shipping.learned()) {
    if (f.weight != p.name) continue;
    std::vector<float>& field = fields[f.field];
    field = values.at(f.parameter.name);
    for (size_t i = 0; i < field.size(); ++i) field[i] *= magnitude(i);
  }
  if (!fields.empty()) return encode_with(format, arch::f32_weight(p.shape, sum), fields);
  arch::Weight out;
  out.type = {p.shape, {Scalar::f32, format}};
  out.bytes = engine.encode(format, sum.data(), out.rows(), out.columns());
  return out;
}

}  // namespace lumen::model::train
