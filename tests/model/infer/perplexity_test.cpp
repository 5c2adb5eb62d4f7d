// needs: none. The tokens that perplexity cuts into windows. Figures were compared with llama-perplexity by hand.
#include "model/infer/measure/perplexity.h"

#include "base/error.h"
#include "tests/model/tiny.h"

namespace lumen::model::infer {
namespace {

text::Tokenizer letters(bool bos) {
  file::GgufMetadata metadata;
  text::Tokenizer::characters("abc\n").to_gguf(metadata);
  metadata.set("tokenizer.ggml.add_bos_token", bos);
  metadata.set("tokenizer.ggml.bos_token_id", uint32_t{2});
  return text::Tokenizer::from_gguf(metadata);
}

TEST(PerplexityTokens, BeginWithBosOnceWhereTheProtocolSaysSo) {
  const text::Tokenizer t = letters(true);
  ASSERT_TRUE(t.adds_bos());
  std::vector<text::TokenId> front = t.encode("cab\nc");
  front.insert(front.begin(), *t.bos());
  EXPECT_EQ(perplexity_tokens(t, "cab\nc\n", BosPlace::front), front);
  EXPECT_EQ(perplexity_tokens(t, "cab\nc", BosPlace::front), front);
  EXPECT_EQ(perplexity_tokens(t, "cab\nc\n", BosPlace::windows), t.encode("cab\nc\n"));
  EXPECT_EQ(perplexity_tokens(t, "cab\nc\n", BosPlace::none), t.encode("cab\nc\n"));
  const text::Tokenizer without = letters(false);
  EXPECT_EQ(perplexity_tokens(without, "cab\nc\n", BosPlace::front), without.encode("cab\nc"));
}

TEST(PerplexityTokens, PlacesHaveNames) {
  EXPECT_EQ(bos_place("front"), BosPlace::front);
  EXPECT_EQ(bos_place("windows"), BosPlace::windows);
  EXPECT_EQ(bos_place("none"), BosPlace::none);
  EXPECT_THROW((void)bos_place("back"), Error);
}

}  // namespace
}  // namespace lumen::model::infer
