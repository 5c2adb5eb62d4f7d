// needs: none. What steps before products make of rows, element by element: places, codes, scales and sums.
#include "kernel/synth/gemm/operand/operand_step.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/round_up.h"
#include "number/library/library.h"
#include "tests/kernel/synth/gemm/dot_harness.h"

namespace lumen {
namespace {

using dot_test::Bytes;
using synth::OperandLayout;

// What the step writes of `outer` matrices of rows, which lie along the rows where `turned`.
struct Written {
  std::vector<double> x;  // by outer index, row and column
  Bytes codes, scales, starts, sums;
  std::string plan;

  float number(const Bytes& of, int64_t at) const { return dot_test::floats_of(of).at(static_cast<size_t>(at)); }
  int32_t integer(const Bytes& of, int64_t at) const {
    int32_t out = 0;
    std::memcpy(&out, of.data() + at * 4, 4);
    return out;
  }
};

Written write(const OperandLayout& layout, int64_t outer, int64_t rows, const char* machine, bool turned = false) {
  const auto m = machine::find_machine(machine);
  const int64_t k = layout.columns;
  graph::Graph g;
  graph::Builder build(g);
  const std::vector<int64_t> shape{outer, turned ? k : rows, turned ? rows : k};
  const graph::ValueId x = build.input("x", graph::Role::data, dot_test::type_of(shape));
  const graph::ValueId w = build.input("w", graph::Role::parameter, dot_test::type_of({outer, 24, k}));
  g.results = {build.contract(x, w, turned ? "bkm" : "bmk", "bnk", "bmn")};
  g.result_names = {"y"};
  const graph::Plan plan = dot_test::one_dot_group(g);
  const synth::DotProblem p = synth::normalise_dot(plan, plan.groups[0]);
  EXPECT_EQ(p.loads[0].source, x);
  EXPECT_EQ(p.m.extent, rows);
  std::mt19937 random(7);
  std::map<std::string, graph::Tensor> inputs;
  for (const graph::ValueId v : g.inputs()) inputs[g[v].attributes.name] = dot_test::random_tensor(g[v].type, random);
  if (!turned)
    for (int64_t i = 0; i < 32; ++i) inputs["x"].values[static_cast<size_t>(i)] = 0;  // a group of zeros
  synth::Synthesis s;
  const synth::OperandScratch scratch = synth::write_operand_step(g, p, layout, *m, s);
  EXPECT_EQ(s.steps.size(), 1U);
  dot_test::Memory memory(s, plan, inputs);
  std::vector<std::span<uint8_t>> buffers;
  for (const synth::Argument& a : s.steps[0].arguments) buffers.emplace_back(memory.of(a));
  loop::eval(s.steps[0].kernel, buffers, [&](std::string_view row) { return m->meaning(row); }, m->wave);
  Written out;
  out.plan = s.steps[0].plan;
  const auto part = [&](int number) {
    return number < 0 ? Bytes{} : memory.of({synth::Argument::From::scratch, number});
  };
  out.codes = part(scratch.codes);
  out.scales = part(scratch.scales);
  out.starts = part(scratch.starts);
  out.sums = part(scratch.sums);
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < k; ++c)
        out.x.push_back(inputs["x"].values[static_cast<size_t>(o * rows * k + (turned ? c * rows + r : r * k + c))]);
  return out;
}

// A row's codes and scales, as integers round them.
struct Row {
  std::vector<int> codes;
  std::vector<float> scales;  // by group
};
Row quantized(const double* x, int64_t columns, int64_t group) {
  Row out;
  for (int64_t first = 0; first < columns; first += group) {
    float most = 0;
    for (int64_t i = first; i < std::min(columns, first + group); ++i)
      most = std::max(most, std::abs(static_cast<float>(x[i])));
    const float inverse = most > 0 ? 127.0F / most : 0.0F;
    out.scales.push_back(most / 127.0F);
    for (int64_t i = first; i < std::min(columns, first + group); ++i)
      out.codes.push_back(static_cast<int>(std::nearbyint(static_cast<float>(x[i]) * inverse)));
  }
  return out;
}

int sum_of(const Row& row, int64_t first, int64_t count) {
  int sum = 0;
  for (int64_t i = first; i < std::min<int64_t>(first + count, static_cast<int64_t>(row.codes.size())); ++i)
    sum += row.codes[static_cast<size_t>(i)];
  return sum;
}

TEST(OperandStep, IntegersAsTheyLie) {
  constexpr int64_t outer = 2, rows = 3, columns = 160, padded = 192;
  OperandLayout l;
  l.columns = columns;
  l.outer_rows = rows;
  l.rows = outer * rows;
  l.order.unit.elements = l.scale_group = 64;
  l.order.units = padded / 64;
  l.sum_group = 32;
  l.gap_bytes = 64;
  l.starts = l.sums = true;
  l.bias = -8;
  for (const char* machine : {"avx512-vnni", "x86-64-v3", "neon-dotprod"}) {
    SCOPED_TRACE(machine);
    const Written w = write(l, outer, rows, machine);
    EXPECT_EQ(w.plan, "quantize 6x160 i8 groups of 64");
    for (int64_t r = 0; r < l.rows; ++r) {
      const Row row = quantized(&w.x[static_cast<size_t>(r * columns)], columns, 64);
      for (int64_t i = 0; i < padded; ++i)
        EXPECT_EQ(static_cast<int8_t>(w.codes[static_cast<size_t>(r * (padded + 64) + i)]),
                  i < columns ? row.codes[static_cast<size_t>(i)] : 0);
      for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(w.number(w.scales, r * 3 + i), row.scales[static_cast<size_t>(i)]);
      for (int64_t i = 0; i < 6; ++i) {
        EXPECT_EQ(w.integer(w.starts, r * 6 + i), -8 * sum_of(row, i * 32, 32));
        EXPECT_EQ(w.number(w.sums, r * 6 + i), static_cast<float>(sum_of(row, i * 32, 32)));
      }
    }
  }
}

// Rows 0 .. 15 of a tile beside each other, piece by piece; those of padding are nobody's.
TEST(OperandStep, FloatsInTiles) {
  constexpr int64_t outer = 2, rows = 5, columns = 70, padded = 96;
  OperandLayout l;
  l.type = Scalar::bf16;
  l.columns = columns;
  l.outer_rows = l.tile_rows = 16;
  l.rows = outer * 16;
  l.vector_bytes = 64;
  for (const bool turned : {false, true})
    for (const char* machine : {"avx512-bf16", "x86-64-v3"}) {
      SCOPED_TRACE(machine);
      l.order.unit.elements = machine::find_machine(machine)->f32_lanes();
      l.order.units = padded / l.order.unit.elements;
      const Written w = write(l, outer, rows, machine, turned);
      EXPECT_EQ(w.plan, turned ? "round and turn 32x70 to bf16" : "round 32x70 to bf16");
      for (int64_t r = 0; r < outer * rows; ++r)
        for (int64_t i = 0; i < padded; ++i) {
          const int64_t tile = r / rows, at = tile * 16 * padded * 2 + i / 32 * (16 * 64) + r % rows * 64 + i % 32 * 2;
          uint16_t code = 0;
          std::memcpy(&code, &w.codes[static_cast<size_t>(at)], 2);
          const double x = i < columns ? w.x[static_cast<size_t>(r * columns + i)] : 0;
          EXPECT_EQ(code, f32_to_bf16(static_cast<float>(x))) << r << " " << i;
        }
    }
}

// In the order of a weight's codes, floats or integers with a scale and a sum beside each other.
TEST(OperandStep, InTheOrderOfTheWeight) {
  constexpr int64_t rows = 2;
  const FormatLibrary library = FormatLibrary::builtin();
  for (const char* format : {"q4_0", "q6_k", "q4_k"})
    for (const char* machine : {"avx512-vnni", "x86-64-v3", "neon-dotprod", "sm_90a"})
      for (const Scalar type : {Scalar::i8, Scalar::bf16}) {
        SCOPED_TRACE(fmt::format("{} {} {}", format, machine, scalar_name(type)));
        const FormatRef f = library.find(format);
        OperandLayout l;
        l.type = type;
        l.columns = f->block * (f->block < 64 ? 37 : 5);
        l.rows = rows;
        l.lanes = 64;
        l.order = synth::choose_order(*f, l.columns, l.lanes, 4, 16, 16);
        if (type == Scalar::i8) {
          l.scale_group = synth::kActivationGroup;
          l.sum_group = 16;
          l.scales_by_sum = l.sums = true;
        }
        const Written w = write(l, 1, rows, machine);
        for (int64_t r = 0; r < rows; ++r) {
          const double* x = &w.x[static_cast<size_t>(r * l.columns)];
          const Row row = quantized(x, l.columns, 32);
          const auto check = [&](const synth::LaneOrder& order, int64_t first, int64_t place) {
            for (const std::vector<int64_t>& vector : order.vectors)
              for (const int64_t e : vector) {
                const int64_t at = place++;
                if (type == Scalar::i8) {
                  EXPECT_EQ(static_cast<int8_t>(w.codes[static_cast<size_t>(at)]),
                            e < 0 ? 0 : row.codes[static_cast<size_t>(first + e)]);
                  continue;
                }
                uint16_t code = 0;
                std::memcpy(&code, &w.codes[static_cast<size_t>(at * 2)], 2);
                EXPECT_EQ(code, e < 0 ? 0 : f32_to_bf16(static_cast<float>(x[first + e])));
              }
          };
          for (int64_t u = 0; u < l.order.units; ++u)
            check(l.order.unit, u * l.order.unit.elements, r * l.codes() + u * l.unit_codes());
          check(l.order.rest, l.order.units * l.order.unit.elements, r * l.codes() + l.order.units * l.unit_codes());
          for (int64_t i = 0; type == Scalar::i8 && i < l.groups(); ++i) {
            const float scale = row.scales[static_cast<size_t>(i * 16 / 32)];
            EXPECT_EQ(w.number(w.scales, r * l.groups() + i), scale);
            EXPECT_EQ(w.number(w.sums, r * l.groups() + i), scale * static_cast<float>(sum_of(row, i * 16, 16)));
          }
        }
      }
}

// Scratch of what a layout lacks is not declared; sizes are those of the parts.
TEST(OperandLayout, SaysItsSizes) {
  OperandLayout l;
  l.rows = 4;
  l.columns = 96;
  l.order.unit.elements = l.scale_group = 64;
  l.order.units = 2;
  l.sum_group = 32;
  l.sums = true;
  synth::Synthesis s;
  const synth::OperandScratch scratch = synth::declare_scratch(l, s);
  EXPECT_EQ(s.scratch, (std::vector<int64_t>{4 * 128, 4 * 2 * 4, 4 * 4 * 4}));
  EXPECT_EQ(scratch.starts, -1);
  EXPECT_EQ(scratch.sums, 2);
}

}  // namespace
}  // namespace lumen
