// needs: none. Data sets: splits, random windows as a pure function, evaluation windows, files.
#include "model/data/examples/dataset.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "tests/model/text/tokenizer_fixtures.h"

namespace lumen::model::data {
namespace {

namespace fs = std::filesystem;

TEST(Dataset, SplitsTheTextAtItsEnd) {
  const std::string text = "0123456789";
  const text::Tokenizer t = text::Tokenizer::characters(text);
  const Dataset d = Dataset::from_text(text, t);
  EXPECT_EQ(d.train().size(), 9u);
  EXPECT_EQ(d.validation(), (std::vector<text::TokenId>{9}));
  EXPECT_TRUE(Dataset::from_text(text, t, {.validation = 0}).validation().empty());
  EXPECT_THROW(Dataset::from_text(text, t, {.validation = 1}), Error);
  // The cut never goes through a character.
  const std::string wide = "가나다라";
  const Dataset w = Dataset::from_text(wide, text::Tokenizer::characters(wide), {.validation = 0.5});
  EXPECT_EQ(w.train().size() + w.validation().size(), 4u);
}

TEST(Dataset, EmbeddedTextByCharacters) {
  const text::Tokenizer t = text::Tokenizer::characters(embedded_text());
  EXPECT_EQ(t.size(), 65);
  const Dataset d = Dataset::from_text(embedded_text(), t);
  EXPECT_EQ(d.train().size(), 1003854u);
  EXPECT_EQ(d.validation().size(), 111540u);
  EXPECT_EQ(t.decode(std::span(d.train()).first(14)), "First Citizen:");
}

TEST(Dataset, RandomBatchesAreAPureFunction) {
  std::vector<text::TokenId> tokens(1000);
  for (int i = 0; i < 1000; ++i) tokens[i] = i;
  const auto a = random_batch(tokens, 1, 5, 8, 16);
  ASSERT_EQ(a.size(), 8u * 17u);
  EXPECT_EQ(a, random_batch(tokens, 1, 5, 8, 16));
  EXPECT_NE(a, random_batch(tokens, 1, 6, 8, 16));
  EXPECT_NE(a, random_batch(tokens, 2, 5, 8, 16));
  for (int row = 0; row < 8; ++row) {
    for (int i = 1; i <= 16; ++i) EXPECT_EQ(a[row * 17 + i], a[row * 17] + i);
  }
  // Every start occurs, first and last included, none much more often than another.
  std::vector<int> seen(4, 0);
  const std::vector<text::TokenId> five = {0, 1, 2, 3, 4};
  for (uint64_t k = 0; k < 1000; ++k) ++seen[static_cast<size_t>(random_batch(five, 3, k, 1, 1)[0])];
  for (const int n : seen) EXPECT_NEAR(n, 250, 60);
  EXPECT_EQ(random_batch(five, 3, 0, 1, 4), five);
  EXPECT_THROW(random_batch(five, 3, 0, 1, 5), Error);
}

TEST(Dataset, WindowsLieEndToEnd) {
  std::vector<text::TokenId> tokens = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(window_count(tokens, 3), 2);
  EXPECT_EQ(window_count(tokens, 7), 1);
  EXPECT_EQ(window_count(tokens, 8), 0);
  EXPECT_EQ(window_count({}, 8), 0);
  EXPECT_EQ(window_batch(tokens, 0, 2, 3), (std::vector<text::TokenId>{0, 1, 2, 3, 3, 4, 5, 6}));
  EXPECT_THROW(window_batch(tokens, 1, 2, 3), Error);
}

TEST(Dataset, FilesAndFolders) {
  std::string name = (fs::temp_directory_path() / "lumen-dataset-XXXXXX").string();
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  const fs::path folder = name;
  fs::create_directory(folder / "deep");
  write_file_atomic(folder / "b.txt", "bbbb");
  write_file_atomic(folder / "deep" / "a.jsonl", "{\"text\": \"cc\"}\n\n{\"text\": \"dd\", \"more\": 1}\n");
  write_file_atomic(folder / "ignored.bin", "xxxx");
  EXPECT_EQ(read_documents(folder), (std::vector<std::string>{"bbbb", "cc", "dd"}));
  const text::Tokenizer t =
      text::Tokenizer::train("abcd", {.vocabulary = 257, .specials = {"<e>"}, .end_of_text = "<e>"});
  const Dataset d = Dataset::load(folder, t, {.validation = 0.25});
  EXPECT_EQ(t.decode(d.train(), false), "bbbb<e>cc<e>");
  EXPECT_EQ(t.decode(d.validation(), false), "dd<e>");
  const Dataset one = Dataset::load(folder / "b.txt", t, {.validation = 0.5});
  EXPECT_EQ(t.decode(one.train(), false), "bb");
  write_file_atomic(folder / "bad.jsonl", "{\"text\": \"a\"}\n{\"txt\": 1}\n");
  try {
    read_documents(folder / "bad.jsonl");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("bad.jsonl:2"), std::string::npos) << e.what();
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace lumen::model::data
