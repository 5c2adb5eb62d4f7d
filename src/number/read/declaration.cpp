// Attributes, parameters and routines of a format, and its self-contained text. Proved by tests/number/reader_test.cpp.
#include "number/read/declaration.h"

#include <algorithm>

#include "base/check.h"
#include "base/messages/spelling.h"
#include "lang/parser.h"
#include "number/facts/limits.h"
#include "number/read/tabulate.h"

namespace lumen::read {
namespace {

constexpr int64_t kMaxBlock = 65536;
constexpr int64_t kMaxTile = 1 << 16;
constexpr std::string_view kFitNames[kLevels] = {"fit", "fit row", "fit tile", "fit tensor"};

void read_attributes(FormatContext& context, const std::vector<lang::Attribute>& attributes, bool of_alias) {
  Format& f = context.format;
  for (const lang::Attribute& a : attributes) {
    auto need = [&](size_t count) {
      if (a.values.size() != count) throw error_at(a.place, fmt::format("'{}' takes {} values", a.name, count));
    };
    auto whole = [&](size_t k, int64_t low, int64_t high) {
      const int64_t value = constant_whole(context, *a.values[k], a.name);
      if (value < low || value > high) {
        throw error_at(a.values[k]->place, fmt::format("{} is {}, but must be in {}..{}", a.name, value, low, high));
      }
      return value;
    };
    auto text = [&]() -> const std::string& {
      need(1);
      if (a.values[0]->kind != lang::ExprKind::string)
        throw error_at(a.values[0]->place, fmt::format("'{}' takes a text", a.name));
      return a.values[0]->text;
    };
    if (a.name == "doc") {
      f.doc = text();
    } else if (a.name == "safetensors") {
      f.safetensors_type = text();
    } else if (a.name == "gguf") {
      need(1);
      f.gguf_type = static_cast<int>(whole(0, 0, 65535));
    } else if (a.name == "gguf_file") {
      need(1);
      f.gguf_file_type = static_cast<int>(whole(0, 0, 65535));
    } else if (a.name == "block" && !of_alias) {
      need(1);
      f.block = whole(0, 1, kMaxBlock);
    } else if (a.name == "tile" && !of_alias) {
      need(2);
      f.tile_rows = whole(0, 1, kMaxTile);
      f.tile_columns = whole(1, 1, kMaxTile);
    } else {
      throw error_at(a.place, fmt::format("'{}' is no attribute {}", a.name, of_alias ? "of an alias" : "of a format"),
                     "supported are block, tile, gguf, gguf_file, safetensors and doc");
    }
  }
}

void check_attributes(const Format& f, const lang::FormatDecl& declaration) {
  if (f.tile_columns % f.block != 0) {
    throw error_at(declaration.place, fmt::format("tiles of {} columns cut blocks of {}", f.tile_columns, f.block),
                   "make the tile's columns a multiple of the block");
  }
}

// Parameter values: from the alias's call, otherwise the defaults.
void read_parameters(FormatContext& context, const Instance& instance) {
  const lang::FormatDecl& d = instance.declaration;
  const lang::Expr* call = instance.alias ? instance.alias->value.get() : nullptr;
  std::map<std::string, const lang::Expr*> given;
  if (call) {
    for (size_t k = 0; k < call->args.size(); ++k) {
      const std::string keyword = call->names.empty() ? "" : call->names[k];
      if (keyword.empty() && k >= d.params.size()) {
        throw error_at(call->args[k]->place, fmt::format("'{}' takes {} parameters", d.name, d.params.size()));
      }
      const std::string& name = keyword.empty() ? d.params[k].name : keyword;
      const bool known =
          std::any_of(d.params.begin(), d.params.end(), [&](const lang::Param& p) { return p.name == name; });
      if (!known) throw error_at(call->args[k]->place, fmt::format("'{}' has no parameter '{}'", d.name, name));
      if (!given.emplace(name, call->args[k].get()).second) {
        throw error_at(call->args[k]->place, fmt::format("'{}' is given twice", name));
      }
    }
  }
  for (const lang::Param& p : d.params) {
    const auto found = given.find(p.name);
    const lang::Expr* value = found != given.end() ? found->second : p.default_value.get();
    if (!value) {
      throw error_at(call ? call->place : p.place, fmt::format("format '{}' needs its parameter '{}'", d.name, p.name),
                     fmt::format("name an instance: format NAME = {}({} = ...)", d.name, p.name));
    }
    context.parameters[p.name] = constant_expression(context, *value);
  }
}

const lang::Function* routine_named(const lang::FormatDecl& d, std::string_view name, size_t parameters) {
  const lang::Function* found = nullptr;
  for (const lang::Function& r : d.routines) {
    if (r.name != name || (parameters > 0 && r.params.size() != parameters)) continue;
    if (found) throw error_at(r.place, fmt::format("'{}' is defined twice", r.name));
    found = &r;
  }
  return found;
}

// The field that a local is directly assigned to, as in `d = s`; -1 if there is none.
int field_assigned_from(const std::vector<RoutineStmt>& body, int variable) {
  for (const RoutineStmt& s : body) {
    const bool plain = s.kind == RoutineStmt::Kind::set_field && s.value.kind == RoutineExpr::Kind::variable &&
                       s.value.slot == variable && is_constant(s.index);
    if (plain) return s.slot;
  }
  return -1;
}

bool assigns(const std::vector<RoutineStmt>& body, int field) {
  return std::any_of(body.begin(), body.end(), [&](const RoutineStmt& s) {
    return (s.kind == RoutineStmt::Kind::set_field && s.slot == field) || assigns(s.body, field) ||
           assigns(s.otherwise, field);
  });
}

void check_routine_names(const lang::FormatDecl& d) {
  for (const lang::Function& r : d.routines) {
    const bool known = r.name == "decode" || r.name == "code" ||
                       std::find(std::begin(kFitNames), std::end(kFitNames), r.name) != std::end(kFitNames);
    if (!known) {
      std::string hint = did_you_mean_any(r.name, {"decode", "code", "fit"});
      if (hint.empty())
        hint =
            "a format has decode(i), fit(x), fit row(x), fit tile(x), fit tensor(x) and code(v); others are 'fn' "
            "outside";
      throw error_at(r.place, fmt::format("'{}' is no routine of a format", r.name), hint);
    }
  }
}

std::vector<KeptLocal> kept_in(const std::vector<KeptLocal>& kept, const Routine& fit, const Routine& code,
                               const std::map<std::string, int>& locals, const lang::Function& source) {
  std::vector<KeptLocal> result;
  for (const KeptLocal& k : kept) {
    const RoutineVariable& wanted = code.variables[k.code_variable];
    const auto found = locals.find(wanted.name);
    if (found == locals.end() || fit.variables[found->second].type != wanted.type ||
        fit.variables[found->second].extent != wanted.extent) {
      throw error_at(source.place, fmt::format("'code' reads '{}', which this fit does not define alike", wanted.name));
    }
    result.push_back({found->second, k.code_variable, field_assigned_from(fit.body, found->second)});
  }
  return result;
}

std::string self_contained_text(const Names& names, const Instance& instance) {
  lang::File file;
  for (const lang::File* from : names.files()) {
    auto take = [&](const auto& list, auto& into) {
      for (const auto& d : list) {
        if (names.used().contains(d.name)) into.push_back(d);
      }
    };
    take(from->tables, file.tables);
    take(from->functions, file.functions);
    for (const lang::FormatDecl& d : from->formats) {
      if (names.used().contains(d.name) && d.name != instance.declaration.name) file.formats.push_back(d);
    }
  }
  file.formats.push_back(instance.declaration);
  if (instance.alias) file.aliases.push_back(*instance.alias);
  return lang::print_file(file);
}

}  // namespace

void read_routines(FormatContext& context, const lang::FormatDecl& d) {
  Format& f = context.format;
  check_routine_names(d);
  const lang::Function* decode = routine_named(d, "decode", 0);
  if (!decode) throw error_at(d.place, fmt::format("format '{}' has no decode", d.name), "write decode(i) = ...");
  f.decode = RoutineBuilder(context, RoutineBuilder::Role::decode, Level::block).build(*decode);
  if (const double work = operations_of(f.decode); work > kMostDecode) {
    throw error_at(
        decode->place,
        fmt::format("decode takes {:.0f} operations for each element; {:.0f} are allowed", work, kMostDecode),
        "look values up in a table, or search over less");
  }
  tabulate(f);

  std::map<std::string, int> block_locals, weighted_locals;
  const lang::Function* weighted_source = nullptr;
  std::map<std::string, int> row_locals;  // locals of the weighted row fit, read by the block fit
  for (size_t level = kLevels; level-- > 0;) {
    for (size_t parameters : {size_t{1}, size_t{2}}) {
      const lang::Function* fit = routine_named(d, kFitNames[level], parameters);
      if (!fit) continue;
      RoutineBuilder builder(context, RoutineBuilder::Role::fit, static_cast<Level>(level));
      auto& into = parameters == 1 ? f.fit : f.weighted_fit;
      if (level == 0 && parameters == 2 && f.weighted_fit[1]) {
        builder.may_keep(&*f.weighted_fit[1], &row_locals, &f.weighted_row_kept);
      }
      into[level] = builder.build(*fit);
      if (level == 0) (parameters == 1 ? block_locals : weighted_locals) = builder.locals();
      if (level == 0 && parameters == 2) weighted_source = fit;
      if (level == 1 && parameters == 2) row_locals = builder.locals();
    }
  }
  for (const lang::Function& r : d.routines) {
    if (r.name.starts_with("fit") && r.params.size() != 1 && r.params.size() != 2) {
      throw error_at(r.place, fmt::format("'{}' has {} parameters", r.name, r.params.size()),
                     "write fit(x) or fit(x, w): x are the values, w their importance");
    }
  }
  if (const lang::Function* code = routine_named(d, "code", 0)) {
    if (f.fit[0] && assigns(f.fit[0]->body, f.code_field)) {
      throw error_at(code->place, fmt::format("'fit' and 'code' both write '{}'", f.fields[f.code_field].name),
                     "keep one of them; only fit(x, w) may choose codes in addition to 'code'");
    }
    RoutineBuilder builder(context, RoutineBuilder::Role::code, Level::block);
    if (f.fit[0]) builder.may_keep(&*f.fit[0], &block_locals, &f.kept);
    f.code = builder.build(*code);
    if (f.fit[0]) f.kept = kept_in(f.kept, *f.fit[0], *f.code, block_locals, *code);
    if (f.weighted_fit[0] && !assigns(f.weighted_fit[0]->body, f.code_field)) {
      f.weighted_kept = kept_in(f.kept, *f.weighted_fit[0], *f.code, weighted_locals, *weighted_source);
    }
  }
}

Format read_instance(Names& names, const Instance& instance) {
  Format format;
  FormatContext context{names, format, {}};
  const lang::FormatDecl& d = instance.declaration;
  format.name = instance.alias ? instance.alias->name : d.name;
  read_parameters(context, instance);
  read_attributes(context, d.attributes, false);
  if (instance.alias) read_attributes(context, instance.alias->attributes, true);
  check_attributes(format, d);
  read_fields(context, d);
  read_routines(context, d);
  format.source_text = self_contained_text(names, instance);
  format.hash = hash_text(format.source_text);
  return format;
}

}  // namespace lumen::read
