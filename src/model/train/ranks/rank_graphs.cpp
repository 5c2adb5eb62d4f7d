#include "model/train/ranks/rank_graphs.h"

#include "base/error.h"
#include "graph/ir/build.h"
#include "model/recipe/optimizer/optimizer.h"
#include "number/formula/scalar.h"

namespace lumen::model::train {
namespace {

using graph::Builder;
using graph::Role;
using graph::ValueId;

const graph::Element kF32 = {Scalar::f32, nullptr};

graph::Type whole_type(const Cut& cut, const FormatRef& format = nullptr) {
  return {cut.whole.shape, {Scalar::f32, format}};
}
graph::Type part_type(const Cut& cut, int rank, const FormatRef& format = nullptr) {
  return cut.part_of(whole_type(cut, format), rank);
}

ValueId numbers(Builder& build, ValueId v) {
  return build.type(v).element.format ? build.cast(v, kF32) : v;
}

graph::Graph named(const char* name) {
  graph::Graph g;
  g.name = name;
  return g;
}

}  // namespace

std::string part_input(int rank, const std::string& parameter) {
  return fmt::format("part{}.{}", rank, parameter);
}

FormatRef exchanged_in(const Cut& cut, const FormatRef& format) {
  if (!format || !cut.in_rows || cut.whole.is_vector() || cut.columns % format->block != 0) return nullptr;
  return format;
}

void check_exchange_format(const FormatRef& format, const char* flag) {
  if (!format) return;
  if (!format->encodes())
    throw Error(Exit::usage, fmt::format("{} {}: the format only decodes", flag, format->name),
                "name one with an encoder; `lumen format list` lists them");
  if (format->tile_bytes > 0 || format->tensor_bytes > 0 || format->row_bytes > 0)
    throw Error(Exit::usage, fmt::format("{} {}: its blocks are not independent", flag, format->name),
                "name a format that has fields of blocks alone");
}

graph::Graph sum_graph(const std::vector<const Cut*>& cuts, int rank, int ranks, bool adds, const FormatRef& format) {
  graph::Graph g = named("sum_of_ranks");
  Builder build(g);
  for (const Cut* cut : cuts) {
    if (cut->rows_of(rank) == 0) continue;
    const FormatRef coded = exchanged_in(*cut, format);
    const ValueId state = build.input(recipe::kGradient + cut->whole.name, Role::state, part_type(*cut, rank));
    ValueId sum = -1;
    for (int r = 0; r < ranks; ++r) {
      const bool is_state = r == rank && !adds && !coded;
      const ValueId term =
          is_state
              ? state
              : numbers(build, build.input(part_input(r, cut->whole.name), Role::data, part_type(*cut, rank, coded)));
      sum = r == 0 ? term : build.add(sum, term);
    }
    build.update(state, adds ? build.add(state, sum) : sum);
  }
  return g;
}

graph::Graph encode_graph(const std::vector<const Cut*>& cuts, const FormatRef& format) {
  graph::Graph g = named("code_gradients");
  Builder build(g);
  for (const Cut* cut : cuts) {
    const FormatRef coded = exchanged_in(*cut, format);
    if (!coded) continue;
    const ValueId gradient = build.input(recipe::kGradient + cut->whole.name, Role::data, whole_type(*cut));
    const ValueId lost = build.input(kLost + cut->whole.name, Role::state, whole_type(*cut));
    const ValueId wanted = build.add(gradient, lost);
    const ValueId code = build.cast(wanted, {Scalar::f32, coded});
    build.update(lost, build.sub(wanted, build.cast(code, kF32)));
    g.results.push_back(code);
    g.result_names.push_back(kCoded + cut->whole.name);
  }
  return g;
}

graph::Graph change_graph(const std::vector<const Cut*>& cuts, int rank, const FormatRef& format) {
  graph::Graph g = named("code_changes");
  Builder build(g);
  for (const Cut* cut : cuts) {
    const FormatRef coded = exchanged_in(*cut, format);
    if (!coded || cut->rows_of(rank) == 0) continue;
    const ValueId master = build.input(kMaster + cut->whole.name, Role::data, part_type(*cut, rank));
    const ValueId held = build.input(kHeld + cut->whole.name, Role::data, part_type(*cut, rank));
    g.results.push_back(build.cast(build.sub(master, held), {Scalar::f32, coded}));
    g.result_names.push_back(kCoded + cut->whole.name);
  }
  return g;
}

graph::Graph follow_graph(const std::vector<const Cut*>& cuts, int ranks, const FormatRef& format) {
  graph::Graph g = named("follow_changes");
  Builder build(g);
  for (const Cut* cut : cuts) {
    const FormatRef coded = exchanged_in(*cut, format);
    if (!coded) continue;
    for (int r = 0; r < ranks; ++r) {
      if (cut->rows_of(r) == 0) continue;
      const std::string name = part_input(r, cut->whole.name);
      const ValueId change = build.input(name, Role::data, part_type(*cut, r, coded));
      const ValueId held = build.input(kHeld + name, Role::state, part_type(*cut, r));
      build.update(held, build.add(held, build.cast(change, kF32)));
    }
  }
  return g;
}

graph::Graph code_graph(const std::vector<const Cut*>& cuts, int rank, const FormatRef& format) {
  graph::Graph g = named("code_parameters");
  Builder build(g);
  for (const Cut* cut : cuts) {
    const FormatRef coded = exchanged_in(*cut, format);
    if (!coded || cut->rows_of(rank) == 0) continue;
    const ValueId master = build.input(kMaster + cut->whole.name, Role::data, part_type(*cut, rank));
    g.results.push_back(build.cast(master, {Scalar::f32, coded}));
    g.result_names.push_back(kCoded + cut->whole.name);
  }
  return g;
}

graph::Graph decode_graph(const std::vector<const Cut*>& cuts, int ranks, const FormatRef& format) {
  graph::Graph g = named("decode_parameters");
  Builder build(g);
  for (const Cut* cut : cuts) {
    const FormatRef coded = exchanged_in(*cut, format);
    if (!coded) continue;
    for (int r = 0; r < ranks; ++r) {
      if (cut->rows_of(r) == 0) continue;
      const std::string name = part_input(r, cut->whole.name);
      const ValueId code = build.input(name, Role::data, part_type(*cut, r, coded));
      build.update(build.input(kHeld + name, Role::state, part_type(*cut, r)), build.cast(code, kF32));
    }
  }
  return g;
}

graph::Graph squares_graph(const std::vector<const Cut*>& cuts, int rank) {
  graph::Graph g = named("squares");
  Builder build(g);
  ValueId total = -1;
  std::vector<std::pair<std::string, ValueId>> each;
  for (const Cut* cut : cuts) {
    if (cut->rows_of(rank) == 0) continue;
    const graph::Type type = part_type(*cut, rank);
    const ValueId gradient = build.input(recipe::kGradient + cut->whole.name, Role::data, type);
    std::vector<int> axes;
    for (size_t i = 0; i < type.shape.size(); ++i) axes.push_back(i);
    const ValueId squares = build.mul(gradient, gradient);
    const ValueId sum = build.reshape(axes.empty() ? squares : build.reduce(squares, graph::Reduction::sum, axes), {});
    each.emplace_back(recipe::kSquares + cut->whole.name, sum);
    total = total < 0 ? sum : build.add(total, sum);
  }
  g.results = {total};
  g.result_names = {"squares"};
  for (const auto& [name, value] : each) {
    g.results.push_back(value);
    g.result_names.push_back(name);
  }
  return g;
}

graph::Graph clear_graph(const std::vector<const Cut*>& cuts) {
  graph::Graph g = named("clear");
  Builder build(g);
  for (const Cut* cut : cuts) {
    const ValueId state = build.input(recipe::kGradient + cut->whole.name, Role::state, whole_type(*cut));
    build.update(state, build.broadcast(build.scalar(0.0), cut->whole.shape));
  }
  return g;
}

}  // namespace lumen::model::train
