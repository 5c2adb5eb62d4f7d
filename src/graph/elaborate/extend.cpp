// Models that extend others: `model b(cfg) : extends a { .. }` has all members of a, where those of b with the same name
// take their places. Sizes and the names in files (gguf, hf, ..) are not taken over: they belong to one family.
// Proved by tests/graph/elaborate_test.cpp.
#include <algorithm>

#include "graph/elaborate/elaborate.h"
#include "lang/spelling.h"

namespace lumen::graph {

using lang::ModelDecl;

namespace {

template <typename Member>
std::vector<Member> joined(const std::vector<Member>& base, const std::vector<Member>& own) {
  std::vector<Member> out = base;
  for (const Member& m : own) {
    const auto same = std::find_if(out.begin(), out.end(), [&](const Member& o) { return o.name == m.name; });
    if (same == out.end())
      out.push_back(m);
    else
      *same = m;
  }
  return out;
}

const lang::Attribute* extends_of(const ModelDecl& m) {
  for (const lang::Attribute& a : m.attributes)
    if (a.name == "extends") return &a;
  return nullptr;
}

ModelDecl complete(const Scope& scope, const ModelDecl& m, int depth) {
  const lang::Attribute* extends = extends_of(m);
  if (!extends) return m;
  if (extends->values.size() != 1 || extends->values[0]->kind != lang::ExprKind::name)
    throw error_at(extends->place, "'extends' needs the name of a model", "e.g. extends llama");
  const std::string& name = extends->values[0]->text;
  constexpr int kDeepest = 16;
  if (depth > kDeepest)
    throw error_at(extends->place, fmt::format("'{}' extends too long a chain of models", m.name),
                   "a model that extends itself never ends");
  std::vector<std::string> known;
  for (const lang::File* file : scope.files)
    for (const ModelDecl& other : file->models) {
      known.push_back(other.name);
      if (other.name != name) continue;
      const ModelDecl base = complete(scope, other, depth + 1);
      if (m.layer_count)
        for (const lang::ModelParam& p : m.layer_params)
          if (!base.layer_count) throw error_at(p.place, fmt::format("'{}' has no layers", name));
      ModelDecl out = m;
      out.config = joined(base.config, m.config);
      out.params = joined(base.params, m.params);
      out.layer_params = joined(base.layer_params, m.layer_params);
      out.functions = joined(base.functions, m.functions);
      if (!out.layer_count) out.layer_count = base.layer_count;
      return out;
    }
  throw error_at(extends->place, fmt::format("there is no model '{}'", name), lang::did_you_mean(name, known));
}

}  // namespace

ModelDecl complete_model(const Scope& scope, const ModelDecl& model) {
  return complete(scope, model, 0);
}

}  // namespace lumen::graph
