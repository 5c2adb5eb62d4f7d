// Expressions of routines: numbers, names, operators, subscripts. Proved by tests/number/reader_test.cpp.
#include "base/check.h"
#include "base/messages/spelling.h"
#include "base/ordinal.h"
#include "number/read/routine_builder.h"

namespace lumen::read {
namespace {

constexpr std::string_view kLevelNames[kLevels] = {"block", "row", "tile", "tensor"};

}  // namespace

RoutineExpr RoutineBuilder::expression(const lang::Expr& e) {
  spend(e.place);
  switch (e.kind) {
    case lang::ExprKind::number:
      return number(e);
    case lang::ExprKind::name:
      return name(e);
    case lang::ExprKind::unary:
      return unary(e.text, expression(*e.args[0]), e.place);
    case lang::ExprKind::binary: {
      RoutineExpr a = expression(*e.args[0]);
      RoutineExpr b = expression(*e.args[1]);
      if (e.text == "**") a = in_variable("base", std::move(a));
      return binary(e.text, std::move(a), std::move(b), e.place);
    }
    case lang::ExprKind::call: {
      std::vector<RoutineExpr> values = call(e);
      if (values.size() != 1) {
        throw error_at(e.place, fmt::format("'{}' gives {} values, one is needed", e.text, values.size()),
                       "write let (a, b) = ...");
      }
      return std::move(values[0]);
    }
    case lang::ExprKind::index:
      return subscript(e);
    case lang::ExprKind::reduce:
      return reduce(e);
    case lang::ExprKind::choose:
      return choose(e);
    case lang::ExprKind::string:
      throw error_at(e.place, "a string has no value in a routine");
    case lang::ExprKind::member:
      throw error_at(e.place, fmt::format("'.{}' has no meaning in a format", e.text));
    case lang::ExprKind::list:
      throw error_at(e.place, "a list has no value in a routine", "declare a table");
    case lang::ExprKind::slice:
    case lang::ExprKind::range:
      throw error_at(e.place, "a range has no value here", "ranges are used in loops and reductions");
  }
  LUMEN_UNREACHABLE("expression kind {}", ordinal(e.kind));
}

RoutineExpr RoutineBuilder::number(const lang::Expr& e) {
  return e.is_integer ? integer_constant(e.integer) : float_constant(e.number);
}

std::optional<RoutineBuilder::Array> RoutineBuilder::array_named(std::string_view text) {
  if (const Binding* b = find(text)) {
    if (b->array.kind != Array::Kind::none) return b->array;
    return std::nullopt;
  }
  if (!frames_.back().is_function) {
    for (size_t k = 0; k < context_.format.fields.size(); ++k) {
      if (context_.format.fields[k].name == text) return Array{Array::Kind::field, static_cast<int>(k)};
    }
    if (kept_locals_) {
      const auto found = kept_locals_->find(std::string(text));
      if (found != kept_locals_->end() && kept_fit_->variables[found->second].extent > 0) {
        const RoutineVariable& from = kept_fit_->variables[found->second];
        const int slot = new_variable(from.name, from.type, from.extent);
        kept_->push_back({found->second, slot, -1});
        Binding b;
        b.array = {Array::Kind::local, slot};
        frames_.back().scopes.front()[std::string(text)] = b;
        return b.array;
      }
    }
  }
  if (const lang::Table* table = context_.names.table(text)) return Array{Array::Kind::table, table_slot(*table)};
  return std::nullopt;
}

RoutineBuilder::Array RoutineBuilder::array_of(const lang::Expr& e) {
  if (e.kind != lang::ExprKind::name) throw error_at(e.place, "only named arrays, fields and tables have entries");
  if (const auto array = array_named(e.text)) return *array;
  if (find(e.text)) throw error_at(e.place, fmt::format("'{}' is one number and has no entries", e.text));
  unknown_name(e);
}

RoutineExpr RoutineBuilder::name(const lang::Expr& e) {
  if (const Binding* b = find(e.text)) {
    if (b->array.kind == Array::Kind::none) return b->value;
    throw error_at(e.place, fmt::format("'{}' has several entries", e.text), fmt::format("write {}[j]", e.text));
  }
  if (!frames_.back().is_function) {
    if (const auto found = context_.parameters.find(e.text); found != context_.parameters.end()) return found->second;
    if (kept_locals_) {
      const auto found = kept_locals_->find(e.text);
      if (found != kept_locals_->end() && kept_fit_->variables[found->second].extent == 0) {
        const RoutineVariable& from = kept_fit_->variables[found->second];
        const int slot = new_variable(from.name, from.type);
        kept_->push_back({found->second, slot, -1});
        Binding b;
        b.value = variable(slot);
        frames_.back().scopes.front()[e.text] = b;
        return b.value;
      }
    }
    for (size_t k = 0; k < context_.format.fields.size(); ++k) {
      const Field& field = context_.format.fields[k];
      if (field.name != e.text) continue;
      if (field.count != 1) {
        throw error_at(e.place, fmt::format("field '{}' has {} entries", e.text, field.count),
                       fmt::format("write {}[j]", e.text));
      }
      return read_array({Array::Kind::field, static_cast<int>(k)}, integer_constant(0), e.place);
    }
  }
  if (context_.names.table(e.text)) {
    throw error_at(e.place, fmt::format("'{}' is a table", e.text), fmt::format("write {}[j]", e.text));
  }
  unknown_name(e);
}

void RoutineBuilder::unknown_name(const lang::Expr& e) {
  std::vector<std::string> known;
  for (const Scope& scope : frames_.back().scopes) {
    for (const auto& [text, binding] : scope) known.push_back(text);
  }
  if (!frames_.back().is_function) {
    for (const Field& field : context_.format.fields) known.push_back(field.name);
    for (const auto& [text, value] : context_.parameters) known.push_back(text);
  }
  for (const lang::File* file : context_.names.files()) {
    for (const lang::Table& table : file->tables) known.push_back(table.name);
  }
  std::string hint = did_you_mean_any(e.text, known);
  if (hint.empty() && frames_.back().is_function)
    hint = "functions see their parameters and tables; pass fields as arguments";
  throw error_at(e.place, fmt::format("'{}' is not known here", e.text), hint);
}

RoutineExpr RoutineBuilder::choose(const lang::Expr& e) {
  const RoutineExpr condition = to_boolean(expression(*e.args[0]), e.args[0]->place);
  if (is_constant(condition)) return expression(*e.args[condition.integer != 0 ? 1 : 2]);
  Body then_body, else_body;
  Body* const outer = out_;
  out_ = &then_body;
  RoutineExpr a = expression(*e.args[1]);
  out_ = &else_body;
  RoutineExpr b = expression(*e.args[2]);
  out_ = outer;
  unify(a, b, e.place);
  a = to_run_time(std::move(a));
  b = convert_to(to_run_time(std::move(b)), a.type, e.place);
  if (then_body.empty() && else_body.empty())
    return make_op(ScalarOp::select_, {condition, std::move(a), std::move(b)});
  const int slot = new_variable("chosen", a.type);
  auto finish = [&](Body& body, RoutineExpr value) {
    out_ = &body;
    set(slot, std::move(value));
    out_ = outer;
  };
  finish(then_body, std::move(a));
  finish(else_body, std::move(b));
  RoutineStmt s{RoutineStmt::Kind::branch};
  s.value = condition;
  s.body = std::move(then_body);
  s.otherwise = std::move(else_body);
  emit(std::move(s));
  return variable(slot);
}

RoutineExpr RoutineBuilder::subscript(const lang::Expr& e) {
  if (e.args.size() != 2) throw error_at(e.place, "arrays of a format have one subscript");
  if (e.outside) throw error_at(e.outside->place, "arrays of a format have no padding value");
  const Array array = array_of(*e.args[0]);
  if (e.args[1]->kind == lang::ExprKind::slice) {
    throw error_at(e.args[1]->place, "slices have no meaning in a format", "pass the array and an offset");
  }
  return read_array(array, expression(*e.args[1]), e.args[1]->place);
}

int64_t RoutineBuilder::array_length(const Array& a) const {
  const size_t slot = a.slot;
  switch (a.kind) {
    case Array::Kind::local:
      return routine_.variables.empty() ? 0 : routine_.variables[slot].extent;
    case Array::Kind::source:
      return level_ == Level::block ? context_.format.block : -1;
    case Array::Kind::field:
      return context_.format.fields[slot].count;
    case Array::Kind::table:
      return context_.format.tables[slot].values.size();
    case Array::Kind::none:
      break;
  }
  LUMEN_UNREACHABLE("no array");
}

RoutineExpr RoutineBuilder::length_of(const Array& a) const {
  const int64_t length = array_length(a);
  if (length >= 0) return integer_constant(length);
  return RoutineExpr{RoutineExpr::Kind::extent, Scalar::i32};
}

// The index as i32, recorded for the bounds proof.
RoutineExpr RoutineBuilder::index_into(const Array& a, RoutineExpr index, const Place& place) {
  if (!is_whole(index.type)) {
    throw error_at(place, "an index must be a whole number", "write int(x)");
  }
  const int64_t length = array_length(a);
  if (is_constant(index) && (index.integer < 0 || (length >= 0 && index.integer >= length))) {
    throw error_at(place, fmt::format("index {} is outside of {} entries", index.integer, length));
  }
  if (!is_untyped(index) && index.type != Scalar::i32) {
    throw error_at(place, fmt::format("an index must be i32, not {}", scalar_name(index.type)),
                   "mask it first, e.g. q & 255");
  }
  index = convert_to(std::move(index), Scalar::i32, place);
  if (!is_constant(index) || length < 0) pending_.push_back({index, a, place});
  return index;
}

RoutineExpr RoutineBuilder::read_array(const Array& a, RoutineExpr index, const Place& place) {
  const size_t slot = a.slot;
  RoutineExpr e{RoutineExpr::Kind::element, Scalar::f32};
  switch (a.kind) {
    case Array::Kind::local:
      if (untyped_array_[slot]) {
        throw error_at(place,
                       fmt::format("'{}' is read before anything was stored in it", routine_.variables[slot].name));
      }
      e.type = routine_.variables[slot].type;
      break;
    case Array::Kind::source:
      e.kind = RoutineExpr::Kind::source;
      break;
    case Array::Kind::table:
      if (is_constant(index) && index.integer >= 0 && index.integer < std::ssize(context_.format.tables[slot].values)) {
        const FormatTable& t = context_.format.tables[slot];
        const double value = t.values[index.integer];
        return is_float(t.type) ? float_constant(value) : integer_constant(static_cast<int64_t>(value));
      }
      e.kind = RoutineExpr::Kind::table;
      e.type = context_.format.tables[slot].type;
      break;
    case Array::Kind::field: {
      const Field& field = context_.format.fields[slot];
      const bool visible =
          role_ != Role::fit || level_ == Level::block || field.level == level_ || field.level == Level::tensor;
      if (!visible) {
        throw error_at(place,
                       fmt::format("field '{}' of a {} cannot be read by the fit of a {}", field.name,
                                   kLevelNames[ordinal(field.level)], kLevelNames[ordinal(level_)]),
                       "a fit sees fields of its own level and of the tensor; the block's fit sees all");
      }
      e.kind = RoutineExpr::Kind::field;
      e.type = field.type.register_type();
      break;
    }
    case Array::Kind::none:
      LUMEN_UNREACHABLE("no array");
  }
  e.slot = a.slot;
  e.args.push_back(index_into(a, std::move(index), place));
  return e;
}

}  // namespace lumen::read
