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

namespace lumen::model::arch {
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

// The axis that is split.
struct Along {
  const char *key, *what;  // "columns"
  bool is_first;           // the first axis of three, or the last of two or three
};
constexpr Along kColumns{kSplitColumns, "columns", false}, kExperts{kSplitExperts, "experts", true};

// nullopt for vectors, and for weights without such an axis.
std::optional<graph::Dim> extent(const Parameter& p, const Along& along) {
  if (p.gguf.empty() || p.is_vector() || p.shape.size() < (along.is_first ? 3 : 2)) return std::nullopt;
  return along.is_first ? p.shape.front() : p.shape.back();
}

struct Split {
  std::string weight;
  std::vector<int64_t> parts;
  std::string order;
};

// Parses one string of a key.
Split split_of(const std::string& text, const std::vector<Parameter>& parameters, const Along& along,
               const std::string& source) {
  std::istringstream words(text);
  std::string word;
  words >> word;
  const Parameter* const p = named(parameters, word);
  if (!p || !extent(*p, along))
    throw user_error("{}: {} names '{}', which is not a {} of the family", source, along.key, printable(word),
                     along.is_first ? "stacked weight" : "weight");
  Split out{p->name, {}, ""};
  const int64_t all = extent(*p, along)->number();
  int64_t sum = 0;
  while (words >> word) {
    const std::optional<int64_t> n = out.order.empty() ? number_of(word) : std::nullopt;
    if (!n) {
      const Parameter* const of = named(parameters, word);
      if (!out.order.empty() || !of || !extent(*of, along) || extent(*of, along)->number() != all)
        throw user_error("{}: {} of '{}': '{}' is neither a number of {} nor a weight that has as many", source,
                         along.key, p->gguf, printable(word), along.what);
      out.order = order_parameter(of->name);
      continue;
    }
    if (*n < 1 || *n > all - sum || out.parts.size() == kMostParts)
      throw user_error("{}: {}: parts of '{}', of {} {}, cannot be '{}'", source, along.key, p->gguf, all, along.what,
                       printable(text));
    sum += *n;
    out.parts.push_back(*n);
  }
  if (out.parts.size() < 2 || sum != all)
    throw user_error("{}: {}: the parts of '{}' have {} {}, but it has {}", source, along.key, p->gguf, sum, along.what,
                     all);
  return out;
}

Parameter order_of(const Parameter& p, const Along& along) {
  Parameter out = parameter_beside(p, end_of_order(""), {*extent(p, along)});
  // Stacked weights have one order for all matrices.
  if (const size_t expert = out.hf.find("{e}"); expert != std::string::npos) out.hf.replace(expert, 3, "all");
  out.role = kOrderRole;
  out.init = "zeros";
  out.frozen = true;
  out.decays = false;
  return out;
}

void write_key(Model& model, const char* key, std::span<const Split> splits) {
  const std::vector<Parameter> parameters = model.family->all_parameters(model.config);
  std::vector<std::string> texts;
  for (const Split& s : splits) {
    std::string text, order;
    for (const Parameter& p : parameters) {
      if (p.name == s.weight) text = p.gguf;
      if (!s.order.empty() && order_parameter(p.name) == s.order) order = p.gguf;
    }
    LUMEN_CHECK(!text.empty() && order.empty() == s.order.empty(), "'{}' is no weight of the family", s.weight);
    for (const int64_t n : s.parts) text += fmt::format(" {}", n);
    texts.push_back(order.empty() ? text : text + " " + order);
  }
  model.metadata.erase(key);
  if (!texts.empty()) model.metadata.set(key, file::GgufArray(texts));
}

}  // namespace

Parameter parameter_beside(const Parameter& p, const std::string& end, graph::Shape shape) {
  Parameter out = p;
  out.name += end;
  out.shape = std::move(shape);
  out.gguf += end;
  out.hf = (p.hf.empty() ? p.gguf : p.hf) + end;
  out.hf_also.clear();
  out.optional = false;
  out.hf_halves = out.hf_turned = 0;
  out.hf_groups = out.hf_members = out.hf_grouped_from = 0;
  out.hf_shape.clear();
  out.gguf_minus_exp = false;
  out.hf_plus = 0;
  out.hf_transposed = out.hf_columns = out.hf_packed = out.hf_grouped_columns = false;
  out.hf_fused = out.hf_rows = "";
  out.hf_ranges.clear();
  out.hf_part = out.hf_count = out.hf_of = 0;
  out.hf_parts = 1;
  return out;
}

const char* split_key_of(const Model& model) {
  for (const SplitKey& k : kSplitKeys)
    if (model.metadata.has(k.key)) return k.key;
  return nullptr;
}

std::string order_parameter(const std::string& weight) {
  return end_of_order(weight);
}

WeightSplits weight_splits(const Family& family, const graph::Config& config, const file::GgufMetadata& metadata,
                           const std::string& source) {
  WeightSplits out;
  if (!metadata.has(kSplitColumns) && !metadata.has(kSplitExperts)) return out;
  const std::vector<Parameter> parameters = family.all_parameters(config);
  std::set<std::string> seen;
  std::map<std::string, const Along*> orders;
  for (const Along* along : {&kColumns, &kExperts}) {
    if (!metadata.has(along->key)) continue;
    for (const std::string& text : metadata.texts(along->key)) {
      Split s = split_of(text, parameters, *along, source);
      if (!seen.insert(s.weight).second) throw user_error("{}: {} names '{}' twice", source, along->key, s.weight);
      if (!s.order.empty() && orders.emplace(s.order, along).first->second != along)
        throw user_error("{}: {}: '{}' is an order of columns, too", source, along->key, s.order);
      if (along == &kColumns)
        out.columns.push_back({std::move(s.weight), std::move(s.parts), std::move(s.order)});
      else
        out.experts.push_back({std::move(s.weight), std::move(s.parts), std::move(s.order)});
    }
  }
  return out;
}

WeightSplits weight_splits(const Model& model) {
  return weight_splits(*model.family, model.config, model.metadata, "'" + model.name + "'");
}

void set_column_splits(Model& model, std::span<const graph::ColumnSplit> splits) {
  std::vector<Split> all;
  for (const graph::ColumnSplit& s : splits) all.push_back({s.weight, s.columns, s.order});
  write_key(model, kSplitColumns, all);
}

void set_expert_splits(Model& model, std::span<const graph::ExpertSplit> splits) {
  std::vector<Split> all;
  for (const graph::ExpertSplit& s : splits) all.push_back({s.weight, s.experts, s.order});
  write_key(model, kSplitExperts, all);
}

std::vector<Parameter> with_parts(std::vector<Parameter> parameters, const WeightSplits& splits) {
  if (splits.columns.empty() && splits.experts.empty()) return parameters;
  struct Cut {
    const std::vector<int64_t>* parts;
    const Along* along;
  };
  std::map<std::string, Cut> by_name;
  std::map<std::string, const Along*> orders;
  const auto note = [&](const auto& split, const std::vector<int64_t>& parts, const Along& along) {
    by_name[split.weight] = {&parts, &along};
    if (!split.order.empty()) orders[split.order] = &along;
  };
  for (const graph::ColumnSplit& s : splits.columns) note(s, s.columns, kColumns);
  for (const graph::ExpertSplit& s : splits.experts) note(s, s.experts, kExperts);
  std::vector<Parameter> out;
  for (const Parameter& p : parameters) {
    if (const auto order = orders.find(order_parameter(p.name)); order != orders.end())
      out.push_back(order_of(p, *order->second));
    const auto cut = by_name.find(p.name);
    if (cut == by_name.end()) {
      out.push_back(p);
      continue;
    }
    const auto& [parts, along] = cut->second;
    for (size_t i = 0; i < parts->size(); ++i) {
      graph::Shape shape = p.shape;
      (along->is_first ? shape.front() : shape.back()) = graph::Dim((*parts)[i]);
      const std::string end = along->is_first ? graph::expert_part("", i) : graph::column_part("", i);
      out.push_back(parameter_beside(p, end, std::move(shape)));
    }
  }
  return out;
}

std::vector<Parameter> all_own_parameters(const Model& model) {
  return with_branches(with_parts(model.family->all_parameters(model.config), weight_splits(model)), model.metadata,
                       "'" + model.name + "'");
}

std::vector<Parameter> own_parameters(const Model& model) {
  return with_branches(with_parts(model.family->parameters(model.config), weight_splits(model)), model.metadata,
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
        throw user_error("{}: '{}' is not a permutation of {}: it holds {}{}", source, p.gguf, order.size(), c,
                         fits && seen[at] ? " twice" : "");
      seen[at] = true;
    }
  }
}

}  // namespace lumen::model::arch
