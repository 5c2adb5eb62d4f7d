// needs: none. Keys of GGUF files that change what a tokenizer gives, and texts that begin as it begins them.
#include <gtest/gtest.h>

#include "base/file/file.h"
#include "model/file/gguf.h"
#include "model/text/tokenizer/tokenizer.h"

namespace lumen::model::text {
namespace {

file::GgufMetadata metadata_of(const std::string& name) {
  const auto path = std::filesystem::path(LUMEN_SOURCE_DIR) / "tests/model/fixtures/tokenizers" / name;
  const std::string bytes = read_file(path);
  return file::read_gguf_metadata(std::as_bytes(std::span(bytes)), name);
}

std::vector<TokenId> ids_of(const file::GgufMetadata& m, std::string_view text) {
  return Tokenizer::from_gguf(m).encode(text);
}

TEST(GgufTokenizer, CaseAndAccentsStayWhereTheFileSaysSo) {
  file::GgufMetadata m = metadata_of("bert-bge.gguf");
  const auto lower = ids_of(m, "hello cafe");
  EXPECT_EQ(ids_of(m, "HELLO CAF\u00c9"), lower);
  m.set("tokenizer.ggml.normalizer.lowercase", false);
  EXPECT_EQ(ids_of(m, "hello cafe"), lower);
  EXPECT_NE(ids_of(m, "HELLO cafe"), lower);
  // Accents go with the case, unless the file says otherwise.
  EXPECT_NE(ids_of(m, "hello caf\u00e9"), lower);
  m.set("tokenizer.ggml.normalizer.strip_accents", true);
  EXPECT_EQ(ids_of(m, "hello caf\u00e9"), lower);
}

TEST(GgufTokenizer, TokensBetweenFilesEndTexts) {
  file::GgufMetadata m = metadata_of("gpt-2.gguf");
  const auto ends = Tokenizer::from_gguf(m).end_of_generation();
  EXPECT_EQ(std::count(ends.begin(), ends.end(), 100), 0);
  m.set("tokenizer.ggml.fim_pad_token_id", uint32_t{100});
  const auto more = Tokenizer::from_gguf(m).end_of_generation();
  EXPECT_EQ(std::count(more.begin(), more.end(), 100), 1);
  EXPECT_EQ(more.size(), ends.size() + 1);
}

TEST(Tokenizer, TextsThatBeginTwiceAreWarnedOfOnce) {
  const Tokenizer t = Tokenizer::from_gguf(metadata_of("llama-spm.gguf"));
  const auto said = [&](std::string_view text, EncodeOptions options) {
    testing::internal::CaptureStderr();
    (void)t.encode(text, options);
    return testing::internal::GetCapturedStderr();
  };
  const EncodeOptions both{.add_special = true, .parse_special = true};
  EXPECT_EQ(said("hello", both), "");
  EXPECT_EQ(said("<s>hello", {.add_special = true}), "");    // plain characters
  EXPECT_EQ(said("<s>hello", {.parse_special = true}), "");  // nothing is added
  EXPECT_NE(said("<s>hello", both).find("begins with '<s>'"), std::string::npos);
  EXPECT_EQ(said("<s>hello", both), "");
}

}  // namespace
}  // namespace lumen::model::text
