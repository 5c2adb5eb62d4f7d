#include "model/arch/split_weights.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "base/check.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/arch/low_rank_weights.h"

namespace lumen::model {
namespace {

constexpr size_t kMostParts = 64;

std::string end_of_order(const std::string& name) {
  return name + ".order";
}

const Parameter* named(const std::vector<Parameter>& parameters, const std::string& gguf) {
  for (const Parameter& p : parameters)
    if (p.gguf == gguf) return &p;
  return nullptr;
}

std::optional<int64_t> number_of(const std::string& word) {
  int64_t n = 0;
  const char* end = word.data() + word.size();
  const auto [at, failure] = std::from_chars(word.data(), end, n);
  return failure == std::errc{} && at == end ? std::optional(n) : std::nullopt;
}

// One text of the key.
graph::ColumnSplit split_of(const std::string& text, const std::vector<Parameter>& parameters,
                            const std::string& source) {
  std::istringstream words(text);
  std::string word;
  words >> word;
  const Parameter* const p = named(parameters, word);
  if (!p || p->gguf.empty() || p->shape.size() < 2 || p->is_vector())
    throw user_error("{}: {} names '{}', which is no weight of the family", source, kSplitColumns, printable(word));
  graph::ColumnSplit out{p->name, {}, ""};
  const int64_t all = p->shape.back().number();
  int64_t sum = 0;
  while (words >> word) {
    const std::optional<int64_t> n = out.order.empty() ? number_of(word) : std::nullopt;
    if (!n) {
      const Parameter* const of = named(parameters, word);
      if (!out.order.empty() || !of || of->shape.size() < 2 || of->shape.back().number() != all)
        throw user_error("{}: {} of '{}': '{}' is neither a number of columns nor a weight that has as many", source,
                         kSplitColumns, p->gguf, printable(word));
      out.order = order_parameter(of->name);
      continue;
    }
    if (*n < 1 || *n > all - sum || out.columns.size() == kMostParts)
      throw user_error("{}: {}: parts of '{}', of {} columns, cannot be '{}'", source, kSplitColumns, p->gguf, all,
                       printable(text));
    sum += *n;
    out.columns.push_back(*n);
  }
  if (out.columns.size() < 2 || sum != all)
    throw user_error("{}: {}: the parts of '{}' have {} columns, but it has {}", source, kSplitColumns, p->gguf, sum,
                     all);
  return out;
}

Parameter order_of(const Parameter& p) {
  Parameter out = parameter_beside(p, end_of_order(""), {p.shape.back()});
  // Stacked weights have one order for all their matrices.
  if (const size_t expert = out.hf.find("{e}"); expert != std::string::npos) out.hf.replace(expert, 3, "all");
  out.role = kOrderRole;
  out.init = "zeros";
  out.frozen = true;
  out.decays = false;
  return out;
}

}  // namespace

std::string order_parameter(const std::string& weight) {
  return end_of_order(weight);
}

std::vector<graph::ColumnSplit> column_splits(const Family& family, const graph::Config& config,
                                              const GgufMetadata& metadata, const std::string& source) {
  std::vector<graph::ColumnSplit> out;
  if (!metadata.has(kSplitColumns)) return out;
  const std::vector<Parameter> parameters = family.all_parameters(config);
  std::set<std::string> seen;
  for (const std::string& text : metadata.texts(kSplitColumns)) {
    out.push_back(split_of(text, parameters, source));
    if (!seen.insert(out.back().weight).second)
      throw user_error("{}: {} names '{}' twice", source, kSplitColumns, out.back().weight);
  }
  return out;
}

std::vector<graph::ColumnSplit> column_splits(const Model& model) {
  return column_splits(*model.family, model.config, model.metadata, "'" + model.name + "'");
}

void set_column_splits(Model& model, std::span<const graph::ColumnSplit> splits) {
  const std::vector<Parameter> parameters = model.family->all_parameters(model.config);
  std::vector<std::string> texts;
  for (const graph::ColumnSplit& s : splits) {
    std::string text, order;
    for (const Parameter& p : parameters) {
      if (p.name == s.weight) text = p.gguf;
      if (!s.order.empty() && order_parameter(p.name) == s.order) order = p.gguf;
    }
    LUMEN_CHECK(!text.empty() && order.empty() == s.order.empty(), "'{}' is no weight of the family", s.weight);
    for (const int64_t n : s.columns) text += fmt::format(" {}", n);
    texts.push_back(order.empty() ? text : text + " " + order);
  }
  model.metadata.erase(kSplitColumns);
  if (!texts.empty()) model.metadata.set(kSplitColumns, GgufArray(texts));
}

Parameter parameter_beside(const Parameter& p, const std::string& end, graph::Shape shape) {
  Parameter out = p;
  out.name += end;
  out.shape = std::move(shape);
  out.gguf += end;
  out.hf = (p.hf.empty() ? p.gguf : p.hf) + end;
  out.hf_also.clear();
  out.optional = false;
  out.hf_halves = out.hf_turned = 0;
  out.hf_plus = 0;
  out.hf_transposed = out.hf_columns = out.hf_packed = false;
  out.hf_fused = out.hf_rows = "";
  out.hf_part = out.hf_from = out.hf_count = out.hf_of = 0;
  out.hf_parts = 1;
  return out;
}

std::vector<Parameter> with_parts(std::vector<Parameter> parameters, std::span<const graph::ColumnSplit> splits) {
  if (splits.empty()) return parameters;
  std::map<std::string, const graph::ColumnSplit*> by_name;
  std::set<std::string> orders;
  for (const graph::ColumnSplit& s : splits) {
    by_name[s.weight] = &s;
    if (!s.order.empty()) orders.insert(s.order);
  }
  std::vector<Parameter> out;
  for (const Parameter& p : parameters) {
    if (orders.contains(order_parameter(p.name))) out.push_back(order_of(p));
    const auto split = by_name.find(p.name);
    if (split == by_name.end()) {
      out.push_back(p);
      continue;
    }
    for (size_t i = 0; i < split->second->columns.size(); ++i) {
      graph::Shape shape = p.shape;
      shape.back() = graph::Dim(split->second->columns[i]);
      out.push_back(parameter_beside(p, graph::column_part("", i), std::move(shape)));
    }
  }
  return out;
}

std::vector<Parameter> all_own_parameters(const Model& model) {
  return with_branches(with_parts(model.family->all_parameters(model.config), column_splits(model)), model.metadata,
                       "'" + model.name + "'");
}

std::vector<Parameter> own_parameters(const Model& model) {
  return with_branches(with_parts(model.family->parameters(model.config), column_splits(model)), model.metadata,
                       "'" + model.name + "'");
}

void require_orders(const Model& model, const std::string& source) {
  for (const Parameter& p : model.parameters) {
    if (p.role != kOrderRole) continue;
    const std::span<const float> order = model.weights.at(p.name).f32();
    std::vector<bool> seen(order.size());
    for (const float c : order) {
      const bool fits = c >= 0 && c < order.size();
      const size_t at = fits ? c : 0;
      if (!fits || at != c || seen[at])
        throw user_error("{}: '{}' is no order of {} columns: it holds {}{}", source, p.gguf, order.size(), c,
                         fits && seen[at] ? " twice" : "");
      seen[at] = true;
    }
  }
}

}  // namespace lumen::model
