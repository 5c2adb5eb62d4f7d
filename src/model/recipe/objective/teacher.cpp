#include "model/recipe/objective/teacher.h"

#include "base/error.h"
#include "graph/elaborate/elaborate.h"
#include "graph/ir/rewrite.h"
#include "graph/pipeline/pipeline.h"
#include "lang/parser.h"
#include "model/arch/function.h"

namespace lumen::model::recipe {
namespace {

constexpr std::string_view kPrefix = "teacher.";

constexpr const char* kDivergenceText =
    "fn far(logits: f32[B, T, V], teacher: f32[B, T, V]) -> f32[B, T] {\n"
    "  let own = log_softmax(logits)\n"
    "  let other = log_softmax(teacher)\n"
    "  return reshape(sum(exp(other) * (other - own), -1), [B, T])\n"
    "}\n";

}  // namespace

std::string teacher_input(const std::string& weight) {
  return std::string(kPrefix) + weight;
}

bool is_teacher_input(const std::string& name) {
  return name.starts_with(kPrefix);
}

void require_teacher(const arch::Model& model, const arch::Model& teacher) {
  const auto refuse = [&](const std::string& why) {
    throw Error(Exit::user, fmt::format("'{}' cannot teach '{}': {}", teacher.name, model.name, why),
                "a teacher has the same vocabulary");
  };
  if (!teacher.family->has_function("forward")) refuse("its family has no function 'forward'");
  const auto vocabulary = [](const arch::Model& m) {
    const auto found = m.config.find("vocab");
    return found == m.config.end() ? 0.0 : found->second;
  };
  if (vocabulary(model) != vocabulary(teacher))
    refuse(fmt::format("its vocabulary has {} tokens, not {}", vocabulary(teacher), vocabulary(model)));
  if (!model.tokenizer || !teacher.tokenizer) return;
  if (model.tokenizer->size() != teacher.tokenizer->size())
    refuse(fmt::format("its tokenizer has {} tokens, not {}", teacher.tokenizer->size(), model.tokenizer->size()));
  for (text::TokenId id = 0; id < static_cast<text::TokenId>(model.tokenizer->size()); ++id)
    if (model.tokenizer->bytes(id) != teacher.tokenizer->bytes(id)) refuse(fmt::format("its token {} differs", id));
}

graph::Graph teacher_logits(const arch::Model& teacher, bool starts) {
  graph::Graph g = graph::changed(function_of(teacher, "forward"), {.texts_apart = starts});
  for (const graph::ValueId v : g.inputs())
    if (teacher.weights.contains(g[v].attributes.name)) g[v].attributes.name = teacher_input(g[v].attributes.name);
  return g;
}

graph::ValueId call_beside(graph::Builder& build, const graph::Graph& other) {
  std::vector<graph::ValueId> inputs;
  for (const graph::ValueId v : other.inputs()) {
    const graph::Node& node = other[v];
    graph::ValueId own = build.graph.find_input(node.attributes.name);
    if (own < 0) own = build.input(node.attributes.name, node.attributes.role, node.type);
    inputs.push_back(own);
  }
  return graph::expand_call(build.graph, other, inputs).at(0);
}

graph::Graph divergence_from(const arch::Library& library, graph::Graph policy, const graph::Graph& teacher) {
  graph::inline_calls(policy);
  graph::Builder build(policy);
  const graph::ValueId own = policy.results.at(0), other = call_beside(build, teacher);
  const lang::Function fn =
      lang::parse_file(std::make_shared<Source>(Source{"<divergence>", kDivergenceText})).functions.at(0);
  graph::Graph g = graph::elaborate_function(library.scope(), fn);
  const graph::Shape& shape = build.type(own).shape;
  g = graph::bind_symbols(g, {{"B", shape[0].number()}, {"T", shape[1].number()}, {"V", shape[2].number()}});
  policy.results = {graph::expand_call(policy, g, {own, other}).at(0)};
  policy.result_names = {arch::kResult};
  return policy;
}

std::vector<graph::FormatAssignment> teacher_formats(const arch::Model& teacher, const graph::Graph& used) {
  std::vector<graph::FormatAssignment> out;
  for (graph::FormatAssignment& a : stored_formats(teacher)) {
    a.value = teacher_input(a.value);
    if (used.find_input(a.value) >= 0) out.push_back(std::move(a));
  }
  return out;
}

}  // namespace lumen::model::recipe
