// Needs: none. What the grid of real sizes does not reach: every format of the library, every order and view of
// operands, awkward extents, random graphs. A digest of all kernels of a case for each machine of a few, against
// tests/golden/formats.txt and details.txt; LUMEN_KERNEL_TEXTS=DIR has the kernels themselves.
#include <gtest/gtest.h>

#include "../ladder/graph_cases.h"
#include "cases.h"
#include "golden_text.h"
#include "kernel/synth/encode/feedback.h"
#include "tests/kernel/synth/attention/attend_cases.h"
#include "tests/kernel/synth/codes_cases.h"
#include "tests/kernel/synth/picked_cases.h"
#include "tests/kernel/synth/scatter_cases.h"

namespace lumen::golden {
namespace {

using graph::ValueId;
using test::G;

const std::vector<std::string> kMachines = {"x86-64-v3", "amx", "neon-dotprod", "sm_90a", "gfx942", "gfx1100"};

// "CASE | MACHINE DIGEST, .."
std::string digests(const std::string& room, const std::vector<Case>& cases) {
  std::string table;
  std::set<std::string> names;
  for (const Case& c : cases) {
    EXPECT_TRUE(names.insert(c.name).second) << "two cases are called " << c.name;
    std::string line;
    for (const std::string& name : kMachines) {
      const std::vector<Made> made = make(c, *machine::find_machine(name), false);
      std::vector<synth::Synthesis> all;
      for (const Made& one : made) all.push_back(one.chosen);
      line += fmt::format("{}{} {}", line.empty() ? "" : ", ", name, digest(all));
      keep_text(fmt::format("{}/{}/{}.loop", room, name, c.name), [&] { return text_of(made); });
    }
    table += fmt::format("{} | {}\n", c.name, line);
  }
  return table;
}

TEST(Details, KernelsOfEveryFormat) {
  std::vector<Case> cases;
  for (const FormatRef& f : FormatLibrary::builtin().all()) {
    const int64_t columns = std::lcm<int64_t>(f->block, 512);
    cases.push_back(decoding(f->name + " decode", f->name, 24, columns));
    if (f->encodes()) cases.push_back(encoding(f->name + " encode", f->name, 24, columns));
    for (const int64_t m : {1, 12})
      cases.push_back(
          product(fmt::format("{} rows {}", f->name, m), {.m = m, .n = 24, .k = columns, .format = f->name}));
    cases.push_back(product(f->name + " dx", {.m = 40, .n = 24, .k = columns, .order = Order::dx, .format = f->name}));
    cases.push_back(gather(f->name + " gather", f->name, 9, columns, 3));
  }
  expect_text("formats.txt", digests("formats", cases));
}

// Panels rounded with error feedback, their blocks in order, weighted, and under stored fields.
TEST(Details, FeedbackOfEveryFormat) {
  std::string table;
  for (const FormatRef& f : FormatLibrary::builtin().all()) {
    if (!f->encodes()) continue;
    const int64_t columns = std::lcm<int64_t>(f->block, 512);
    for (const int way : {0, 1, 2}) {
      if ((way == 1 && !f->weighs()) || (way == 2 && !synth::rounds_with_stored_fields(*f))) continue;
      const synth::FeedbackShape shape{24, columns, synth::feedback_panel(*f, columns),
                                       way == 2 ? synth::FeedbackOrder::given : synth::FeedbackOrder::columns,
                                       way == 1};
      const char* const ways[] = {"", " weighted", " in order"};
      std::string line;
      for (const std::string& name : kMachines) {
        const synth::Synthesis made = synth::synthesize_feedback(*f, shape, *machine::find_machine(name));
        line += fmt::format("{}{} {}", line.empty() ? "" : ", ", name, digest({made}));
      }
      table += fmt::format("{}{} | {}\n", f->name, ways[way], line);
    }
  }
  expect_text("feedback.txt", table);
}

void add_products(std::vector<Case>& out) {
  const auto dims = [](const std::string& letters) {
    std::vector<int64_t> d;
    for (const char c : letters) d.push_back(c == 'b' ? 3 : c == 'm' ? 29 : c == 'n' ? 53 : c == 'h' ? 5 : 37);
    return d;
  };
  const std::vector<std::array<std::string, 3>> orders = {
      {"mk", "nk", "mn"},   {"mk", "kn", "mn"},     {"km", "nk", "mn"},      {"km", "kn", "mn"},
      {"km", "kn", "nm"},   {"mk", "nk", "nm"},     {"bmk", "bnk", "bmn"},   {"mbk", "bkn", "bmn"},
      {"bmk", "nk", "bmn"}, {"bmk", "bkn", "mbn"},  {"bmkh", "bnkh", "bmn"}, {"mkh", "hnk", "mn"},
      {"bkm", "bkn", "mn"}, {"bmhk", "bkn", "mhn"}, {"mk", "k", "m"},        {"k", "nk", "n"},
      {"mk", "mk", "m"}};
  for (const auto& [a, b, r] : orders)
    for (const Scalar s : {Scalar::f32, Scalar::bf16}) {
      G t;
      const ValueId x = t.in("x", dims(a), s), y = t.in("y", dims(b), s);
      t.out(t.b.contract(x, y, a, b, r));
      out.push_back({fmt::format("product {} {} {} {}", a, b, r, scalar_name(s)), t.g, {}});
    }
  for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{{1, 1, 1},
                                                                   {1, 17, 33},
                                                                   {2, 50, 5},
                                                                   {7, 3, 2},
                                                                   {31, 16, 5000},
                                                                   {200, 70, 20},
                                                                   {3000, 24, 64},
                                                                   {64, 9000, 16}})
    out.push_back(product(fmt::format("product {}x{}x{}", m, n, k), {.m = m, .n = n, .k = k}));
  // What is done to a result before it is stored.
  for (const std::string f : {"", "q4_0"})
    for (const int64_t m : {1, 6, 100}) {
      G t;
      const ValueId x = t.in("x", {m, 128});
      const ValueId w = f.empty() ? t.in("w", {96, 128}, Scalar::f32, graph::Role::parameter)
                                  : t.decoded(t.in("w", {96, 128}, format_of(f), graph::Role::parameter));
      ValueId y = t.b.add(t.b.contract(x, w, "mk", "nk", "mn"), t.in("bias", {96}));
      y = t.b.mul(t.b.unary(ScalarOp::tanh_, y), t.in("column", {m, 1}));
      const auto type = G::type({m, 96}, Scalar::i32);
      const ValueId below = t.b.binary(ScalarOp::le_, t.b.iota(type, 1), t.b.iota(type, 0));
      y = t.b.select(below, y, t.b.scalar(-1));
      t.out(t.b.convert(t.b.add(y, t.in("residual", {m, 96})), Scalar::bf16));
      out.push_back({fmt::format("epilogue {} {} rows", f.empty() ? "f32" : f, m), t.g, {}});
    }
}

void add_attention(std::vector<Case>& out) {
  for (const Scalar s : {Scalar::f32, Scalar::bf16}) {
    for (const test::AttentionCase& a : test::block_attentions()) {
      std::string name = fmt::format("attention {}x{}x{} {}x{} {}x{}", a.batch, a.queries, a.keys, a.groups, a.repeat,
                                     a.depth, a.width);
      if (a.format) name += " " + a.format->name;
      if (a.window > 0) name += fmt::format(" window {}", a.window);
      if (a.bias) name += " bias";
      out.push_back({fmt::format("{} {}", name, scalar_name(s)), attention_graph(a).g, {}});
      out.back().options.products = s;
    }
    for (const auto& [batch, length, groups, repeat, depth, width] : test::block_gradients()) {
      out.push_back({fmt::format("attention gradient {}x{} {}x{} {}x{} {}", batch, length, groups, repeat, depth, width,
                                 scalar_name(s)),
                     test::gradient_graph(batch, length, groups, repeat, depth, width).g,
                     {}});
      out.back().options.products = s;
    }
  }
  const FormatRef q8 = format_of("q8_0");
  int number = 0;
  for (const test::TableCase& a : {test::TableCase{.texts = 2, .queries = 3, .keys = 50, .repeat = 2},
                                   test::TableCase{.keys = 9, .depth = 32, .same = true},
                                   test::TableCase{.texts = 3, .queries = 40, .keys = 64, .depth = 32, .format = q8},
                                   test::TableCase{.texts = 2, .keys = 700, .repeat = 4, .depth = 64, .window = 100}})
    out.push_back({fmt::format("attention table {}", number++), test::table_graph(a).g, {}});
}

void add_moves(std::vector<Case>& out) {
  for (const test::ScatterCase& s : test::scatter_cases())
    out.push_back({"scatter " + s.name, test::scatter_graph(s).g, {}});
  for (const auto& list : {test::codes_in_squares(), test::codes_in_lines()})
    for (const test::CodesCase& c : list)
      out.push_back({fmt::format("codes {} {} {}{}{}{}", fmt::join(c.shape, "x"), c.format, scalar_name(c.element),
                                 c.matrix.empty() ? "" : fmt::format(" matrix {}", fmt::join(c.matrix, "x")),
                                 c.straight ? " straight" : "",
                                 (c.by_row ? " by row" : "") + (c.held ? std::string(" held in ") + c.held : "")),
                     test::codes_graph(c).g,
                     {}});
  G g;
  g.out(g.b.gather(g.in("t0", {11, 3, 20}), g.in("i0", {4}, Scalar::i32)));
  g.out(g.b.gather(g.in("t1", {11}), g.in("i1", {2, 5}, Scalar::i32)));
  g.out(g.b.gather(g.in("t2", {11, 1}), g.in("i2", {3}, Scalar::i32)));
  out.push_back({"gathers", g.g, {}});
  G t;
  const ValueId x = t.in("x", {3, 4, 10}), y = t.in("y", {3, 2, 10});
  t.out(t.b.concat({x, y}, 1));
  t.out(t.b.concat({x, t.in("z", {3, 4, 7}), x}, 2));
  t.out(t.b.pad(x, G::shape({3, 9, 12}), {0, 2, 1}, {1, 1, 1}));
  t.out(t.b.pad(x, G::shape({3, 8, 21}), {0, 1, 0}, {1, 2, 2}));
  out.push_back({"concatenations and pads", t.g, {}});
  G v;
  const ValueId z = v.in("x", {6, 17, 20});
  v.out(v.b.permute(z, {2, 0, 1}));
  v.out(v.b.permute(z, {1, 0, 2}));
  v.out(v.b.slice(z, {1, 2, 3}, G::shape({2, 5, 16})));
  v.out(v.b.broadcast(v.in("y", {1, 5}), G::shape({4, 5})));
  v.out(v.b.iota(G::type({3, 5}), 1));
  v.out(v.b.permute(v.in("u", {3, 32, 2, 16}), {0, 3, 2, 1}));
  out.push_back({"views", v.g, {}});
  // States: whole, in part, at many places, in formats.
  G u;
  const FormatRef q8 = format_of("q8_0");
  const ValueId zero = u.b.scalar(0, Scalar::i32);
  const ValueId whole = u.in("whole", {4, 64}, Scalar::f32, graph::Role::state);
  u.out(u.b.update(whole, u.b.add(u.b.mul(whole, u.b.scalar(0.9)), u.in("a", {4, 64}))));
  const ValueId held = u.in("held", {4, 64}, q8, graph::Role::state);
  u.out(u.b.update(held, u.b.cast(u.b.add(u.decoded(held), u.in("b", {4, 64})), {Scalar::f32, q8})));
  u.out(u.b.update(u.in("copied", {5, 70}, Scalar::f32, graph::Role::state), u.in("c", {5, 70})));
  const ValueId many = u.in("many", {2, 11, 20}, Scalar::f32, graph::Role::state);
  u.out(u.b.update(many, u.in("d", {5, 2, 1, 20}), {zero, u.in("start", {5}, Scalar::i32), zero}));
  const ValueId records = u.in("records", {2, 11, 64}, q8, graph::Role::state);
  u.out(u.b.update(records, u.b.cast(u.in("e", {2, 3, 2, 1, 64}), {Scalar::f32, q8}),
                   {zero, u.in("starts", {2, 3}, Scalar::i32), zero}));
  out.push_back({"states", u.g, {}});
}

void add_reductions(std::vector<Case>& out) {
  for (const auto& [shape, axes] : std::vector<std::pair<std::vector<int64_t>, std::vector<int>>>{{{7}, {0}},
                                                                                                  {{4, 6, 19}, {1}},
                                                                                                  {{4, 6, 19}, {0, 2}},
                                                                                                  {{4, 6, 19}, {1, 2}},
                                                                                                  {{3, 1, 40}, {1}},
                                                                                                  {{3, 5, 70}, {0}}})
    for (const graph::Reduction r : {graph::Reduction::sum, graph::Reduction::max}) {
      G t;
      const ValueId x = t.in("x", shape);
      t.out(t.b.reduce(t.b.mul(x, x), r, axes));
      out.push_back({fmt::format("reduce {} over {} {}", fmt::join(shape, "x"), fmt::join(axes, " "),
                                 r == graph::Reduction::sum ? "sum" : "max"),
                     t.g,
                     {}});
    }
  G t;
  const ValueId x = t.in("x", {6, 8, 20}), h = t.in("h", {9, 50}, Scalar::f16);
  t.out(t.b.reduce(t.b.mul(t.b.permute(x, {1, 0, 2}), t.b.scalar(2)), graph::Reduction::sum, {1, 2}));
  t.out(t.b.reduce(t.b.permute(x, {2, 0, 1}), graph::Reduction::max, {2}));
  t.out(t.b.reduce(t.b.convert(h, Scalar::f32), graph::Reduction::sum, {1}));
  t.out(t.b.reduce(t.b.slice(x, {0, 2, 1}, G::shape({6, 3, 17})), graph::Reduction::sum, {0}));
  const ValueId wide = t.b.convert(t.in("s", {10, 1024}, Scalar::bf16), Scalar::f32);
  const ValueId y = t.b.convert(t.b.unary(ScalarOp::exp_, wide), Scalar::bf16);
  t.out(y);
  t.out(t.b.reduce(t.b.unary(ScalarOp::abs_, t.b.convert(y, Scalar::f32)), graph::Reduction::max, {1}));
  out.push_back({"reductions of views and short floats", t.g, {}});
  // Of what formats hold, as it lies and through views.
  for (const std::string f : {"q4_0", "q4_k", "bf16", "nvfp4", "int8_row"}) {
    for (const std::vector<int>& axes : std::vector<std::vector<int>>{{0, 1}, {1}, {0}}) {
      G r;
      const ValueId w = r.decoded(r.in("w", {160, 1280}, format_of(f), graph::Role::parameter));
      r.out(r.b.reduce(r.b.unary(ScalarOp::abs_, w), graph::Reduction::max, axes));
      out.push_back({fmt::format("reduce {} over {}", f, fmt::join(axes, " ")), r.g, {}});
    }
    G r;
    const ValueId w = r.decoded(r.in("w", {24, 512}, format_of(f), graph::Role::parameter));
    r.out(r.b.convert(r.b.mul(w, r.in("scale", {24, 1})), Scalar::bf16));
    r.out(r.b.add(r.b.permute(w, {1, 0}), r.in("x", {512, 24})));
    r.out(r.b.mul(r.b.slice(w, {3, 7}, G::shape({5, 100})), r.b.scalar(2)));
    out.push_back({"maps of " + f, r.g, {}});
  }
  for (uint32_t seed = 1; seed <= 40; ++seed)
    out.push_back({fmt::format("random graph {}", seed), test::random_graph(seed).g, {}});
}

void add_experts(std::vector<Case>& out) {
  int number = 0;
  for (const test::Experts& e : {test::Experts{}, test::Experts{.rows = 70, .picked = 3, .experts = 5},
                                 test::Experts{.rows = 1, .deep = 64, .format = format_of("q8_0")},
                                 test::Experts{.rows = 50, .deep = 64, .format = format_of("q4_0")},
                                 test::Experts{.rows = 3000, .picked = 2, .experts = 40},
                                 test::Experts{.rows = 300, .wide = 64, .deep = 64, .scalar = Scalar::bf16}}) {
    out.push_back({fmt::format("experts {} first", number), test::first_of_experts(e).g, {}});
    out.push_back({fmt::format("experts {} second", number), test::second_of_experts(e).g, {}});
    out.push_back({fmt::format("experts {} dx", number), test::rows_gradient(e).g, {}});
    if (!e.format) out.push_back({fmt::format("experts {} dw", number), test::weight_gradient(e).g, {}});
    ++number;
  }
}

TEST(Details, ProductsInEveryOrder) {
  std::vector<Case> cases;
  add_products(cases);
  add_experts(cases);
  expect_text("products.txt", digests("products", cases));
}

TEST(Details, AttentionOfAwkwardSizes) {
  std::vector<Case> cases;
  add_attention(cases);
  expect_text("attention.txt", digests("attention", cases));
}

TEST(Details, MovesAndReductions) {
  std::vector<Case> cases;
  add_moves(cases);
  add_reductions(cases);
  expect_text("moves.txt", digests("moves", cases));
}

}  // namespace
}  // namespace lumen::golden
