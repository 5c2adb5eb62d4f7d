// Builds one graph from the body of one function. Split by task: elaboration.cpp (nodes, names), elementwise.cpp
// (scalar algebra over tensors and numbers), expression.cpp, builtin.cpp (operators with shapes), indexed.cpp (index
// notation), unify.cpp (types and their symbols), statement.cpp, call.cpp. Private to the folder: others use
// elaborate.h. Invariants: every node passes its operator's rule before it is appended, so a user's mistake is an Error
// with a position, never a failed check; work is bounded by Session::spend; a state's old value is never read.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/elaborate/elaborate.h"
#include "graph/elaborate/value.h"
#include "graph/ir/build.h"
#include "lang/ast.h"

namespace lumen::graph {

// A constant was required but the value is known only at run time: check_file accepts functions that fail so because a
// parameter has no value yet.
class NeedsConstant : public Error {
 public:
  using Error::Error;
};

// Extents that must be numbers are symbols: check_file accepts functions that fail so; they are checked where they are
// called with tensors of known extents.
class NeedsExtent : public Error {
 public:
  using Error::Error;
};

// State shared by the graphs of one elaboration.
struct Session {
  const Scope& scope;
  std::map<std::string, std::shared_ptr<const Graph>> instances;  // of functions, by name, argument types and constants
  std::set<std::string> graph_names;
  std::map<const lang::Function*, bool> elementwise;  // cache: whether a function is elementwise
  int looking_at = 0;                                 // depth of functions being checked for being elementwise
  int functions = 0;                                  // current depth of nested functions
  int expressions = 0;                                // current depth of nested expressions, across functions
  int64_t work = 0;                                   // expressions and statements processed

  explicit Session(const Scope& s) : scope(s) {}
  void spend(const Place& place);  // Error when a program unrolls without end
};

// What a scan gives its step: carries, one index of sequences, and constants.
struct ScanArguments {
  std::vector<Value> values;
  std::vector<Place> places;
  size_t carries, sequences;
  int64_t axis;  // of the steps
};

// The model a function belongs to; null members for functions of files.
struct ModelContext {
  const lang::ModelDecl* model = nullptr;
  const Config* config = nullptr;
};

// Symbols of a function's types, and the leading extents of `...Name` ("" for a bare `...`).
struct Symbols {
  std::map<std::string, Dim> dims;
  std::map<std::string, Shape> leading;
};

class Elaboration {
 public:
  Elaboration(Session& session, ModelContext context) : session_(session), context_(context) {}
  Elaboration(const Elaboration&) = delete;
  Elaboration& operator=(const Elaboration&) = delete;

  // The graph of `fn`: tensor parameters become inputs of the given types, else of their written ones, with the extents
  // that the given types determine; scalar ones with a default become constants.
  Graph standalone(const lang::Function& fn, const std::map<std::string, Type>& given = {});
  // The graph of `fn` called with these arguments (in order of the parameters): tensors become inputs of exactly their
  // types, other arguments become constants.
  Graph instance(const lang::Function& fn, const std::vector<Value>& arguments, const std::vector<Place>& places,
                 const Place& call);
  // A number written in a declaration: a default, a size, the scale of an init.
  Number number(const lang::Expr& e, std::string_view what, const std::map<std::string, int64_t>& bound = {});
  Value constant_value(const lang::Expr& e, const std::map<std::string, int64_t>& bound);  // the same, of any kind
  // The result of a function whose arguments are numbers.
  Number number_of_call(const lang::Function& fn, const std::vector<Number>& arguments);
  Type parameter_type(const lang::ModelParam& p, std::optional<int64_t> layer);
  void check_present(const lang::ModelParam& p, const std::string& full, std::optional<int64_t> layer);
  bool is_present(const lang::ModelParam& p, std::optional<int64_t> layer);  // by its conditions `when`

 private:
  friend class Indexed;
  using Frame = std::map<std::string, Value>;
  // A written extent and the extent it must equal.
  struct Equation {
    const lang::Expr* written;
    Dim actual;
    std::string context;  // for messages: "argument 'w' of 'linear' is ..., axis 1"
    Place place;
    bool solved = false;
  };
  class Deeper;

  // ---- elaboration.cpp: nodes and names
  ValueId append(Node node, const Place& place);
  Node make(Op op, std::vector<ValueId> operands, Type type = {}) const;
  ValueId node_of(const Value& v, const Place& place, std::optional<Scalar> wanted = {});  // finished and decoded
  Value finished(Value v, const Place& place);    // a tensor that is a node; other values unchanged
  Value plain(Value v, const Place& place);       // a decoded tensor
  Value use(const Value& v, const Place& place);  // rejects old values of states
  ValueId constant(Number n, Scalar type, const Place& place);
  ValueId count(const Dim& d, const Place& place);  // the extent as a rank-0 i32
  Value reshape(const Value& v, Shape shape, const Place& place);
  const Value* find(const std::string& name) const;
  Value name(const lang::Expr& e);
  Value table(const lang::Table& t, const Place& place);
  [[noreturn]] void unknown_name(const std::string& name, const Place& place) const;
  Value parameter(const lang::ModelParam& p, const std::string& prefix, std::optional<int64_t> layer);
  void bind(const std::string& name, Value v) { frames_.back()[name] = std::move(v); }
  Graph in_order(std::vector<ValueId> results, std::vector<std::string> names);

  // ---- expression.cpp
  Value expression(const lang::Expr& e);
  Value member(const lang::Expr& e);
  Value config_value(const lang::ConfigKey& key, const Place& place) const;
  Value index(const lang::Expr& e);
  Value index_value(Value base, const lang::Expr& e);
  Value choose(const lang::Expr& e);
  int64_t integer(const lang::Expr& e, std::string_view what);  // a constant integer
  Number constant_number(const lang::Expr& e, std::string_view what);
  Dim extent(const lang::Expr& e);
  bool is_of_extents(const lang::Expr& e) const;
  Shape shape_list(const lang::Expr& e, std::string_view what);
  std::vector<int64_t> integer_list(const lang::Expr& e, std::string_view what);
  Dim extent_of(const Value& v, const Place& place, std::string_view what) const;

  // ---- elementwise.cpp
  Value unary(const std::string& op, Value a, const Place& place);
  Value binary(const std::string& op, Value a, Value b, const Place& place);
  Value elementwise(const std::string& what, std::vector<Value> args,
                    const Place& place);  // by name: exp, select, add, ...
  Value convert(Value v, Scalar to, const Place& place);
  Value select(Value c, Value a, Value b, const Place& place) {
    return elementwise("select", {std::move(c), std::move(a), std::move(b)}, place);
  }
  std::optional<Value> dim_arithmetic(const std::string& op, const Value& a, const Value& b, const Place& place);

  // ---- builtin.cpp
  Value builtin(const lang::Expr& e);
  Value reshaped(const lang::Expr& e, const Value& x, const lang::Expr& list);
  Value permuted(const lang::Expr& e, const Value& x, const lang::Expr& axes);
  Value broadcasted(const lang::Expr& e, const lang::Expr& value, const lang::Expr& extents);
  Value random_numbers(const lang::Expr& e, const std::vector<const lang::Expr*>& args);
  Value reduction(const std::string& kind, Value v, std::vector<int> axes, const Place& place);  // axes stay, extent 1
  Value axis_reduction(const lang::Expr& e);
  Value update(const lang::Expr& e);
  Value concat(const lang::Expr& e);
  Value each(const lang::Expr& e);
  int axis_of(int64_t axis, size_t rank, const Place& place) const;

  // ---- scan.cpp
  Value scan(const lang::Expr& e);
  const lang::Function& step_function(const lang::Expr& name, size_t arguments);
  std::vector<int64_t> chunk_lengths(const lang::Expr* chunk, const lang::Expr* most, bool reverse);
  std::shared_ptr<const Graph> chunk_of(const lang::Expr& name, const Graph& step, const ScanArguments& given,
                                        int64_t steps);
  Value with_axis_at(const Value& v, int from, int to, const Place& place);

  // ---- unify.cpp
  Type written_type(const lang::TypeExpr& t, Symbols& symbols);  // unbound names become symbols
  Element element_of(const lang::TypeExpr& t) const;
  std::vector<std::string> unbound(const lang::Expr& e, const Symbols& symbols) const;
  Dim written_extent(const lang::Expr& e, const Symbols& symbols);
  void match(const lang::TypeExpr& t, const Type& actual, Symbols& symbols, const Place& place, const std::string& who,
             std::vector<Equation>& equations);
  void solve(std::vector<Equation>& equations, Symbols& symbols);
  void bind_symbols(const Symbols& symbols);
  // Parameters get their arguments' types; numbers are checked and converted.
  Symbols match_arguments(const lang::Function& fn, std::vector<Value>& args, const std::vector<Place>& places);
  void check_results(const lang::Function& fn, std::vector<Value>& values, const Symbols& symbols);

  // ---- statement.cpp
  std::optional<std::vector<Value>> run(const std::vector<lang::Stmt>& body);
  std::optional<std::vector<Value>> run(const lang::Stmt& s);
  std::optional<std::vector<Value>> loop(const lang::Stmt& s);
  void assign(const lang::Stmt& s);
  bool is_parameter_name(const std::string& name) const;
  void bind_let(const std::string& name, Value v, const Place& place, size_t first_fresh);
  std::vector<Value> body_of(const lang::Function& fn);
  // By axis of a tensor with `axes` axes that is defined as `name`: the extents in the function's type if it is a
  // result.
  std::vector<std::optional<Dim>> declared_extents(const std::string& name, size_t axes);
  Graph finish(const lang::Function& fn, std::vector<Value> values, const Symbols& symbols);

  // ---- call.cpp
  Value call(const lang::Expr& e);
  const lang::Function* find_function(const std::string& name, const Place& from) const;
  std::vector<Value> arguments(const lang::Function& fn, const lang::Expr& call_expr,
                               const std::function<Value(const lang::Expr&)>& evaluate);
  Value invoke(const lang::Function& fn, std::vector<Value> args, const lang::Expr& call_expr);
  // The inlined body of the call. `checked`: arguments must have the written shapes; index notation arranges them
  // differently.
  Value inlined(const lang::Function& fn, std::vector<Value> args, const lang::Expr& call_expr, bool checked = true);
  bool is_elementwise(const lang::Function& fn) const;
  bool is_of_model(const lang::Function& fn) const;

  Session& session_;
  ModelContext context_;
  Graph graph_;
  std::vector<Frame> frames_;
  const lang::Function* function_ = nullptr;   // the function being built
  std::string label_prefix_;                   // "layers.3." inside a loop over layers
  std::map<ValueId, ValueId> newer_;           // an updated state's old value -> its new one
  std::map<ValueId, ValueId> decoded_;         // a value in a format -> its f32 cast
  std::map<std::string, ValueId> parameters_;  // model parameters used so far
  std::map<std::string, ValueId> counts_;      // symbols as numbers at run time
  std::map<std::string, ValueId> tables_;
};

// Counts nested expressions, so that no program overflows the stack.
class Elaboration::Deeper {
 public:
  Deeper(Session& s, const Place& place);
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;
  ~Deeper() { --session_.expressions; }

 private:
  Session& session_;
};

bool is_builtin(const std::string& name);
bool is_elementwise_builtin(const std::string& name);
std::vector<std::string> builtin_names();

}  // namespace lumen::graph
