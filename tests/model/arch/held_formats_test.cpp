// Needs: cpu. Formats of activations and caches that a file asks for: written, read again, run, and refused.
#include "model/arch/held_formats.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "lang/parser.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "model/arch/function.h"
#include "model/infer/session/session.h"
#include "tests/model/tiny.h"

namespace lumen::model::arch {
namespace {

FormatRef own_format() {
  FormatLibrary own;
  own.add(lang::parse_file(std::make_shared<Source>(
      Source{"own.lum",
             "format own6 { row top : f32\n element q : i6\n decode(i) = top * q\n"
             "fit row(x) { top = (max(j) abs(x[j])) / 31 }\n code(v) = clamp(rint(v * recip(top)), -31, 31) }\n"})));
  return own.get("own6");
}

std::vector<graph::EncodedInput> some_inputs(const Model& m, bool of_a_user = true) {
  const FormatLibrary& formats = m.family->library().formats();
  return {{"layers.0.wq", formats.get("int8_row"), {}},
          {"layers.0.wk", formats.get("int8_row"), {}},
          {"layers.1.down", formats.get("int8"), 0.03125},
          {"layers.1.wo", of_a_user ? own_format() : formats.get("fp8_row"), {}}};
}

std::vector<float> session_logits(const Model& m) {
  const infer::LoadedModel loaded(engine(), m);
  infer::Session s(loaded, {.context = 16, .chunk = 4});
  const std::vector<text::TokenId> text = {1, 5, 9, 2, 7};
  const auto logits = s.feed(text);
  return {logits.begin(), logits.end()};
}

double off(const std::vector<float>& got, const std::vector<double>& want) {
  double most = 0, size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    most = std::max(most, std::abs(got[i] - want[i]));
    size = std::max(size, std::abs(want[i]));
  }
  return most / size;
}

// What the evaluator says of the last token.
std::vector<double> evaluated(const Model& m) {
  std::map<std::string, graph::Tensor> in;
  for (const auto& [name, w] : m.weights) in[name] = f32_tensor(w);
  in["tokens"] = integers({1, 5}, {1, 5, 9, 2, 7});
  const auto all = graph::eval(function_of(m, "forward"), in)[0].values;
  return {all.end() - m.integer("vocab"), all.end()};
}

TEST(HeldFormats, WrittenReadAndRun) {
  Model m = tiny_model();
  const std::vector<double> before = evaluated(m);
  set_encoded_inputs(m, some_inputs(m));
  set_held_cache(m, kCacheKeys, m.family->library().formats().get("bf16"));
  const TestFolder folder;
  write_gguf(m, folder / "m.gguf");
  const Model read = read_gguf(test_library(), folder / "m.gguf");
  const auto want = some_inputs(m), got = encoded_inputs(read);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].weight, want[i].weight);
    EXPECT_EQ(got[i].format->hash, want[i].format->hash) << want[i].format->name;
    EXPECT_EQ(got[i].scale, want[i].scale);
  }
  EXPECT_EQ(held_cache(read, kCacheKeys)->name, "bf16");
  EXPECT_EQ(held_cache(read, kCacheValues), nullptr);
  EXPECT_THROW(write_hf(m, folder / "hf"), Error) << "a folder cannot say it";
  // What is encoded is what runs.
  Model plain_cache = read;
  set_held_cache(plain_cache, kCacheKeys, nullptr);
  const std::vector<float> logits = session_logits(plain_cache);
  EXPECT_LT(off(logits, evaluated(m)), 1e-4);
  EXPECT_GT(off(logits, before), 1e-3) << "nothing was encoded";
  // The cache is held as the file says, unless somebody asks for another.
  const infer::SessionOptions by_file = infer::session_options(read, {});
  ASSERT_TRUE(by_file.keys);
  EXPECT_EQ(by_file.keys->name, "bf16");
  infer::SessionOptions asked;
  asked.keys = read.family->library().formats().get("q8_0");
  EXPECT_EQ(session_options(read, asked).keys->name, "q8_0");
  EXPECT_FALSE(infer::session_options(m, {}).values);
  // Taken back, nothing is left.
  set_encoded_inputs(m, {});
  set_held_cache(m, kCacheKeys, nullptr);
  EXPECT_FALSE(has_held_formats(m));
  for (const auto& [key, value] : m.metadata.entries()) EXPECT_FALSE(key.starts_with(kDefinition)) << key;
}

TEST(HeldFormats, HostileMetadata) {
  Model good = tiny_model();
  set_encoded_inputs(good, some_inputs(good));
  const auto refused = [&](const std::function<void(Model&)>& spoil) {
    Model m = good;
    spoil(m);
    try {
      (void)function_of(m, "forward");
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("taken");
  };
  const auto texts = [](std::vector<std::string> all) { return file::GgufArray(std::move(all)); };
  const auto scales = [](std::vector<float> all) { return file::GgufArray(std::move(all)); };
  const std::string a = "blk.0.attn_q.weight", b = "blk.0.attn_k.weight", c = "blk.1.ffn_down.weight",
                    d = "blk.1.attn_output.weight";
  const std::vector<std::pair<std::string, std::function<void(Model&)>>> cases = {
      {"4 weights, 4 formats and 3 scales", [&](Model& m) { m.metadata.set(kActivationScales, scales({0, 0, 1})); }},
      {"needs lumen.activations.weights", [&](Model& m) { m.metadata.erase(kActivationWeights); }},
      {"needs lumen.activations.weights", [&](Model& m) { m.metadata.erase(kActivationScales); }},
      {"'blk.7.attn_q.weight', which is not one of its weights",
       [&](Model& m) { m.metadata.set(kActivationWeights, texts({a, b, c, "blk.7.attn_q.weight"})); }},
      {"'blk.0.attn_norm.weight', which is not one of its weights",
       [&](Model& m) { m.metadata.set(kActivationWeights, texts({a, b, c, "blk.0.attn_norm.weight"})); }},
      {"twice", [&](Model& m) { m.metadata.set(kActivationWeights, texts({a, a, c, d})); }},
      {"unknown here", [&](Model& m) { m.metadata.erase(std::string(kDefinition) + "own6"); }},
      {"unknown here",
       [&](Model& m) { m.metadata.set(kActivationFormats, texts({"nobody", "int8_row", "int8", "int8_row"})); }},
      {"defines no format",
       [&](Model& m) { m.metadata.set(std::string(kDefinition) + "own6", std::string("# none")); }},
      {"can only be decoded",
       [&](Model& m) {
         m.metadata.set(std::string(kDefinition) + "own6",
                        std::string("format own6 { q : i8[1]\n decode(i) = 0.5 * q[i] }\n"));
       }},
      {"one number per tensor", [&](Model& m) { m.metadata.set(kActivationScales, scales({0.5F, 0, 0.1F, 0})); }},
      {"is no scale", [&](Model& m) { m.metadata.set(kActivationScales, scales({0, 0, -1, 0})); }},
      {"is no scale", [&](Model& m) { m.metadata.set(kActivationScales, scales({0, 0, NAN, 0})); }},
      {"is no scale", [&](Model& m) { m.metadata.set(kActivationScales, scales({0, 0, INFINITY, 0})); }},
      {"lumen.activations.scales", [&](Model& m) { m.metadata.set(kActivationScales, texts({"a", "b", "c", "d"})); }},
      {"lumen.activations.weights", [&](Model& m) { m.metadata.set(kActivationWeights, uint32_t{7}); }},
  };
  for (const auto& [want, spoil] : cases) {
    const std::string said = refused(spoil);
    EXPECT_NE(said.find(want), std::string::npos) << want << " <- " << said;
  }
  EXPECT_EQ(refused([](Model&) {}), "taken");
  good.metadata.set(kCacheKeys, std::string("nobody"));
  EXPECT_THROW((void)infer::session_options(good, {}), Error);
}

// Training sees what is encoded, and prompts and single tokens give the same.
TEST(HeldFormats, TheSameWhateverThePieces) {
  Model m = tiny_model();
  set_encoded_inputs(m, some_inputs(m, false));
  const infer::LoadedModel loaded(engine(), m);
  const std::vector<text::TokenId> text = {1, 5, 9, 2, 7};
  infer::Session whole(loaded, {.context = 16, .chunk = 8, .exact = true}),
      single(loaded, {.context = 16, .chunk = 1, .exact = true});
  const auto a = whole.feed(text);
  std::vector<double> want(a.begin(), a.end());
  const auto b = single.feed(text);
  EXPECT_LT(off({b.begin(), b.end()}, want), 1e-4);
}

}  // namespace
}  // namespace lumen::model::arch
