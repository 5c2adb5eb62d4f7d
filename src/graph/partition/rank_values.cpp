#include "graph/partition/rank_values.h"

namespace lumen::graph {

namespace {

constexpr int64_t kFewNumbers = 4096;   // up to this size, one gather and a local sum replace two exchanges
constexpr uint32_t kGatheredAgain = 1;  // the salt makes the values distinct, so they are not shared

Formula sum_in_order(Scalar type, int count, ScalarOp op) {
  Formula f;
  f.inputs.assign(count, type);
  int sum = f.input(0);
  for (int i = 1; i < count; ++i) sum = f.op(op, sum, f.input(i));
  f.outputs = {sum};
  return f;
}

}  // namespace

// Reduces rows [ranks, n] in the order of ranks.
ValueId RankValues::rows_joined(ValueId rows, ScalarOp op) {
  const Shape all = build_.type(rows).shape;
  const int64_t n = all.at(1).number();
  std::vector<ValueId> terms;
  for (int r = 0; r < ranks_; ++r) terms.push_back(build_.slice(rows, {r, 0}, {1, n}));
  return build_.reshape(build_.map(sum_in_order(build_.type(rows).element.scalar, ranks_, op), terms), {n});
}

ValueId RankValues::all_reduce(ValueId x, ScalarOp op) {
  const Shape own = build_.type(x).shape;
  const int64_t n = elements(own).number();
  ++exchanged_.sums;
  exchanged_.summed += n;
  if (n <= kFewNumbers || n % ranks_ != 0)
    return build_.reshape(rows_joined(build_.exchange(build_.reshape(x, {n}), Moves::gather, ranks_), op), own);
  const ValueId rows = build_.exchange(build_.reshape(x, {ranks_, n / ranks_}), Moves::spread, ranks_);
  return build_.reshape(build_.exchange(rows_joined(rows, op), Moves::gather, ranks_), own);
}

ValueId RankValues::gathered(ValueId x, const Split& split, bool again) {
  const Shape own = build_.type(x).shape;
  const size_t axis = split.axis;
  ++exchanged_.gathers;
  exchanged_.gathered += elements(own).number() * ranks_;
  const ValueId all = build_.exchange(x, Moves::gather, ranks_);
  if (again) g_.nodes[all].attributes.salt = kGatheredAgain;
  std::vector<ValueId> sections;
  int64_t at = 0;
  for (const int64_t s : split.sections) {
    Shape sizes = build_.type(all).shape;
    sizes[axis + 1] = Dim(s / ranks_);
    std::vector<int64_t> starts(sizes.size(), 0);
    starts[axis + 1] = at;
    at += s / ranks_;
    const ValueId chunk = split.sections.size() == 1 ? all : build_.slice(all, starts, sizes);
    std::vector<int> axes;  // the ranks' axis before the split one
    for (size_t d = 0; d < own.size(); ++d) {
      if (d == axis) axes.push_back(0);
      axes.push_back(d + 1);
    }
    Shape joined = own;
    joined[axis] = Dim(s);
    sections.push_back(build_.reshape(build_.permute(chunk, axes), joined));
  }
  return sections.size() == 1 ? sections[0] : build_.concat(sections, split.axis);
}

// Rows of all ranks, in order, become each rank's chunk of the sum.
ValueId RankValues::scattered_sum(ValueId x, const Split& split) {
  const size_t axis = split.axis;
  Shape own = build_.type(x).shape, apart = own;
  const int64_t n = elements(own).number();
  ++exchanged_.scatters;
  exchanged_.scattered += n;
  own[axis] = apart[axis] = Dim(own[axis].number() / ranks_);
  apart.insert(apart.begin() + axis, Dim(ranks_));
  std::vector<int> axes = {split.axis};
  for (size_t d = 0; d < apart.size(); ++d)
    if (d != axis) axes.push_back(d);
  const ValueId rows = build_.reshape(build_.permute(build_.reshape(x, apart), axes), {ranks_, n / ranks_});
  return build_.reshape(rows_joined(build_.exchange(rows, Moves::spread, ranks_), ScalarOp::add_), own);
}

ValueId RankValues::place() {
  if (place_ < 0) place_ = build_.input(kTensorRank, Role::data, {{}, {Scalar::i32, nullptr}});
  return place_;
}
ValueId RankValues::scaled_place(int64_t by) {
  return build_.mul(place(), build_.scalar(by, Scalar::i32));
}

ValueId RankValues::is_first() {
  return build_.binary(ScalarOp::eq_, place(), build_.scalar(0, Scalar::i32));
}

// This rank's chunks of every section, sliced from the whole.
ValueId RankValues::taken(ValueId x, const Split& split) {
  const size_t axis = split.axis;
  const Shape all = build_.type(x).shape;
  std::vector<ValueId> chunks;
  int64_t at = 0;
  for (const int64_t s : split.sections) {
    Shape sizes = all;
    sizes[axis] = Dim(s);
    std::vector<int64_t> starts(all.size(), 0);
    starts[axis] = at;
    at += s;
    ValueId section = split.sections.size() == 1 ? x : build_.slice(x, starts, sizes);
    Shape apart = sizes;  // [.., ranks, chunk, ..], the ranks' axis first
    apart[axis] = Dim(s / ranks_);
    const Shape chunk = apart;
    apart.insert(apart.begin() + axis, Dim(ranks_));
    std::vector<int> axes = {split.axis};
    for (size_t d = 0; d < apart.size(); ++d)
      if (d != axis) axes.push_back(d);
    section = build_.permute(build_.reshape(section, apart), axes);
    chunks.push_back(build_.reshape(build_.gather(section, build_.reshape(place(), {1})), chunk));
  }
  return chunks.size() == 1 ? chunks[0] : build_.concat(chunks, split.axis);
}

}  // namespace lumen::graph
