// needs: none. How likely a model finds choices: the sums that single steps give; figures of a task of two questions.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>

#include "base/error.h"
#include "base/file/file.h"
#include "model/arch/checkpoint/read.h"
#include "model/eval/evaluate.h"
#include "model/eval/likelihood.h"
#include "tests/model/tiny.h"

namespace lumen::model::eval {
namespace {

const std::filesystem::path kFixture =
    std::filesystem::path(LUMEN_SOURCE_DIR) / "tests/model/fixtures/converted_words/pairs";

const arch::Model& words_model() {
  static const arch::Model model = read_model(test_library(), kFixture);
  return model;
}

// One token after another.
double slowly(const infer::LoadedModel& loaded, const TokenPair& pair) {
  infer::Session session(loaded, {.context = 64, .chunk = 1});
  auto logits = session.feed(pair.before);
  double sum = 0;
  for (size_t i = 0; i < pair.behind.size(); ++i) {
    double all = 0;
    for (const float v : logits) all += std::exp(static_cast<double>(v));
    sum += logits[static_cast<size_t>(pair.behind[i])] - std::log(all);
    if (i + 1 < pair.behind.size()) logits = session.feed({&pair.behind[i], 1});
  }
  return sum;
}

TEST(Eval, LikelihoodsAreThoseOfSingleSteps) {
  const infer::LoadedModel loaded(engine(), words_model());
  Likelihood likelihood(loaded, {.context = 64});
  const text::Tokenizer& t = *words_model().tokenizer;
  for (const auto& [prompt, continuation] :
       std::vector<std::pair<std::string, std::string>>{{"Good day to", " you"},
                                                        {"Good day to", " everybody here"},
                                                        {"Good day", " a"},
                                                        {"Good day ", "b"},
                                                        {"", "Good"}}) {
    const TokenPair pair = token_pair(t, prompt, continuation);
    EXPECT_NEAR(likelihood.of(pair), slowly(loaded, pair), 2e-4) << prompt << "|" << continuation;
  }
  EXPECT_EQ(likelihood.cut(), 0);
}

TEST(Eval, SpacesAtThePromptsEndBelongToWhatFollows) {
  const text::Tokenizer& t = *words_model().tokenizer;
  const TokenPair a = token_pair(t, "Good day ", "you"), b = token_pair(t, "Good day", " you");
  EXPECT_EQ(a.before, b.before);
  EXPECT_EQ(a.behind, b.behind);
  EXPECT_THROW(token_pair(t, "Good", ""), Error);
}

TEST(Eval, LongPromptsLoseTheirBeginning) {
  const infer::LoadedModel loaded(engine(), words_model());
  const text::Tokenizer& t = *words_model().tokenizer;
  TokenPair pair = token_pair(t, "one two three four five six seven eight nine ten eleven twelve", " end");
  ASSERT_GT(pair.before.size(), 12U);
  Likelihood likelihood(loaded, {.context = 12});
  const double cut = likelihood.of(pair);
  EXPECT_EQ(likelihood.cut(), 1);
  const auto left = static_cast<int64_t>(12 + 1 - pair.behind.size());
  pair.before.erase(pair.before.begin(), pair.before.end() - left);
  EXPECT_NEAR(cut, slowly(loaded, pair), 2e-4);
}

TEST(Eval, FiguresOfATask) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / fmt::format("lumen-eval-{}", getpid());
  std::filesystem::create_directories(folder);
  write_file_atomic(folder / "t.jsonl",
                    "{\"q\": \"Good day to\", \"c\": [\"you\", \"me and many others\"], \"a\": 0}\n"
                    "{\"q\": \"It rains\", \"c\": [\"often\", \"a\"], \"a\": 1}\n"
                    "{\"q\": \"So\", \"c\": [\"be\", \"it\"], \"a\": 0}\n");
  write_file_atomic(
      folder / "t.toml",
      "name = \"t\"\nkind = \"choice\"\ndata = \"t.jsonl\"\nprompt = \"{{q}}\"\nchoices = \"c\"\nanswer = \"{{a}}\"\n"
      "metrics = [\"acc\", \"acc_norm\", \"f1\"]\n");
  write_file_atomic(folder / "w.toml",
                    "name = \"w\"\nkind = \"generate\"\ndata = \"t.jsonl\"\nprompt = \"{{q}}\"\nanswer = "
                    "\"{{a}}\"\nmost = 3\nfewshot = 1\n");
  TaskLibrary library;
  library.add_file(folder / "t.toml");
  library.add_file(folder / "w.toml");
  const infer::LoadedModel loaded(engine(), words_model());
  EvalOptions options;
  options.session.context = 64;
  const auto with = [&](int64_t fewshot) {
    EvalOptions some = options;
    some.fewshot = fewshot;
    return evaluate(loaded, library, "t", some, {}, {}).front();
  };
  const TaskResult r = evaluate(loaded, library, "t", options, {}, {}).front();
  EXPECT_EQ(r.rows, 3);
  double right = 0;
  for (const auto& sample : r.samples) {
    const bool first = sample["choices"][0]["nats"].get<double>() >= sample["choices"][1]["nats"].get<double>();
    EXPECT_EQ(sample["picked"].get<int>(), first ? 0 : 1);
    right += sample["picked"] == sample["right"];
  }
  EXPECT_DOUBLE_EQ(r.figures.at(0).value, right / 3);
  const double p = right / 3;
  EXPECT_NEAR(r.figures.at(0).error.value(), std::sqrt(p * (1 - p) / 2), 1e-12);
  EXPECT_EQ(r.figures.at(2).name, "f1");
  EXPECT_FALSE(r.figures.at(2).error.has_value());
  // The same with examples that are other rows, twice the same.
  const TaskResult first = with(2);
  EXPECT_EQ(nlohmann::ordered_json(first.samples), nlohmann::ordered_json(with(2).samples));
  const std::string prompt = first.samples[0]["prompt"];
  EXPECT_THAT(prompt, testing::EndsWith("\n\nGood day to"));
  EXPECT_THAT(prompt, testing::HasSubstr("It rains a\n\n"));
  EvalOptions two = options;
  two.limit = 2;
  EXPECT_EQ(evaluate(loaded, library, "w", two, {}, {}).front().rows, 2);
  try {
    with(3);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("t.jsonl: row 1: 4 examples are needed"));
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace lumen::model::eval
