// needs: none. Caches in formats whose scales are those of a tensor or a tile, and formats that hold no cache.
#include "model/infer/session/cache_format.h"

#include <cmath>

#include "base/error.h"
#include "lang/parser.h"
#include "model/infer/session/session.h"
#include "model/infer/session/session_many.h"
#include "tests/model/tiny.h"

namespace lumen::model {
namespace {

const std::vector<TokenId> kText = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};

std::vector<float> logits_with(const FormatRef& f) {
  const Model m = tiny_model();
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
}  // namespace lumen::model
