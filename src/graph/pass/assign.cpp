// assign_formats: adds casts to the values a recipe names. Fake: the value is cast to its format and back (fake
// quantization), so later nodes see the rounded numbers. Stored: an input is stored in the format and decoded where it
// is read. Proved by tests/graph/assign_test.cpp.
#include <map>

#include "base/check.h"
#include "base/error.h"
#include "graph/ir/rewrite.h"
#include "graph/pass/operand_formats.h"
#include "graph/pass/pass.h"

namespace lumen::graph {

namespace {

// Shell-like: * any run, ? any one character.
bool matches(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, from = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      from = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++from;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

class Assigner {
 public:
  Assigner(const Graph& g, const std::vector<FormatAssignment>& assignments)
      : r_(g), assignments_(assignments), used_(assignments.size()) {}

  Graph run() {
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v) visit(v);
    for (size_t k = 0; k < assignments_.size(); ++k) {
      if (!used_[k]) throw user_error("assign: no value is called {}", assignments_[k].value);
    }
    return r_.finish();
  }

 private:
  // The last assignment that matches this value applies. Patterns skip values that are not f32; a full name must match
  // a value that can take the format.
  const FormatAssignment* find(const Node& n) {
    const FormatAssignment* found = nullptr;
    for (size_t k = 0; k < assignments_.size(); ++k) {
      const bool named = n.op == Op::input_ && matches(assignments_[k].value, n.attributes.name);
      const bool labelled = !n.label.empty() && matches(assignments_[k].value, n.label);
      if (!named && !labelled) continue;
      const bool pattern = assignments_[k].value.find_first_of("*?") != std::string::npos;
      if (pattern && !(n.type.element == Element{})) continue;
      used_[k] = true;
      found = &assignments_[k];
    }
    return found;
  }

  void check(const FormatAssignment& a, const Node& n, const std::string& name) const {
    LUMEN_CHECK(a.format != nullptr, "an assignment without a format");
    const Format& f = *a.format;
    if (a.what == FormatAssignment::What::stored && n.op != Op::input_) {
      throw user_error("assign: {} is computed, not an input, so it cannot be stored in {}", name, f.name);
    }
    if (n.type.element.format || n.type.element.scalar != Scalar::f32) {
      throw user_error("assign: {} is {}; only f32 values can take the format {}", name, print(n.type), f.name);
    }
    if (n.type.shape.empty() || (n.type.shape.back().is_number() && n.type.shape.back().coefficient % f.block != 0)) {
      throw user_error("assign: {} is {}; format {} needs rows of a multiple of {} elements", name, print(n.type),
                       f.name, f.block);
    }
    if (a.what == FormatAssignment::What::fake && !f.encodes()) {
      throw user_error("assign: format {} can only be decoded, so {} cannot be cast to it", f.name, name);
    }
  }

  void visit(ValueId v) {
    const Node& old = r_.from[v];
    const FormatAssignment* a = find(old);
    if (!a) {
      keep_with_state(v);
      return;
    }
    const std::string name = old.op == Op::input_ ? old.attributes.name : old.label;
    check(*a, old, name);
    const Element f32{Scalar::f32, nullptr}, packed{Scalar::f32, a->format};
    const ValueId kept = keep_with_state(v);
    if (a->what == FormatAssignment::What::stored) {
      r_.to[kept].type.element = packed;
      storage_[kept] = kept;
      r_.replace(v, r_.build.cast(kept, f32));
    } else {
      // An update must still find the input itself; all other readers see the cast.
      storage_[kept] = kept;
      std::vector<std::pair<int, FieldSource>> sources;
      std::vector<ValueId> fields;
      if (a->source != FieldSource::fitted) {
        for (int field : fields_beside_the_code(*a->format)) {
          sources.emplace_back(field, a->source);
          fields.push_back(field_input(name, *a, field, r_.build.type(kept).shape));
        }
      }
      r_.replace(v, r_.build.cast(r_.build.cast(kept, packed, sources, fields), f32));
    }
    storage_[r_[v]] = kept;
  }

  static std::vector<int> fields_beside_the_code(const Format& f) {
    std::vector<int> fields;
    for (int k = 0; k < std::ssize(f.fields); ++k) {
      if (k != f.code_field) fields.push_back(k);
    }
    if (f.code_field < 0 || fields.empty()) {
      throw user_error("assign: format {} has no field apart from its codes that could be supplied", f.name);
    }
    return fields;
  }

  ValueId field_input(const std::string& name, const FormatAssignment& a, int index, const Shape& shape) {
    const Field& field = a.format->fields[index];
    const Role role = a.source == FieldSource::learned   ? Role::parameter
                      : a.source == FieldSource::delayed ? Role::state
                                                         : Role::data;
    return r_.build.input(name + "." + field.name, role, {field_shape(*a.format, field, shape, name), {}});
  }

  // Copies a node; an update writes into the storage below a cast, in the storage's own element type.
  ValueId keep_with_state(ValueId v) {
    const Node& old = r_.from[v];
    if (old.op != Op::update_) return r_.keep(v);
    std::vector<ValueId> operands = r_.operands(v);
    if (const auto found = storage_.find(operands[0]); found != storage_.end()) operands[0] = found->second;
    const Element element = r_.build.type(operands[0]).element;
    if (!(element == r_.build.type(operands[1]).element)) operands[1] = r_.build.cast(operands[1], element);
    const ValueId updated = r_.build.update(operands[0], operands[1], {operands.begin() + 2, operands.end()});
    if (!element.format) return r_.replace(v, updated);
    const ValueId decoded = r_.build.cast(updated, {Scalar::f32, nullptr});
    storage_[decoded] = updated;
    return r_.replace(v, decoded);
  }

  Rewriter r_;
  const std::vector<FormatAssignment>& assignments_;
  std::vector<bool> used_;
  std::map<ValueId, ValueId> storage_;  // a decoded or cast value -> its state
};

}  // namespace

Shape field_shape(const Format& f, const Field& field, const Shape& shape, const std::string& name) {
  Shape records(shape.begin(), shape.end() - 1);
  switch (field.level) {
    case Level::block:
      records.push_back(divide(shape.back(), Dim(f.block)).value_or(shape.back()));
      break;
    case Level::row:
      break;
    case Level::tensor:
      records.clear();
      break;
    case Level::tile: {
      const Dim rows = elements(records);
      if (!rows.is_number() || !shape.back().is_number()) {
        throw user_error("assign: {} has symbolic extents, so its number of tiles is not known", name);
      }
      const auto tiles = [](int64_t n, int64_t tile) { return Dim((n + tile - 1) / tile); };
      records = {tiles(rows.coefficient, f.tile_rows), tiles(shape.back().coefficient, f.tile_columns)};
      break;
    }
  }
  if (field.count > 1) records.push_back(Dim(field.count));
  return records;
}

void assign_formats(Graph& g, const std::vector<FormatAssignment>& assignments) {
  if (!assignments.empty()) g = Assigner(g, assignments).run();
}

}  // namespace lumen::graph
