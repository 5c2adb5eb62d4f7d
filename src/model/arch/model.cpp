#include "model/arch/model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/check.h"
#include "base/threads/team.h"
#include "graph/ir/eval.h"
#include "model/arch/low_rank_weights.h"
#include "number/facts/facts.h"
#include "run/device/require.h"

namespace lumen::model::arch {
namespace {

// Box-Muller on the graph layer's counter-based uniform random numbers.
float normal_value(uint32_t seed, uint32_t salt, uint64_t element) {
  const double u = 1.0 - graph::uniform_random(seed, salt, 2 * element);
  const double v = graph::uniform_random(seed, salt, 2 * element + 1);
  return static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v));
}

}  // namespace

int64_t Weight::columns() const {
  return type.shape.empty() ? 1 : type.shape.back().number();
}

int64_t Weight::rows() const {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < type.shape.size(); ++i) rows *= type.shape[i].number();
  return rows;
}

double Weight::bits_per_weight() const {
  return is_f32() ? 32.0 : type.element.format->bits_per_weight(rows(), columns());
}

std::span<const float> Weight::f32() const {
  LUMEN_CHECK(is_f32());
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

Weight f32_weight(const graph::Shape& shape, std::span<const float> values) {
  Weight w;
  w.type = {shape, {Scalar::f32, nullptr}};
  LUMEN_CHECK(graph::elements(shape).number() == std::ssize(values));
  Room room(values.size_bytes());
  if (!values.empty()) std::memcpy(room.data(), values.data(), values.size_bytes());
  w.bytes = std::move(room).bytes();
  return w;
}

int64_t Model::integer(const std::string& key) const {
  const auto found = config.find(key);
  if (found == config.end())
    throw user_error("family '{}' has no config key '{}', which is needed here", family->name(), key);
  return static_cast<int64_t>(found->second);
}

int64_t Model::weight_count() const {
  int64_t total = 0;
  for (const Parameter& p : parameters)
    if (p.role != kBranchRole) total += p.count();
  return total;
}

int64_t Model::weight_bytes() const {
  int64_t total = 0;
  for (const auto& entry : weights) total += entry.second.bytes.size();
  return total;
}

const Parameter* Model::find(const std::string& parameter) const {
  for (const Parameter& p : parameters) {
    if (p.name == parameter) return &p;
  }
  return nullptr;
}

Weight initial_weight(const Family& family, const graph::Config& config, const Parameter& p, uint32_t seed,
                      uint32_t salt) {
  // Threads write into the weight's fresh pages: page faults are half of the work for large models.
  Room room(p.count() * sizeof(float));
  const std::span values(reinterpret_cast<float*>(room.data()), p.count());
  const auto count = std::ssize(values);
  const auto fill = [&](const auto& value) {
    parallel_for(0, count, {.is_worth = count > 65536}, [&](int64_t i) { values[i] = value(i); });
  };
  if (p.init == "ones") {
    fill([](int64_t) { return 1.0F; });
  } else if (p.init == "zeros") {
    fill([](int64_t) { return 0.0F; });
  } else if (p.init == "each") {
    LUMEN_CHECK(std::ssize(p.init_values) == count);
    fill([&](int64_t i) { return static_cast<float>(p.init_values[i]); });
  } else if (p.init == "normal" || p.init == "residual") {
    double scale = p.init_scale;
    if (p.init == "residual") scale /= std::sqrt(2.0 * std::max(1.0, config.at("layers")));
    fill([&](int64_t i) { return static_cast<float>(scale * normal_value(seed, salt, i)); });
  } else if (p.init == "uniform") {
    fill(
        [&](int64_t i) { return static_cast<float>(p.init_scale * (2.0 * graph::uniform_random(seed, salt, i) - 1)); });
  } else {
    throw user_error("parameter '{}' of family '{}' has an unknown init '{}'", p.name, family.name(), p.init);
  }
  Weight w;
  w.type = {p.shape, {Scalar::f32, nullptr}};
  w.bytes = std::move(room).bytes();
  return w;
}

Model outline(FamilyRef family, const graph::Config& config) {
  Model model;
  model.name = family->name();
  model.config = config;
  model.parameters = family->parameters(config);
  model.family = std::move(family);
  return model;
}

Model initialise(FamilyRef family, const graph::Config& config, uint32_t seed) {
  Model model = outline(std::move(family), config);
  int64_t bytes = 0;
  for (const Parameter& p : model.parameters)
    bytes = run::saturating_sum(bytes, run::saturating_product(p.count(), sizeof(float)));
  run::require_host_memory(fmt::format("a new '{}'", model.name), {{"weights (f32)", bytes}});
  uint32_t salt = 0;
  for (const Parameter& p : model.parameters)
    model.weights[p.name] = initial_weight(*model.family, config, p, seed, ++salt);
  return model;
}

std::vector<graph::FormatAssignment> stored_formats(const Model& model) {
  std::vector<graph::FormatAssignment> assignments;
  for (const auto& [name, weight] : model.weights) {
    if (weight.is_f32()) continue;
    graph::FormatAssignment a;
    a.what = graph::FormatAssignment::What::stored;
    a.value = name;
    a.format = weight.type.element.format;
    assignments.push_back(std::move(a));
  }
  return assignments;
}

std::vector<graph::FormatAssignment> stored_formats(const Model& model, const graph::Graph& used) {
  std::vector<graph::FormatAssignment> assignments = stored_formats(model);
  std::erase_if(assignments, [&](const auto& a) { return used.find_input(a.value) < 0; });
  return assignments;
}

bool is_plain(const Format& format, Scalar scalar) {
  return plain_scalar(format) == scalar;
}

FormatRef format_of_scalar(const FormatLibrary& formats, Scalar scalar) {
  for (const FormatRef& f : formats.all()) {
    if (is_plain(*f, scalar)) return f;
  }
  return nullptr;
}

}  // namespace lumen::model::arch
