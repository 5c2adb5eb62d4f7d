#include "equal_tree.h"

namespace lumen::lang {

template <typename T>
bool all(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!equal(a[i], b[i])) return false;
  return true;
}

bool equal(const std::pair<ExprPtr, ExprPtr>& a, const std::pair<ExprPtr, ExprPtr>& b) {
  return lang::equal(a.first, b.first) && lang::equal(a.second, b.second);
}
bool equal(const std::pair<std::string, ExprPtr>& a, const std::pair<std::string, ExprPtr>& b) {
  return a.first == b.first && lang::equal(a.second, b.second);
}
bool equal(const TypeExpr& a, const TypeExpr& b) {
  return a.name == b.name && all(a.params, b.params) && all(a.dims, b.dims) && a.has_dims == b.has_dims &&
         a.leading_any == b.leading_any && a.leading_name == b.leading_name && a.is_state == b.is_state;
}
bool equal(const Stmt& a, const Stmt& b) {
  return a.kind == b.kind && a.names == b.names && all(a.targets, b.targets) && lang::equal(a.value, b.value) &&
         all(a.values, b.values) && lang::equal(a.extent, b.extent) && lang::equal(a.from, b.from) &&
         lang::equal(a.to, b.to) && lang::equal(a.step, b.step) && all(a.body, b.body) && all(a.otherwise, b.otherwise);
}
bool equal(const Param& a, const Param& b) {
  return a.name == b.name && a.type.has_value() == b.type.has_value() && (!a.type || equal(*a.type, *b.type)) &&
         lang::equal(a.default_value, b.default_value);
}
bool equal(const Function& a, const Function& b) {
  return a.name == b.name && all(a.params, b.params) && all(a.results, b.results) && all(a.body, b.body);
}
bool equal(const Table& a, const Table& b) {
  return a.name == b.name && equal(a.type, b.type) && all(a.values, b.values);
}
bool equal(const LayoutPiece& a, const LayoutPiece& b) {
  return a.shorthand == b.shorthand && lang::equal(a.index_from, b.index_from) && lang::equal(a.index_to, b.index_to) &&
         lang::equal(a.bits_from, b.bits_from) && lang::equal(a.bits_to, b.bits_to) && lang::equal(a.byte, b.byte) &&
         lang::equal(a.bit, b.bit) && all(a.modes, b.modes);
}
bool equal(const FieldDecl& a, const FieldDecl& b) {
  return a.level == b.level && a.name == b.name && equal(a.type, b.type) && all(a.layout, b.layout);
}
bool equal(const Attribute& a, const Attribute& b) {
  return a.name == b.name && all(a.values, b.values);
}
bool equal(const FormatDecl& a, const FormatDecl& b) {
  return a.name == b.name && all(a.params, b.params) && all(a.attributes, b.attributes) && all(a.fields, b.fields) &&
         all(a.routines, b.routines);
}
bool equal(const FormatAlias& a, const FormatAlias& b) {
  return a.name == b.name && lang::equal(a.value, b.value) && all(a.attributes, b.attributes);
}
bool equal(const ModelParam& a, const ModelParam& b) {
  return a.name == b.name && equal(a.type, b.type) && all(a.attributes, b.attributes);
}
bool equal(const ConfigKey& a, const ConfigKey& b) {
  return a.name == b.name && equal(a.type, b.type) && lang::equal(a.default_value, b.default_value) &&
         all(a.attributes, b.attributes);
}
bool equal(const SizeDecl& a, const SizeDecl& b) {
  return a.name == b.name && all(a.values, b.values);
}
bool equal(const ModelDecl& a, const ModelDecl& b) {
  return a.name == b.name && all(a.attributes, b.attributes) && all(a.config, b.config) && all(a.sizes, b.sizes) &&
         all(a.params, b.params) && lang::equal(a.layer_count, b.layer_count) && all(a.layer_params, b.layer_params) &&
         all(a.functions, b.functions);
}

bool equal(const ExprPtr& a, const ExprPtr& b) {
  if (!a || !b) return !a && !b;
  return a->kind == b->kind && a->text == b->text && a->number == b->number && a->is_integer == b->is_integer &&
         a->integer == b->integer && a->names == b->names && a->vars == b->vars && all(a->args, b->args) &&
         all(a->ranges, b->ranges) && equal(a->outside, b->outside);
}

bool equal(const File& a, const File& b) {
  return all(a.tables, b.tables) && all(a.functions, b.functions) && all(a.formats, b.formats) &&
         all(a.aliases, b.aliases) && all(a.models, b.models);
}

}  // namespace lumen::lang
