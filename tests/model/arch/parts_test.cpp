// needs: none. Parameters between others in one tensor of Hugging Face folders: rows, columns, columns of matrices that
// are kept turned, and the same packed row by row.
#include "model/arch/checkpoint/parts.h"

#include <cstring>
#include <numeric>

#include "base/error.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/rows.h"
#include "number/codec/codec.h"
#include "tests/model/families/family_case.h"

namespace lumen::model::arch {
namespace {

// Parameters called a, b, .. of one tensor, with numbers 0, 1, 2, .. through all of them.
Model model_of(const std::vector<Parameter>& parts) {
  Model m;
  float next = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    Parameter p = parts[i];
    p.name = std::string(1, static_cast<char>('a' + i));
    std::vector<float> values(static_cast<size_t>(p.count()));
    for (float& v : values) v = next++;
    m.weights[p.name] = f32_weight(p.shape, values);
    m.parameters.push_back(p);
  }
  return m;
}

Parameter part(const graph::Shape& shape, bool columns, bool turned, int64_t from, int64_t count, int64_t of) {
  Parameter p;
  p.shape = shape;
  p.hf_rows = "whole";
  p.hf_columns = columns;
  p.hf_transposed = turned;
  p.hf_ranges = {{from, count}};
  p.hf_count = count;
  p.hf_of = of;
  return p;
}

std::vector<const Parameter*> all_of(const Model& m) {
  std::vector<const Parameter*> out;
  for (const Parameter& p : m.parameters) out.push_back(&p);
  return out;
}

void expect_back(const Model& m, const Weight& whole) {
  for (const Parameter& p : m.parameters) {
    const Weight w = part_of(whole, p, false);
    EXPECT_EQ(w.type, m.weights.at(p.name).type);
    EXPECT_EQ(w.bytes, m.weights.at(p.name).bytes);
  }
}

TEST(Parts, ColumnsOfTurnedMatrices) {
  const Model m = model_of({part({2, 3, 4}, true, true, 0, 1, 2), part({2, 3, 4}, true, true, 1, 1, 2)});
  const Weight whole = whole_of(m, all_of(m));
  EXPECT_EQ(whole.type.shape, (graph::Shape{2, 4, 6}));
  for (int64_t e = 0; e < 2; ++e)
    for (int64_t d = 0; d < 4; ++d)
      for (int64_t f = 0; f < 6; ++f)
        EXPECT_EQ(whole.f32()[static_cast<size_t>((e * 4 + d) * 6 + f)],
                  static_cast<float>(f % 2 * 24 + (e * 3 + f / 2) * 4 + d));
  expect_back(m, whole);
  // Where the file has it row by row, no matrix is turned.
  const Weight rows = transposed(whole);
  EXPECT_EQ(rows.type.shape, shape_of_whole(m.parameters[0], true));
  for (const Parameter& p : m.parameters) EXPECT_EQ(part_of(rows, p, true).bytes, m.weights.at(p.name).bytes);
}

TEST(Parts, ColumnsAndRows) {
  const Model columns = model_of({part({2, 3}, true, false, 0, 1, 2), part({2, 3}, true, false, 1, 1, 2)});
  const Weight wide = whole_of(columns, all_of(columns));
  EXPECT_EQ(wide.type.shape, (graph::Shape{2, 6}));
  const std::vector<float> expected = {0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11};
  EXPECT_EQ(std::vector<float>(wide.f32().begin(), wide.f32().end()), expected);
  expect_back(columns, wide);
  // As keys and values come from latents: the first turned, both head by head.
  const Model rows = model_of({part({2, 5, 3}, false, true, 0, 3, 7), part({2, 4, 5}, false, false, 3, 4, 7)});
  const Weight tall = whole_of(rows, all_of(rows));
  EXPECT_EQ(tall.type.shape, (graph::Shape{14, 5}));
  EXPECT_EQ(tall.f32()[1 * 5 + 2], 2 * 3 + 1);           // head 0, row 1, column 2 of the first
  EXPECT_EQ(tall.f32()[(7 + 4) * 5], 30 + (4 + 1) * 5);  // head 1, row 1 of the second
  expect_back(rows, tall);
}

// As the inputs of recurrent layers stand in a folder: of each group two ranges of one parameter, then one of another.
TEST(Parts, SeveralRanges) {
  Parameter first = part({6, 1}, false, false, 0, 1, 4);
  first.hf_ranges = {{0, 1}, {1, 2}};
  first.hf_count = 3;
  const Model m = model_of({first, part({2, 1}, false, false, 3, 1, 4)});
  const Weight whole = whole_of(m, all_of(m));
  const std::vector<float> expected = {0, 2, 3, 6, 1, 4, 5, 7};
  EXPECT_EQ(std::vector<float>(whole.f32().begin(), whole.f32().end()), expected);
  expect_back(m, whole);
}

TEST(Parts, TransposedInManyMatrices) {
  std::vector<float> values(3 * 70 * 45);
  std::iota(values.begin(), values.end(), 0.0F);
  const Weight w = f32_weight({3, 70, 45}, values), t = transposed(w);
  EXPECT_EQ(t.type.shape, (graph::Shape{3, 45, 70}));
  for (const auto [m, r, c] : {std::array{0, 0, 1}, std::array{1, 69, 44}, std::array{2, 33, 31}, std::array{2, 5, 40}})
    EXPECT_EQ(t.f32()[static_cast<size_t>((m * 45 + c) * 70 + r)], w.f32()[static_cast<size_t>((m * 70 + r) * 45 + c)]);
  EXPECT_EQ(transposed(t).bytes, w.bytes);
}

// Experts packed in blocks keep their bits: a scale, then codes, element j below element j + 16.
TEST(Parts, PackedExpertsStayPacked) {
  const std::filesystem::path folder = kFamilies / "gpt_oss_mxfp4";
  const Model m = read_hf(test_library(), folder);
  const file::SafetensorsFile file(folder / "model.safetensors", test_library()->formats());
  const std::string module = "model.layers.1.mlp.experts.gate_up_proj";
  const auto blocks = numbers<uint8_t>(file.get(module + "_blocks")),
             scales = numbers<uint8_t>(file.get(module + "_scales"));
  for (const int64_t odd : {0, 1}) {
    const Weight& w = m.weights.at(odd == 0 ? "layers.1.gates" : "layers.1.ups");
    ASSERT_TRUE(w.type.element.format);
    EXPECT_EQ(w.type.element.format->name, "mxfp4");
    const int64_t rows = w.rows();
    ASSERT_EQ(w.columns(), 32);
    ASSERT_EQ(static_cast<int64_t>(scales.size()), 2 * rows);
    for (int64_t r = 0; r < rows; ++r) {
      const uint8_t* record = w.bytes.data() + r * 17;
      const auto source = static_cast<size_t>(2 * r + odd);
      EXPECT_EQ(record[0], scales[source]);
      const auto code = [&](size_t k) { return blocks[source * 16 + k / 2] >> (k % 2 * 4) & 15; };
      for (size_t j = 0; j < 16; ++j) EXPECT_EQ(record[1 + j], code(j) | code(j + 16) << 4) << r << ", " << j;
    }
  }
  EXPECT_TRUE(m.weights.at("layers.1.bgates").is_f32());
  EXPECT_FALSE(m.find("layers.1.bgates")->decays);
  EXPECT_TRUE(m.find("layers.1.gates")->decays);
}

}  // namespace
}  // namespace lumen::model::arch
