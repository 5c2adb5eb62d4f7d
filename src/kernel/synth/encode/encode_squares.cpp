// Codes of a matrix and its transpose by blocks of lanes that compute the fields themselves: a square with the side of
// a tile contains whole tiles of either matrix. A block reads it once into registers and finds extremes of its rows and
// columns (or of all of it); a lane makes a record of them, and the parts of the code that depend on it come back
// through shared memory. Proved by tests/kernel/synth/synth_codes_test.cpp.
#include <algorithm>

#include "base/check.h"
#include "kernel/synth/body/nest.h"
#include "kernel/synth/encode/code_fields.h"
#include "kernel/synth/encode/codes_group.h"

namespace lumen::synth {

namespace {

constexpr int64_t kRows = 16, kColumns = 4;  // of a lane
constexpr int64_t kWord = 4;                 // codes that are made together
constexpr int64_t kMostLanes = 1024;         // of a block
constexpr int64_t kFloat = 4;                // bytes

class SquareKernel {
 public:
  SquareKernel(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target)
      : plan_(plan),
        group_(group),
        target_(target),
        codes_(plan, group),
        format_(*plan.graph[group.root].type.element.format),
        fit_(record_fit(format_, Level::tile)),
        side_(format_.tile_columns),
        across_(side_ / kColumns),
        down_(side_ / kRows),
        builder_(plan.graph),
        b_(builder_.b) {}

  bool choose() {
    const bool is_power = (across_ & (across_ - 1)) == 0;
    if (target_.wave <= 1 || !fit_ || side_ % kRows != 0 || !is_power || across_ > target_.wave) return false;
    // As many lanes as rows and columns have records, and whole waves.
    if (lanes() < 2 * side_ || lanes() > kMostLanes || lanes() % target_.wave != 0) return false;
    return codes_.first_column > 0 && codes_.rows % side_ == 0 && codes_.columns % side_ == 0;
  }

  std::optional<Synthesis> run() {
    Synthesis out;
    for (const graph::ValueId r : {codes_.straight, codes_.transposed})
      if (r >= 0) fields_.emplace(r, CodeFields(plan_, group_, r, target_, out));
    for (const graph::ValueId v : codes_.inner.inputs) builder_.value(v, false);
    for (const auto& [r, of] : fields_) blobs_[r] = builder_.value(r, true);
    body_ = std::make_unique<Body>(builder_, plan_, codes_.inner, codes_.shape, codes_.barrier());
    if (body_->extents().back() != codes_.columns || body_->extents().size() < 2 ||
        kColumns % body_->chunking(kColumns).unit != 0)
      return std::nullopt;
    write();
    const double elements = product(codes_.shape);
    const int64_t written = std::ssize(fields_);
    out.steps.push_back(builder_.finish(
        fmt::format("codes {} {} {} fitted in squares of {}", shape_text(codes_.shape), body_->summary(),
                    codes_.straight < 0     ? "transposed"
                    : codes_.transposed < 0 ? ""
                                            : "and transposed",
                    side_),
        elements * body_->operations(), body_->traffic() - elements * (4 - written)));
    return out;
  }

 private:
  int64_t lanes() const { return across_ * down_; }
  bool is_whole() const { return format_.tile_rows > 1; }  // one tile is the square
  int64_t extremes() const { return std::ssize(fit_->extremes); }
  ScalarOp op(int64_t e) const { return fit_->extremes[e].op; }

  // The place of a block, for its lanes.
  struct Place {
    Expr lane, across, down;     // this lane's number in the square, and its place there
    Expr row, column;            // of the lane's first number
    Expr tile_row, tile_column;  // of the square
  };
  void in_lanes(Expr block, const std::function<void(const Place&)>& body) {
    b_.loop(LoopKind::lane, b_.i64(0), b_.i64(lanes()), 1, [&](Expr lane) {
      const int64_t beside = codes_.columns / side_;
      Place p;
      p.lane = lane;
      p.across = lane % across_;
      p.down = lane / across_;
      p.tile_row = block / beside;
      p.tile_column = block % beside;
      p.row = p.tile_row * side_ + p.down * kRows;
      p.column = p.tile_column * side_ + p.across * kColumns;
      body(p);
    });
  }

  void write() {
    const int64_t squares = codes_.rows / side_ * (codes_.columns / side_);
    b_.loop(LoopKind::grid, b_.i64(0), b_.i64(squares), 1, [&](Expr block) {
      const auto shared = [&](int64_t numbers) { return b_.alloc(numbers * kFloat, 16, loop::Space::shared); };
      const int64_t parts = std::max<int64_t>(fields_.begin()->second.parts(), 1);
      if (is_whole()) {
        waves_ = shared(extremes() * down_);
      } else {
        of_rows_ = shared(extremes() * side_);
        of_columns_ = shared(extremes() * down_ * side_);
        row_parts_ = shared(parts * side_);
        column_parts_ = shared(parts * side_);
      }
      numbers_ = b_.alloc(kRows * kColumns * kFloat, 16);
      in_lanes(block, [&](const Place& p) {
        clear_rest(block, p);
        is_whole() ? find_most(p) : find_lines(p);
      });
      b_.barrier();
      if (!is_whole()) {
        in_lanes(block, [&](const Place& p) { write_lines(p); });
        b_.barrier();
      }
      in_lanes(block, [&](const Place& p) {
        if (is_whole()) whole_parts_ = write_most(p);
        if (codes_.straight >= 0) write_straight(p);
        if (codes_.transposed >= 0) write_transposed(p);
      });
    });
  }

  void clear_rest(Expr block, const Place& p) {
    for (const auto& [r, of] : fields_)
      if (of.has_rest()) b_.branch((block == 0) & (p.lane == 0), [&, &f = of] { f.write_rest(builder_); });
  }

  Expr number(int64_t row) { return b_.load(numbers_, {Scalar::f32, kColumns}, b_.i64(row * kColumns * kFloat), 16); }

  // Reads the lane's numbers; visit(row, extreme, the four columns' values that it is the extreme of).
  template <class Visit>
  void read(const Place& p, const Visit& visit) {
    body_->begin_task();
    std::vector<int64_t> outer = body_->extents();
    outer.pop_back();
    for (int64_t i = 0; i < kRows; ++i) {
      const std::vector<Expr> at = digits(b_, p.row + i, outer);
      for (size_t d = 0; d < at.size(); ++d) body_->open(d, at[d]);
      body_->enter_chunk(p.column, kColumns);
      body_->open_lanes(p.column, kColumns, {});
      b_.store(numbers_, codes_.value(*body_, b_, target_), b_.i64(i * kColumns * kFloat), 16);
      body_->close();
      for (size_t d = 0; d < at.size(); ++d) body_->close();
    }
    for (int64_t i = 0; i < kRows; ++i)
      for (int64_t e = 0; e < extremes(); ++e) visit(i, e, b_.apply(fit_->extremes[e].of, {number(i)}).at(0));
  }

  void find_lines(const Place& p) {
    std::vector<Expr> below(extremes());
    read(p, [&](int64_t i, int64_t e, Expr x) {
      below[e] = below[e].exists() ? b_.op(op(e), x, below[e]) : x;
      const Expr most = b_.fold_wave(op(e), b_.fold(op(e), x), across_);
      b_.branch(p.across == 0, [&] { b_.store(of_rows_, most, (p.down * kRows + (e * side_ + i)) * kFloat, kFloat); });
    });
    for (int64_t e = 0; e < extremes(); ++e)
      b_.store(of_columns_, below[e], ((p.down + e * down_) * side_ + p.across * kColumns) * kFloat, 16);
  }

  // A lane for each column, then for each row.
  void write_lines(const Place& p) {
    const Expr line = p.lane % side_;
    const auto write = [&](graph::ValueId r, Expr tile_line, Expr other, BufferId parts, const auto& extreme) {
      if (r < 0) return;
      std::vector<Expr> found;
      for (int64_t e = 0; e < extremes(); ++e) found.push_back(extreme(e));
      const CodeFields& of = fields_.at(r);
      const Expr tile_columns = b_.i64(of.columns() / side_);
      const CodeFields::Values values = finish(r, found, (tile_line * side_ + line) * tile_columns + other);
      for (int64_t k = 0; k < of.parts(); ++k) b_.store(parts, values[k], (line + k * side_) * kFloat, kFloat);
    };
    const auto columns = [&] {
      write(codes_.transposed, p.tile_column, p.tile_row, column_parts_, [&](int64_t e) {
        Expr all;
        for (int64_t k = 0; k < down_; ++k) {
          const Expr x = b_.load(of_columns_, {Scalar::f32, 1}, (line + (e * down_ + k) * side_) * kFloat, kFloat);
          all = all.exists() ? b_.op(op(e), x, all) : x;
        }
        return all;
      });
    };
    const auto rows = [&] {
      write(codes_.straight, p.tile_row, p.tile_column, row_parts_,
            [&](int64_t e) { return b_.load(of_rows_, {Scalar::f32, 1}, (line + e * side_) * kFloat, kFloat); });
    };
    b_.branch(p.lane < side_, columns);
    b_.branch((side_ <= p.lane) & (p.lane < 2 * side_), rows);
  }

  void find_most(const Place& p) {
    std::vector<Expr> all(extremes());
    read(p, [&](int64_t, int64_t e, Expr x) { all[e] = all[e].exists() ? b_.op(op(e), x, all[e]) : x; });
    for (int64_t e = 0; e < extremes(); ++e) {
      const Expr most = b_.fold_wave(op(e), b_.fold(op(e), all[e]), across_);
      b_.branch(p.across == 0, [&] { b_.store(waves_, most, (p.down + e * down_) * kFloat, kFloat); });
    }
  }

  // Every lane makes the record for itself; one writes it.
  CodeFields::Values write_most(const Place& p) {
    std::vector<Expr> found;
    for (int64_t e = 0; e < extremes(); ++e) {
      Expr all;
      for (int64_t k = 0; k < down_; ++k) {
        const Expr x = b_.load(waves_, {Scalar::f32, 1}, b_.i64((e * down_ + k) * kFloat), kFloat);
        all = all.exists() ? b_.op(op(e), x, all) : x;
      }
      found.push_back(all);
    }
    CodeFields::Values values;
    for (const auto& [r, of] : fields_) {
      const Expr tile_columns = b_.i64(of.columns() / side_);
      const bool is_straight = r == codes_.straight;
      const Expr line = is_straight ? p.tile_row : p.tile_column, other = is_straight ? p.tile_column : p.tile_row;
      values = finish(r, found, line * tile_columns + other, p.lane == 0);
    }
    return values;
  }

  CodeFields::Values finish(graph::ValueId r, const std::vector<Expr>& extremes, Expr record, Expr once = {}) {
    const CodeFields& of = fields_.at(r);
    CodeFields::Found found;
    for (const auto& [field, formula] : fit_->fields) found[field] = b_.apply(formula, extremes).at(0);
    const auto write = [&] { of.write_record(b_, blobs_.at(r), Level::tile, record, found); };
    once.exists() ? b_.branch(once, write) : write();
    return of.parts_of(b_, found);
  }

  CodeFields::Values line_parts(const CodeFields& of, BufferId parts, Expr line) {
    if (is_whole()) return whole_parts_;
    CodeFields::Values out;
    for (int64_t k = 0; k < of.parts(); ++k)
      out.push_back(b_.load(parts, {Scalar::f32, 1}, (line + k * side_) * kFloat, kFloat));
    return out;
  }

  void write_straight(const Place& p) {
    const CodeFields& of = fields_.at(codes_.straight);
    for (int64_t i = 0; i < kRows; ++i) {
      const Expr code = of.code(b_, number(i), line_parts(of, row_parts_, p.down * kRows + i));
      b_.store(blobs_.at(codes_.straight), code, (p.row + i) * codes_.columns + p.column, kColumns);
    }
  }

  void write_transposed(const Place& p) {
    const CodeFields& of = fields_.at(codes_.transposed);
    for (int64_t c = 0; c < kColumns; ++c) {
      const CodeFields::Values parts = line_parts(of, column_parts_, p.across * kColumns + c);
      std::vector<Expr> line;
      for (int64_t i = 0; i < kRows; i += kWord) {
        const Expr below = b_.join(kWord, [&](int r) { return b_.extract(number(i + r), c); });
        line.push_back(of.code(b_, below, parts));
      }
      b_.store(blobs_.at(codes_.transposed), concat_all(b_, std::move(line)), (p.column + c) * codes_.rows + p.row,
               kRows);
    }
  }

  const graph::Plan& plan_;
  const graph::Group& group_;
  const machine::Machine& target_;
  CodesGroup codes_;
  const Format& format_;
  std::optional<RecordFit> fit_;
  int64_t side_, across_, down_;  // side of the square in numbers; in lanes, across and down
  StepBuilder builder_;
  Builder& b_;
  std::map<graph::ValueId, CodeFields> fields_;
  std::map<graph::ValueId, BufferId> blobs_;
  std::unique_ptr<Body> body_;
  BufferId waves_ = -1, of_rows_ = -1, of_columns_ = -1, row_parts_ = -1, column_parts_ = -1, numbers_ = -1;
  CodeFields::Values whole_parts_;
};

}  // namespace

std::optional<Synthesis> encode_squares(const graph::Plan& plan, const graph::Group& group,
                                        const machine::Machine& target) {
  SquareKernel kernel(plan, group, target);
  if (!kernel.choose()) return std::nullopt;
  return kernel.run();
}

}  // namespace lumen::synth
