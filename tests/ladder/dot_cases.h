// Dots that exercise every path: tiles with each way of reading operands, stages of K, rows, integers, epilogues,
// batches.
#pragma once

#include "dot_native.h"
#include "kernel/synth/dot.h"
#include "lang/parser.h"
#include "number/library/library.h"

namespace lumen::dot_test {

inline void add_cases(std::vector<Case>& out, const graph::Graph& g, const machine::Machine& m, bool exact) {
  std::mt19937 random(23);
  std::map<std::string, graph::Tensor> inputs;
  for (graph::ValueId v : g.inputs()) inputs[g[v].attributes.name] = random_tensor(g[v].type, random);
  const graph::Plan plan = one_dot_group(g);
  const synth::Synthesis s = synth::synthesize_dot(plan, plan.groups[0], m, {.exact = exact});
  for (Case& c : cases_of(s, plan, inputs, m)) out.push_back(std::move(c));
}

inline graph::Graph contract_of(std::vector<int64_t> a, graph::Type b, const std::string& ia, const std::string& ib,
                                const std::string& ir, bool maps) {
  graph::Graph g;
  graph::Builder build(g);
  const graph::ValueId x = build.input("x", graph::Role::data, type_of(std::move(a)));
  graph::ValueId y = build.input("y", graph::Role::data, b);
  if (b.element.format) y = build.cast(y, {Scalar::f32, nullptr});
  graph::ValueId r = build.contract(x, y, ia, ib, ir);
  if (maps) {
    const graph::Dim last = build.type(r).shape.back();
    graph::Type row;
    row.shape = {last};
    r = build.unary(ScalarOp::tanh_, build.add(r, build.input("bias", graph::Role::data, row)));
    r = build.mul(r, build.scalar(0.75));
  }
  g.results = {r};
  g.result_names = {"r"};
  return g;
}

inline graph::Type type_of_codes(graph::Shape shape, Scalar s) {
  return {std::move(shape), {s, nullptr}};
}

// Convolutions of codes whose sums become codes again.
inline void add_convolution_cases(std::vector<Case>& out, const machine::Machine& m, Scalar read) {
  using graph::Dim;
  const auto codes = type_of_codes;
  for (const int64_t channels : {3, 16}) {
    graph::Graph g;
    graph::Builder build(g);
    const graph::ValueId x = build.input("x", graph::Role::data, codes({Dim(10), Dim(10), Dim(channels)}, read));
    const graph::ValueId seen = build.windows(x, {0, 0, 0}, {1, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1},
                                              {Dim(8), Dim(3), Dim(8), Dim(3), Dim(channels)});
    const graph::ValueId y =
        build.input("y", graph::Role::data, codes({Dim(19), Dim(3), Dim(3), Dim(channels)}, Scalar::i8));
    Formula f;
    f.inputs = {Scalar::i32};
    const int scaled =
        f.op(ScalarOp::mul_, f.convert(ScalarOp::cast_, Scalar::f32, f.input(0)), f.constant(Scalar::f32, 0.001));
    const int least = f.op(ScalarOp::max_, f.op(ScalarOp::rint_, scaled), f.constant(Scalar::f32, -128));
    f.outputs = {f.convert(ScalarOp::cast_, Scalar::i8, f.op(ScalarOp::min_, least, f.constant(Scalar::f32, 127)))};
    g.results = {build.map(f, {build.contract(seen, y, "hiwjc", "oijc", "hwo")})};
    g.result_names = {"r"};
    add_cases(out, g, m, true);
  }
}

// Products of codes, and convolutions.
inline void add_code_cases(std::vector<Case>& out, const machine::Machine& m) {
  using graph::Dim;
  const auto codes = type_of_codes;
  for (const Scalar left : {Scalar::i8, Scalar::u8, Scalar::i16})
    for (const int64_t rows : {1, 18})
      for (const int64_t k : {35, 300}) {
        graph::Graph g;
        graph::Builder build(g);
        const graph::ValueId x = build.input("x", graph::Role::data, codes({Dim(rows), Dim(k)}, left));
        const graph::ValueId y = build.input("y", graph::Role::data, codes({Dim(21), Dim(k)}, Scalar::i8));
        g.results = {build.contract(x, y, "mk", "nk", "mn")};
        g.result_names = {"r"};
        add_cases(out, g, m, true);
      }
  for (const Scalar read : {Scalar::i8, Scalar::u8}) add_convolution_cases(out, m, read);
}

// Products of two rows by two: codes, numbers that become bf16, and bf16 whose rows lie along m and n; rows and columns
// that fill no pair and no vector.
inline void add_square_cases(std::vector<Case>& out, const machine::Machine& m) {
  if (m.squares.empty()) return;
  FormatLibrary library = FormatLibrary::builtin();
  library.add(lang::parse_file(std::make_shared<Source>(Source{"unsigned.lum", R"(format unsigned_codes : block 128 {
  s : f16
  b : f16
  q : u8[128]
  decode(i) = s * q[i] + b
  fit(x) {
    let low  = min(j) x[j]
    let high = max(j) x[j]
    s = (high - low) / 255
    b = low
  }
  code(v)   = clamp(rint((v - b) * recip(s)), 0, 255)
})"})));
  for (const char* name : {"unsigned_codes", "int8_row", "fp8_e4m3"}) {
    const FormatRef f = library.find(name);
    LUMEN_CHECK(f, "{}", name);
    add_cases(out, contract_of({7, 512}, type_of({9, 512}, f), "mk", "nk", "mn", false), m, false);
  }
  const auto type = [](graph::Shape shape) { return graph::Type{std::move(shape), {Scalar::bf16, nullptr}}; };
  graph::Graph g;
  graph::Builder build(g);
  const graph::ValueId x = build.input("x", graph::Role::data, type({71, 9}));
  g.results = {build.contract(x, build.input("y", graph::Role::data, type({71, 21})), "km", "kn", "mn")};
  g.result_names = {"r"};
  add_cases(out, g, m, true);
}

// A handful: f32, integer dots of codes that are packed and not, look-ups.
inline std::vector<Case> few_dot_cases(const machine::Machine& m) {
  std::vector<Case> out;
  const FormatLibrary library = FormatLibrary::builtin();
  add_cases(out, contract_of({5, 37}, type_of({9, 37}), "mk", "nk", "mn", false), m, true);
  for (const char* name : {"q8_0", "q4_0", "nf4", "iq4_nl"}) {
    const FormatRef f = library.find(name);
    LUMEN_CHECK(f, "{}", name);
    const int64_t k = f->block * std::max<int64_t>(1, 256 / f->block);
    add_cases(out, contract_of({2, k}, type_of({9, k}, f), "mk", "nk", "mn", false), m, false);
  }
  add_square_cases(out, m);
  return out;
}

inline std::vector<Case> dot_cases(const machine::Machine& m) {
  std::vector<Case> out;
  add_code_cases(out, m);
  for (const char* ia : {"mk", "km"})
    for (const char* ib : {"nk", "kn"}) {
      auto dims = [](const std::string& i) {
        std::vector<int64_t> d;
        for (char c : i) d.push_back(c == 'm' ? 29 : c == 'n' ? 53 : 37);
        return d;
      };
      add_cases(out, contract_of(dims(ia), type_of(dims(ib)), ia, ib, "mn", ia[0] == 'm'), m, true);
    }
  add_cases(out, contract_of({3, 9, 17}, type_of({3, 21, 17}), "btd", "bsd", "bts", false), m, true);
  add_cases(out, contract_of({2, 300}, type_of({37, 300}), "mk", "nk", "mn", true), m, true);
  add_cases(out, contract_of({18, 3000}, type_of({40, 3000}), "mk", "nk", "mn", false), m, true);
  const FormatLibrary library = FormatLibrary::builtin();
  for (const char* name : {"q8_0", "q4_0", "q4_k", "q6_k", "mxfp4", "nf4", "iq4_nl", "f16"}) {
    const FormatRef f = library.find(name);
    LUMEN_CHECK(f, "{}", name);
    const int64_t k = f->block * std::max<int64_t>(1, 96 / f->block);
    add_cases(out, contract_of({18, k}, type_of({21, k}, f), "mk", "nk", "mn", false), m, true);
    add_cases(out, contract_of({18, 9}, type_of({9, k}, f), "mn", "nk", "mk", false), m, true);
    add_cases(out, contract_of({2, k}, type_of({9, k}, f), "mk", "nk", "mn", false), m, true);
    add_cases(out, contract_of({2, k}, type_of({9, k}, f), "mk", "nk", "mn", true), m, false);
    add_cases(out, contract_of({13, k}, type_of({21, k}, f), "mk", "nk", "mn", true), m, false);
  }
  if (!m.squares.empty())  // numbers that become bf16
    add_cases(out, contract_of({13, 96}, type_of({21, 96}, library.find("fp8_e4m3")), "mk", "nk", "mn", true), m,
              false);
  // Rows in f32: look-ups of words, small floats by way of f16, scales of groups and of rows.
  for (const char* name : {"nf4", "fp8_e4m3", "fp8_row", "fp8_tile", "fp8_e4m3fnuz", "mxfp6_e3m2", "mxfp8_e4m3"}) {
    const FormatRef f = library.find(name);
    LUMEN_CHECK(f, "{}", name);
    add_cases(out, contract_of({1, 192}, type_of({5, 192}, f), "mk", "nk", "mn", false), m, true);
  }
  // Integer dots in the order of the formats' bits, and the rest of a row.
  for (const char* name : {"q4_0", "q4_k", "q6_k", "q5_0", "q3_k", "q2_k", "tq1_0", "int3_g32", "int4_g32_asym",
                           "int8_row", "mxfp6_e2m3", "nvfp4"}) {
    const FormatRef f = library.find(name);
    LUMEN_CHECK(f, "{}", name);
    const int64_t k = (512 / f->block + 1) * f->block;
    add_cases(out, contract_of({1, k}, type_of({5, k}, f), "mk", "nk", "mn", false), m, false);
  }
  // Weights that stream through the shared memory of blocks, several stages of them, rows that fill no block.
  for (const char* name :
       {"q8_0", "q4_0", "q4_k", "q6_k", "int3_g128", "nf4", "mxfp4", "fp8_e4m3", "fp8_e5m2", "int8_row"}) {
    const FormatRef f = library.find(name);
    LUMEN_CHECK(f, "{}", name);
    for (int64_t rows = 1; m.wave > 1 && rows <= 2; ++rows)
      add_cases(out, contract_of({rows, 2816}, type_of({37, 2816}, f), "mk", "nk", "mn", rows == 2), m, false);
  }
  // A few rows beside such weights by matrix instructions: codes as they are, with offsets, across bytes, in two
  // places, signed, looked up, converted, under scales of rows, lanes with blocks of their own; columns that do not
  // exist.
  for (const char* name : {"q4_0", "q4_1", "q4_k", "q6_k", "q8_0", "int3_g128", "int8_row", "nf4", "mxfp4", "fp8_e4m3",
                           "fp8_row", "q5_0", "bf16", "f16"}) {
    const FormatRef f = library.find(name);
    LUMEN_CHECK(f, "{}", name);
    const int64_t rows = f->block == 32 ? 17 : 5;
    if (m.wave > 1)
      add_cases(out, contract_of({rows, 2560}, type_of({75, 2560}, f), "mk", "nk", "mn", rows == 5), m, false);
  }
  for (const char* ia : {"mk", "km"})  // operands that are bf16 in memory
    for (const char* ib : {"nk", "kn"}) {
      auto type = [](const std::string& i) {
        std::vector<int64_t> d;
        for (char c : i) d.push_back(c == 'm' ? 29 : c == 'n' ? 53 : 71);
        graph::Type t = type_of(d);
        t.element.scalar = Scalar::bf16;
        return t;
      };
      graph::Graph g;
      graph::Builder build(g);
      const graph::ValueId x = build.input("x", graph::Role::data, type(ia));
      g.results = {build.contract(x, build.input("y", graph::Role::data, type(ib)), ia, ib, "mn")};
      g.result_names = {"r"};
      add_cases(out, g, m, true);
    }
  return out;
}

}  // namespace lumen::dot_test
