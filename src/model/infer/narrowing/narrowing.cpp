#include "model/infer/narrowing/narrowing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "base/check.h"
#include "graph/elaborate/elaborate.h"
#include "graph/ir/build.h"
#include "graph/ir/rewrite.h"
#include "lang/parser.h"
#include "model/arch/family/family.h"

namespace lumen::model::infer {
namespace {

// Samplers use the top 40 by default, and penalties may remove some of those; mirostat 1 looks at 100.
constexpr int64_t kMostCount = 104;
constexpr int64_t kMostAsked = 128;
constexpr int64_t kMostFront = 4;     // groups; where filters leave few tokens, the first ones may have none
constexpr int64_t kLarge = 4096;      // vocabularies from this size on use longer parts
constexpr int64_t kMostParts = 2560;  // each part is compared with every other one

}  // namespace

Narrowing::Narrowing(int64_t vocabulary, Rows rows)
    : vocabulary_(vocabulary),
      asked_(std::min(kMostAsked, vocabulary)),
      groups_((vocabulary + Race::kGroup - 1) / Race::kGroup),
      front_(std::min(kMostFront, groups_)) {
  LUMEN_CHECK(vocabulary >= kLeast);
  const bool large = vocabulary >= kLarge;
  if (rows == Rows::many) {
    part_ = large ? 128 : 8;
    piece_ = large ? 8 : 2;
  } else {
    part_ = large ? 32 : 8;
    while (parts() > kMostParts) part_ *= 2;
    piece_ = part_;
  }
  static_assert(Race::kGroup == 128, "groups are whole parts");
  count_ = std::min(kMostCount, parts());
}

std::string Narrowing::masked_text(const char* name, const std::string& condition) const {
  const int64_t whole = groups_ * Race::kGroup;
  std::string out = whole == vocabulary_
                        ? "  let filled = logits\n"
                        : fmt::format("  let filled = concat(logits, broadcast({}, [R, {}]), axis = 1)\n", kFilling,
                                      whole - vocabulary_);
  out += fmt::format(
      "  let bits = (reshape(masks, [R, {0}, 1]) >> iota([1, 1, {1}], 2)) & 1\n"
      "  let {2} = select(reshape(bits, [R, {3}]) == 1{4}, filled, {5})\n",
      words(), kBits, name, whole, condition, kFilling);
  return out;
}

// Ranks are computed by counting instead of sorting: the number of elements that are larger, or equal and earlier.
// Indices of pieces are exact in f32. The sum is not finite if any logit is not finite.
std::string Narrowing::text(bool is_masked) const {
  const int64_t parts = this->parts(), whole = parts * part_, each = part_ / piece_, some = count_ * each;
  std::string out = fmt::format(
      "fn narrowed(logits: f32[R, {}], asked: i32[R, {}], scales: f32[R, 1], noise: f32[R, {}]{}) -> "
      "f32[R, {}] {{\n",
      vocabulary_, asked(), groups_,
      is_masked ? fmt::format(", masks: i32[R, {}], limits: f32[R, 2], lasts: i32[R, 1]", words()) : "", width());
  if (is_masked)
    out += "  let low = limits[:, 0:1]\n" +
           masked_text("x", fmt::format(" and filled <= limits[:, 1:2] and (filled > low or "
                                        "(filled == low and iota([1, {}], 1) <= lasts))",
                                        whole));
  else if (whole == vocabulary_)
    out += "  let x = logits\n";
  else
    out += fmt::format("  let x = concat(logits, broadcast({}, [R, {}]), axis = 1)\n", kFilling, whole - vocabulary_);
  const auto add = [&](const char* lines) {
    out += fmt::format(fmt::runtime(lines), fmt::arg("count", count_), fmt::arg("parts", parts),
                       fmt::arg("part", part_), fmt::arg("piece", piece_), fmt::arg("each", each),
                       fmt::arg("some", some), fmt::arg("all", parts * each), fmt::arg("whole", whole),
                       fmt::arg("asked", asked_), fmt::arg("groups", groups_), fmt::arg("joined", parts / groups_),
                       fmt::arg("front", front_), fmt::arg("group", Race::kGroup));
  };
  add("  let row = iota([R, 1], 0)\n"
      "  let rank = iota([{count}], 0)\n"
      "  let cut = reshape(x, [R, {parts}, {part}])\n"
      "  let most = max(cut, -1)\n"
      "  let m = reshape(most, [R, {parts}])\n"
      "  let weights = exp((cut - most) * reshape(scales, [R, 1, 1])) + 0 * cut\n"
      "  let part_sums = reshape(sum(weights, -1), [R, {parts}]) * exp((m - max(m, -1)) * scales)\n"
      "  let group_sums = sum(reshape(part_sums, [R, {groups}, {joined}]), -1)\n"
      "  let sums = sum(part_sums, -1)\n"
      "  let race = reshape(group_sums, [R, {groups}]) / noise\n"
      "  faster[r, g] = sum(h) i32(race[r, h] > race[r, g] or (race[r, h] == race[r, g] and h < g))\n"
      "  let lead = iota([{front}], 0)\n"
      "  first[r, j] = max(g) i32(faster[r, g] == lead[j]) * g\n"
      "  let front = reshape(reshape(x, [R * {groups}, {group}])[first + row * {groups}], [R, {front} * {group}])\n"
      "  before[r, p] = sum(q) i32(m[r, q] > m[r, p] or (m[r, q] == m[r, p] and q < p))\n"
      "  place[r, j] = max(p) i32(before[r, p] == rank[j]) * p\n");
  if (each == 1)
    add("  let best = place\n");
  else
    add("  let pieces = reshape(reshape(cut, [R * {parts}, {part}])[place + row * {parts}], [R, {some}, {piece}])\n"
        "  let number = reshape(reshape(place * {each}, [R, {count}, 1]) + iota([1, 1, {each}], 2), [R, {some}])\n"
        "  let n = reshape(max(pieces, -1), [R, {some}])\n"
        "  ahead[r, s] = sum(t) i32(n[r, t] > n[r, s] or (n[r, t] == n[r, s] and number[r, t] < number[r, s]))\n"
        "  best[r, j] = max(s) i32(ahead[r, s] == rank[j]) * number[r, s]\n");
  add("  let candidates = reshape(reshape(x, [R * {all}, {piece}])[best + row * {all}], [R, {count} * {piece}])\n"
      "  let known = reshape(reshape(x, [R * {whole}, 1])[asked[:, 0:{asked}] + row * {whole}], [R, {asked}])\n"
      "  return concat(candidates, f32(best), known, f32(first), front, sums, axis = 1)\n"
      "}}\n");
  return out;
}

graph::ValueId Narrowing::expand(const arch::Library& library, graph::Graph& graph, graph::ValueId logits,
                                 bool is_masked) const {
  const auto source = std::make_shared<Source>(Source{"<narrowing>", text(is_masked)});
  const graph::Graph narrow = graph::elaborate_function(library.scope(), lang::parse_file(source).functions.at(0));
  graph::Builder build(graph);
  const auto input = [&](const char* name) {
    return build.input(name, graph::Role::data, narrow[narrow.find_input(name)].type);
  };
  std::vector<graph::ValueId> inputs = {logits < 0 ? input(kLogits) : logits, input(kAsked), input(kScales)};
  const graph::Dim rows = build.type(inputs[1]).shape[0];
  const graph::ValueId keys = build.slice(inputs[1], {0, asked_}, {rows, graph::Dim(1)});
  const graph::ValueId groups = build.iota({{graph::Dim(1), graph::Dim(groups_)}, {Scalar::u32, nullptr}}, 1);
  inputs.push_back(build.map(Race::group_formula(), {groups, keys}));
  for (const char* const name : {kMasks, kLimits, kLasts})
    if (is_masked) inputs.push_back(input(name));
  return graph::expand_call(graph, narrow, inputs).at(0);
}

void Narrowing::append(const arch::Library& library, graph::Graph& step) const {
  LUMEN_CHECK(step.results.size() == 1);
  step.results.push_back(expand(library, step, step.results[0], false));
  step.result_names = {arch::kResult, kNarrowed};
}

graph::Graph Narrowing::masked(const arch::Library& library) const {
  graph::Graph out;
  out.results = {expand(library, out, -1, true)};
  out.result_names = {kNarrowed};
  return out;
}

void Narrowing::ask(const Asked& what, std::span<int32_t> asked, float* scale) const {
  std::fill(asked.begin(), asked.end(), 0);
  std::copy_n(what.ids.begin(), std::min(what.ids.size(), static_cast<size_t>(asked_)), asked.begin());
  asked.back() = static_cast<int32_t>(Race(what.seed, what.number).key());
  *scale = float(std::min(1 / what.temperature, 1e30));
}

std::optional<Narrowed> Narrowing::read(std::span<const float> row, const Asked& what, bool is_masked) const {
  LUMEN_CHECK(std::ssize(row) == width());
  const float sum = row.back();
  if (!std::isfinite(sum)) return std::nullopt;
  Narrowed out;
  out.vocabulary = vocabulary_;
  out.temperature = what.temperature;
  out.sum = sum;
  out.is_masked = is_masked;
  const std::span<const float> numbers = row.subspan(count_ * piece_, count_),
                               known = row.subspan(count_ * (piece_ + 1));
  for (size_t i = 0; i < what.ids.size() && std::cmp_less(i, asked_); ++i) out.asked.emplace(what.ids[i], known[i]);
  const std::span<const float> leaders = known.subspan(asked_), front = leaders.subspan(front_);
  out.race_key = Race(what.seed, what.number).key();
  out.has_others = front_ < groups_;
  for (int64_t j = 0; j < front_; ++j) {
    const auto number = static_cast<int64_t>(leaders[j]);
    const std::span<const float> logits =
        front.subspan(j * Race::kGroup, std::min(Race::kGroup, vocabulary_ - number * Race::kGroup));
    out.front.push_back({number, {logits.begin(), logits.end()}});
  }
  // The best logit of the lowest piece is an upper bound for all tokens outside of these pieces.
  Candidate least{0, std::numeric_limits<double>::infinity()};
  for (int64_t j = 0; j < count_; ++j) {
    const int64_t first = int64_t(numbers[j]) * piece_;
    Candidate best{text::TokenId(first), row[j * piece_]};
    for (int64_t i = 1; i < piece_; ++i) {
      const Candidate c{text::TokenId(first + i), row[j * piece_ + i]};
      if (is_better(c, best)) best = c;
    }
    if (is_better(least, best)) least = best;
  }
  for (int64_t i = 0; i < count_ * piece_; ++i) {
    const Candidate c{text::TokenId(int64_t(numbers[i / piece_]) * piece_ + i % piece_), row[i]};
    if (c.id < vocabulary_ && !is_better(least, c) && !(is_masked && c.logit <= kFilling)) out.best.push_back(c);
  }
  std::sort(out.best.begin(), out.best.end(), is_better);
  // If no logit exceeds the padding, the softmax sum is that of the padding.
  if (out.best.empty() || out.best.front().logit <= kFilling) return std::nullopt;
  // All pieces with an allowed token came out if one without any did.
  out.is_complete = is_masked && least.logit <= kFilling;
  return out;
}

}  // namespace lumen::model::infer
