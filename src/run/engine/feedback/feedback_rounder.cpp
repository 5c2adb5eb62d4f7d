// For every panel: first the product with the errors of its stretch so far, then the kernel; after every stretch, the
// products with all later stretches. Matrices are transposed, so that each part of them is contiguous.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/error.h"
#include "base/threads/team.h"
#include "graph/ir/build.h"
#include "run/engine/feedback/feedback.h"
#include "run/engine/feedback/feedback_steps.h"
#include "run/engine/feedback/first_not_finite.h"

namespace lumen::run {

namespace {

graph::Type matrix_type(int64_t rows, int64_t columns) {
  return {{graph::Dim(rows), graph::Dim(columns)}, {}};
}

graph::Type order_type(int64_t columns) {
  return {{graph::Dim(columns)}, {Scalar::i32, nullptr}};
}

// x + u^T d; with `in_place`, x is a state that accumulates the sum.
std::shared_ptr<Program> feedback_product(Engine& engine, int64_t lost, int64_t gets, int64_t rows, bool in_place) {
  graph::Graph g;
  graph::Builder b(g);
  const auto x = b.input("x", in_place ? graph::Role::state : graph::Role::data, matrix_type(gets, rows));
  const auto u = b.input("u", graph::Role::data, matrix_type(lost, gets));
  const auto d = b.input("d", graph::Role::data, matrix_type(lost, rows));
  const auto sum = b.add(x, b.contract(u, d, "kj", "kr", "jr"));
  g.results = {in_place ? b.update(x, sum) : sum};
  g.result_names = {"sum"};
  CompileOptions options;
  options.exact = true;
  return engine.compile(g, options);
}

// Transposes w: columns become rows, in the given order, with zero padding. Two copies: one that feedback changes, and
// the original.
std::shared_ptr<Program> transposition(Engine& engine, int64_t rows, int64_t columns, int64_t padded, bool in_order) {
  graph::Graph g;
  graph::Builder b(g);
  const auto w = b.input("w", graph::Role::data, matrix_type(rows, columns));
  const auto x = b.input("x", graph::Role::state, matrix_type(padded, rows));
  const auto stays = b.input("stays", graph::Role::state, matrix_type(padded, rows));
  auto lines = b.permute(w, {1, 0});
  if (in_order) {
    const auto order = b.input("order", graph::Role::data, order_type(columns));
    lines = b.gather(lines, order);
  }
  if (padded > columns) lines = b.pad(lines, {graph::Dim(padded), graph::Dim(rows)}, {0, 0});
  g.results = {b.update(x, lines), b.update(stays, lines)};
  g.result_names = {"x", "stays"};
  CompileOptions options;
  options.exact = true;
  return engine.compile(g, options);
}

}  // namespace

struct FeedbackRounder::State {
  Engine& engine;
  FormatRef format;
  int64_t rows, columns;
  FeedbackOptions options;
  FeedbackTiling tiling;
  std::unique_ptr<LoadedSteps> kernel;
  std::shared_ptr<Program> transposes, to_stretch, to_panel;
  DeviceTensorRef nothing;  // zeros: the propagated error of a panel without propagation

  int64_t panels() const { return (columns + tiling.panel - 1) / tiling.panel; }
  bool has_outer_fields() const { return format->row_bytes > 0 || format->tile_bytes > 0 || format->tensor_bytes > 0; }

  // Rows of a transposed matrix.
  DeviceTensorRef piece(const std::shared_ptr<std::byte>& whole, int64_t line, int64_t lines) const {
    return std::make_shared<DeviceTensor>(engine.device(), matrix_type(lines, rows), whole,
                                          whole.get() + line * rows * 4);
  }

  void check(const Input& in, const FeedbackMatrix* u) const {
    LUMEN_CHECK(std::ssize(in.w) == rows * columns, "{} values for {} x {}", in.w.size(), rows, columns);
    LUMEN_CHECK(!u || u->tiling() == tiling, "feedback cut for other panels");
    if (const auto k = first_not_finite(in.w))
      throw Error(Exit::numeric, fmt::format("{} at row {}, column {} cannot be rounded with error feedback", in.w[*k],
                                             *k / columns, *k % columns));
    LUMEN_CHECK(in.importance.empty() != options.weighs || (options.weighs && !format->weighs()), "importance");
    LUMEN_CHECK(in.order.empty() != options.in_order, "an order of columns");
    if (!options.in_order) return;
    LUMEN_CHECK(std::ssize(in.order) == columns, "{} places in an order of {} columns", in.order.size(), columns);
    std::vector<bool> seen(columns);
    for (const int32_t column : in.order) {
      LUMEN_CHECK(column >= 0 && column < columns && !seen[column], "no order of columns: {} twice", column);
      seen[column] = true;
    }
  }

  template <typename T>
  std::shared_ptr<std::byte> upload(std::span<const T> x) const {
    std::shared_ptr<std::byte> memory = engine.allocate(std::max<int64_t>(x.size_bytes(), 1));
    engine.device().copy_in(memory.get(), x.data(), x.size_bytes());
    return memory;
  }

  DeviceTensorRef uploaded(std::span<const float> matrix) const {
    auto tensor = std::make_shared<DeviceTensor>(engine.device(), matrix_type(rows, columns));
    tensor->upload(matrix.data(), matrix.size_bytes());
    return tensor;
  }

  void round(const Input& in, const FeedbackMatrix* u, void* blob) {
    const int64_t panel = tiling.panel, stretch = tiling.stretch;
    const auto w = engine.allocate(tiling.padded * rows * 4), x = engine.allocate(tiling.padded * rows * 4);
    transposes->bind("w", in.on_device ? in.on_device : uploaded(in.w));
    transposes->bind("x", piece(x, 0, tiling.padded));
    transposes->bind("stays", piece(w, 0, tiling.padded));
    if (options.in_order) {
      auto order = std::make_shared<DeviceTensor>(engine.device(), order_type(columns));
      order->upload(in.order.data(), in.order.size_bytes());
      transposes->bind("order", order);
    }
    transposes->run();
    transposes->unbind();
    const auto d = engine.allocate(stretch * rows * 4);
    constexpr int64_t kApart = 8;  // stride between places, for the alignment of buffers
    std::vector<int64_t> places(panels() * kApart);
    for (int64_t p = 0; p < panels(); ++p) {
      places[p * kApart] = p * panel;
      places[p * kApart + 1] = std::min(panel, columns - p * panel);
    }
    std::vector<int32_t> padded(in.order.begin(), in.order.end());
    padded.resize(tiling.padded);
    const auto place = upload(std::span<const int64_t>(places)), order = upload(std::span<const int32_t>(padded)),
               importance = upload(in.importance);
    if (!u && !nothing) nothing = std::make_shared<DeviceTensor>(engine.device(), matrix_type(panel, panel));
    for (int64_t p = 0; p < panels(); ++p) {
      const int64_t first = p * panel, inside = first % stretch;
      DeviceTensorRef values = piece(x, first, panel);
      if (u && inside > 0) {
        to_panel->bind("x", values);
        to_panel->bind("u", u->before(p));
        to_panel->bind("d", piece(d, 0, stretch));
        to_panel->run();
        values = to_panel->result("sum");
      }
      void* const buffers[] = {place.get() + p * kApart * 8,
                               values->data(),
                               w.get() + first * rows * 4,
                               (u ? u->within(p) : nothing)->data(),
                               blob,
                               d.get() + inside * rows * 4,
                               importance.get(),
                               w.get(),
                               order.get() + first * 4};
      kernel->launch(buffers);
      kernel->finish();
      const bool is_last = u && inside + panel == stretch;
      for (int64_t t = first / stretch + 1; is_last && t < tiling.padded / stretch; ++t) {
        to_stretch->bind("x", piece(x, t * stretch, stretch));
        to_stretch->bind("u", u->between(first / stretch, t));
        to_stretch->bind("d", piece(d, 0, stretch));
        to_stretch->run();
      }
    }
    for (const auto& program : {to_panel, to_stretch})
      if (program) program->unbind();
  }
};

bool rounds_in_order(const Format& f) {
  return synth::rounds_with_stored_fields(f);
}

FeedbackRounder::FeedbackRounder(Engine& engine, FormatRef f, int64_t rows, int64_t columns, FeedbackOptions options) {
  if (!f->encodes()) throw user_error("format {} can only be decoded", f->name);
  if (options.in_order && !synth::rounds_with_stored_fields(*f))
    throw Error(Exit::user, fmt::format("columns in another order cannot be rounded into format {}", f->name),
                "its codes are chosen by its fit; round columns in order");
  blob_layout(*f, rows, columns);  // whole blocks
  state_.reset(new State{engine, f, rows, columns, options, feedback_tiling(*f, columns, options), {}, {}, {}, {}, {}});
  if (rows == 0 || columns == 0) return;
  const FeedbackTiling& t = state_->tiling;
  const synth::FeedbackShape shape{rows, columns, t.panel,
                                   options.in_order ? synth::FeedbackOrder::given : synth::FeedbackOrder::columns,
                                   options.weighs};
  state_->kernel = engine.load_steps(feedback_steps(f, shape));
  state_->transposes = transposition(engine, rows, columns, t.padded, options.in_order);
  if (t.stretch > t.panel) state_->to_panel = feedback_product(engine, t.stretch, t.panel, rows, false);
  if (t.padded > t.stretch) state_->to_stretch = feedback_product(engine, t.stretch, t.stretch, rows, true);
}

FeedbackRounder::~FeedbackRounder() = default;

const FeedbackTiling& FeedbackRounder::tiling() const {
  return state_->tiling;
}

MemoryNeeds FeedbackRounder::needs() const {
  const State& s = *state_;
  MemoryNeeds needs = {{"the matrix, and what feedback makes of it", s.tiling.padded * s.rows * 12},
                       {"what columns lost", s.tiling.stretch * s.rows * 4},
                       {"the rounded matrix", blob_layout(*s.format, s.rows, s.columns).total}};
  int64_t values = 0;
  for (const auto& program : {s.transposes, s.to_stretch, s.to_panel})
    if (program) values += program->own_bytes();
  needs.push_back({"values of products", values, true});
  return needs;
}

RoundedMatrix FeedbackRounder::run(const Input& input, const FeedbackMatrix& u) {
  return run(input, &u);
}

RoundedMatrix FeedbackRounder::run(const Input& input) {
  return run(input, nullptr);
}

RoundedMatrix FeedbackRounder::run(const Input& input, const FeedbackMatrix* u) {
  State& s = *state_;
  RoundedMatrix out;
  out.blob.resize(blob_layout(*s.format, s.rows, s.columns).total);
  if (s.rows == 0 || s.columns == 0) return out;
  s.check(input, u);
  s.engine.require_memory("error feedback", needs());
  if (!input.rounded.empty()) {
    LUMEN_CHECK(input.rounded.size() == out.blob.size(), "{} bytes of a rounded matrix", input.rounded.size());
    out.blob.assign(input.rounded.begin(), input.rounded.end());
  } else if (s.has_outer_fields() || s.options.in_order) {
    out.blob = s.engine.encode(s.format, input.w.data(), s.rows, s.columns, input.importance);
  }
  const auto blob = s.upload(std::span<const uint8_t>(out.blob));
  s.round(input, u, blob.get());
  s.engine.device().copy_out(out.blob.data(), blob.get(), out.blob.size());
  out.values = s.engine.decode(s.format, out.blob.data(), s.rows, s.columns);
  std::vector<double> of_row(s.rows);
  parallel_for(0, s.rows, {.is_worth = s.rows * s.columns > 65536}, [&](int64_t r) {
    for (int64_t k = r * s.columns; k < (r + 1) * s.columns; ++k) {
      const double lost = double{input.w[k]} - out.values[k];
      of_row[r] += lost * lost;
    }
  });
  out.squared_error = std::accumulate(of_row.begin(), of_row.end(), 0.0);
  if (!std::isfinite(out.squared_error))
    throw Error(Exit::numeric, fmt::format("error feedback left the range of format {}", s.format->name),
                "more damping keeps the errors small that columns pass on");
  return out;
}

}  // namespace lumen::run
