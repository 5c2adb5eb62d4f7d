#include "model/infer/narrowing/tallying.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "graph/elaborate/elaborate.h"
#include "lang/parser.h"

namespace lumen::model::infer {
namespace {

constexpr int64_t kTogether = 32;  // sums of so many groups are added up first, so that chains of additions are short

}  // namespace

graph::Graph Tallying::graph(const arch::Library& library, const Narrowing& narrowing) {
  const int64_t groups = narrowing.groups(), blocks = (groups + kTogether - 1) / kTogether;
  std::string text = fmt::format(
      "fn tallied(logits: f32[R, {}], masks: i32[R, {}], scales: f32[R, 1], edges: f32[R, {edges}], "
      "lasts: i32[R, {edges}], points: f32[R, 2]) -> f32[R, {}] {{\n",
      narrowing.vocabulary(), narrowing.words(), kWidth, fmt::arg("edges", RowSource::kMostEdges));
  text += narrowing.masked_text("visible", "");
  if (blocks * kTogether > groups)
    text += fmt::format("  let x = concat(visible, broadcast({}, [R, {}]), axis = 1)\n", Narrowing::kFilling,
                        (blocks * kTogether - groups) * Race::kGroup);
  else
    text += "  let x = visible\n";
  text += fmt::format(
      "  let is_in = x > {filling}\n"
      "  let flat = select(is_in, exp((x - points[:, 0:1]) * scales), 0.0)\n"
      "  let far = select(is_in, x - points[:, 1:2], 0.0)\n"
      "  let w = reshape(flat, [R, {all}, {group}])\n"
      "  let d = reshape(far, [R, {all}, {group}])\n"
      "  let m = reshape(flat * far, [R, {all}, {group}])\n"
      "  let c = reshape(x, [R, {all}, {group}])\n"
      "  counts[r, g, j] = sum(i) f32(c[r, g, i] > edges[r, j] or "
      "(c[r, g, i] == edges[r, j] and g * {group} + i <= lasts[r, j]))\n"
      "  weights[r, g, j] = sum(i) select(c[r, g, i] > edges[r, j] or "
      "(c[r, g, i] == edges[r, j] and g * {group} + i <= lasts[r, j]), w[r, g, i], 0.0)\n"
      "  moments[r, g, j] = sum(i) select(c[r, g, i] > edges[r, j] or "
      "(c[r, g, i] == edges[r, j] and g * {group} + i <= lasts[r, j]), m[r, g, i], 0.0)\n"
      "  let own = concat(sum(f32(c > {filling}), -1), sum(w, -1), sum(m, -1), sum(abs(m), -1), sum(d, -1), "
      "sum(d * d, -1), axis = 2)\n"
      "  let sums = concat(counts, weights, moments, own, axis = 2)\n"
      "  let some = reshape(sum(reshape(sums, [R, {blocks}, {together}, {width}]), 2), [R, {blocks}, {width}])\n"
      "  return reshape(sum(some, 1), [R, {width}])\n"
      "}}\n",
      fmt::arg("filling", Narrowing::kFilling), fmt::arg("all", blocks * kTogether), fmt::arg("group", Race::kGroup),
      fmt::arg("blocks", blocks), fmt::arg("together", kTogether), fmt::arg("width", kWidth));
  const auto source = std::make_shared<Source>(Source{"<tallying>", text});
  graph::Graph out = graph::elaborate_function(library.scope(), lang::parse_file(source).functions.at(0));
  out.result_names = {kTallied};
  return out;
}

void Tallying::ask(const RowSource::Count& what, std::span<float> edges, std::span<int32_t> lasts,
                   std::span<float> points, float* scale) {
  LUMEN_CHECK(what.edges.size() <= edges.size());
  for (size_t i = 0; i < what.edges.size(); ++i) {
    edges[i] = float(what.edges[i].logit);
    lasts[i] = what.edges[i].id;
  }
  points[0] = what.best;
  points[1] = what.center;
  *scale = float(std::min(1 / what.temperature, 1e30));
}

Tallies Tallying::read(std::span<const float> row, size_t edges) {
  constexpr auto kEach = size_t{RowSource::kMostEdges};
  Tallies out;
  for (size_t i = 0; i < edges; ++i) out.of_edges.push_back({row[i], row[kEach + i], row[2 * kEach + i]});
  const std::span<const float> own = row.subspan(3 * kEach);
  out.all = {own[0], own[1], own[2]};
  out.magnitude = own[3];
  out.sum = own[4];
  out.squares = own[5];
  return out;
}

}  // namespace lumen::model::infer
