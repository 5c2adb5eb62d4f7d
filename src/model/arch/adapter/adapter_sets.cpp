#include "model/arch/adapter/adapter_sets.h"

#include <algorithm>
#include <deque>

#include "base/check.h"
#include "base/hash.h"
#include "model/arch/adapter/adapter_sum.h"

namespace lumen::model::arch {
namespace {

// Concatenates matrices, or stacks of them, along columns, the n-th times scales[n].
Weight beside(std::span<const Weight* const> parts, std::span<const double> scales) {
  const int64_t rows = parts[0]->rows();
  graph::Shape shape = parts[0]->type.shape;
  int64_t columns = 0;
  for (const Weight* p : parts) columns += p->columns();
  std::vector<float> values;
  values.reserve(rows * columns);
  for (int64_t r = 0; r < rows; ++r) {
    for (size_t n = 0; n < parts.size(); ++n) {
      const auto row = parts[n]->f32().subspan(r * parts[n]->columns(), parts[n]->columns());
      for (const float v : row) values.push_back(static_cast<float>(scales[n] * v));
    }
  }
  shape.back() = graph::Dim(columns);
  return f32_weight(shape, values);
}

// Concatenates matrices along rows; stacks matrix by matrix.
Weight below(std::span<const Weight* const> parts) {
  graph::Shape shape = parts[0]->type.shape;
  const bool stacked = shape.size() == 3;
  const size_t count = stacked ? shape[0].number() : 1;
  int64_t rows = 0;
  for (const Weight* p : parts) rows += p->type.shape[stacked ? 1 : 0].number();
  shape[stacked ? 1 : 0] = graph::Dim(rows);
  std::vector<float> values;
  for (size_t e = 0; e < count; ++e) {
    for (const Weight* p : parts) {
      const size_t size = p->f32().size() / count;
      const auto matrix = p->f32().subspan(e * size, size);
      values.insert(values.end(), matrix.begin(), matrix.end());
    }
  }
  return f32_weight(shape, values);
}

// Pads the last axis with zeros.
std::vector<float> wider(const Weight& w, int64_t columns) {
  std::vector<float> out;
  out.reserve(w.rows() * columns);
  for (int64_t r = 0; r < w.rows(); ++r) {
    const auto row = w.f32().subspan(r * w.columns(), w.columns());
    out.insert(out.end(), row.begin(), row.end());
    out.resize((r + 1) * columns);
  }
  return out;
}

// Pads each of `matrices` with rows of zeros.
std::vector<float> longer(const Weight& w, int64_t matrices, int64_t rows) {
  const size_t size = w.f32().size() / matrices, whole = rows * w.columns();
  std::vector<float> out;
  out.reserve(matrices * whole);
  for (int64_t m = 0; m < matrices; ++m) {
    const auto matrix = w.f32().subspan(m * size, size);
    out.insert(out.end(), matrix.begin(), matrix.end());
    out.resize((m + 1) * whole);
  }
  return out;
}

void append(std::vector<float>& to, const std::vector<float>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

// The updates of one weight, by set; null: none.
WeightChange stack_of(const Parameter& p, std::span<const WeightChange* const> changes) {
  const bool looked_up = is_looked_up(p), picked = p.shape.size() == 3 && !looked_up;
  const int64_t matrices = picked ? p.shape[0].number() : 1, columns = p.shape.back().number();
  const int64_t rows = looked_up ? columns : p.shape[p.shape.size() - 2].number();
  int64_t rank = 0, count = 0;
  bool gains = false;
  for (const WeightChange* c : changes) {
    if (!c) continue;
    rank = std::max(rank, c->rank());
    gains = gains || !c->gain.empty();
  }
  WeightChange out;
  std::vector<float> a, b;
  for (const WeightChange* c : changes) {
    out.slots.push_back(c ? count : -1);
    if (!c) continue;
    ++count;
    append(a, looked_up ? wider(c->a, rank) : longer(c->a, matrices, rank));
    append(b, wider(c->b, rank));
    if (gains) append(out.gain, c->gain.empty() ? std::vector<float>(matrices * rows, 1) : c->gain);
  }
  const graph::Dim stacks(count * matrices), narrow(rank);
  out.a = f32_weight(looked_up ? graph::Shape{graph::Dim(count * p.shape[0].number()), narrow}
                               : graph::Shape{stacks, narrow, p.shape.back()},
                     a);
  out.b = f32_weight({stacks, graph::Dim(rows), narrow}, b);
  return out;
}

}  // namespace

std::map<std::string, WeightChange> combined_changes(run::Engine& engine, const Model& model,
                                                     std::span<const ScaledAdapter> adapters) {
  std::map<std::string, WeightChange> out;
  for (const Parameter& p : model.parameters) {
    std::vector<const Weight*> as, bs;
    std::vector<double> scales;
    std::deque<Weight> scaled;  // owns the weights that bs points to
    std::vector<float> gains;
    for (const ScaledAdapter& s : adapters) {
      const auto found = s.adapter.parts.find(p.name);
      if (found == s.adapter.parts.end()) continue;
      as.push_back(&found->second.a);
      bs.push_back(&found->second.b);
      scales.push_back(s.scale * found->second.scale);
      if (!found->second.magnitude) continue;
      const std::vector<float> own = magnitude_gain(engine, p, model.weights.at(p.name), found->second);
      bs.back() = &scaled.emplace_back(rows_scaled(found->second.b, own));
      if (gains.empty()) gains.assign(own.size(), 1);
      for (size_t n = 0; n < own.size(); ++n) gains[n] += own[n] - 1;
    }
    if (as.empty()) continue;
    WeightChange change;
    change.gain = std::move(gains);
    change.b = beside(bs, scales);
    change.a = is_looked_up(p) ? beside(as, std::vector<double>(as.size(), 1.0)) : below(as);
    out.emplace(p.name, std::move(change));
  }
  return out;
}

std::map<std::string, WeightChange> stacked_changes(run::Engine& engine, const Model& model,
                                                    std::span<const AdapterSet> sets) {
  std::vector<std::map<std::string, WeightChange>> by_set;
  for (const AdapterSet& set : sets) {
    LUMEN_CHECK(can_differ(set), "whole weights differ from text to text");
    by_set.push_back(combined_changes(engine, model, set));
  }
  std::map<std::string, WeightChange> out;
  for (const Parameter& p : model.parameters) {
    std::vector<const WeightChange*> changes;
    for (const auto& set : by_set) {
      const auto found = set.find(p.name);
      changes.push_back(found == set.end() ? nullptr : &found->second);
    }
    if (std::ranges::all_of(changes, [](const WeightChange* c) { return !c; })) continue;
    out.emplace(p.name, stack_of(p, changes));
    for (auto& set : by_set) set.erase(p.name);  // frees them early
  }
  return out;
}

std::string identity_of(std::span<const ScaledAdapter> adapters) {
  std::string all;
  const auto add = [&](const Weight& w) {
    all += fmt::format("{} {}\n", graph::print(w.type), hash_bytes(w.bytes.data(), w.bytes.size()).hex());
  };
  for (const ScaledAdapter& s : adapters) {
    all += fmt::format("adapter {}\n", s.scale);
    for (const auto& [name, part] : s.adapter.parts) {
      all += fmt::format("{} {}\n", name, part.scale);
      add(part.a);
      add(part.b);
      if (part.magnitude) add(*part.magnitude);
    }
    for (const auto& [name, w] : s.adapter.whole) {
      all += name + "\n";
      add(w);
    }
  }
  return hash_text(all).hex();
}

bool can_differ(std::span<const ScaledAdapter> adapters) {
  return std::ranges::all_of(adapters, [](const ScaledAdapter& s) { return s.adapter.whole.empty(); });
}

}  // namespace lumen::model::arch
