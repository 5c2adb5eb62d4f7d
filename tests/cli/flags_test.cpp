// needs: none. Every option of every command: what it lacks, what it cannot be, and what it contradicts is said with
// its name and exit code 2, before anything is done.
#include <gtest/gtest.h>

#include "cli/command.h"
#include "outcome.h"

namespace lumen::cli {
namespace {

struct Leaf {
  std::vector<std::string> words;  // how it is called
  const CLI::App* app;
};

void collect(const CLI::App& app, const std::vector<std::string>& words, std::vector<Leaf>& out) {
  const auto subs = app.get_subcommands([](const CLI::App*) { return true; });
  if (!words.empty() && (subs.empty() || app.get_require_subcommand_min() == 0)) out.push_back({words, &app});
  for (const CLI::App* sub : subs) {
    std::vector<std::string> more = words;
    more.push_back(sub->get_name());
    collect(*sub, more, out);
  }
}

// All commands with their tables, as the parser has them.
class Flags : public testing::Test {
 protected:
  Flags() : app_(make_app(command_)) { collect(*app_, {}, leaves_); }

  static std::vector<std::string> call(const Leaf& leaf, std::vector<std::string> more) {
    more.insert(more.begin(), leaf.words.begin(), leaf.words.end());
    return more;
  }
  static std::string joined(const std::vector<std::string>& words) {
    std::string out;
    for (const std::string& word : words) out += word + " ";
    return out;
  }
  static bool is_flag(const CLI::Option& option) { return option.get_expected_max() == 0; }
  static std::string spelled(const CLI::Option& option) {
    if (!option.get_lnames().empty()) return "--" + option.get_lnames().front();
    return option.get_snames().empty() ? "" : "-" + option.get_snames().front();
  }

  Command command_;
  std::unique_ptr<CLI::App> app_;
  std::vector<Leaf> leaves_;
};

TEST_F(Flags, MissingValuesAreNamed) {
  EXPECT_GT(leaves_.size(), 15U);
  int tried = 0;
  for (const Leaf& leaf : leaves_) {
    for (const CLI::Option* option : leaf.app->get_options()) {
      const std::string name = spelled(*option);
      if (is_flag(*option) || name.empty() || option->get_items_expected_min() == 0) continue;
      const auto words = call(leaf, {name});
      const Outcome o = lumen(words);
      EXPECT_EQ(o.code, 2) << joined(words) << o.error;
      EXPECT_TRUE(contains(o.error, option->get_name())) << joined(words) << o.error;
      ++tried;
    }
  }
  EXPECT_GT(tried, 200);
}

TEST_F(Flags, NumbersThatAreNoneOrTooLargeAreNamed) {
  int tried = 0;
  for (const Leaf& leaf : leaves_) {
    for (const CLI::Option* option : leaf.app->get_options()) {
      const std::string name = spelled(*option), type = option->get_type_name();
      const bool whole = type.starts_with("INT") || type.starts_with("UINT"), real = type.starts_with("FLOAT");
      if (name.empty() || is_flag(*option) || (!whole && !real)) continue;
      std::vector<std::string> bad = {"abc", "nan", "inf", "-inf", "1e999", "99999999999999999999999999999999999",
                                      "1,5x"};
      if (whole)
        bad.insert(bad.end(), {"1.5", "99999999999999999999", "-99999999999999999999", "-7000000000000000000", ""});
      if (contains(type, "NEGATIVE") || contains(type, "POSITIVE") || type.starts_with("UINT")) bad.emplace_back("-3");
      if (contains(type, ":POSITIVE")) bad.emplace_back("0");
      for (const std::string& value : bad) {
        if (value.empty() && option->get_delimiter() != '\0') continue;
        const auto words = call(leaf, {name + "=" + value});
        const Outcome o = lumen(words);
        EXPECT_EQ(o.code, 2) << joined(words) << o.error;
        EXPECT_TRUE(contains(o.error, option->get_name())) << joined(words) << o.error;
        EXPECT_FALSE(contains(o.error, "e+1")) << joined(words) << o.error;
        EXPECT_LT(o.error.size(), 220U) << "bounds nobody reads: " << joined(words) << o.error;
        ++tried;
      }
    }
  }
  EXPECT_GT(tried, 500);
}

// Options of numbers that hide behind another name of their type.
TEST_F(Flags, NumbersUnderOtherNames) {
  EXPECT_EQ(lumen({"tokenize", "-m", "x", "--decode", "-1"}).code, 2);
  EXPECT_EQ(lumen({"tokenize", "-m", "x", "--decode", "99999999999999999999"}).code, 2);
  EXPECT_EQ(lumen({"quantize", "a", "b", "q8_0", "0"}).code, 2);
  EXPECT_EQ(lumen({"quantize", "a", "b", "q8_0", "99999999999999999999"}).code, 2);
  EXPECT_EQ(lumen({"bench", "--shape", "tiny", "--pg", "1,99999999999999999999"}).code, 2);
  EXPECT_EQ(lumen({"bench", "--shape", "tiny", "--pg", "0,1"}).code, 2);
  EXPECT_EQ(lumen({"bench", "kernels", "--shape", "64x99999999999999999999"}).code, 2);
  EXPECT_EQ(lumen({"compile", "llama", "--symbols", "B=99999999999999999999"}).code, 2);
  EXPECT_EQ(lumen({"compile", "llama", "--config", "hidden=much"}).code, 2);
  EXPECT_EQ(lumen({"export", "a", "b.gguf", "--split-max-size", "99999999999999999999"}).code, 2);
}

TEST_F(Flags, BoundsAreReadable) {
  const auto said = [](std::vector<std::string> words, const std::string& text) {
    const Outcome o = lumen(words);
    EXPECT_EQ(o.code, 2) << joined(words);
    EXPECT_TRUE(contains(o.error, text)) << joined(words) << o.error;
  };
  said({"run", "-m", "x", "-n", "-7"}, "--predict: -7 is less than -2");
  said({"run", "-m", "x", "--temp", "nan"}, "--temp: nan is not a finite number");
  said({"run", "-m", "x", "--temp", "-1"}, "--temp: -1 is not from 0 to 1000");
  said({"run", "-m", "x", "--top-p", "1.5"}, "--top-p: 1.5 is not above 0 and up to 1");
  said({"run", "-m", "x", "--keep", "-2"}, "--keep: -2 is less than -1");
  said({"run", "-m", "x", "-c", "-1"}, "--ctx-size: -1 is less than 0");
  said({"run", "-m", "x", "-t", "5000"}, "--threads: 5000 is not from 0 to 4,096");
  said({"train", "--steps", "99999999999999999999"},
       "--steps: 99999999999999999999 is more than 1,000,000,000,000,000");
  said({"train", "--lr", "nan"}, "--lr: nan is not a finite number");
  said({"train", "--steps", "1.5"}, "--steps: '1.5' is not a whole number");
  said({"train", "--steps", "0"}, "--steps: must be 1 to 1000000000000, not 0");
  said({"train", "--lr", "-1"}, "--lr: must be 0 to 1e+30, not -1");
  said({"train", "--seed", "-7"}, "--seed: ");
}

TEST_F(Flags, UnknownWordsSuggestTheNearest) {
  const auto said = [](std::vector<std::string> words, const std::string& message, const std::string& hint) {
    const Outcome o = lumen(words);
    EXPECT_EQ(o.code, 2) << joined(words);
    EXPECT_TRUE(contains(o.error, message)) << joined(words) << o.error;
    EXPECT_TRUE(contains(o.error, hint)) << joined(words) << o.error;
    EXPECT_TRUE(o.out.empty()) << o.out;
  };
  said({"trian"}, "'trian' is no command of lumen", "did you mean 'train'");
  said({"rnu", "-m", "x"}, "'rnu' is no command of lumen", "did you mean 'run'");
  said({"nosuchverb", "--help"}, "'nosuchverb' is no command of lumen", "lumen --help");
  said({"train", "--shap", "char"}, "'--shap' is no option of lumen train", "did you mean '--shape'");
  said({"train", "--shap=char"}, "'--shap' is no option of lumen train", "did you mean '--shape'");
  said({"run", "--modle", "x"}, "'--modle' is no option of lumen run", "did you mean '--model'");
  said({"format", "lsit"}, "'lsit' is no command of lumen format", "did you mean 'list'");
  said({"format", "lsit", "--help"}, "'lsit' is no command of lumen format", "did you mean 'list'");
  said({"bench", "kernles"}, "'kernles' is no command of lumen bench", "did you mean 'kernels'");
  said({"bench", "kernles", "--help"}, "'kernles' is no command of lumen bench", "did you mean 'kernels'");
  said({"doctor", "please"}, "'please' is one argument too many for lumen doctor", "lumen doctor --help");
  EXPECT_EQ(lumen({"train", "--help"}).code, 0);
  EXPECT_EQ(lumen({"format", "--help"}).code, 0);
}

TEST_F(Flags, ContradictionsNameBoth) {
  const std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>> cases = {
      {{"run", "-m", "x", "-v", "-q"}, {"--verbose", "--quiet"}},
      {{"run", "-m", "x", "--mirostat", "2", "--top-k", "5"}, {"--mirostat", "--top-k"}},
      {{"run", "-m", "x", "--mirostat", "2", "--min-p", "0.1"}, {"--mirostat", "--min-p"}},
      {{"run", "-m", "x", "-p", "a", "--draft", "3"}, {"--draft", "--lookup"}},
      {{"run", "-m", "x", "-p", "a", "--json"}, {"--json", "--prompts"}},
      {{"serve", "-m", "a", "-m", "b", "-md", "y"}, {"draft model", "--lookup"}},
      {{"run", "-m", "x", "--prompts", "y", "--json", "--no-display-prompt"}, {"--json", "--no-display-prompt"}},
      {{"run", "-m", "x", "--lookup", "-md", "y"}, {"--lookup", "--model-draft"}},
      {{"chat", "-m", "x", "--ids"}, {"--ids", "--show-prompt"}},
      {{"chat", "-m", "x", "--show-prompt"}, {"--show-prompt", "-p"}},
      {{"tokenize", "-m", "x", "a", "--ids", "--json"}, {"--ids", "--json"}},
      {{"tokenize", "-m", "x", "a", "--ids", "--stats"}, {"--ids", "--stats"}},
      {{"tokenize", "-m", "x", "--decode", "1", "--json"}, {"--decode", "--json"}},
      {{"tokenize", "-m", "x", "a", "--split", "y"}, {"--split", "--train"}},
      {{"tokenize", "-m", "x", "a", "-o", "y"}, {"--output", "--train"}},
      {{"tokenize", "--train", "x", "--ids"}, {"--train", "--ids"}},
      {{"quantize", "a", "b", "q8_0", "2", "-t", "3"}, {"nthreads", "--threads"}},
      {{"quantize", "a", "b", "q8_0", "--pure", "--output-tensor-type", "f16"}, {"--pure", "--output-tensor-type"}},
      {{"quantize", "a", "b", "q8_0", "--leave-output-tensor", "--output-tensor-type", "f16"},
       {"--leave-output-tensor", "--output-tensor-type"}},
      {{"perplexity", "-m", "x", "--record-logits", "a", "--kl-divergence", "b"},
       {"--record-logits", "--kl-divergence"}},
      {{"embed", "-m", "x", "a", "--cosine", "--format", "array"}, {"--cosine", "array"}},
      {{"bench", "-m", "x", "--type", "q8_0"}, {"--model", "--type"}},
      {{"bench", "--shape", "tiny", "--write", "x", "--explain"}, {"--write", "--explain"}},
      {{"doctor", "--quick", "--all"}, {"--quick", "--all"}},
      {{"inspect", "x", "--tensors", "--limit", "3"}, {"--tensors", "--limit"}},
      {{"compile", "llama", "--check", "--explain"}, {"--check", "--explain"}},
      {{"compile", "llama", "--emit", "asm", "--explain"}, {"--emit", "--explain"}},
      {{"compile", "llama", "--check", "--emit", "obj", "--target", "sm_90a"}, {"--check", "--emit"}},
      {{"compile", "llama", "--machine", "x86-64-v3", "--target", "x86-64-v3"}, {"--machine", "--target"}},
  };
  for (const auto& [words, names] : cases) {
    const Outcome o = lumen(words);
    EXPECT_EQ(o.code, 2) << joined(words) << o.error;
    for (const std::string& name : names) EXPECT_TRUE(contains(o.error, name)) << joined(words) << o.error;
  }
}

// A name that is given on the command line and means nothing is one mistake, wherever it is given.
TEST_F(Flags, UnknownNamesHaveOneCode) {
  const std::vector<std::vector<std::string>> cases = {
      {"format", "show", "q4_00"},
      {"format", "check", "q4_00"},
      {"quantize", "absent.gguf", "/tmp/x.gguf", "q4_00"},
      {"quantize", "absent.gguf", "/tmp/x.gguf", "q4_0", "--fallback", "q4_00"},
      {"quantize", "absent.gguf", "/tmp/x.gguf", "q4_0", "--tensor-type", "a=q4_00"},
      {"export", "absent.gguf", "/tmp/x.gguf", "--type", "q4_00"},
      {"bench", "--shape", "tinyy"},
      {"bench", "--shape", "tiny", "--type", "q4_00"},
      {"bench", "--shape", "tiny", "-ctk", "q4_00"},
      {"bench", "kernels", "--format", "q4_00"},
      {"compile", "lama"},
      {"compile", "llama", "--shape", "tinyy"},
      {"compile", "llama", "--format", "q4_00"},
      {"compile", "llama", "--target", "z80"},
      {"train", "--shape", "tinyy"},
      {"train", "--shape", "tiny", "--format", "q4_00"},
      {"train", "--recipe", "nothing"},
      {"doctor", "--quick", "--machine", "z80"},
      {"doctor", "--quick", "--device", "tpu"},
  };
  for (const auto& words : cases) {
    const Outcome o = lumen(words);
    EXPECT_EQ(o.code, 2) << joined(words) << o.error;
    EXPECT_TRUE(contains(o.error, words.back().substr(words.back().find('=') + 1))) << joined(words) << o.error;
  }
}

TEST_F(Flags, HelpOfEveryCommandHasNoEmptyLists) {
  for (const Leaf& leaf : leaves_) {
    const Outcome o = lumen(call(leaf, {"--help"}));
    EXPECT_EQ(o.code, 0);
    EXPECT_FALSE(contains(o.out, ":\nSizes")) << joined(leaf.words);
    EXPECT_FALSE(contains(o.out, "\x1b"));
  }
}

}  // namespace
}  // namespace lumen::cli
