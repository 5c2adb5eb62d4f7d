#include "model/recipe/objective/objective.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/embedded.h"
#include "base/error.h"
#include "base/messages/spelling.h"
#include "graph/elaborate/elaborate.h"
#include "graph/ir/build.h"
#include "graph/ir/rewrite.h"
#include "graph/pass/pass.h"
#include "lang/parser.h"
#include "model/recipe/objective/teacher.h"

namespace lumen::model::recipe {
namespace {

using graph::Builder;
using graph::Dim;
using graph::Graph;
using graph::Shape;
using graph::ValueId;

constexpr std::array<const char*, 9> kKnown = {"token_loss", "weights",   "logits", "teacher",   "logp",
                                               "lengths",    "reference", "labels", "divergence"};

constexpr std::string_view kFolder = "recipes/objectives/", kEnding = ".lum";

std::string name_of(std::string_view path) {
  return std::string(path.substr(kFolder.size(), path.size() - kFolder.size() - kEnding.size()));
}

std::optional<std::string> embedded_objective(const std::string& name) {
  for (const embedded::File& file : embedded::models())
    if (file.path.starts_with(kFolder) && name_of(file.path) == name) return std::string(file.text);
  return {};
}

bool is_setting(const lang::Param& p) {
  return p.default_value != nullptr;
}

// A setting's value, if it is a literal number.
std::optional<double> written_number(const lang::Param& p) {
  if (!is_setting(p)) return {};
  const lang::Expr& e = *p.default_value;
  if (e.kind == lang::ExprKind::number) return e.number;
  if (e.kind == lang::ExprKind::unary && e.text == "-" && e.args[0]->kind == lang::ExprKind::number)
    return -e.args[0]->number;
  return {};
}

// Whether the result is f32[]: a metric or a loss.
bool gives_number(const lang::Function& fn) {
  return fn.results.size() == 1 && fn.results[0].has_dims && fn.results[0].dims.empty() && !fn.results[0].leading_any;
}

// Whether a function can be called as a metric; helper functions have required parameters that are not known ones.
bool stands_alone(const lang::Function& fn) {
  return std::all_of(fn.params.begin(), fn.params.end(), [](const lang::Param& p) {
    return p.type && (is_setting(p) || std::find(kKnown.begin(), kKnown.end(), p.name) != kKnown.end());
  });
}

lang::ExprPtr number(double value, const Place& place) {
  auto e = std::make_shared<lang::Expr>();
  e->kind = lang::ExprKind::number;
  e->place = place;
  e->number = value;
  e->integer = static_cast<int64_t>(value);
  e->is_integer = value == static_cast<double>(e->integer);
  return e;
}

// Binds the symbolic extents of `written` from the extents of `actual`; rows may be split: [R] matches [P, 2], R = 2P.
bool settle(const Shape& written, const Shape& actual, graph::Bindings* symbols, Shape* bound) {
  int64_t left = graph::elements(actual).number();
  const auto bind = [&](const Dim& d, int64_t n) {
    if (d.is_number()) return d.number() == n;
    if (d.symbols.size() != 1 || d.coefficient < 1 || n % d.coefficient != 0) return false;
    const auto [known, fresh] = symbols->emplace(d.symbols[0], n / d.coefficient);
    return fresh || known->second == n / d.coefficient;
  };
  bound->clear();
  if (written.size() == actual.size()) {
    for (size_t i = 0; i < written.size(); ++i) {
      if (!bind(written[i], actual[i].number())) return false;
      bound->push_back(actual[i]);
    }
    return true;
  }
  if (written.size() < 2 || actual.size() != 1) return false;
  for (size_t i = 1; i < written.size(); ++i) {
    if (!written[i].is_number() || written[i].number() < 1 || left % written[i].number() != 0) return false;
    left /= written[i].number();
  }
  bound->push_back(left);
  bound->insert(bound->end(), written.begin() + 1, written.end());
  return bind(written[0], left);
}

std::string shape_text(const Shape& shape) {
  return print(graph::Type{shape, {Scalar::f32, nullptr}});
}

// Inputs of an objective's functions, created on first use.
class Values {
 public:
  Values(Builder& build, const arch::Library& library, ValueId policy, bool of_logits, bool weighted,
         const Graph* teacher)
      : build_(build), library_(library), weighted_(weighted), teacher_(teacher) {
    known_[of_logits ? "logits" : "token_loss"] = policy;
    const ValueId tokens = build.graph.find_input("tokens");
    LUMEN_CHECK(tokens >= 0, "a model's function without tokens");
    positions_ = build.type(tokens).shape;
  }

  ValueId get(const std::string& name) {
    if (const auto known = known_.find(name); known != known_.end()) return known->second;
    return known_[name] = make(name);
  }

 private:
  graph::Type floats(Shape shape) const { return {std::move(shape), {Scalar::f32, nullptr}}; }
  Shape rows() const { return {positions_[0]}; }

  ValueId make(const std::string& name) {
    if (name == "token_loss") return losses();
    if (name == "weights") return weights();
    if (name == "teacher") return teacher();
    if (name == "logp") return build_.unary(ScalarOp::neg_, row_sum(build_.mul(answer(), get("token_loss"))));
    if (name == "lengths") return build_.binary(ScalarOp::max_, row_sum(answer()), build_.scalar(1));
    if (name == kDivergence) return build_.input(name, graph::Role::data, floats({}));
    return build_.input(name, graph::Role::data, floats(rows()));
  }

  // With the library's cross_entropy.
  ValueId losses() {
    const ValueId logits = get("logits");
    ValueId targets = build_.graph.find_input("targets");
    if (targets < 0) targets = build_.input("targets", graph::Role::data, {positions_, {Scalar::i32, nullptr}});
    const lang::Function call =
        lang::parse_file(
            std::make_shared<Source>(Source{"<token losses>",
                                            "fn losses(logits: f32[B, T, V], targets: i32[B, T]) -> f32[B, T] = "
                                            "cross_entropy(logits, targets)\n"}))
            .functions.at(0);
    Graph g = graph::elaborate_function(library_.scope(), call);
    const Shape& of = build_.type(logits).shape;
    g = graph::bind_symbols(g, {{"B", of[0].number()}, {"T", of[1].number()}, {"V", of[2].number()}});
    return graph::expand_call(build_.graph, g, {logits, targets}).at(0);
  }

  ValueId weights() {
    if (weighted_) return build_.input("weights", graph::Role::data, floats(positions_));
    return build_.broadcast(build_.scalar(1.0 / static_cast<double>(graph::elements(positions_).number())), positions_);
  }

  ValueId teacher() {
    LUMEN_CHECK(teacher_, "no teacher");
    return call_beside(build_, *teacher_);
  }

  // 1 where a position has a weight above 0.
  ValueId answer() {
    if (answer_ >= 0) return answer_;
    if (!weighted_) return answer_ = build_.broadcast(build_.scalar(1), positions_);
    const ValueId counts = build_.binary(ScalarOp::lt_, build_.scalar(0), get("weights"));
    return answer_ = build_.select(counts, build_.scalar(1), build_.scalar(0));
  }
  ValueId row_sum(ValueId v) { return build_.reshape(build_.reduce(v, graph::Reduction::sum, {1}), rows()); }

  Builder& build_;
  const arch::Library& library_;
  bool weighted_;
  const Graph* teacher_;
  Shape positions_;
  ValueId answer_ = -1;
  std::map<std::string, ValueId> known_;
};

}  // namespace

std::vector<std::string> objective_names() {
  std::vector<std::string> names;
  for (const embedded::File& file : embedded::models())
    if (file.path.starts_with(kFolder)) names.push_back(name_of(file.path));
  std::sort(names.begin(), names.end());
  return names;
}

Objective::Objective(const arch::Library& library, const ObjectiveSettings& settings)
    : library_(library), name_(settings.name) {
  std::string text = settings.text, place = settings.name + ".lum";
  if (text.empty()) {
    const auto known = embedded_objective(settings.name);
    if (!known)
      throw Error(
          Exit::usage, fmt::format("there is no objective '{}'", settings.name),
          fmt::format("objectives: {}; or the path of a source file, NAME.lum", fmt::join(objective_names(), ", ")));
    text = *known;
    place = fmt::format("<embedded {}>", place);
  }
  file_ = std::make_shared<lang::File>(lang::parse_file(std::make_shared<Source>(Source{place, std::move(text)})));
  functions_ = file_->functions;
  std::map<std::string, double> given = settings.settings;
  for (lang::Function& fn : functions_)
    for (lang::Param& p : fn.params)
      if (const auto own = settings.settings.find(p.name); own != settings.settings.end() && is_setting(p)) {
        p.default_value = number(own->second, p.place);
        given.erase(p.name);
      }
  const std::map<std::string, double> all = this->settings();
  if (!given.empty()) {
    std::vector<std::string> names;
    for (const auto& [name, value] : all) names.push_back(name);
    throw Error(Exit::usage, fmt::format("the objective '{}' has no setting '{}'", name_, given.begin()->first),
                names.empty() ? "it has none" : fmt::format("its settings: {}", fmt::join(names, ", ")));
  }
  for (const lang::Function& fn : functions_) {
    if (fn.name == "loss") loss_ = &fn;
    if (fn.name != "loss" && gives_number(fn) && stands_alone(fn)) metrics_.push_back(fn.name);
  }
  if (!loss_ || !gives_number(*loss_)) throw user_error("{}: an objective needs a function loss(..) -> f32[]", place);
  for (const lang::Param& p : loss_->params) {
    if (!p.type) throw error_at(p.place, fmt::format("'{}' of an objective's loss needs a type", p.name));
    if (!is_setting(p) && std::find(kKnown.begin(), kKnown.end(), p.name) == kKnown.end())
      throw error_at(p.place, fmt::format("a loss has no input '{}'", p.name),
                     fmt::format("known: {}; settings have a default", fmt::join(kKnown, ", ")));
    pairs_ = pairs_ || (p.type->dims.size() == 2 && p.type->dims[1]->kind == lang::ExprKind::number &&
                        p.type->dims[1]->number == 2);
  }
  (void)elaborate(*loss_);
  for (const std::string& metric : metrics_)
    for (const lang::Function& fn : functions_)
      if (fn.name == metric) (void)elaborate(fn);
}

bool Objective::reads(const std::string& parameter) const {
  return std::any_of(functions_.begin(), functions_.end(), [&](const lang::Function& fn) {
    return (&fn == loss_ || std::find(metrics_.begin(), metrics_.end(), fn.name) != metrics_.end()) &&
           std::any_of(fn.params.begin(), fn.params.end(), [&](const lang::Param& p) { return p.name == parameter; });
  });
}

std::map<std::string, double> Objective::settings() const {
  std::map<std::string, double> out;
  for (const lang::Function& fn : functions_)
    for (const lang::Param& p : fn.params)
      if (const auto value = written_number(p)) out[p.name] = *value;
  return out;
}

// Calls resolve to the file's own functions first, with the recipe's settings.
Graph Objective::elaborate(const lang::Function& fn) const {
  lang::File own = *file_;
  own.functions = functions_;
  graph::Scope scope;
  scope.files.push_back(&own);
  const graph::Scope library = library_.scope();
  scope.files.insert(scope.files.end(), library.files.begin(), library.files.end());
  scope.formats = library.formats;
  return graph::elaborate_function(scope, fn);
}

Graph Objective::over(Graph policy, bool weighted, const Graph* teacher) const {
  graph::inline_calls(policy);
  const ValueId result = policy.results.at(0);
  Builder build(policy);
  Values values(build, library_, result, reads("logits"), weighted, teacher);
  const auto apply = [&](const lang::Function& fn) {
    Graph g = elaborate(fn);
    std::vector<ValueId> arguments;
    graph::Bindings symbols;
    for (const ValueId v : g.inputs()) {
      const ValueId value = values.get(g[v].attributes.name);
      Shape bound;
      if (!settle(g[v].type.shape, Shape(build.type(value).shape), &symbols, &bound))
        throw Error(Exit::user,
                    fmt::format("'{}' of '{}' in the objective '{}' is {}, but its value is {}", g[v].attributes.name,
                                fn.name, name_, shape_text(g[v].type.shape), shape_text(build.type(value).shape)),
                    pairs_ ? "pairs need an even --batch" : "");
      arguments.push_back(build.type(value).shape == bound ? value : build.reshape(value, bound));
    }
    g = graph::bind_symbols(g, symbols);
    return graph::expand_call(policy, g, arguments).at(0);
  };
  std::vector<ValueId> results;
  for (const std::string& metric : metrics_)
    results.push_back(apply(*std::find_if(functions_.begin(), functions_.end(),
                                          [&](const lang::Function& fn) { return fn.name == metric; })));
  // The loss comes last: metrics are computed before it (differentiate_by_rows).
  results.insert(results.begin(), build.add(apply(*loss_), build.scalar(0)));
  policy.results = std::move(results);
  policy.result_names = {"loss"};
  policy.result_names.insert(policy.result_names.end(), metrics_.begin(), metrics_.end());
  return policy;
}

}  // namespace lumen::model::recipe
