// needs: none. Checkpoints of rounded weights: each layout packed here by plain loops over known codes, read as a
// format, and decoded to the values that the layout's definition gives.
#include "model/arch/checkpoint/packed/packed.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>

#include "base/error.h"
#include "base/file/file.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "number/codec/codec.h"
#include "tests/model/families/family_case.h"

namespace lumen::model::arch {
namespace {

constexpr int64_t kRows = 192, kColumns = 256;
const std::string kModule = "model.layers.0.self_attn.v_proj.";

// A tensor to be written, bytes and all.
struct Raw {
  std::string name;
  std::vector<int64_t> shape;
  graph::Element element;
  std::vector<uint8_t> bytes;
};

template <typename T>
Raw raw(const std::string& name, std::vector<int64_t> shape, Scalar type, const std::vector<T>& values) {
  Raw r{kModule + name, std::move(shape), {type, nullptr}, {}};
  r.bytes.resize(values.size() * sizeof(T));
  std::memcpy(r.bytes.data(), values.data(), r.bytes.size());
  return r;
}

Raw in_format(Raw r, const std::string& format) {
  r.element = {Scalar::f32, test_library()->formats().get(format)};
  return r;
}

uint16_t half(double v) {
  const auto bytes = encode(*test_library()->formats().get("f16"), std::vector<float>{static_cast<float>(v)}, 1, 1);
  return static_cast<uint16_t>(bytes[0] | bytes[1] << 8);
}
double of_half(double v) {
  const auto f = test_library()->formats().get("f16");
  return decode(*f, encode(*f, std::vector<float>{static_cast<float>(v)}, 1, 1), 1, 1)[0];
}

// The value of one code of a format of single bytes.
double one(const Format& f, uint8_t c) {
  std::vector<uint8_t> blob(64);
  blob[0] = c;
  return decode(f, blob, 1, 1)[0];
}

int code(int64_t o, int64_t k, int bits) {
  return static_cast<int>((o * 7 + k * 3 + o * k / 5) % (1 << bits));
}
int zero(int64_t o, int64_t g, int bits) {
  return static_cast<int>((o + 3 * g) % (1 << bits));
}
double scale(int64_t o, int64_t g) {
  return of_half(0.01 + 0.001 * static_cast<double>((o * 5 + g * 11) % 17));
}

// Bits `count` of `value` at bit `at` of little-endian words.
void put(std::vector<uint32_t>& words, int64_t at, uint32_t value, int count) {
  for (int b = 0; b < count; ++b)
    if (value >> b & 1) words[static_cast<size_t>((at + b) / 32)] |= 1U << ((at + b) % 32);
}

void write_tensors(const std::filesystem::path& path, const std::vector<Raw>& all) {
  std::vector<file::TensorSpec> specs;
  for (const Raw& r : all) {
    file::TensorSpec s;
    s.name = r.name;
    s.shape = r.shape;
    s.element = r.element;
    specs.push_back(s);
  }
  file::SafetensorsWriter writer(path, {}, specs);
  for (const Raw& r : all) writer.write(r.bytes);
  writer.commit();
}

// A Llama whose one value projection is packed so; its values must be value(o, k).
Model read_packed(const TestFolder& folder, const std::string& quantization, const std::vector<Raw>& tensors) {
  Model plain = initialise(test_library()->family("llama"),
                           test_library()->family("llama")->config("", {{"vocab", 8},
                                                                        {"hidden", kColumns},
                                                                        {"layers", 1},
                                                                        {"heads", 2},
                                                                        {"kv_heads", 1},
                                                                        {"head_dim", kRows},
                                                                        {"ffn", 8},
                                                                        {"context", 16}}),
                           1);
  write_hf(plain, folder.path());
  std::vector<Raw> all = tensors;
  const file::SafetensorsFile file(folder / "model.safetensors", test_library()->formats());
  for (const file::StoredTensor& t : file.tensors())
    if (t.name != kModule + "weight") all.push_back({t.name, t.shape, t.element, t.blob()});
  std::filesystem::create_directory(folder / "packed");
  write_tensors(folder / "packed" / "model.safetensors", all);
  std::string config = read_file(folder / "config.json");
  config.insert(config.find('{') + 1, "\"quantization_config\": " + quantization + ",");
  write_file_atomic(folder / "packed" / "config.json", config);
  return read_hf(test_library(), folder / "packed");
}

void expect_values(const Model& m, double bits, const std::function<double(int64_t, int64_t)>& value) {
  const Weight& w = m.weights.at("layers.0.wv");
  ASSERT_FALSE(w.is_f32());
  EXPECT_NEAR(w.bits_per_weight(), bits, 0.01) << "packed, not expanded";
  const auto got = decode(*w.type.element.format, {w.bytes.data(), w.bytes.size()}, kRows, kColumns);
  double most = 0;
  for (int64_t o = 0; o < kRows; ++o)
    for (int64_t k = 0; k < kColumns; ++k)
      most = std::max(most, std::abs(got[static_cast<size_t>(o * kColumns + k)] - value(o, k)));
  EXPECT_LT(most, 1e-6) << w.type.element.format->source_text;
}

class Gptq : public testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(Gptq, BitsAndZeros) {
  const auto [bits, second] = GetParam();
  const int64_t group = 64, groups = kColumns / group;
  const int stored_less = second ? 0 : 1;
  std::vector<uint32_t> q(static_cast<size_t>(kColumns * bits / 32 * kRows)),
      z(static_cast<size_t>(groups * kRows * bits / 32));
  for (int64_t o = 0; o < kRows; ++o)
    for (int64_t k = 0; k < kColumns; ++k)
      for (int b = 0; b < bits; ++b) {  // along the columns, word by word; words of one place lie beside each other
        const int64_t bit = k * bits + b;
        if (code(o, k, bits) >> b & 1) q[static_cast<size_t>(bit / 32 * kRows + o)] |= 1U << (bit % 32);
      }
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t o = 0; o < kRows; ++o) {
      const int less = bits == 3 ? stored_less : 0;
      const int stored = (zero(o, g, bits) + (1 << bits) - less) % (1 << bits);
      put(z, g * kRows * bits + o * bits, static_cast<uint32_t>(stored), bits);
    }
  // One less: of whole words, as GPTQModel does, so that what stands behind a zero point of 0 is changed, too; entry
  // for entry where entries lie across words.
  if (bits != 3 && stored_less > 0)
    for (uint32_t& word : z)
      for (int bit = 0; bit < 32; bit += bits) word -= 1U << bit;
  std::vector<uint16_t> s;
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t o = 0; o < kRows; ++o) s.push_back(half(scale(o, g)));
  std::vector<int32_t> order;
  for (int64_t k = 0; k < kColumns; ++k) order.push_back(static_cast<int32_t>(k / group));
  const std::string config = fmt::format(
      R"({{"quant_method": "gptq", "bits": {}, "group_size": {}, "desc_act": false, "checkpoint_format": "{}"}})", bits,
      group, second ? "gptq_v2" : "gptq");
  const TestFolder folder;
  std::vector<Raw> tensors = {raw("qweight", {kColumns * bits / 32, kRows}, Scalar::i32, q),
                              raw("qzeros", {groups, kRows * bits / 32}, Scalar::i32, z),
                              raw("scales", {groups, kRows}, Scalar::f16, s),
                              raw("g_idx", {kColumns}, Scalar::i32, order)};
  const Model m = read_packed(folder, config, tensors);
  const double storage = (bits * 64 + bits + 16 + 7) / 8 * 8 / 64.0;
  expect_values(m, storage, [&, n = bits](int64_t o, int64_t k) {
    return scale(o, k / group) * (code(o, k, n) - zero(o, k / group, n));
  });
  // Columns in another order are refused, not misread.
  const TestFolder other;
  std::swap(order[3], order[100]);
  tensors.back() = raw("g_idx", {kColumns}, Scalar::i32, order);
  EXPECT_THROW(read_packed(other, config, tensors), Error);
}

INSTANTIATE_TEST_SUITE_P(Bits, Gptq, testing::Combine(testing::Values(2, 3, 4, 8), testing::Bool()));

TEST(Packed, Awq) {
  const int64_t group = 128, groups = kColumns / group;
  const int order[] = {0, 2, 4, 6, 1, 3, 5, 7};  // the column each four bits of a word hold
  std::vector<uint32_t> q(static_cast<size_t>(kColumns * kRows / 8)), z(static_cast<size_t>(groups * kRows / 8));
  for (int64_t k = 0; k < kColumns; ++k)
    for (int64_t c = 0; c < kRows / 8; ++c)
      for (int i = 0; i < 8; ++i)
        q[static_cast<size_t>(k * kRows / 8 + c)] |= static_cast<uint32_t>(code(8 * c + order[i], k, 4)) << (4 * i);
  std::vector<uint16_t> s;
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t c = 0; c < kRows / 8; ++c)
      for (int i = 0; i < 8; ++i)
        z[static_cast<size_t>(g * kRows / 8 + c)] |= static_cast<uint32_t>(zero(8 * c + order[i], g, 4)) << (4 * i);
    for (int64_t o = 0; o < kRows; ++o) s.push_back(half(scale(o, g)));
  }
  const TestFolder folder;
  const Model m =
      read_packed(folder, R"({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"})",
                  {raw("qweight", {kColumns, kRows / 8}, Scalar::i32, q),
                   raw("qzeros", {groups, kRows / 8}, Scalar::i32, z), raw("scales", {groups, kRows}, Scalar::f16, s)});
  expect_values(m, (4 * 128 + 4 + 16 + 4) / 128.0,
                [&](int64_t o, int64_t k) { return scale(o, k / group) * (code(o, k, 4) - zero(o, k / group, 4)); });
}

std::string compressed(const std::string& format, const std::string& weights) {
  return fmt::format(
      R"({{"quant_method": "compressed-tensors", "format": "{}", "config_groups": {{"group_0": {{"targets": ["Linear"], "weights": {{{}}}}}}}}})",
      format, weights);
}

TEST(Packed, CompressedIntegers) {
  const int64_t group = 32, groups = kColumns / group;
  for (const bool symmetric : {true, false}) {
    std::vector<uint32_t> q(static_cast<size_t>(kRows * kColumns / 8)), z(static_cast<size_t>(kRows / 8 * groups));
    std::vector<float> s;
    for (int64_t o = 0; o < kRows; ++o) {
      for (int64_t k = 0; k < kColumns; ++k) put(q, (o * kColumns + k) * 4, static_cast<uint32_t>(code(o, k, 4)), 4);
      for (int64_t g = 0; g < groups; ++g) {
        s.push_back(static_cast<float>(scale(o, g)));
        z[static_cast<size_t>(o / 8 * groups + g)] |= static_cast<uint32_t>(zero(o, g, 4)) << (o % 8 * 4);
      }
    }
    std::vector<Raw> tensors = {raw("weight_packed", {kRows, kColumns / 8}, Scalar::i32, q),
                                raw("weight_scale", {kRows, groups}, Scalar::f32, s),
                                raw("weight_shape", {2}, Scalar::i64, std::vector<int64_t>{kRows, kColumns})};
    if (!symmetric) tensors.push_back(raw("weight_zero_point", {kRows / 8, groups}, Scalar::i32, z));
    const TestFolder folder;
    const Model m = read_packed(
        folder, compressed("pack-quantized", fmt::format(R"("num_bits": 4, "symmetric": {})", symmetric)), tensors);
    expect_values(m, symmetric ? 5.0 : 5.25, [&](int64_t o, int64_t k) {
      return scale(o, k / group) * (code(o, k, 4) - (symmetric ? 8 : zero(o, k / group, 4)));
    });
  }
}

TEST(Packed, BytesByRow) {
  std::vector<int8_t> q;
  std::vector<float> s;
  for (int64_t o = 0; o < kRows; ++o) {
    s.push_back(static_cast<float>(scale(o, 0)));
    for (int64_t k = 0; k < kColumns; ++k) q.push_back(static_cast<int8_t>(code(o, k, 8) - 128));
  }
  const auto value = [](int64_t o, int64_t k) { return scale(o, 0) * (code(o, k, 8) - 128); };
  const TestFolder folder, other;
  expect_values(
      read_packed(folder, compressed("int-quantized", R"("num_bits": 8, "symmetric": true)"),
                  {raw("weight", {kRows, kColumns}, Scalar::i8, q), raw("weight_scale", {kRows, 1}, Scalar::f32, s)}),
      8 + 32.0 / kColumns, value);
  std::vector<float> absmax;
  for (const float x : s) absmax.push_back(x * 127);
  expect_values(read_packed(other, R"({"quant_method": "bitsandbytes", "load_in_8bit": true})",
                            {raw("weight", {kRows, kColumns}, Scalar::i8, q), raw("SCB", {kRows}, Scalar::f32, absmax),
                             raw("weight_format", {}, Scalar::u8, std::vector<uint8_t>{0})}),
                8 + 32.0 / kColumns, value);
}

TEST(Packed, SmallFloats) {
  const auto e4m3 = test_library()->formats().get("fp8_e4m3");
  const auto fp8 = [&](int64_t o, int64_t k) {  // a code that is a number
    return static_cast<uint8_t>(code(o, k, 7) % 0x7f | (o + k) % 2 << 7);
  };
  const auto fp8_value = [&](int64_t o, int64_t k) { return static_cast<double>(one(*e4m3, fp8(o, k))); };
  std::vector<uint8_t> q;
  for (int64_t o = 0; o < kRows; ++o)
    for (int64_t k = 0; k < kColumns; ++k) q.push_back(fp8(o, k));
  const Raw weight = in_format(raw("weight", {kRows, kColumns}, Scalar::u8, q), "fp8_e4m3");
  std::vector<float> tiles;
  for (int i = 0; i < 4; ++i) tiles.push_back(0.5F + static_cast<float>(i));
  const auto by_tile = [&](int64_t o, int64_t k) {
    return fp8_value(o, k) * (0.5 + static_cast<double>(o / 128 * 2 + k / 128));
  };
  const double bits = 8 + 4 * 32.0 / (kRows * kColumns);
  const TestFolder a, b, c, d;
  expect_values(read_packed(a, R"({"quant_method": "fp8", "weight_block_size": [128, 128]})",
                            {weight, raw("weight_scale_inv", {2, 2}, Scalar::f32, tiles)}),
                bits, by_tile);
  expect_values(
      read_packed(b,
                  compressed("float-quantized", R"("num_bits": 8, "strategy": "block", "block_structure": [128, 128])"),
                  {weight, raw("weight_scale", {2, 2}, Scalar::f32, tiles)}),
      bits, by_tile);
  expect_values(read_packed(c, compressed("float-quantized", R"("num_bits": 8, "strategy": "tensor")"),
                            {weight, raw("weight_scale", {1}, Scalar::f32, std::vector<float>{0.25F})}),
                8 + 32.0 / kColumns, [&](int64_t o, int64_t k) { return fp8_value(o, k) * 0.25; });
  expect_values(read_packed(d, R"({"quant_method": "fp8"})",
                            {weight, raw("weight_scale", {}, Scalar::f32, std::vector<float>{0.25F})}),
                8, [&](int64_t o, int64_t k) { return fp8_value(o, k) * 0.25; });
}

TEST(Packed, FourBitFloats) {
  const double values[] = {0, .5, 1, 1.5, 2, 3, 4, 6};
  const auto fp4 = [&](int64_t o, int64_t k) {
    const int c = code(o, k, 4);
    return (c & 8 ? -1 : 1) * values[c & 7];
  };
  std::vector<uint8_t> q, powers, scales;
  for (int64_t o = 0; o < kRows; ++o) {
    for (int64_t k = 0; k < kColumns; k += 2) q.push_back(static_cast<uint8_t>(code(o, k, 4) | code(o, k + 1, 4) << 4));
    for (int64_t g = 0; g < kColumns / 32; ++g) powers.push_back(static_cast<uint8_t>(125 + (o + g) % 5));
    for (int64_t g = 0; g < kColumns / 16; ++g) scales.push_back(static_cast<uint8_t>(0x30 + (o + g) % 16));
  }
  const auto e4m3 = test_library()->formats().get("fp8_e4m3");
  const TestFolder a, b;
  expect_values(read_packed(a, compressed("mxfp4-pack-quantized", R"("num_bits": 4)"),
                            {raw("weight_packed", {kRows, kColumns / 2}, Scalar::u8, q),
                             raw("weight_scale", {kRows, kColumns / 32}, Scalar::u8, powers)}),
                4.25, [&](int64_t o, int64_t k) { return fp4(o, k) * std::exp2((o + k / 32) % 5 - 2); });
  expect_values(read_packed(b, compressed("nvfp4-pack-quantized", R"("num_bits": 4)"),
                            {raw("weight_packed", {kRows, kColumns / 2}, Scalar::u8, q),
                             in_format(raw("weight_scale", {kRows, kColumns / 16}, Scalar::u8, scales), "fp8_e4m3"),
                             raw("weight_global_scale", {1}, Scalar::f32, std::vector<float>{8})}),
                4.5, [&](int64_t o, int64_t k) {
                  const auto s = static_cast<uint8_t>(0x30 + (o + k / 16) % 16);
                  return fp4(o, k) * one(*e4m3, s) / 8;
                });
}

TEST(Packed, CodeTables) {
  std::vector<float> table;
  for (int i = 0; i < 16; ++i) table.push_back(static_cast<float>(i * i) / 225 - 0.4F);
  std::vector<uint8_t> q, rounded;
  std::vector<float> absmax, map, outer;
  for (int64_t o = 0; o < kRows; ++o)
    for (int64_t k = 0; k < kColumns; k += 2) q.push_back(static_cast<uint8_t>(code(o, k, 4) << 4 | code(o, k + 1, 4)));
  const int64_t blocks = kRows * kColumns / 64;
  for (int i = 0; i < 256; ++i) map.push_back(static_cast<float>(i) / 256 - 0.3F);
  for (int64_t i = 0; i < (blocks + 255) / 256; ++i) outer.push_back(0.1F + static_cast<float>(i));
  for (int64_t i = 0; i < blocks; ++i) {
    absmax.push_back(0.02F + 0.001F * static_cast<float>(i % 31));
    rounded.push_back(static_cast<uint8_t>(i * 13 % 256));
  }
  const Raw weight = raw("weight", {kRows * kColumns / 2, 1}, Scalar::u8, q),
            quant_map = raw("weight.quant_map", {16}, Scalar::f32, table);
  const auto state = [](const std::string& text) {
    return raw("weight.quant_state.bitsandbytes__nf4", {static_cast<int64_t>(text.size())}, Scalar::u8,
               std::vector<uint8_t>(text.begin(), text.end()));
  };
  const TestFolder a, b;
  expect_values(
      read_packed(a, R"({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_use_double_quant": false})",
                  {weight, quant_map, raw("weight.absmax", {blocks}, Scalar::f32, absmax), state("{}")}),
      4.5, [&](int64_t o, int64_t k) {
        return static_cast<double>(table[static_cast<size_t>(code(o, k, 4))]) *
               absmax[static_cast<size_t>((o * kColumns + k) / 64)];
      });
  expect_values(
      read_packed(b, R"({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_use_double_quant": true})",
                  {weight, quant_map, raw("weight.absmax", {blocks}, Scalar::u8, rounded),
                   raw("weight.nested_quant_map", {256}, Scalar::f32, map),
                   raw("weight.nested_absmax", {static_cast<int64_t>(outer.size())}, Scalar::f32, outer),
                   state(R"({"nested_offset": 0.75, "blocksize": 64})")}),
      4.5, [&](int64_t o, int64_t k) {
        const auto i = static_cast<size_t>((o * kColumns + k) / 64);
        const float s = map[rounded[i]] * outer[i / 256] + 0.75F;
        return static_cast<double>(table[static_cast<size_t>(code(o, k, 4))]) * s;
      });
}

// The same layouts as their own libraries pack them, and the values those unpack (packed_reference.py).
class ByTheirLibraries : public testing::TestWithParam<std::string> {};

TEST_P(ByTheirLibraries, TheirValues) {
  const file::SafetensorsFile file(kFixtures / "packed" / (GetParam() + ".safetensors"), test_library()->formats());
  std::vector<Raw> tensors;
  for (const file::StoredTensor& t : file.tensors())
    if (!t.name.starts_with("expected.")) tensors.push_back({kModule + t.name, t.shape, t.element, t.blob()});
  const TestFolder folder;
  const Model m = read_packed(folder, file.metadata().at("quantization_config"), tensors);
  const Weight& w = m.weights.at("layers.0.wv");
  ASSERT_FALSE(w.is_f32());
  EXPECT_LT(w.bits_per_weight(), 8.2) << "packed, not expanded";
  const auto got = decode(*w.type.element.format, w.bytes, kRows, kColumns);
  const auto rows = numbers<int32_t>(file.get("expected.rows"));
  const auto values = numbers<float>(file.get("expected.values"));
  double most = 0, largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto at = static_cast<size_t>(rows[i / kColumns]) * kColumns + i % kColumns;
    most = std::max(most, std::abs(static_cast<double>(got[at]) - values[i]));
    largest = std::max(largest, std::abs(static_cast<double>(values[i])));
  }
  // Some libraries unpack into floats of 16 bits.
  EXPECT_LT(most / largest, GetParam() == "bitsandbytes_i8" ? 5e-4 : 1e-6);
}

INSTANTIATE_TEST_SUITE_P(All, ByTheirLibraries, testing::ValuesIn(names_in(kFixtures / "packed")),
                         [](const auto& i) { return i.param; });

// A tensor that holds matrices of two parameters stays one weight where it is packed, and computes the same as its
// values do as two.
TEST(Packed, OneTensorOfTwoParameters) {
  const Expected e("kanana2");
  const std::filesystem::path source = kFamilies / "kanana2";
  const file::SafetensorsFile file(source / "model.safetensors", test_library()->formats());
  std::vector<Raw> packed, plain;
  for (const file::StoredTensor& t : file.tensors()) {
    if (!t.name.ends_with("kv_b_proj.weight")) {
      packed.push_back({t.name, t.shape, t.element, t.blob()});
      plain.push_back(packed.back());
      continue;
    }
    const int64_t rows = t.shape[0], columns = t.shape[1];
    const auto halves = numbers<uint16_t>(t);
    std::vector<int8_t> codes;
    std::vector<float> largest(static_cast<size_t>(rows), 2), values;
    for (int64_t i = 0; i < rows * columns; ++i) {
      const auto bits = static_cast<uint32_t>(halves[static_cast<size_t>(i)]) << 16;
      codes.push_back(
          static_cast<int8_t>(std::clamp(std::round(std::bit_cast<float>(bits) / 2 * 127), -127.0F, 127.0F)));
      values.push_back(2.0F / 127 * codes.back());
    }
    const std::string module = t.name.substr(0, t.name.size() - 6);
    const auto bytes = [](const auto& v) {
      std::vector<uint8_t> out(v.size() * sizeof v[0]);
      std::memcpy(out.data(), v.data(), out.size());
      return out;
    };
    packed.push_back({t.name, t.shape, {Scalar::i8, nullptr}, bytes(codes)});
    packed.push_back({module + "SCB", {rows}, {Scalar::f32, nullptr}, bytes(largest)});
    plain.push_back({t.name, t.shape, {Scalar::f32, nullptr}, bytes(values)});
  }
  std::vector<std::vector<float>> logits;
  for (const bool is_packed : {true, false}) {
    const TestFolder folder;
    std::string config = read_file(source / "config.json");
    if (is_packed)
      config.insert(config.find('{') + 1,
                    R"("quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": true},)");
    write_file_atomic(folder / "config.json", config);
    write_tensors(folder / "model.safetensors", is_packed ? packed : plain);
    const Model m = read_hf(test_library(), folder.path());
    EXPECT_EQ(m.weights.contains("layers.0.wv"), is_packed);
    EXPECT_EQ(m.weights.contains("layers.0.k_up"), !is_packed);
    logits.push_back(forward(m, infer::LoadedModel(engine(), m), e, 1, e.length));
  }
  double most = 0;
  for (size_t i = 0; i < logits[0].size(); ++i)
    most = std::max(most, std::abs(static_cast<double>(logits[0][i]) - logits[1][i]));
  EXPECT_LT(most / e.range, 1e-5);
}

// Shapes that do not fit and layouts nobody described are errors with a name, never reads past an end.
TEST(Packed, Refused) {
  const auto refusal = [](const std::string& config, const std::vector<Raw>& tensors) {
    const TestFolder folder;
    try {
      read_packed(folder, config, tensors);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const std::string gptq = R"({"quant_method": "gptq", "bits": 4, "group_size": 64})";
  const auto words = [](int64_t n) { return std::vector<uint32_t>(static_cast<size_t>(n)); };
  const auto halves = [](int64_t n) { return std::vector<uint16_t>(static_cast<size_t>(n)); };
  const Raw q = raw("qweight", {kColumns / 8, kRows}, Scalar::i32, words(kColumns / 8 * kRows)),
            z = raw("qzeros", {4, kRows / 8}, Scalar::i32, words(4 * kRows / 8)),
            s = raw("scales", {4, kRows}, Scalar::f16, halves(4 * kRows));
  EXPECT_EQ(refusal(gptq, {q, z, s}), "");
  EXPECT_NE(refusal(gptq, {raw("qweight", {2, kRows}, Scalar::i32, words(2 * kRows)), z, s}).find("qweight"),
            std::string::npos);
  EXPECT_NE(refusal(gptq, {q, z, raw("scales", {3, kRows}, Scalar::f16, halves(3 * kRows))}).find("scales"),
            std::string::npos);
  EXPECT_NE(refusal(gptq, {q, z, raw("scales", {4, kRows}, Scalar::i64, std::vector<int64_t>(4 * kRows))}), "");
  EXPECT_NE(refusal(gptq, {q, raw("qzeros", {0, 8}, Scalar::i32, words(0)), s}).find("qzeros"), std::string::npos);
  EXPECT_NE(refusal(R"({"quant_method": "gptq", "bits": 64, "group_size": 64})", {q, z, s}).find("bits"),
            std::string::npos);
  EXPECT_NE(
      refusal(R"({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"})", {q, z, s}).find("not supported"),
      std::string::npos);
  EXPECT_NE(refusal(R"({"quant_method": "quip"})", {q, z, s}).find("quip"), std::string::npos);
  // Scales finer than the layout says would hold at the wrong places.
  const Raw bytes =
      in_format(raw("weight", {kRows, kColumns}, Scalar::u8, std::vector<uint8_t>(kRows * kColumns)), "fp8_e4m3");
  EXPECT_NE(refusal(compressed("float-quantized", R"("num_bits": 8, "strategy": "group")"),
                    {bytes, raw("weight_scale", {kRows, 2}, Scalar::f32, std::vector<float>(2 * kRows))}),
            "");
  EXPECT_NE(refusal(R"({"quant_method": "fp8", "weight_block_size": [64, 64]})",
                    {bytes, raw("weight_scale_inv", {3, 4}, Scalar::f32, std::vector<float>(12))}),
            "");
  EXPECT_NE(refusal(R"({"quant_method": "fp8"})",
                    {bytes, raw("weight_scale", {kRows}, Scalar::f32, std::vector<float>(kRows))}),
            "");
  EXPECT_NE(refusal(gptq, {q, z, raw("scales", {kColumns, kRows}, Scalar::f16, halves(kColumns * kRows))}), "");
  EXPECT_NE(refusal(R"({"quant_method": "fp8", "weight_block_size": [0, 128]})", {q, z, s}).find("block size"),
            std::string::npos);
}

// Headers and configs with bytes changed at random: an Error or a model, nothing else.
TEST(Packed, ChangedAtRandom) {
  const TestFolder folder;
  const std::string gptq = R"({"quant_method": "gptq", "bits": 4, "group_size": 64})";
  std::vector<int32_t> order;
  for (int64_t k = 0; k < kColumns; ++k) order.push_back(static_cast<int32_t>(k / 64));
  (void)read_packed(folder, gptq,
                    {raw("qweight", {kColumns / 8, kRows}, Scalar::i32, std::vector<uint32_t>(kColumns / 8 * kRows)),
                     raw("qzeros", {4, kRows / 8}, Scalar::i32, std::vector<uint32_t>(4 * kRows / 8)),
                     raw("scales", {4, kRows}, Scalar::f16, std::vector<uint16_t>(4 * kRows)),
                     raw("g_idx", {kColumns}, Scalar::i32, order)});
  const std::string tensors = read_file(folder / "packed" / "model.safetensors"),
                    config = read_file(folder / "packed" / "config.json");
  uint64_t header = 0;
  std::memcpy(&header, tensors.data(), 8);
  uint32_t state = 1;
  const auto random = [&](uint64_t below) {
    state = state * 1664525 + 1013904223;
    return (state >> 8) % below;
  };
  for (int round = 0; round < 120; ++round) {
    std::string changed = tensors, text = config;
    for (int i = 0; i < 2; ++i) {
      if (round % 2 == 0)
        changed[8 + random(header)] = "0123456789[],:\"IFU"[random(18)];
      else
        text[random(text.size())] = "0123456789[],:\"-e."[random(18)];
    }
    write_file_atomic(folder / "packed" / "model.safetensors", changed);
    write_file_atomic(folder / "packed" / "config.json", text);
    try {
      (void)read_hf(test_library(), folder / "packed");
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace lumen::model::arch
