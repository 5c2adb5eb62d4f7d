// needs: none. A model is as far from itself as its record is coarse; another is farther; wrong records are refused.
#include <cmath>

#include "base/error.h"
#include "base/file/file.h"
#include "model/infer/measure/perplexity_divergence.h"
#include "tests/model/tiny.h"

namespace lumen::model::infer {
namespace {

TEST(Divergence, FromRecordedLogits) {
  run::Engine engine(
      run::Engine::Options{.cache_folder = (std::filesystem::temp_directory_path() / "lumen-test-cache").string(),
                           .threads = 2,
                           .machine = nullptr});
  const arch::Model a = tiny_model(1), b = tiny_model(2);
  const LoadedModel first(engine, a), second(engine, b);
  std::vector<text::TokenId> text;
  for (int i = 0; i < 40; ++i) text.push_back((i * i + 3) % 11);
  PerplexityOptions o;
  o.length = 8;
  o.exact = true;
  const TestFolder folder;
  record_logits(first, text, o, folder / "a.kl");
  const Divergence same = divergence(first, text, o, folder / "a.kl");
  EXPECT_EQ(same.tokens, 15);
  EXPECT_LT(std::abs(same.mean), 1e-4);
  EXPECT_EQ(same.same_top, 1);
  EXPECT_NEAR(same.ratio, 1, 1e-3);
  const Divergence other = divergence(second, text, o, folder / "a.kl");
  EXPECT_GT(other.mean, 0.05);
  EXPECT_GE(other.most, other.p99);
  EXPECT_GE(other.p99, other.median);
  EXPECT_NEAR(other.ratio, perplexity(second, text, o).value / perplexity(first, text, o).value, 1e-3);
  // Tokens that count, and those that do not, together are all.
  PerplexityOptions some = o, rest = o;
  for (int i = 0; i < 40; ++i) {
    some.counted.push_back(i % 8 == 5);
    rest.counted.push_back(i % 8 != 5);
  }
  const Divergence counted = divergence(second, text, some, folder / "a.kl");
  const Divergence left = divergence(second, text, rest, folder / "a.kl");
  EXPECT_EQ(counted.tokens, 5);
  EXPECT_EQ(left.tokens, 10);
  EXPECT_NEAR(5 * counted.mean + 10 * left.mean, 15 * other.mean, 1e-9);
  EXPECT_GT(std::abs(counted.mean - left.mean), 1e-3);
  // Another text, another window, a cut file.
  std::vector<text::TokenId> changed = text;
  changed[9] = (changed[9] + 1) % 11;
  EXPECT_THROW((void)divergence(first, changed, o, folder / "a.kl"), Error);
  PerplexityOptions longer = o;
  longer.length = 16;
  EXPECT_THROW((void)divergence(first, text, longer, folder / "a.kl"), Error);
  const std::string bytes = read_file(folder / "a.kl");
  for (const size_t size : {size_t{0}, size_t{7}, size_t{50}, bytes.size() - 3}) {
    write_file_atomic(folder / "cut.kl", bytes.substr(0, size));
    EXPECT_THROW((void)divergence(first, text, o, folder / "cut.kl"), Error) << size;
  }
}

}  // namespace
}  // namespace lumen::model::infer
