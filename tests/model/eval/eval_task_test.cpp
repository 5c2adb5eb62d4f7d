// needs: none. Tasks as texts, the examples that are drawn, and how written answers are compared.
#include <gmock/gmock.h>

#include "base/error.h"
#include "base/file/file.h"
#include "model/eval/compare.h"
#include "model/eval/examples.h"
#include "model/eval/task.h"
#include "tests/model/tiny.h"

namespace lumen::model::eval {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;

std::string error(const std::string& text) {
  try {
    Task::parse(text, "mine.toml");
  } catch (const Error& e) {
    return fmt::format("{} | {}", e.what(), e.hint());
  }
  return "read";
}

// What random.Random(1234).sample gives in Python 3.11.
TEST(EvalTask, ExamplesAreThoseThatPythonDraws) {
  ExampleDraws draws(1234);
  EXPECT_THAT(draws.sample(10, 3), ElementsAre(7, 1, 0));
  EXPECT_THAT(draws.sample(10, 3), ElementsAre(1, 0, 9));
  EXPECT_THAT(draws.sample(10, 3), ElementsAre(1, 5, 3));
  EXPECT_THAT(draws.sample(1000, 7), ElementsAre(17, 31, 807, 16, 354, 663, 638));
  EXPECT_THAT(draws.sample(40, 6), ElementsAre(30, 29, 9, 5, 11, 7));
  EXPECT_THAT(draws.sample(100, 6), ElementsAre(1, 64, 62, 31, 8, 85));
}

TEST(EvalTask, QuestionsAndExamples) {
  const Task task = Task::parse(R"(name = "t"
kind = "choice"
data = "t.tsv"
prompt = "{{row['1']}} {{a}}?"
choices = ["{{b}}", "no"]
answer = "{{right}}")",
                                "t.toml");
  const ordered_json row = {{"1", "x"}, {"a", "y"}, {"b", "yes"}, {"right", "1"}};
  const Question q = question_of(task, row, "t.tsv: row 1");
  ASSERT_EQ(q.choices.size(), 2U);
  EXPECT_EQ(q.choices[0].prompt, "x y?");
  EXPECT_EQ(q.choices[0].continuation, "yes");
  EXPECT_EQ(q.right, 1U);
  EXPECT_EQ(example_of(task, row, "t.tsv: row 1"), "x y? no");
  // The choice's text is as good as its number.
  EXPECT_EQ(question_of(task, {{"1", ""}, {"a", ""}, {"b", "yes"}, {"right", "yes"}}, "").right, 0U);
  try {
    question_of(task, {{"1", ""}, {"a", ""}, {"b", "yes"}, {"right", "2"}}, "t.tsv: row 7");
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("t.tsv: row 7: the right answer is '2'"));
  }
}

// The choice stands inside the prompt, and what follows is the same.
TEST(EvalTask, ChoicesInThePrompt) {
  const Task task = TaskLibrary().get("winogrande");
  const Question q =
      question_of(task, {{"question", "Ann saw Bo so _ ran."}, {"choices", {"Ann", "Bo"}}, {"answer", 1}}, "");
  EXPECT_EQ(q.choices[1].prompt, "Ann saw Bo so Bo");
  EXPECT_EQ(q.choices[0].continuation, "ran.");
  EXPECT_EQ(example_of(task, {{"question", "Ann saw Bo so _ ran."}, {"choices", {"Ann", "Bo"}}, {"answer", 1}}, ""),
            "Ann saw Bo so Bo ran.");
}

TEST(EvalTask, MistakesAreNamed) {
  const std::string good = "name = \"t\"\nkind = \"choice\"\ndata = \"d\"\nprompt = \"p\"\nanswer = \"a\"\n";
  EXPECT_THAT(error(good), HasSubstr("at least two choices"));
  EXPECT_THAT(error(good + "choices = \"c\"\nmetrics = [\"accuracy\"]"),
              HasSubstr("'accuracy' is not a metric of choices"));
  EXPECT_THAT(error(good + "choices = \"c\"\nfewshots = 3"), HasSubstr("did you mean 'fewshot'"));
  EXPECT_THAT(error(good + "choices = \"c\"\nfewshot = -1"), HasSubstr("0 to 1000"));
  EXPECT_THAT(error("name = \"t\"\nkind = \"guess\""), HasSubstr("choice or generate"));
  EXPECT_THAT(error("name = \"t\"\nkind = \"choice\"\ndata = \"d\"\nprompt = \"{{\"\nanswer = \"a\"\nchoices = \"c\""),
              HasSubstr("mine.toml:4"));
}

TEST(EvalTask, MistakesNameFileLineAndKey) {
  const Task task = Task::parse(R"(name = "t"
kind = "choice"
data = "t.jsonl"
prompt = "{{ a.b.c }}"
choices = ["{{ raise_exception('no') }}", "no"]
answer = "0")",
                                "mine.toml");
  const auto said = [&](const ordered_json& row) {
    try {
      question_of(task, row, "t.jsonl: row 3");
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const std::string choices = said({{"a", {{"b", {{"c", 1}}}}}});
  EXPECT_THAT(choices, HasSubstr("t.jsonl: row 3"));
  EXPECT_THAT(choices, HasSubstr("mine.toml:5"));
  EXPECT_THAT(choices, HasSubstr("choices"));
}

// A task may come from somebody else: it names files of its folder alone.
TEST(EvalTask, DataLieInTheirFolder) {
  const TestFolder folder;
  namespace fs = std::filesystem;
  fs::create_directories(folder / "data/sub");
  write_file_atomic(folder / "secret.jsonl", "{}");
  write_file_atomic(folder / "data/sub/own.jsonl", "{}");
  fs::create_symlink(folder / "secret.jsonl", folder / "data/link.jsonl");
  fs::create_directory_symlink(folder / "data/sub", folder / "data/inner");
  fs::create_directory_symlink(folder / "data", folder / "elsewhere");
  const auto said = [&](const std::string& file, bool allowed, const fs::path& home) {
    Task task = Task::parse("name = \"t\"\nkind = \"generate\"\ndata = \"" + file + "\"\nexamples = \"" + file +
                                "\"\nprompt = \"p\"\nanswer = \"a\"",
                            "mine.toml");
    try {
      (void)data_file(task, "data", home, allowed);
      (void)data_file(task, "examples", home, allowed);
    } catch (const Error& e) {
      return fmt::format("{} | {}", e.what(), e.hint());
    }
    return std::string();
  };
  for (const std::string& file :
       {std::string("../secret.jsonl"), std::string("sub/../../secret.jsonl"), std::string("link.jsonl"),
        (folder / "secret.jsonl").string(), std::string("../data2/x.jsonl")}) {
    const std::string text = said(file, false, folder / "data");
    EXPECT_THAT(text, HasSubstr("mine.toml:3")) << file;
    EXPECT_THAT(text, HasSubstr("data: '" + file)) << file;
    EXPECT_THAT(text, HasSubstr("--allow-outside-data")) << file;
    EXPECT_EQ(said(file, true, folder / "data"), "") << file;
  }
  for (const char* file : {"sub/own.jsonl", "sub/../sub/own.jsonl", "inner/own.jsonl", "not-there.jsonl"}) {
    EXPECT_EQ(said(file, false, folder / "data"), "") << file;
    EXPECT_EQ(said(file, false, folder / "elsewhere"), "") << file;
  }
}

TEST(EvalTask, EveryTaskThatComesAlongIsWhole) {
  const TaskLibrary library;
  EXPECT_GE(library.names().size(), 14U);
  for (const std::string& name : library.names()) {
    const Task& task = library.get(name);
    EXPECT_FALSE(task.doc.empty()) << name;
    for (const std::string& member : task.members) EXPECT_TRUE(library.get(member).members.empty()) << member;
    if (task.kind == TaskKind::generate && task.members.empty()) Comparison{task};
  }
  EXPECT_THROW(library.get("nothing"), Error);
}

TEST(EvalTask, WrittenAnswersAreTakenOutAndCompared) {
  const Task task = TaskLibrary().get("gsm8k");
  const Comparison c(task);
  const std::string written = " She has 3 left.\nSo $1,234.50 in all.\n#### 1,234.";
  EXPECT_EQ(c.extract(0, written), "1,234.");
  EXPECT_EQ(c.extract(1, written), "1,234.");
  EXPECT_EQ(c.extract(0, "no mark 12"), "[invalid]");
  EXPECT_EQ(c.extract(1, "from 3 to 45 apples"), "45");
  EXPECT_TRUE(c.equal("1,234.", "Some steps.\n#### 1234"));
  EXPECT_FALSE(c.equal("1,235", "Some steps.\n#### 1234"));
  EXPECT_FALSE(c.equal("[invalid]", "#### 3"));
}

}  // namespace
}  // namespace lumen::model::eval
