#include "model/arch/low_rank_weights.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "base/check.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/arch/split_weights.h"

namespace lumen::model::arch {
namespace {

// Parses one string of the key.
LowRankBranch branch_of(const std::string& text, const std::vector<Parameter>& parameters, const std::string& source) {
  const size_t space = text.find(' ');
  const std::string word = text.substr(0, space);
  const auto p = std::ranges::find(parameters, word, &Parameter::gguf);
  if (word.empty() || p == parameters.end() || p->role == kBranchRole || p->role == kOrderRole || p->is_vector())
    throw user_error("{}: {} names '{}', which is not a matrix of the model", source, kLowRankWeights, printable(word));
  LowRankBranch out{p->name, 0};
  const char *begin = text.data() + std::min(space, text.size() - 1) + 1, *end = text.data() + text.size();
  const auto [at, failure] = std::from_chars(begin, end, out.rank);
  const int64_t most = std::min(p->shape.back().number(), p->shape[p->shape.size() - 2].number());
  if (space == std::string::npos || failure != std::errc{} || at != end || out.rank < 1 || out.rank > most)
    throw user_error("{}: {}: '{}' is not a matrix with a rank from 1 to {}", source, kLowRankWeights, printable(text),
                     most);
  return out;
}

std::map<std::string, int64_t> ranks_of(const file::GgufMetadata& metadata, const std::vector<Parameter>& parameters,
                                        const std::string& source) {
  std::map<std::string, int64_t> out;
  if (!metadata.has(kLowRankWeights)) return out;
  for (const std::string& text : metadata.texts(kLowRankWeights)) {
    const LowRankBranch branch = branch_of(text, parameters, source);
    if (!out.emplace(branch.weight, branch.rank).second)
      throw user_error("{}: {} names '{}' twice", source, kLowRankWeights, branch.weight);
  }
  return out;
}

Parameter part_of_branch(const Parameter& p, const std::string& name, graph::Shape shape) {
  Parameter out = parameter_beside(p, name.substr(p.name.size()), std::move(shape));
  out.role = kBranchRole;
  out.absent_if = "";
  out.init = "zeros";
  out.frozen = true;
  out.decays = false;
  return out;
}

}  // namespace

std::string branch_a(const std::string& weight) {
  return weight + ".a";
}
std::string branch_b(const std::string& weight) {
  return weight + ".b";
}

std::vector<LowRankBranch> low_rank_branches(const Model& model) {
  std::vector<LowRankBranch> out;
  const auto ranks = ranks_of(model.metadata, model.parameters, "'" + model.name + "'");
  for (const auto& [weight, rank] : ranks) out.push_back({weight, rank});
  return out;
}

void set_low_rank_branches(Model& model, std::span<const LowRankBranch> branches) {
  std::vector<std::string> texts;
  for (const LowRankBranch& b : branches) {
    const Parameter* const p = model.find(b.weight);
    LUMEN_CHECK(p && !p->gguf.empty(), "'{}' is no weight that a file could name", b.weight);
    texts.push_back(fmt::format("{} {}", p->gguf, b.rank));
  }
  model.metadata.erase(kLowRankWeights);
  if (!texts.empty()) model.metadata.set(kLowRankWeights, file::GgufArray(texts));
}

std::vector<Parameter> with_branches(std::vector<Parameter> parameters, const file::GgufMetadata& metadata,
                                     const std::string& source) {
  const std::map<std::string, int64_t> ranks = ranks_of(metadata, parameters, source);
  if (ranks.empty()) return parameters;
  std::vector<Parameter> out;
  for (const Parameter& p : parameters) {
    out.push_back(p);
    const auto rank = ranks.find(p.name);
    if (rank == ranks.end()) continue;
    graph::Shape a = p.shape, b = p.shape;
    a[a.size() - 2] = b.back() = graph::Dim(rank->second);
    out.push_back(part_of_branch(p, branch_a(p.name), std::move(a)));
    out.push_back(part_of_branch(p, branch_b(p.name), std::move(b)));
  }
  return out;
}

}  // namespace lumen::model::arch
