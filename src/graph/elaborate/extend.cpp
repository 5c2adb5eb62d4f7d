// Models that extend others: `model b(cfg) : extends a { .. }` has all members of a, overridden by those of b with the
// same name. Sizes and the names in files (gguf, hf, ..) are not inherited: they belong to one family. Attributes about
// file keys that are no config keys (unread, refused, hides, gguf_unread, ..) are.
// Proved by tests/graph/elaborate/elaborate_test.cpp.
#include <algorithm>
#include <memory>
#include <optional>

#include "base/messages/spelling.h"
#include "graph/elaborate/elaborate.h"

namespace lumen::graph {

using lang::ModelDecl;

namespace {

bool is_inherited(std::string_view attribute) {
  constexpr std::string_view kInherited[] = {"unread",       "refused",       "hides",     "gguf_unread",
                                             "gguf_refused", "gguf_required", "hf_prefix", "hf_beside"};
  return std::find(std::begin(kInherited), std::end(kInherited), attribute) != std::end(kInherited);
}

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

// Puts the prefix of `hf_under` before the names that parameters of the base have in Hugging Face files: models with a
// head hold what other files hold by itself under a name.
void put_under(const ModelDecl& over, ModelDecl& base) {
  const auto under = std::find_if(over.attributes.begin(), over.attributes.end(),
                                  [](const lang::Attribute& a) { return a.name == "hf_under"; });
  if (under == over.attributes.end()) return;
  if (under->values.size() != 1 || under->values[0]->kind != lang::ExprKind::string)
    throw error_at(under->place, "hf_under takes a prefix of names", "e.g. hf_under \"encoder.\"");
  const std::string& prefix = under->values[0]->text;
  const auto rename = [&](std::vector<lang::ModelParam>& params) {
    for (lang::ModelParam& p : params)
      for (lang::Attribute& a : p.attributes) {
        if ((a.name != "hf" && a.name != "hf_rows") || a.values.empty()) continue;
        lang::Expr name = *a.values[0];
        if (name.text.starts_with(prefix)) continue;
        name.text = prefix + name.text;
        a.values[0] = std::make_shared<const lang::Expr>(std::move(name));
      }
  };
  rename(base.params);
  rename(base.layer_params);
}

// Removes parameters of the base that `over` lists as `without`.
void leave_out(const ModelDecl& over, ModelDecl& base) {
  for (const lang::Attribute& a : over.attributes) {
    if (a.name != "without") continue;
    for (const lang::ExprPtr& value : a.values) {
      const auto is_meant = [&](const lang::ModelParam& p) { return p.name == value->text; };
      if (std::erase_if(base.params, is_meant) + std::erase_if(base.layer_params, is_meant) == 0)
        throw error_at(value->place,
                       fmt::format("'{}' has no parameter '{}' that 'without' could remove", over.name, value->text));
    }
  }
}

// `over` with the members it inherits from `base`.
ModelDecl extended(ModelDecl base, const ModelDecl& over) {
  leave_out(over, base);
  put_under(over, base);
  ModelDecl out = over;
  for (const lang::Attribute& a : base.attributes)
    if (is_inherited(a.name)) out.attributes.push_back(a);
  out.config = joined(base.config, over.config);
  out.params = joined(base.params, over.params);
  out.layer_params = joined(base.layer_params, over.layer_params);
  out.functions = joined(base.functions, over.functions);
  if (!out.layer_count) out.layer_count = base.layer_count;
  return out;
}

ModelDecl complete(const Scope& scope, const ModelDecl& m, int depth) {
  const lang::Attribute* extends = extends_of(m);
  if (!extends) return m;
  constexpr int kDeepest = 16;
  if (depth > kDeepest)
    throw error_at(extends->place, fmt::format("'{}' extends too long a chain of models", m.name),
                   "a model that extends itself never ends");
  std::vector<std::string> known;
  for (const lang::File* file : scope.files)
    for (const ModelDecl& other : file->models) known.push_back(other.name);
  if (extends->values.empty())
    throw error_at(extends->place, "'extends' needs the name of a model", "e.g. extends base");
  std::optional<ModelDecl> base;
  for (const lang::ExprPtr& value : extends->values) {
    const ModelDecl* found = nullptr;
    for (const lang::File* file : scope.files)
      for (const ModelDecl& other : file->models)
        if (value->kind == lang::ExprKind::name && other.name == value->text && !found) found = &other;
    if (!found)
      throw error_at(extends->place, fmt::format("there is no model '{}'", value->text),
                     did_you_mean(value->text, known));
    const ModelDecl next = complete(scope, *found, depth + 1);
    base = base ? extended(*base, next) : next;
  }
  return extended(*base, m);
}

}  // namespace

ModelDecl complete_model(const Scope& scope, const ModelDecl& model) {
  return complete(scope, model, 0);
}

}  // namespace lumen::graph
