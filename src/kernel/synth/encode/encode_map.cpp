// Codes of maps. Transposed ones are made in registers: a task has sixteen rows of a few columns, whose codes it joins
// into words along the rows. Fields above the numbers are supplied; preceding steps write those of rows and tiles. If
// an extreme of the numbers is wanted, too, every task (of GPUs: block of tasks) writes the one of its numbers, and a
// later step reduces them. Equal to the codec bit for bit. Proved by tests/kernel/synth/synth_codes_test.cpp.
#include <algorithm>
#include <map>
#include <numeric>

#include "base/round_up.h"
#include "kernel/synth/body/nest.h"
#include "kernel/synth/encode/code_fields.h"
#include "kernel/synth/encode/codes_group.h"
#include "kernel/synth/encode/encode.h"
#include "kernel/synth/reduce/extreme_parts.h"

namespace lumen::synth {

using graph::Op;

namespace {

constexpr int64_t kGrain = 8192;             // elements per task
constexpr int64_t kRows = 16, kColumns = 4;  // of a square; processors take whole vectors where they divide columns
constexpr int64_t kWord = 4;                 // codes that are made together
constexpr int64_t kNearRows = 4, kNearColumns = 8;  // adjacent tasks write whole sectors in both directions
constexpr int64_t kNearAlone = 32;                  // columns, where nothing is transposed

class CodeKernel {
 public:
  CodeKernel(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target)
      : plan_(plan),
        target_(target),
        group_(group),
        builder_(plan.graph),
        b_(builder_.b),
        codes_(plan, group),
        map_(codes_.map),
        straight_(codes_.straight),
        transposed_(codes_.transposed),
        rows_(codes_.rows),
        columns_(codes_.columns),
        extreme_(plan.graph, codes_.extreme) {
    const int lanes = target.f32_lanes();
    width_ = target.wave <= 1 && lanes > kColumns && columns_ % lanes == 0 ? lanes : kColumns;
  }

  Synthesis run() {
    Synthesis out;
    std::map<graph::ValueId, CodeFields> fields;
    for (const graph::ValueId r : {straight_, transposed_})
      if (r >= 0) fields.emplace(r, CodeFields(plan_, group_, r, target_, out));
    for (const graph::ValueId v : codes_.inner.inputs) builder_.value(v, false);
    for (auto& [r, of] : fields) of.declare(builder_);
    for (const graph::ValueId r : {straight_, transposed_})
      if (r >= 0) builder_.value(r, true);
    extreme_.declare(builder_, out);
    if (straight_ >= 0) straight_fields_ = &fields.at(straight_);
    if (transposed_ >= 0) transposed_fields_ = &fields.at(transposed_);
    // Threads that only encode take runs; those that also find an extreme take whole squares.
    const bool both = transposed_ >= 0 || (extreme_.exists() && target_.wave > 1 && codes_.first_column > 0);
    const std::vector<bool> barrier = both ? codes_.barrier() : std::vector<bool>(codes_.shape.size(), false);
    body_ = std::make_unique<Body>(builder_, plan_, codes_.inner, codes_.shape, barrier);
    const bool in_squares = both && fits_squares();
    in_squares ? squares() : lines();
    const double elements = product(codes_.shape);
    const std::string ways = straight_ < 0 ? "transposed" : transposed_ < 0 ? "" : "and transposed";
    out.steps.push_back(builder_.finish(
        fmt::format("codes {} {} {}{}{}", shape_text(codes_.shape), body_->summary(), ways,
                    in_squares ? " in squares" : "", extreme_.exists() ? " and extremes" : ""),
        elements * body_->operations(), body_->traffic() - elements * (3 - (straight_ >= 0) - (transposed_ >= 0))));
    extreme_.add_last_step(target_, out);
    return out;
  }

 private:
  bool fits_squares() const {
    const bool agrees = straight_ < 0 || straight_fields_->columns() == columns_ || !straight_fields_->are_many();
    return agrees && (transposed_ < 0 || transposed_fields_->is_same_for(kWord, rows_)) && rows_ % kRows == 0 &&
           columns_ % width_ == 0 && body_->extents().back() == columns_ && body_->extents().size() > 1 &&
           width_ % body_->chunking(width_).unit == 0;  // whole blocks that are unpacked together
  }

  void begin_task() {
    body_->begin_task();
    for (CodeFields* f : {straight_fields_, transposed_fields_})
      if (f) f->begin(b_);
  }

  // Once, in the first task's region.
  void write_rest(Expr task) {
    const auto has_rest = [](const CodeFields* f) { return f && f->has_rest(); };
    if (!has_rest(straight_fields_) && !has_rest(transposed_fields_)) return;
    b_.branch(task == 0, [&] {
      for (const CodeFields* f : {straight_fields_, transposed_fields_})
        if (f) f->write_rest(builder_);
    });
  }

  // Vectors along the last axis; transposed codes one by one.
  void lines() {
    const int64_t last = body_->extents().back();
    const bool in_runs = transposed_ < 0 && straight_fields_->is_same_for(target_.f32_lanes(), last);
    const int lanes = in_runs ? target_.f32_lanes() : 1;
    const bool threads = target_.wave > 1;
    const int unroll = threads ? 1 : 2;
    std::vector<int64_t> outer = body_->extents();
    const int64_t inner = outer.back();
    outer.pop_back();
    const int64_t unit = std::lcm<int64_t>(body_->chunking(lanes).chunk, int64_t{lanes} * unroll);
    const Tasks tasks = cut(outer, inner, threads ? 1 : target_.grain(kGrain), unit);
    extreme_.set_parts(builder_, tasks.rows * tasks.parts);
    for_tasks(
        b_, tasks, outer, inner, [&] { begin_task(); },
        [&](const std::vector<Expr>& counters, Expr from, Expr to) {
          Expr first = from;  // 0 in the very first row
          for (const Expr counter : counters) first = first | counter;
          write_rest(first);
          extreme_.begin(b_, lanes);
          for (size_t d = 0; d < counters.size(); ++d) body_->open(d, counters[d]);
          body_->hoist(lanes);
          for_lanes(b_, *body_, lanes, unroll, from, to, inner % lanes == 0, [&](int) {
            const Expr x = codes_.value(*body_, b_, target_), number = body_->store_place(map_);
            if (extreme_.exists()) extreme_.add(body_->value(codes_.extreme_of), body_->count());
            if (straight_ >= 0) {
              const int64_t across = straight_fields_->columns();
              const CodeFields::Values of = straight_fields_->at(b_, number / across, number % across);
              const Expr code = straight_fields_->code(b_, x, of);
              body_->store_to(builder_.value(straight_, true), Scalar::u8, number, code);
            }
            if (transposed_ < 0) return;
            const Expr row = number / columns_;
            const Expr column = number % columns_;
            const Expr code = transposed_fields_->code(b_, x, transposed_fields_->at(b_, column, row));
            body_->store_to(builder_.value(transposed_, true), Scalar::u8, column * rows_ + row, code);
          });
          for (size_t d = 0; d < counters.size(); ++d) body_->close();
          if (!extreme_.exists()) return;
          Expr row = b_.i64(0);
          for (size_t d = 0; d < counters.size(); ++d) row = row * outer[d] + counters[d];
          extreme_.write(b_, tasks.parts > 1 ? row * tasks.parts + from / tasks.part : row);
        });
  }

  void squares() {
    const int64_t all = rows_ / kRows * (columns_ / width_);
    if (extreme_.exists() && target_.wave > 1 && all % target_.wave == 0) return blocks(all);
    const int64_t together = target_.wave > 1 ? 1 : std::max<int64_t>(target_.grain(kGrain) / (kRows * width_), 1);
    extreme_.set_parts(builder_, ceil_div(all, together));
    b_.loop(LoopKind::parallel, b_.i64(0), b_.i64(ceil_div(all, together)), 1, [&](Expr task) {
      begin_task();
      write_rest(task);
      extreme_.begin(b_, width_);
      const auto one = [&](Expr number) {
        const Expr most = square(number);
        if (extreme_.exists()) extreme_.add(most, {});
      };
      if (together == 1) {
        one(task);
      } else {
        const Expr first = task * together;
        b_.loop(LoopKind::serial, first, min(first + together, b_.i64(all)), 1, one);
      }
      extreme_.write(b_, task);
    });
  }

  // A square for each lane: extremes of waves go through shared memory to the lane that writes for the block.
  void blocks(int64_t all) {
    int64_t lanes = target_.wave;
    while (2 * lanes <= kLanes && all % (2 * lanes) == 0) lanes *= 2;
    extreme_.set_parts(builder_, all / lanes);
    b_.loop(LoopKind::grid, b_.i64(0), b_.i64(all / lanes), 1, [&](Expr block) {
      const int64_t waves = lanes / target_.wave;
      const BufferId found = b_.alloc(waves * 4, 16, loop::Space::shared);
      b_.loop(LoopKind::lane, b_.i64(0), b_.i64(lanes), 1, [&](Expr lane) {
        const Expr task = block * lanes + lane;
        begin_task();
        write_rest(task);
        const Expr most = b_.fold_wave(extreme_.op(), b_.fold(extreme_.op(), square(task)), target_.wave);
        b_.branch(lane % target_.wave == 0, [&] { b_.store(found, most, lane / target_.wave * 4, 4); });
      });
      b_.barrier();
      b_.loop(LoopKind::lane, b_.i64(0), b_.i64(lanes), 1, [&](Expr lane) {
        b_.branch(lane == 0, [&] {
          Expr most;
          for (int64_t w = 0; w < waves; ++w) {
            const Expr x = b_.load(found, {Scalar::f32, 1}, b_.i64(w * 4), 4);
            most = most.exists() ? b_.op(extreme_.op(), x, most) : x;
          }
          extreme_.write(b_, block, most);
        });
      });
    });
  }

  // Encodes a square; returns its extremes by column, if they are wanted.
  Expr square(Expr number) {
    Expr rest = number;
    const auto digit = [&](int64_t extent) {
      const Expr x = rest % extent;
      rest = rest / extent;
      return x;
    };
    const int64_t row_tiles = rows_ / kRows, column_tiles = columns_ / width_;
    const bool alone = transposed_ < 0;
    const int64_t near_columns = std::gcd(column_tiles, alone ? kNearAlone : kNearColumns);
    const int64_t near_rows = std::gcd(row_tiles, alone ? 1 : kNearRows);
    Expr column = digit(near_columns), row = digit(near_rows);
    column = column + digit(column_tiles / near_columns) * near_columns;
    row = row + rest * near_rows;
    column = column * width_;
    row = row * kRows;
    const int n = width_;
    std::vector<int64_t> outer = body_->extents();
    outer.pop_back();
    std::vector<std::vector<Expr>> words(n);  // codes by column
    std::vector<Expr> some;                   // numbers of the current rows
    CodeFields::Values straight, transposed;
    Expr most = extreme_.exists() ? extreme_.none(b_, n) : Expr{};
    for (int64_t i = 0; i < kRows; ++i) {
      const Expr line = row + i;
      const std::vector<Expr> at = digits(b_, line, outer);
      for (size_t d = 0; d < at.size(); ++d) body_->open(d, at[d]);
      body_->enter_chunk(column, n);
      body_->open_lanes(column, n, {});
      const Expr x = codes_.value(*body_, b_, target_);
      some.push_back(x);
      if (extreme_.exists()) most = b_.op(extreme_.op(), body_->value(codes_.extreme_of), most);
      if (straight_ >= 0) {
        if (i == 0 || !straight_fields_->is_same_below(kRows)) straight = straight_fields_->along(b_, line, column, n);
        b_.store(builder_.value(straight_, true), straight_fields_->code(b_, x, straight), line * columns_ + column, n);
      }
      if (transposed_ >= 0 && (i == 0 || (i % kWord == 0 && !transposed_fields_->is_same_for(kRows, rows_))))
        transposed = transposed_fields_->below(b_, column, line, n);
      body_->close();
      for (size_t d = 0; d < at.size(); ++d) body_->close();
      if (transposed_ < 0 || std::ssize(some) < kWord) continue;
      for (int c = 0; c < n; ++c) {
        const Expr below = b_.join(kWord, [&](int r) { return b_.extract(some[r], c); });
        CodeFields::Values parts = transposed;
        for (Expr& p : parts)
          if (b_.type(p).lanes > 1) p = b_.extract(p, c);
        words[c].push_back(transposed_fields_->code(b_, below, parts));
      }
      some.clear();
    }
    for (int c = 0; c < n && transposed_ >= 0; ++c) {
      const Expr at = (column + c) * rows_ + row;
      b_.store(builder_.value(transposed_, true), concat_all(b_, std::move(words[c])), at, kRows);
    }
    return most;
  }

  static constexpr int64_t kLanes = 256;  // of a block, at most

  const graph::Plan& plan_;
  const machine::Machine& target_;
  const graph::Group& group_;
  StepBuilder builder_;
  Builder& b_;
  CodesGroup codes_;
  graph::ValueId map_, straight_, transposed_;
  int64_t rows_, columns_;
  int width_ = kColumns;
  ExtremeParts extreme_;
  CodeFields *straight_fields_ = nullptr, *transposed_fields_ = nullptr;
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
