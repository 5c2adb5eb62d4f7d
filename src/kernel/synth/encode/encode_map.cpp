// Codes of maps. Transposed ones are made in registers: a task has sixteen rows of a few columns, whose codes it joins
// into words along the rows. Equal to the codec bit for bit. Proved by tests/kernel/synth/synth_codes_test.cpp.
#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "kernel/synth/body/nest.h"
#include "kernel/synth/encode/encode.h"
#include "kernel/synth/step/ceil_div.h"
#include "kernel/synth/unpack/field.h"
#include "number/facts/facts.h"

namespace lumen::synth {

using graph::Op;

namespace {

constexpr int64_t kGrain = 8192;  // elements per task
constexpr int64_t kRows = 16, kColumns = 4;
constexpr int64_t kNearRows = 4, kNearColumns = 8;  // tasks beside each other write whole sectors both ways

class CodeKernel {
 public:
  CodeKernel(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target)
      : plan_(plan), g_(plan.graph), target_(target), builder_(plan.graph), b_(builder_.b), inner_(group) {
    for (const graph::ValueId v : group.nodes)
      if (g_[v].op == Op::map_) map_ = v;
    for (const graph::ValueId r : group.results) {
      const Access a = follow(plan, group, g_[r].operands[0]);
      LUMEN_CHECK(a.source == map_ && a.offset == 0);
      (a.strides == own_strides_of(extents_of(g_[r].type.shape)) ? straight_ : transposed_) = r;
    }
    field_ = plain_field(*g_[group.root].type.element.format);
    LUMEN_CHECK(field_ && field_->bits == 8);
    std::erase_if(inner_.nodes, [&](graph::ValueId v) { return v > map_ && v != map_; });
    inner_.results = {map_};
    shape_ = extents_of(g_[map_].type.shape);
    if (transposed_ < 0) return;
    const std::vector<int64_t> matrix = extents_of(g_[transposed_].type.shape);
    columns_ = matrix[0];
    rows_ = matrix[1];
    int64_t behind = 1;
    for (first_column_ = shape_.size(); first_column_ > 0 && behind < columns_;) behind *= shape_[--first_column_];
    LUMEN_CHECK(behind == columns_, "columns of a turned matrix are no axes");
  }

  Synthesis run() {
    for (const graph::ValueId v : inner_.inputs) builder_.value(v, false);
    for (const graph::ValueId r : {straight_, transposed_})
      if (r >= 0) builder_.value(r, true);
    std::vector<bool> barrier(shape_.size(), false);
    if (transposed_ >= 0 && first_column_ > 0) barrier[first_column_ - 1] = true;
    body_ = std::make_unique<Body>(builder_, plan_, inner_, shape_, barrier);
    const bool in_squares = transposed_ >= 0 && rows_ % kRows == 0 && columns_ % kColumns == 0 &&
                            body_->extents().back() == columns_ && body_->extents().size() > 1 &&
                            kColumns % body_->chunking(kColumns).unit == 0;  // whole blocks of what is unpacked
    in_squares ? squares() : lines();
    Synthesis out;
    const double elements = product(shape_);
    const std::string ways = straight_ < 0 ? "transposed" : transposed_ < 0 ? "" : "and transposed";
    out.steps.push_back(builder_.finish(
        fmt::format("codes {} {} {}{}", shape_text(shape_), body_->summary(), ways, in_squares ? " in squares" : ""),
        elements * body_->operations(), body_->traffic() - elements * (3 - (straight_ >= 0) - (transposed_ >= 0))));
    return out;
  }

 private:
  Expr code() { return encode_value(b_, *field_, body_->value(map_)); }  // u32 lanes
  Expr as_bytes(Expr code) { return cast(code, Scalar::u8); }

  // Once, in the first task's region: what is behind the codes is zero.
  void clear_rest(Expr task) {
    const int64_t used = product(shape_), all = graph::byte_size(g_[straight_ >= 0 ? straight_ : transposed_].type);
    if (used == all) return;
    b_.branch(task == 0, [&] {
      for (const graph::ValueId r : {straight_, transposed_})
        if (r >= 0) clear_bytes(b_, builder_.value(r, true), used, all);
    });
  }

  // Vectors along the last axis; transposed codes one by one.
  void lines() {
    const int lanes = transposed_ < 0 ? target_.f32_lanes() : 1;
    const bool threads = target_.wave > 1;
    const int unroll = threads ? 1 : 2;
    std::vector<int64_t> outer = body_->extents();
    const int64_t inner = outer.back();
    outer.pop_back();
    const int64_t unit = std::lcm<int64_t>(body_->chunking(lanes).chunk, int64_t{lanes} * unroll);
    const Tasks tasks = cut(outer, inner, threads ? 1 : target_.grain(kGrain), unit);
    for_tasks(
        b_, tasks, outer, inner, [&] { body_->begin_task(); },
        [&](const std::vector<Expr>& counters, Expr from, Expr to) {
          Expr first = from;  // 0 where everything begins
          for (const Expr counter : counters) first = first | counter;
          clear_rest(first);
          for (size_t d = 0; d < counters.size(); ++d) body_->open(d, counters[d]);
          body_->hoist(lanes);
          for_lanes(b_, *body_, lanes, unroll, from, to, inner % lanes == 0, [&](int) {
            const Expr x = as_bytes(code()), number = body_->store_place(map_);
            if (straight_ >= 0) body_->store_to(builder_.value(straight_, true), Scalar::u8, number, x);
            if (transposed_ < 0) return;
            const Expr row = number / columns_;
            const Expr column = number % columns_;
            body_->store_to(builder_.value(transposed_, true), Scalar::u8, column * rows_ + row, x);
          });
          for (size_t d = 0; d < counters.size(); ++d) body_->close();
        });
  }

  void squares() {
    const int64_t all = rows_ / kRows * (columns_ / kColumns);
    const int64_t together = target_.wave > 1 ? 1 : std::max<int64_t>(target_.grain(kGrain) / (kRows * kColumns), 1);
    b_.loop(LoopKind::parallel, b_.i64(0), b_.i64(ceil_div(all, together)), 1, [&](Expr task) {
      body_->begin_task();
      clear_rest(task);
      if (together == 1) return square(task);
      const Expr first = task * together;
      b_.loop(LoopKind::serial, first, min(first + together, b_.i64(all)), 1, [&](Expr number) { square(number); });
    });
  }

  void square(Expr number) {
    Expr rest = number;
    const auto digit = [&](int64_t extent) {
      const Expr x = rest % extent;
      rest = rest / extent;
      return x;
    };
    const int64_t row_tiles = rows_ / kRows, column_tiles = columns_ / kColumns;
    const int64_t near_columns = std::gcd(column_tiles, kNearColumns), near_rows = std::gcd(row_tiles, kNearRows);
    Expr column = digit(near_columns), row = digit(near_rows);
    column = column + digit(column_tiles / near_columns) * near_columns;
    row = row + rest * near_rows;
    column = column * kColumns;
    row = row * kRows;
    constexpr int n = kColumns;
    std::vector<int64_t> outer = body_->extents();
    outer.pop_back();
    std::vector<Expr> joined;  // four rows each, by column
    for (int64_t i = 0; i < kRows; ++i) {
      const Expr line = row + i;
      const std::vector<Expr> at = digits(b_, line, outer);
      for (size_t d = 0; d < at.size(); ++d) body_->open(d, at[d]);
      body_->enter_chunk(column, n);
      body_->open_lanes(column, n, {});
      const Expr x = code();
      if (straight_ >= 0) b_.store(builder_.value(straight_, true), as_bytes(x), line * columns_ + column, n);
      body_->close();
      for (size_t d = 0; d < at.size(); ++d) body_->close();
      if (i % 4 == 0)
        joined.push_back(x);
      else
        joined.back() = joined.back() | (x << (8 * (i % 4)));
    }
    for (int c = 0; c < n; ++c) {
      Expr line = b_.splat(b_.extract(joined[0], c), joined.size());
      for (size_t w = 1; w < joined.size(); ++w) line = b_.insert(line, b_.extract(joined[w], c), w);
      const Expr at = (column + c) * rows_ + row;
      b_.store(builder_.value(transposed_, true), line, at, kRows);
    }
  }

  const graph::Plan& plan_;
  const graph::Graph& g_;
  const machine::Machine& target_;
  StepBuilder builder_;
  Builder& b_;
  graph::Group inner_;  // without the casts
  graph::ValueId map_ = -1, straight_ = -1, transposed_ = -1;
  const FieldType* field_ = nullptr;
  std::vector<int64_t> shape_;
  int64_t rows_ = 1, columns_ = 1;  // of the matrix that is transposed
  size_t first_column_ = 0;         // axis
  std::unique_ptr<Body> body_;
};

}  // namespace

bool has_map(const graph::Plan& plan, const graph::Group& group) {
  return std::any_of(group.nodes.begin(), group.nodes.end(),
                     [&](graph::ValueId v) { return plan.graph[v].op == Op::map_; });
}

Synthesis encode_map(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target) {
  return CodeKernel(plan, group, target).run();
}

}  // namespace lumen::synth
