// Builds one Routine from syntax: resolves names, infers types, inlines functions, turns reductions into loops.
// Inlining depth, size of the routine and its number of steps are limited, so a hostile text ends in an Error. The code
// is in build_*.cpp by construct. Proved by tests/number/reader_test.cpp.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lang/ast.h"
#include "number/facts/range.h"
#include "number/facts/typing.h"
#include "number/format/format.h"
#include "number/read/names.h"

namespace lumen::read {

// Shared by all routines of a format while it is read.
struct FormatContext {
  Names& names;
  Format& format;                                              // fields known; tables are added when first used
  std::map<std::string, RoutineExpr, std::less<>> parameters;  // of the format: constants
};

// Values of a constant expression over format parameters.
RoutineExpr constant_expression(FormatContext& context, const lang::Expr& e);
int64_t constant_whole(FormatContext& context, const lang::Expr& e, std::string_view what);

class RoutineBuilder {
 public:
  enum class Role { decode, code, fit };
  RoutineBuilder(FormatContext& context, Role role, Level level);

  // For code: the block's fit, whose locals it may read; `kept` receives those it reads.
  void may_keep(const Routine* fit, const std::map<std::string, int>* fit_locals, std::vector<KeptLocal>* kept);

  Routine build(const lang::Function& f);
  // After build: scalar and array locals of the routine by name, and the fields directly assigned from each.
  const std::map<std::string, int>& locals() const { return locals_; }
  RoutineExpr constant(const lang::Expr& e);

 private:
  struct Array {
    enum class Kind { none, local, source, field, table } kind = Kind::none;
    int slot = 0;
  };
  struct Binding {
    RoutineExpr value{RoutineExpr::Kind::constant, Scalar::i64};
    Array array;  // kind none: a scalar
    bool writable = false;
    bool untyped_array = false;
  };
  using Scope = std::map<std::string, Binding, std::less<>>;
  struct Frame {
    std::vector<Scope> scopes;
    bool is_function = false;
    const lang::Function* function = nullptr;
  };
  using Body = std::vector<RoutineStmt>;

  // build_expression.cpp
  RoutineExpr expression(const lang::Expr& e);
  RoutineExpr number(const lang::Expr& e);
  RoutineExpr name(const lang::Expr& e);
  RoutineExpr choose(const lang::Expr& e);
  RoutineExpr subscript(const lang::Expr& e);
  RoutineExpr read_array(const Array& a, RoutineExpr index, const Place& place);
  std::optional<Array> array_named(std::string_view name);
  Array array_of(const lang::Expr& e);
  int64_t array_length(const Array& a) const;  // -1: len(x) above block level
  RoutineExpr length_of(const Array& a) const;
  RoutineExpr index_into(const Array& a, RoutineExpr index, const Place& place);
  [[noreturn]] void unknown_name(const lang::Expr& e);

  // build_call.cpp
  std::vector<RoutineExpr> call(const lang::Expr& e);
  std::optional<RoutineExpr> builtin(const lang::Expr& e);
  std::vector<RoutineExpr> inline_function(const lang::Function& f, const lang::Expr& e);
  void bind_parameters(const lang::Function& f, const lang::Expr& e, Frame& frame);
  RoutineExpr extreme(const lang::Expr& e);
  RoutineExpr choice(const lang::Expr& e);
  RoutineExpr inverse_of(const RoutineExpr& value);
  RoutineExpr sign_of(const RoutineExpr& value, const Place& place);
  RoutineExpr nearest(const lang::Expr& e);

  // build_reduce.cpp
  struct Bounds {
    RoutineExpr from, to;
    std::optional<int64_t> trips;  // absent: len(x)
  };
  RoutineExpr reduce(const lang::Expr& e);
  std::optional<RoutineExpr> unrolled(const lang::Expr& e);
  RoutineExpr identity(const std::string& what, Scalar type) const;
  RoutineExpr joined(const lang::Expr& e, RoutineExpr so_far, RoutineExpr value);
  Bounds bounds(const lang::ExprPtr& from, const lang::ExprPtr& to, const Place& place);
  Bounds bounds_of(const lang::Expr& e, size_t k);
  void arrays_indexed_by(const lang::Expr& e, const std::string& variable, std::vector<Array>& found);

  // build_statement.cpp
  // Statements from `first` on; true when they return results (in results_).
  bool statements(const std::vector<lang::Stmt>& list, size_t first);
  void let(const lang::Stmt& s);
  void var(const lang::Stmt& s);
  void assign(const lang::Stmt& s);
  void assign_to(const lang::Expr& target, RoutineExpr value, const lang::Expr& source);
  void loop(const lang::Stmt& s);
  bool branch(const lang::Stmt& s, const std::vector<lang::Stmt>& list, size_t next);
  void result(const lang::Stmt& s);
  bool gives_result(const std::vector<lang::Stmt>& list) const;
  std::vector<RoutineExpr> values_of(const lang::Expr& e, size_t count, const Place& place);

  // routine_builder.cpp
  int new_variable(std::string_view name, Scalar type, int64_t extent = 0);
  RoutineExpr variable(int slot) const;
  void emit(RoutineStmt s);
  void set(int slot, RoutineExpr value);
  RoutineExpr in_variable(std::string_view name, RoutineExpr value);  // constants and variables stay as they are
  void spend(const Place& place, int64_t nodes = 1);
  Binding* find(std::string_view name);
  void bind(const std::string& name, Binding b, const Place& place);
  void check_indices(const Routine& r, const std::vector<Range>& parameters);
  int table_slot(const lang::Table& t);
  int add_table(std::string name, Scalar type, std::vector<double> values, const Place& place);

  struct PendingIndex {
    RoutineExpr index;
    Array array;
    Place place;
  };

  FormatContext& context_;
  Role role_;
  Level level_;
  Routine routine_;
  std::vector<Frame> frames_;
  Body* out_ = nullptr;
  std::vector<PendingIndex> pending_;
  std::vector<bool> untyped_array_;  // by variable: no value was stored yet
  std::map<std::string, int> locals_;
  const Routine* kept_fit_ = nullptr;
  const std::map<std::string, int>* kept_locals_ = nullptr;
  std::vector<KeptLocal>* kept_ = nullptr;
  std::vector<RoutineExpr> results_;
  std::vector<int> result_variables_;  // when results come from several statements
  bool results_in_variables_ = false;
  int64_t nodes_ = 0;
  double steps_ = 0;       // of one run, static estimate
  double multiplier_ = 1;  // trips of the enclosing loops
  int extent_loops_ = 0;
  int depth_ = 0;  // of expressions
};

}  // namespace lumen::read
