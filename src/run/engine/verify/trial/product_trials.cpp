// Trials of products: typical products are planned for the machine without code generation, and those plans are tried
// that use a machine instruction not used by an earlier plan.
#include <algorithm>
#include <functional>
#include <optional>

#include "base/error.h"
#include "base/round_up.h"
#include "graph/ir/build.h"
#include "number/facts/facts.h"
#include "number/library/library.h"
#include "run/engine/cache/in_parallel.h"
#include "run/engine/verify/trial/soundness.h"
#include "run/engine/verify/trial/trial.h"

namespace lumen::run {
namespace {

using graph::Builder;
using graph::Graph;
using graph::Role;
using graph::ValueId;

struct ProductShape {
  int64_t m, n, k;
};

graph::Type matrix_type(int64_t rows, int64_t columns, const FormatRef& f = nullptr) {
  return {{rows, columns}, {Scalar::f32, f}};
}

// The product, or with `magnitudes` the product of absolute values.
ValueId product_of(Builder& b, ValueId x, ValueId w, const std::string& ix, const std::string& iw, bool magnitudes) {
  if (magnitudes) x = b.unary(ScalarOp::abs_, x), w = b.unary(ScalarOp::abs_, w);
  return b.contract(x, w, ix, iw, "mn");
}

// y = x w^T, or with either transposed, as in gradients; f32 operands rounded according to the options.
Trial plain_trial(const ProductShape& s, const graph::ProductType& products, const std::string& ix,
                  const std::string& iw) {
  Trial t{.what = fmt::format("product {}x{}x{} {}", s.m, s.n, s.k, scalar_name(products.scalar))};
  t.options.products = products;
  const auto type = [&](const std::string& axes) {
    const auto extent = [&](char c) { return c == 'm' ? s.m : c == 'n' ? s.n : s.k; };
    return matrix_type(extent(axes[0]), extent(axes[1]));
  };
  for (Graph* g : {&t.graph, &t.magnitude}) {
    Builder b(*g);
    const ValueId x = b.input("x", Role::data, type(ix)), w = b.input("w", Role::parameter, type(iw));
    g->results = {product_of(b, x, w, ix, iw, g == &t.magnitude)};
    g->result_names = {"y"};
  }
  t.units = units_of_sum(s.k + 1);
  t.products = s.k;
  return t;
}

// y = x w^T with the weight stored in a format.
Trial held_trial(const ProductShape& s, const FormatRef& f, Scalar products) {
  Trial t{.what = fmt::format("product {}x{}x{} weight {}{}", s.m, s.n, s.k, f->name,
                              products == Scalar::f32 ? "" : fmt::format(" {}", scalar_name(products)))};
  t.options.products = products;
  // Kernels with 16-bit factors round the dequantized weight, or multiply its codes and scale the sums.
  const auto build = [&](Graph& g, bool magnitude, Scalar rounded) {
    Builder b(g);
    const ValueId x = b.input("x", Role::data, matrix_type(s.m, s.k));
    ValueId w = b.cast(b.input("w", Role::parameter, matrix_type(s.n, s.k, f)), {Scalar::f32, nullptr});
    if (rounded != Scalar::f32) w = b.convert(b.convert(w, rounded), Scalar::f32);
    g.results = {product_of(b, x, w, "mk", "nk", magnitude)};
    if (magnitude) {
      // Sums of codes and of offsets cancel: each is as large as the largest number of the row, twice.
      const ValueId largest = b.reduce(b.unary(ScalarOp::abs_, w), graph::Reduction::max, {1});
      const ValueId sizes = b.reduce(b.unary(ScalarOp::abs_, x), graph::Reduction::sum, {1});
      g.results = {b.mul(b.mul(sizes, b.permute(largest, {1, 0})), b.scalar(2))};
    }
    g.result_names = {"y"};
  };
  build(t.graph, false, Scalar::f32);
  build(t.magnitude, true, Scalar::f32);
  for (const Scalar rounded : {Scalar::bf16, Scalar::f16}) build(t.others.emplace_back(), false, rounded);
  t.numbers = {{"x", TrialNumbers::whole}, {"w", TrialNumbers::normal}};
  t.units = units_of_sum(s.k + 4);
  t.products = s.k;
  return t;
}

// Both operands are codes that the step itself encodes.
Trial coded_trial(const ProductShape& s, const FormatRef& a, const FormatRef& c) {
  Trial t{.what = fmt::format("product {}x{}x{} codes {} {}", s.m, s.n, s.k, a->name, c->name)};
  for (Graph* g : {&t.graph, &t.magnitude}) {
    Builder b(*g);
    const auto coded = [&](ValueId v, const FormatRef& f) {
      return b.cast(b.cast(v, {Scalar::f32, f}), {Scalar::f32, nullptr});
    };
    const ValueId x = coded(b.input("x", Role::data, matrix_type(s.m, s.k)), a),
                  w = coded(b.input("w", Role::parameter, matrix_type(s.n, s.k)), c);
    g->results = {product_of(b, x, w, "mk", "nk", g == &t.magnitude)};
    g->result_names = {"y"};
  }
  t.numbers = {{"x", TrialNumbers::normal}, {"w", TrialNumbers::normal}};
  t.units = units_of_sum(s.k + 4);
  t.products = s.k;
  return t;
}

// Typical work for a machine, the most common first; created lazily.
using Makers = std::vector<std::function<Trial()>>;

// Formats of one small float that matrix instructions support: with one scale, or none.
bool has_code(const machine::Machine& m, const Format& f) {
  return std::any_of(f.fields.begin(), f.fields.end(), [&](const Field& field) {
    const auto code = field.type.is_float && field.type.bits <= 8 ? machine::code_of(field.type) : std::nullopt;
    return code && std::any_of(m.matrices.begin(), m.matrices.end(),
                               [&](const machine::MatrixRow& r) { return r.a.code == code || r.b.code == code; });
  });
}

void add_plain(const machine::Machine& m, TrialDepth depth, Makers* makers) {
  std::vector<ProductShape> shapes{{48, 80, 96}, {5, 72, 256}};
  if (depth != TrialDepth::first_use) {
    shapes.insert(shapes.end(), {{33, 70, 65}, {1, 64, 256}, {256, 256, 128}});
    if (m.tier == machine::Tier::measured && m.kind == machine::Kind::gpu)  // real hardware, not an emulator
      shapes.insert(shapes.end(), {{1024, 1536, 256}, {4096, 4096, 128}});
  }
  for (const Scalar s : {Scalar::bf16, Scalar::f16, Scalar::f32})
    for (const ProductShape& shape : shapes)
      for (const auto& [ix, iw] : {std::pair{"mk", "nk"}, {"mk", "kn"}, {"km", "kn"}})
        makers->push_back([=, ix = ix, iw = iw] { return plain_trial(shape, s, ix, iw); });
}

void add_held(const machine::Machine& m, TrialDepth depth, const std::vector<FormatRef>& formats, Makers* makers) {
  std::vector<int64_t> rows{1, 5};
  if (depth != TrialDepth::first_use) rows.push_back(40);
  if (depth == TrialDepth::everything) rows.insert(rows.end(), {2, 16});
  const Scalar products = m.kind == machine::Kind::gpu ? Scalar::bf16 : Scalar::f32;
  for (const int64_t n : rows)
    for (size_t i = 0; i < formats.size(); ++i) {
      constexpr size_t kFew = 8;  // with many rows the weight's format hardly matters
      if (n > 16 && i >= kFew && depth != TrialDepth::everything) break;
      const FormatRef& f = formats[i];
      const int64_t unit = std::max<int64_t>({f->block, f->tile_columns, 1});
      const int64_t k = round_up(256, unit);
      makers->push_back([=] { return held_trial({n, 64, k}, f, Scalar::f32); });
      if (n > 16 && products != Scalar::f32) makers->push_back([=] { return held_trial({n, 64, k}, f, products); });
    }
}

void add_coded(const machine::Machine& m, TrialDepth depth, const std::vector<FormatRef>& formats, Makers* makers) {
  const ProductShape shape{64, 64, 128};
  std::vector<FormatRef> codes;
  for (const FormatRef& f : formats) {
    const bool whole = f->row_bytes > 0 && std::any_of(f->fields.begin(), f->fields.end(), [](const Field& field) {
                         return !field.type.is_float && field.type.bits == 8;
                       });
    if (f->encodes() && f->block <= shape.k && f->tile_columns <= shape.k && (whole || has_code(m, *f)))
      codes.push_back(f);
  }
  for (const FormatRef& a : codes) makers->push_back([=] { return coded_trial(shape, a, a); });
  if (depth == TrialDepth::first_use) return;
  for (const FormatRef& a : codes)
    for (const FormatRef& b : codes)
      // Mixed code types occur in training; with block or row scales, all kinds of plans are tested for single types
      // only.
      if (a != b && (depth == TrialDepth::everything || (a->fields.size() == 1 && b->fields.size() == 1)))
        makers->push_back([=] { return coded_trial(shape, a, b); });
}

// The kind of a plan: its text without the numbers.
std::string kind_of_plan(const TrialPlan& plan) {
  std::string kind;
  for (const std::string& step : plan.plans)
    for (const char c : step)
      if (c < '0' || c > '9') kind += c;
  return kind;
}

// Selects the trials whose plans have a new row, or a new kind.
class Choice {
 public:
  Choice(TrialDepth depth, int threads) : depth_(depth), threads_(threads) {}

  // Plans the trials on the table without some rows.
  void add(machine::Machine m, const Makers& makers, const std::set<std::string>& without) {
    for (const std::string& row : without) m = without_row(std::move(m), row);
    std::vector<Trial> trials(makers.size());
    std::vector<std::optional<TrialPlan>> plans(makers.size());
    in_parallel(makers.size(), threads_, [&](size_t i) {
      trials[i] = makers[i]();
      plans[i] = plan_on(m, trials[i]);
    });
    for (size_t i = 0; i < trials.size(); ++i) {
      trials[i].without = without;
      if (!without.empty()) trials[i].what += ", others tried";
      add_candidates(m, trials[i], std::move(plans[i]));
    }
  }
  const std::set<std::string>& rows() const { return rows_; }
  std::vector<Trial> take() { return std::move(out_); }

 private:
  // nullopt: not for this machine.
  static std::optional<TrialPlan> plan_on(const machine::Machine& m, const Trial& trial) {
    try {
      return plan_of(m, trial);
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  void add_candidates(const machine::Machine& m, Trial& trial, std::optional<TrialPlan> first) {
    int candidates = 1;
    for (trial.options.candidate = 0; trial.options.candidate < candidates; ++trial.options.candidate) {
      const std::optional<TrialPlan> planned = trial.options.candidate == 0 ? std::move(first) : plan_on(m, trial);
      if (!planned) return;
      const TrialPlan& plan = *planned;
      if (depth_ == TrialDepth::everything) candidates = plan.candidates;
      const auto row =
          std::find_if(plan.rows.begin(), plan.rows.end(), [&](const auto& r) { return !rows_.contains(r); });
      const bool new_kind = depth_ == TrialDepth::everything && kinds_.insert(kind_of_plan(plan)).second;
      if (row == plan.rows.end() && !new_kind) continue;
      Trial chosen = trial;
      if (row != plan.rows.end()) chosen.wanted = *row;
      rows_.insert(plan.rows.begin(), plan.rows.end());
      out_.push_back(std::move(chosen));
    }
  }

  TrialDepth depth_;
  int threads_;
  std::set<std::string> rows_, kinds_;
  std::vector<Trial> out_;
};

}  // namespace

std::vector<Trial> product_trials(const machine::Machine& m, TrialDepth depth, int threads) {
  std::vector<FormatRef> formats;
  for (const FormatRef& f : FormatLibrary::builtin().all()) {
    // On first use: the formats of other programs' files, without large tables, and those that steps encode to.
    constexpr size_t kLargestTable = 64;
    const bool small = std::all_of(f->tables.begin(), f->tables.end(),
                                   [](const FormatTable& t) { return t.values.size() <= kLargestTable; });
    const bool usual = f->gguf_file_type && f->block > 1 && f->encodes() && small;
    if (depth == TrialDepth::everything || usual || has_code(m, *f) || f->row_bytes > 0) formats.push_back(f);
  }
  Makers makers;
  add_plain(m, depth, &makers);
  add_held(m, depth, formats, &makers);
  add_coded(m, depth, formats, &makers);
  Choice choice(depth, threads);
  choice.add(m, makers, {});
  // Matrix instructions with large tiles win only at sizes too slow for trials: they are tried on a table without the
  // instructions tried so far.
  for (size_t before = 0; m.kind == machine::Kind::gpu && before < choice.rows().size();) {
    before = choice.rows().size();
    std::set<std::string> tried;
    for (const machine::MatrixRow& r : m.matrices)
      if (choice.rows().contains(r.row)) tried.insert(r.row);
    if (tried.empty() || tried.size() == m.matrices.size()) break;
    choice.add(m, makers, tried);
  }
  return choice.take();
}

}  // namespace lumen::run
