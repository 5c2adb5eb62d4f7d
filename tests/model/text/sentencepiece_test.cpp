// needs: none. SentencePiece files: the ids of the library that made them, and broken files.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "model/file/gguf.h"
#include "model/text/tokenizer/tokenizer.h"
#include "model/text/unicode/unicode.h"
#include "tests/model/text/tokenizer_fixtures.h"

namespace lumen::model::text {
namespace {

void check(const Tokenizer& t, const std::filesystem::path& path) {
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) {
    const auto c = nlohmann::json::parse(line);
    const auto ids = t.encode(c["text"].get<std::string>());
    EXPECT_EQ(ids, c["ids"].get<std::vector<TokenId>>()) << c["text"];
    if (c.contains("decoded")) {
      EXPECT_EQ(t.decode(ids), c["decoded"].get<std::string>());
    }
  }
}

class Pieces : public testing::TestWithParam<const char*> {};

TEST_P(Pieces, GiveTheReferenceIds) {
  const std::string name = GetParam();
  const Tokenizer t = Tokenizer::load(fixture(name + ".model"));
  check(t, fixture(name + ".jsonl"));
  file::GgufMetadata m;
  t.to_gguf(m);
  check(Tokenizer::from_gguf(m), fixture(name + ".jsonl"));
  EXPECT_EQ(t.bos(), 1);
  EXPECT_EQ(t.eos(), 2);
}

INSTANTIATE_TEST_SUITE_P(SentencePiece, Pieces, testing::Values("pieces-bpe", "pieces-unigram"), [](const auto& i) {
  std::string name = i.param;
  std::erase(name, '-');
  return name;
});

TEST(SentencePiece, BrokenFilesAreRefused) {
  const std::string whole = read_file(fixture("pieces-bpe.model"));
  for (size_t n : {size_t{1}, size_t{7}, size_t{100}, whole.size() - 1}) {
    EXPECT_THROW(Tokenizer::from_sentencepiece(std::string_view(whole).substr(0, n), "t"), Error) << n;
  }
  EXPECT_THROW(Tokenizer::from_sentencepiece(std::string("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 10), "t"), Error);
  EXPECT_THROW(Tokenizer::from_sentencepiece(std::string(20, '\xff'), "t"), Error);
  EXPECT_THROW(Tokenizer::from_sentencepiece("", "t"), Error);
}

}  // namespace
}  // namespace lumen::model::text
