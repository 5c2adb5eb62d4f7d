// Needs: none. Every format of the library that encodes: the kernel that rounds a panel with error feedback gives the
// bits of a plain evaluation of the format's routines, executed by the loop evaluator.
#include "kernel/synth/encode/feedback.h"
#include "lang/parser.h"
#include "number/interpret/engine.h"
#include "tests/kernel/synth/synth_harness.h"

namespace lumen::test {
namespace {

using interpret::Cell;

struct Panel {
  int64_t rows = 0, columns = 0, width = 0, first = 0, count = 0;
  std::vector<float> x, w, u;  // [width, rows], [width, rows], [width, width]
  std::vector<float> whole, importance;
  std::vector<int32_t> order;
  Blob blob;
  std::vector<float> d;
};

// The definition: a row at a time, an element at a time, by the interpreter of routines.
class PlainFeedback {
 public:
  PlainFeedback(const Format& f, Panel& p) : engine_(interpret::engine_of(f)), f_(f), p_(p) {
    layout_ = blob_layout(f, p.rows, p.columns);
    weighed_ = !p.importance.empty() && f.weighted_fit[0] && p.order.empty();
    sets_codes_ = weighed_ && f.code_field >= 0 && engine_->weighted_assigned[0][static_cast<size_t>(f.code_field)];
  }

  void run() {
    for (int64_t row = 0; row < p_.rows; ++row) {
      cells_ = engine_->fresh;
      row_ = row;
      x_.clear();
      for (int64_t j = 0; j < p_.width; ++j) x_.push_back(p_.x[static_cast<size_t>(j * p_.rows + row)]);
      unpack(Level::tensor, 0);
      unpack(Level::row, row);
      if (p_.order.empty()) {
        for (int64_t at = 0; at < p_.count; at += f_.block) block(at);
      } else {
        for (int64_t at = 0; at < p_.count; ++at) element(at);
      }
    }
  }

 private:
  uint8_t* record(Level level, int64_t number) {
    const int64_t bytes[kLevels] = {f_.block_bytes, f_.row_bytes, f_.tile_bytes, f_.tensor_bytes};
    const auto l = static_cast<size_t>(level);
    return p_.blob.data() + layout_.section[l] + number * bytes[l];
  }
  void unpack(Level level, int64_t number) {
    const int64_t bytes[kLevels] = {f_.block_bytes, f_.row_bytes, f_.tile_bytes, f_.tensor_bytes};
    const auto l = static_cast<size_t>(level);
    if (bytes[l] > 0) engine_->records[l].unpack(record(level, number), cells_.data());
  }
  void unpack_tile(int64_t column) {
    if (f_.tile_bytes > 0) unpack(Level::tile, row_ / f_.tile_rows * layout_.tile_columns + column / f_.tile_columns);
  }
  int64_t block_number(int64_t column) const { return row_ * (p_.columns / f_.block) + column / f_.block; }

  void block(int64_t at) {
    const int64_t column = p_.first + at;
    unpack_tile(column);
    for (size_t k = 0; k < f_.fields.size(); ++k)
      for (int64_t j = 0; f_.fields[k].level == Level::block && j < f_.fields[k].count; ++j)
        cells_[static_cast<size_t>(engine_->plan.field[k] + j)].whole = 0;
    const std::vector<bool> none(f_.fields.size());
    const auto* fit = (weighed_ ? engine_->weighted_fit : engine_->fit)[0].get();
    if (weighed_ && !f_.weighted_row_kept.empty()) fit_row(none);
    if (fit) {
      const std::vector<float> expected = expected_of(at);
      const float* const sources[2] = {expected.data(),
                                       p_.importance.empty() ? nullptr : &p_.importance[static_cast<size_t>(column)]};
      fit->run(cells_.data(), sources, f_.block, none);
    }
    const bool by_element = synth::rounds_elements(f_, weighed_);
    if (by_element) keep(sets_codes_ ? nullptr : fit);
    for (int64_t i = 0; i < f_.block; ++i) {
      if (by_element) code(i, x_[static_cast<size_t>(at + i)]);
      store(block_number(column));
      give(at + i, i, by_element ? at + i + 1 : at + f_.block);
    }
  }

  // The block's values if none of its columns lost anything.
  std::vector<float> expected_of(int64_t at) const {
    std::vector<float> out(x_.begin() + at, x_.begin() + at + f_.block);
    for (int64_t j = 0; j < f_.block; ++j) {
      const float moved = p_.w[static_cast<size_t>((at + j) * p_.rows + row_)] - out[static_cast<size_t>(j)];
      for (int64_t k = j + 1; k < f_.block; ++k)
        out[static_cast<size_t>(k)] =
            std::fmaf(moved, p_.u[static_cast<size_t>((at + j) * p_.width + at + k)], out[static_cast<size_t>(k)]);
    }
    return out;
  }

  void element(int64_t at) {
    const int64_t column = p_.order[static_cast<size_t>(at)];
    unpack_tile(column);
    engine_->records[0].unpack(record(Level::block, block_number(column)), cells_.data());
    keep(nullptr);
    code(column % f_.block, x_[static_cast<size_t>(at)]);
    store(block_number(column));
    give(at, column % f_.block, at + 1);
  }

  void fit_row(const std::vector<bool>& none) {
    std::vector<float> whole;
    for (int64_t c = 0; c < p_.columns; ++c) whole.push_back(p_.whole[static_cast<size_t>(c * p_.rows + row_)]);
    const float* const sources[2] = {whole.data(), p_.importance.data()};
    const interpret::Program& of_row = *engine_->weighted_fit[1];
    const std::vector<bool> all(f_.fields.size(), true);  // fields of rows stand
    of_row.run(cells_.data(), sources, p_.columns, all);
    for (const KeptLocal& k : f_.weighted_row_kept)
      cells_[static_cast<size_t>(engine_->weighted_fit[0]->cell_of(k.code_variable))] =
          cells_[static_cast<size_t>(of_row.cell_of(k.fit_variable))];
  }

  void keep(const interpret::Program* fit) {
    for (const KeptLocal& k : fit&& weighed_ ? f_.weighted_kept : f_.kept) {
      const auto to = static_cast<size_t>(engine_->code->cell_of(k.code_variable));
      const int64_t extent = std::max<int64_t>(1, f_.code->variables[static_cast<size_t>(k.code_variable)].extent);
      for (int64_t j = 0; j < extent; ++j) {
        Cell& cell = cells_[to + static_cast<size_t>(j)];
        if (fit) {
          cell = cells_[static_cast<size_t>(fit->cell_of(k.fit_variable) + j)];
        } else if (k.field >= 0) {
          cell = cells_[static_cast<size_t>(engine_->plan.field[static_cast<size_t>(k.field)])];
        } else {
          cell.real = 0;
        }
      }
    }
  }

  void code(int64_t i, float v) {
    const interpret::Program& code = *engine_->code;
    const std::vector<bool> none(f_.fields.size());
    const float* const sources[2] = {nullptr, nullptr};
    cells_[static_cast<size_t>(code.cell_of(0))].real = v;
    cells_[static_cast<size_t>(code.cell_of(1))].whole = i;
    code.run(cells_.data(), sources, f_.block, none);
    cells_[static_cast<size_t>(engine_->plan.field[static_cast<size_t>(f_.code_field)] + i)] =
        cells_[static_cast<size_t>(code.result())];
  }

  void store(int64_t number) {
    uint8_t* const bytes = record(Level::block, number);
    std::fill_n(bytes, f_.block_bytes, uint8_t{0});
    engine_->records[0].pack(cells_.data(), bytes);
  }

  void give(int64_t at, int64_t i, int64_t from) {
    const int64_t column = p_.order.empty() ? p_.first + at : p_.order[static_cast<size_t>(at)];
    EXPECT_EQ(column % f_.block, i);
    const float y = decode_at(f_, p_.blob, p_.rows, p_.columns, row_, column);
    const float lost = p_.w[static_cast<size_t>(at * p_.rows + row_)] - y;
    p_.d[static_cast<size_t>(at * p_.rows + row_)] = lost;
    for (int64_t j = from; j < p_.width; ++j)
      x_[static_cast<size_t>(j)] =
          std::fmaf(lost, p_.u[static_cast<size_t>(at * p_.width + j)], x_[static_cast<size_t>(j)]);
  }

  std::shared_ptr<const interpret::Engine> engine_;
  const Format& f_;
  Panel& p_;
  BlobLayout layout_;
  std::vector<Cell> cells_;
  std::vector<float> x_;
  int64_t row_ = 0;
  bool weighed_ = false, sets_codes_ = false;
};

Panel panel_of(const Format& f, int64_t rows, bool weighs, bool in_order) {
  std::mt19937 random(17);
  std::normal_distribution<float> normal(0, 1);
  Panel p;
  p.rows = rows;
  p.width = synth::feedback_panel(f, f.block * 64, 12);
  p.count = std::max(p.width - f.block, f.block);  // the last panel of three is short
  p.columns = p.width * 2 + p.count;
  p.first = p.width * 2;
  if (in_order) {  // panels need no whole blocks then
    p.width = 48;
    p.count = 40;
    p.columns = (140 + f.block - 1) / f.block * f.block;
    p.first = p.columns - p.count;
  }
  const auto fill = [&](std::vector<float>& to, int64_t count, float scale) {
    for (int64_t i = 0; i < count; ++i) to.push_back(scale * normal(random));
  };
  fill(p.whole, p.columns * rows, 1);
  std::vector<float> matrix(p.whole.size());
  for (int64_t c = 0; c < p.columns; ++c)
    for (int64_t r = 0; r < rows; ++r)
      matrix[static_cast<size_t>(r * p.columns + c)] = p.whole[static_cast<size_t>(c * rows + r)];
  std::vector<int32_t> all(static_cast<size_t>(p.columns));
  for (size_t c = 0; c < all.size(); ++c) all[c] = static_cast<int32_t>(c);
  if (in_order) std::shuffle(all.begin(), all.end(), random);
  for (int64_t at = 0; at < p.width; ++at)
    for (int64_t r = 0; r < rows; ++r)
      p.w.push_back(p.first + at < p.columns
                        ? p.whole[static_cast<size_t>(all[static_cast<size_t>(p.first + at)] * rows + r)]
                        : 0);
  for (const float w : p.w) p.x.push_back(w + 0.02F * normal(random));
  fill(p.u, p.width * p.width, 0.05F);
  if (in_order) {
    p.order.assign(all.begin() + p.first, all.end());
    p.order.resize(static_cast<size_t>(p.width));
  }
  if (weighs)
    for (int64_t c = 0; c < p.columns; ++c) p.importance.push_back(normal(random) * normal(random) + 4);
  p.blob = encode(f, matrix, rows, p.columns);
  p.d.assign(p.w.size(), 0);
  return p;
}

template <typename T>
Blob bytes_of(const std::vector<T>& x) {
  Blob out(x.size() * sizeof(T));
  std::memcpy(out.data(), x.data(), out.size());
  return out;
}

void expect_plain(const FormatRef& f, int64_t rows, bool weighs, bool in_order, const std::string& machine) {
  const auto m = machine::find_machine(machine);
  Panel p = panel_of(*f, rows, weighs, in_order);
  const auto order = in_order ? synth::FeedbackOrder::given : synth::FeedbackOrder::columns;
  const synth::Synthesis s = synth::synthesize_feedback(*f, {rows, p.columns, p.width, order, weighs}, *m);
  std::vector<Blob> values = {bytes_of(std::vector<int64_t>{p.first, p.count}),
                              bytes_of(p.x),
                              bytes_of(p.w),
                              bytes_of(p.u),
                              p.blob,
                              bytes_of(p.d),
                              bytes_of(p.importance),
                              bytes_of(p.whole),
                              bytes_of(p.order)};
  ASSERT_EQ(s.steps.size(), 1u);
  std::vector<std::span<uint8_t>> buffers;
  for (const synth::Argument& a : s.steps[0].arguments) buffers.emplace_back(values.at(static_cast<size_t>(a.index)));
  EXPECT_EQ(loop_evaluator(*m)(s.steps[0].kernel, buffers).code, 0);
  PlainFeedback(*f, p).run();
  const std::string what = f->name + (weighs ? " weighted" : "") + (in_order ? " in order " : " ") + machine;
  size_t at = 0;
  while (at < p.blob.size() && p.blob[at] == values[4][at]) ++at;
  EXPECT_EQ(at, p.blob.size()) << what << ": byte " << at;
  EXPECT_TRUE(bytes_of(p.d) == values[5]) << what;
}

TEST(SynthFeedback, PanelsGiveTheBitsOfThePlainEvaluation) {
  for (const FormatRef& f : FormatLibrary::builtin().all())
    if (f->encodes()) expect_plain(f, 9, false, false, "x86-64-v3");
}

TEST(SynthFeedback, PanelsOfWeightedFitsToo) {
  int weighed = 0;
  for (const FormatRef& f : FormatLibrary::builtin().all()) {
    if (!f->encodes() || !f->weighs()) continue;
    expect_plain(f, 9, true, false, "x86-64-v3");
    ++weighed;
  }
  EXPECT_GE(weighed, 8);
}

TEST(SynthFeedback, GivenOrdersWriteCodesUnderStoredFields) {
  for (const FormatRef& f : FormatLibrary::builtin().all()) {
    if (!f->encodes()) continue;
    EXPECT_EQ(synth::rounds_with_stored_fields(*f), f->code.has_value()) << f->name;
    if (f->code) expect_plain(f, 9, false, true, "x86-64-v3");
  }
}

TEST(SynthFeedback, ThreadsOfAGpuGiveTheSameBits) {
  for (const char* name : {"int4_g32_asym", "q4_k", "fp8_row", "fp8_tile", "nf4", "mxfp4", "q4_0"}) {
    const FormatRef f = format_named(name);
    expect_plain(f, 3, f->weighs(), false, "sm_90a");
    expect_plain(f, 3, false, true, "gfx942");
  }
}

// A format whose fit chooses all codes: blocks are rounded at once, and what is behind them gets their errors.
TEST(SynthFeedback, FitsThatChooseCodesRoundWholeBlocks) {
  FormatLibrary library = FormatLibrary::builtin();
  library.add(lang::parse_file(std::make_shared<Source>(Source{"test.lum", R"(format ternary_sum : block 8 {
    s : f16
    q : u2[8]
    decode(i) = s * (q[i] - 1)
    fit(x) {
      s = (sum(j) abs(x[j])) / 8
      for j in 0..8 { q[j] = if abs(x[j]) * 2 < s then 1 else if x[j] < 0 then 0 else 2 }
    }
  })"})));
  const FormatRef f = library.get("ternary_sum");
  EXPECT_FALSE(synth::rounds_elements(*f, false));
  EXPECT_FALSE(synth::rounds_with_stored_fields(*f));
  expect_plain(f, 11, false, false, "x86-64-v3");
}

}  // namespace
}  // namespace lumen::test
