// needs: none. Every option of `lumen train`: which values it refuses, and what it says beside each other one.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "outcome.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

class TrainFlagsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "lumen-train-flags-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    setenv("LUMEN_CACHE", (fs::temp_directory_path() / "lumen-test-cache").c_str(), 1);
    fs::current_path(folder_);  // other tests write to the folder they are started in
  }
  void TearDown() override {
    fs::current_path(before_);
    fs::remove_all(folder_);
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  fs::path folder_, before_ = fs::current_path();
};

// A value for each option with which a run could begin; "" for flags without one.
const std::map<std::string, std::string> kOptions = {
    {"--recipe", "char"},
    {"--model", "absent.gguf"},
    {"--family", "llama"},
    {"--shape", "tiny"},
    {"--data", "absent.txt"},
    {"--form", "chats"},
    {"--columns", "prompt=Q"},
    {"--chat-template", "chatml"},
    {"--train-on", "last"},
    {"--mix", "0.5,0.5"},
    {"--epochs", "2"},
    {"--packing", ""},
    {"--overflow", "drop"},
    {"--strict", ""},
    {"--validation-data", "absent.jsonl"},
    {"--tokenizer", "characters"},
    {"--out", "absent-out"},
    {"--overwrite", ""},
    {"--resume", "absent-run"},
    {"--allow-changed-data", ""},
    {"--allow-changed-recipe", ""},
    {"--batch", "4"},
    {"--length", "16"},
    {"--steps", "12"},
    {"--lr", "0.01"},
    {"--min-lr", "0.001"},
    {"--warmup", "2"},
    {"--warmup-ratio", "0.25"},
    {"--schedule", "cosine"},
    {"--weight-decay", "0.1"},
    {"--max-grad-norm", "1"},
    {"--beta1", "0.9"},
    {"--beta2", "0.95"},
    {"--accumulate", "2"},
    {"--validation", "0.01"},
    {"--eval-every", "0"},
    {"--save-every", "0"},
    {"--keep", "1"},
    {"--seed", "3"},
    {"--precision", "f16"},
    {"--bf16", ""},
    {"--activation-format", "fp8_row"},
    {"--weight-format", "fp8_tile"},
    {"--gradient-format", "fp8_e5m2_row"},
    {"--memory", "24G"},
    {"--attention-format", "fp8_row"},
    {"--kept-format", "fp8_row"},
    {"--offload", "moments"},
    {"--ranks", "1"},
    {"--shard", "states"},
    {"--tensor-parallel", "1"},
    {"--sequence-parallel", ""},
    {"--reduce-type", "int8_row"},
    {"--gather-type", "f32"},
    {"--overlap-exchanges", ""},
    {"--param-type", "bf16"},
    {"--param-rounding", "nearest"},
    {"--param-compensation", "none"},
    {"--format", "q4_0"},
    {"--output-type", "q8_0"},
    {"--hf", ""},
    {"--explain", ""},
    {"--plan", ""},
    {"--objective", "dpo"},
    {"--teacher", "absent.gguf"},
    {"--objective-setting", "label_smoothing=0.1"},
    {"--beta", "0.2"},
    {"--optimizer", "muon"},
    {"--moments", "bf16"},
    {"--second-moments", "bf16"},
    {"--momentum", "0.8"},
    {"--epsilon", "1e-6"},
    {"--ema", "0.9"},
    {"--lora", ""},
    {"--dora", ""},
    {"--lora-rank", "4"},
    {"--lora-alpha", "8"},
    {"--lora-dropout", "0.1"},
    {"--lora-targets", "wq,wv"},
    {"--rslora", ""},
    {"--lora-plus", "4"},
    {"--lora-init", "default"},
    {"--lora-base-type", "base"},
    {"--ship", "base"},
    {"--ship-learned", ""},
    {"--ship-magnitudes", ""},
    {"--max-kl", "0.1"},
    {"--merge", "base"},
    {"--on-nan", "rollback"},
    {"--spike-factor", "4"},
    {"--rollbacks", "2"},
    {"--recompute", "layers"},
    {"--eval-tasks", "kobest_copa"},
    {"--eval-kl", ""},
    {"--eval-data", "absent-tasks"},
    {"--eval-limit", "5"},
    {"--sample-prompt", "It was"},
    {"--sample-tokens", "8"},
    {"--early-stopping", "2"},
    {"--metric", "validation_loss"},
    {"--load-best", ""},
    {"--tensorboard", ""},
    {"--report_to", "tensorboard"},
};

// Options that need --resume, and pairs that contradict each other; all other pairs may stand side by side.
const std::set<std::string> kNeedsResume = {"--allow-changed-data", "--allow-changed-recipe"};
const std::set<std::pair<std::string, std::string>> kContradict = {
    {"--model", "--shape"},
    {"--family", "--model"},
    {"--bf16", "--precision"},
    {"--epochs", "--steps"},
    {"--validation", "--validation-data"},
    {"--merge", "--ship"},
    {"--warmup", "--warmup-ratio"},
};

// Adapters are trained for a model.
bool of_adapter(const std::string& option) {
  return option.starts_with("--lora") || option.starts_with("--ship") || option == "--dora" || option == "--rslora" ||
         option == "--merge" || option == "--max-kl";
}
bool of_fresh(const std::string& option) {
  return option == "--shape" || option == "--family";
}

void add(std::vector<std::string>& arguments, const std::string& option) {
  arguments.push_back(option);
  if (const std::string& value = kOptions.at(option); !value.empty()) arguments.push_back(value);
}

TEST_F(TrainFlagsTest, TheTableIsWhole) {
  const std::string help = lumen({"train", "--help"}).out;
  const std::set<std::string> shared = {"--help",      "--formats", "--models",      "--threads",     "--device",
                                        "--machine",   "--cache",   "--cache-limit", "--no-tune",     "--try",
                                        "--libraries", "--verbose", "--quiet",       "--print-config"};
  std::set<std::string> told;
  const std::regex first(R"(\n\s{1,4}(?:-\w,\s*)?(--[\w-]+))");
  for (std::sregex_iterator i(help.begin(), help.end(), first), end; i != end; ++i) told.insert((*i)[1]);
  EXPECT_GT(told.size(), 40U) << help;
  for (const std::string& option : told)
    EXPECT_TRUE(kOptions.contains(option) || shared.contains(option)) << option << " is not in the table";
  for (const auto& [option, value] : kOptions) EXPECT_TRUE(told.contains(option)) << option;
}

// --print-config resolves all flags and begins nothing. What contradicts does so pair by pair, so that options that
// pass all at once pass in every pair of them.
TEST_F(TrainFlagsTest, EveryPair) {
  const auto run = [](const std::set<std::string>& options) {
    std::vector<std::string> arguments = {"train", "--print-config"};
    for (const std::string& option : options) add(arguments, option);
    return lumen(arguments);
  };
  for (const auto& [a, b] : kContradict) {
    const Outcome o = run({a, b});
    EXPECT_EQ(o.code, 2) << a << " " << b << ": " << o.error;
    EXPECT_TRUE(contains(o.error, a) && contains(o.error, b)) << o.error;
  }
  std::vector<std::set<std::string>> together;
  for (const bool model : {false, true}) {
    // One of each pair that contradicts itself, in all ways.
    for (int choice = 0; choice < 32; ++choice) {
      std::set<std::string> options = {choice & 1 ? "--bf16" : "--precision"};
      std::set<std::string> left = {choice & 2 ? "--steps" : "--epochs",
                                    choice & 4 ? "--validation" : "--validation-data",
                                    choice & 16 ? "--warmup" : "--warmup-ratio"};
      if (choice & 8)
        left.insert({"--ship", "--ship-learned", "--ship-magnitudes"});
      else
        left.insert("--merge");
      for (const auto& [option, value] : kOptions) {
        const bool other =
            left.contains(option) || option == "--bf16" || option == "--precision" || option == "--resume";
        const bool of_model = option == "--model" || of_adapter(option);
        if (!other && !kNeedsResume.contains(option) && (model ? !of_fresh(option) : !of_model)) options.insert(option);
      }
      const Outcome o = run(options);
      EXPECT_EQ(o.code, 0) << o.error;
      for (const std::string& option : kNeedsResume) {
        std::set<std::string> more = options;
        more.insert(option);
        const Outcome refused = run(more);
        EXPECT_EQ(refused.code, 2) << option << refused.error;
        EXPECT_TRUE(contains(refused.error, option) && contains(refused.error, "--resume")) << refused.error;
      }
      together.push_back(options);
      options.insert(kNeedsResume.begin(), kNeedsResume.end());
      options.insert("--resume");
      const Outcome resumed = run(options);
      EXPECT_EQ(resumed.code, 1) << resumed.error;
      EXPECT_TRUE(contains(resumed.error, "no checkpoint in absent-run")) << resumed.error;
      together.push_back(options);
    }
  }
  for (const auto& [a, a_value] : kOptions) {
    for (const auto& [b, b_value] : kOptions) {
      if (b <= a || kContradict.contains({a, b})) continue;
      const bool seen = std::any_of(together.begin(), together.end(),
                                    [&](const auto& options) { return options.contains(a) && options.contains(b); });
      const bool of_shipping = a == "--merge" && b.starts_with("--ship-");
      const bool needs_model = (of_adapter(a) && of_fresh(b)) || (of_fresh(a) && of_adapter(b));
      EXPECT_TRUE(seen || of_shipping || needs_model) << a << " " << b << " were not tried";
    }
  }
  for (const char* name : {"absent-run", "absent-out", "lumen-out"}) EXPECT_FALSE(fs::exists(name)) << name;
}

TEST_F(TrainFlagsTest, ValuesThatContradict) {
  const std::vector<std::vector<std::string>> wrong = {
      {"--lr", "1e-3", "--min-lr", "1e-2"},    {"--min-lr", "1e-3", "--schedule", "constant"},
      {"--warmup", "20", "--steps", "10"},     {"--bf16", "--precision", "f16"},
      {"--recipe", "char", "--min-lr", "0.5"},
  };
  for (auto arguments : wrong) {
    arguments.insert(arguments.begin(), {"train", "--print-config"});
    const Outcome o = lumen(arguments);
    EXPECT_EQ(o.code, 2) << arguments[2] << " " << o.out;
  }
  EXPECT_EQ(lumen({"train", "--print-config", "--bf16", "--precision", "bf16"}).code, 0);
}

// The share takes the place of a recipe's number of steps, and the other way round, wherever each is said.
TEST_F(TrainFlagsTest, AShareOfTheStepsIsAWarmUp) {
  const auto config = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"train", "--print-config"});
    return lumen(arguments).out;
  };
  const std::string share = config({"--warmup_ratio", "0.03", "--steps", "1000"});
  EXPECT_TRUE(contains(share, "warmup_ratio = 0.03\n") && contains(share, "warmup_steps = 0\n")) << share;
  std::ofstream(path("share.toml")) << "[schedule]\nwarmup_ratio = 0.1\n";
  std::ofstream(path("steps.toml")) << "[schedule]\nwarmup_steps = 7\n";
  std::ofstream(path("both.toml")) << "[schedule]\nwarmup_steps = 7\nwarmup_ratio = 0.1\n";
  const std::string steps = config({"--recipe", path("share.toml") + "," + path("steps.toml")});
  EXPECT_TRUE(contains(steps, "warmup_ratio = 0\n") && contains(steps, "warmup_steps = 7\n")) << steps;
  const std::string later = config({"--recipe", path("steps.toml") + "," + path("share.toml")});
  EXPECT_TRUE(contains(later, "warmup_ratio = 0.1\n") && contains(later, "warmup_steps = 0\n")) << later;
  const std::string flag = config({"--recipe", path("share.toml"), "--warmup", "5"});
  EXPECT_TRUE(contains(flag, "warmup_ratio = 0\n") && contains(flag, "warmup_steps = 5\n")) << flag;
  const Outcome both = lumen({"train", "--print-config", "--recipe", path("both.toml")});
  EXPECT_EQ(both.code, 1);
  EXPECT_TRUE(contains(both.error, "both.toml:3")) << both.error;
  // What is printed is a recipe that says the same.
  std::ofstream(path("printed.toml")) << share;
  EXPECT_EQ(config({"--recipe", path("printed.toml")}), share);
  EXPECT_EQ(lumen({"train", "--print-config", "--warmup-ratio", "1.5"}).code, 2);
}

TEST_F(TrainFlagsTest, ARecipeOfAnAdapterIsPrintedWithoutItsModel) {
  std::ofstream(path("lora.toml")) << "[adapter]\nmethod = \"lora\"\nrank = 4\n";
  const Outcome o = lumen({"train", "--print-config", "--recipe", path("lora.toml")});
  EXPECT_EQ(o.code, 0) << o.error;
  EXPECT_TRUE(contains(o.out, "method = \"lora\"")) << o.out;
  const Outcome trained = lumen({"train", "--recipe", path("lora.toml"), "--out", path("out")});
  EXPECT_EQ(trained.code, 2);
  EXPECT_TRUE(contains(trained.error, "for a model")) << trained.error;
}

// Whatever is wrong in a recipe, the message says in which file, line and key.
TEST_F(TrainFlagsTest, MistakesOfRecipesHaveAPlace) {
  const std::pair<const char*, const char*> wrong[] = {
      {"[schedule]\nshape = \"no\"", "wrong.toml:2"},
      {"[schedule]\nsteps = \"x\"", "wrong.toml:2"},
      {"[schedule]\nsteps = 0", "wrong.toml:2"},
      {"[schedule]\nlearning_rate = 1e-4\nmin_learning_rate = 1e-3", "wrong.toml:3"},
      {"[schedule]\nsteps = 10\ndecay_steps = 20", "wrong.toml:3"},
      {"[schedule]\nstepz = 10", "wrong.toml:2"},
      {"[data]\nform = \"no\"", "wrong.toml:2"},
      {"[data]\ntrain_on = \"no\"", "wrong.toml:2"},
      {"[data]\noverflow = \"no\"", "wrong.toml:2"},
      {"[run]\non_nan = \"no\"", "wrong.toml:2"},
      {"[run]\nrecompute = \"no\"", "wrong.toml:2"},
      {"[run]\nprecision = \"no\"", "wrong.toml:2"},
      {"[memory]\nlimit = \"no\"", "wrong.toml:2"},
      {"[memory]\noffload = \"no\"", "wrong.toml:2"},
      {"[ranks]\nshard = \"no\"", "wrong.toml:2"},
      {"[optimizer]\nname = \"no\"", "wrong.toml:2"},
      {"[adapter]\nmethod = \"no\"", "wrong.toml:2"},
      {"[adapter]\nmethod = \"lora\"\ninit = \"no\"", "wrong.toml:3"},
      {"[ship]\nfields = \"no\"", "wrong.toml:2"},
      {"[products]\nactivation_scale = \"no\"", "wrong.toml:2"},
      {"[products]\nactivation = \"no\"", "wrong.toml:2"},
      {"[[quantize]]\nformat = \"q4_0\"\nlayers = \"no\"", "wrong.toml:3"},
  };
  for (const auto& [text, place] : wrong) {
    std::ofstream(path("wrong.toml")) << text << "\n";
    const Outcome o = lumen({"train", "--print-config", "--recipe", path("wrong.toml")});
    EXPECT_TRUE(o.code == 1 || o.code == 2) << text << "\n" << o.out;
    EXPECT_TRUE(contains(o.error, place)) << text << "\n" << o.error;
  }
  // What a flag says is not the file's mistake.
  std::ofstream(path("wrong.toml")) << "[schedule]\nmin_learning_rate = 1e-4\n";
  const Outcome flag = lumen({"train", "--print-config", "--recipe", path("wrong.toml"), "--min-lr", "1"});
  EXPECT_EQ(flag.code, 2);
  EXPECT_FALSE(contains(flag.error, "wrong.toml:2")) << flag.error;
}

TEST_F(TrainFlagsTest, NumbersThatAreNone) {
  const std::vector<std::string> never = {"nan", "-nan", "inf", "-inf", "-1", "", "x", "1e400", "0x", "1 2"};
  for (const char* option :
       {"--lr", "--min-lr", "--weight-decay", "--max-grad-norm", "--beta1", "--beta2", "--validation", "--batch",
        "--length", "--steps", "--warmup", "--accumulate", "--eval-every", "--save-every", "--keep", "--seed"}) {
    for (const std::string& value : never) {
      const Outcome o = lumen({"train", "--print-config", std::string(option) + "=" + value});
      EXPECT_EQ(o.code, 2) << option << " " << value << o.out;
      EXPECT_TRUE(contains(o.error, option)) << o.error;
    }
  }
  for (const char* option : {"--batch", "--length", "--steps", "--warmup", "--accumulate", "--eval-every",
                             "--save-every", "--keep", "--seed"}) {
    for (const char* value : {"99999999999999999999", "1.5", "9223372036854775808", "18446744073709551617"})
      EXPECT_EQ(lumen({"train", "--print-config", option, value}).code, 2) << option << " " << value;
  }
  for (const char* option : {"--batch", "--steps", "--accumulate"})
    EXPECT_EQ(lumen({"train", "--print-config", option, "0"}).code, 2) << option;
  // As in a recipe: the model's context.
  EXPECT_EQ(lumen({"train", "--print-config", "--length", "0"}).code, 0);
  for (const char* value : {"1", "2.0"}) EXPECT_EQ(lumen({"train", "--print-config", "--beta1", value}).code, 2);
  const Outcome range = lumen({"train", "--print-config", "--validation", "0.95"});
  EXPECT_TRUE(contains(range.error, "0.001 to 0.9")) << range.error;
}

TEST_F(TrainFlagsTest, NamesThatAreNone) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"--tokenizer", "bytes:"},
      {"--tokenizer", "bytes:255"},
      {"--tokenizer", "bytes:300x"},
      {"--tokenizer", "bytes:1e3"},
      {"--tokenizer", "bytes:99999999999999999999"},
      {"--schedule", "sine"},
      {"--recipe", "absent"},
  };
  for (const auto& [option, value] : wrong)
    EXPECT_EQ(lumen({"train", "--print-config", option, value}).code, 2) << value;
  EXPECT_NE(lumen({"train", "--print-config", "--precision", "nonsense"}).code, 0);
  const Outcome type = lumen({"train", "--shape", "tiny", "--param-compensation", "bf16", "-o", path("o")});
  EXPECT_EQ(type.code, 2) << type.error;
  const Outcome exact =
      lumen({"train", "--shape", "tiny", "--param-type", "f16", "--param-compensation", "exact", "-o", path("o")});
  EXPECT_EQ(exact.code, 2) << exact.error;
}

}  // namespace
}  // namespace lumen::cli
