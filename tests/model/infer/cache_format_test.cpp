// needs: none. Caches in formats whose scales are those of a tensor or a tile, formats whose blocks do not divide a
// head's numbers, and formats that hold no cache.
#include "model/infer/session/cache_format.h"

#include <cmath>
#include <random>

#include "base/error.h"
#include "graph/ir/verify.h"
#include "graph/pass/pass.h"
#include "lang/parser.h"
#include "model/arch/function.h"
#include "model/infer/session/session.h"
#include "model/infer/session/session_many.h"
#include "tests/model/tiny.h"

namespace lumen::model::infer {
namespace {

const std::vector<text::TokenId> kText = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};

std::vector<float> logits_with(const FormatRef& f) {
  const arch::Model m = tiny_model();
  const LoadedModel loaded(engine(), m);
  SessionOptions options{.context = 16, .chunk = 4, .exact = true};
  options.keys = options.values = f;
  Session s(loaded, options);
  const auto logits = s.feed(kText);
  return {logits.begin(), logits.end()};
}

TEST(CacheFormat, ScalesOfTensorsAndTilesAreThoseOfRows) {
  const std::vector<float> plain = logits_with(nullptr);
  float size = 0;
  for (const float x : plain) size = std::max(size, std::abs(x));
  for (const char* name : {"int8", "fp8_tensor", "fp8_tile"}) {
    const std::vector<float> held = logits_with(test_library()->formats().get(name));
    float off = 0;
    for (size_t i = 0; i < plain.size(); ++i) off = std::max(off, std::abs(plain[i] - held[i]));
    EXPECT_GT(off / size, 1e-6) << name;  // it was rounded
    EXPECT_LT(off / size, 0.3) << name;
  }
}

// Keys and values of `wide` numbers, of which the first `narrow` are random.
graph::Tensor cache_of(const graph::Type& type, int64_t narrow) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  graph::Tensor t{type, {}, {}};
  const int64_t wide = type.shape.back().number(), count = graph::byte_size(type) / int64_t{sizeof(float)};
  for (int64_t i = 0; i < count; ++i) t.values.push_back(i % wide < narrow ? float(normal(random)) : 0);
  return t;
}

TEST(CacheFormat, PaddedRowsChangeNoBit) {
  const arch::Model m = tiny_model();
  const int64_t wide = m.integer("head_dim");
  graph::Graph step = graph::bind_symbols(function_of(m, "step"), {{"B", 1}, {"T", 4}, {"S", 12}, {"R", 4}});
  graph::Graph padded = step;
  graph::pad_states(padded, {{"keys", wide + 12}, {"values", wide + 5}});
  ASSERT_EQ(graph::verify(padded), "");
  std::vector<graph::Tensor> results[2];
  for (const graph::Graph* g : {&step, &padded}) {
    std::map<std::string, graph::Tensor> in = tiny_inputs(m, 1, 4);
    in["position"] = number(5, Scalar::i32);
    in["rows"] = integers({graph::Dim(4)}, {0, 1, 2, 3});
    for (const char* name : {"keys", "values"}) in[name] = cache_of((*g)[g->find_input(name)].type, wide);
    results[g == &padded] = graph::eval(*g, in);
  }
  ASSERT_EQ(results[0][0].values.size(), results[1][0].values.size());
  for (size_t i = 0; i < results[0][0].values.size(); ++i)
    ASSERT_EQ(results[0][0].values[i], results[1][0].values[i]) << i;
}

// Heads of 40 and 24 numbers in blocks of 32, alone, in pages, and with sliding windows; blocks of 256 are refused.
TEST(CacheFormat, BlocksNeedNotDivideHeads) {
  for (const auto& [family, width] : {std::pair{"llama", 40}, {"gemma3", 24}, {"gpt_oss", 40}}) {
    graph::Config sizes = {{"vocab", 64},   {"hidden", 96},  {"layers", 3}, {"heads", 4},
                           {"kv_heads", 2}, {"context", 64}, {"ffn", 96},   {"head_dim", int(width)}};
    if (std::string_view(family) != "llama") sizes["window_size"] = 6;
    if (std::string_view(family) == "gpt_oss") sizes.insert({{"experts", 4}, {"picked", 2}});
    const auto f = test_library()->family(family);
    const arch::Model m = initialise(f, f->config("", sizes), 2);
    const LoadedModel loaded(engine(), m);
    const auto with = [&](const char* format, bool many) {
      SessionOptions options{.context = 32, .chunk = 4, .page = 4, .exact = true};
      options.keys = options.values = format ? test_library()->formats().get(format) : nullptr;
      if (!many) {
        Session s(loaded, options);
        const auto logits = s.feed(kText);
        return std::vector<float>(logits.begin(), logits.end());
      }
      ManySession s(loaded, options, {.sequences = 2});
      const ManySession::Part parts[] = {{s.open(), std::span(kText).first(5)}, {s.open(), kText}};
      return s.feed(parts)[1];
    };
    const std::vector<float> plain = with(nullptr, false);
    float size = 0;
    for (const float x : plain) size = std::max(size, std::abs(x));
    for (const bool many : {false, true}) {
      const std::vector<float> held = with("q8_0", many);
      float off = 0;
      for (size_t i = 0; i < plain.size(); ++i) off = std::max(off, std::abs(plain[i] - held[i]));
      EXPECT_GT(off / size, 1e-6) << family << many;
      EXPECT_LT(off / size, 0.05) << family << many;
    }
    EXPECT_THROW((void)with("q4_k", false), Error);
  }
}

TEST(CacheFormat, WhatHoldsNoCacheIsRefusedWithWhatDoes) {
  FormatLibrary formats = FormatLibrary::builtin();
  formats.add(lang::parse_file(std::make_shared<Source>(Source{"mine.lum", R"(
format reads : block 4 { q : i8[4]
  decode(i) = q[i] }
format both : block 2 {
  row r : f32
  tensor t : f32
  q : i8[2]
  decode(i) = q[i] * r * t
  fit tensor(x) { t = 1.0 }
  fit row(x) { r = max(j) abs(x[j]) }
  code(v) = v
}
)"})));
  for (const auto& [name, why] : {std::pair{"reads", "can only be decoded"}, {"both", "fields per row and per tile"}}) {
    try {
      (void)cache_format(formats, formats.get(name));
      FAIL() << name;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::user);
      EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
      EXPECT_NE(e.hint().find(" q8_0"), std::string::npos) << e.hint();
      EXPECT_NE(e.hint().find(" int8"), std::string::npos) << e.hint();
      EXPECT_EQ(e.hint().find(" reads"), std::string::npos) << e.hint();
    }
  }
  EXPECT_EQ(cache_format(formats, nullptr), nullptr);
  EXPECT_EQ(cache_format(formats, formats.get("q8_0")), formats.get("q8_0"));
}

}  // namespace
}  // namespace lumen::model::infer
