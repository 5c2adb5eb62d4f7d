// needs: none. The program from the outside: arguments in, text and exit code out.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "../run/stand_in.h"
#include "base/embedded.h"
#include "outcome.h"

namespace lumen::cli {
namespace {

class Cli : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "lumen-cli-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    setenv("LUMEN_CACHE", (std::filesystem::temp_directory_path() / "lumen-test-cache").c_str(), 1);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::filesystem::path folder_;
};

TEST_F(Cli, HelpIsWorthReading) {
  const Outcome all = lumen({"--help"});
  EXPECT_EQ(all.code, 0);
  for (const char* command :
       {"demo", "train", "run", "quantize", "perplexity", "bench", "inspect", "compile", "format", "doctor"}) {
    EXPECT_TRUE(contains(all.out, command)) << command;
    const Outcome one = lumen({command, "--help"});
    EXPECT_EQ(one.code, 0) << command;
    EXPECT_GT(one.out.size(), 300U) << command;
  }
  EXPECT_TRUE(contains(lumen({"quantize", "--help"}).out, "q4_0"));
  EXPECT_TRUE(contains(lumen({"train", "--help"}).out, "llama-1b"));
  const std::string version = lumen({"--version"}).out;
  EXPECT_EQ(version.rfind("lumen 0.", 0), 0U) << version;
  EXPECT_TRUE(contains(version, "\nbuild     ") && contains(version, "\ncompiler  llvm ")) << version;
}

TEST_F(Cli, MistakesHaveCodesAndHints) {
  EXPECT_EQ(lumen({}).code, 2);
  EXPECT_EQ(lumen({"nonsense"}).code, 2);
  EXPECT_EQ(lumen({"quantize", "only-one"}).code, 2);
  EXPECT_EQ(lumen({"run", "-m", path("absent.gguf"), "-p", "x"}).code, 1);
  const Outcome shape = lumen({"train", "--shape", "enormous", "-o", path("o")});
  EXPECT_EQ(shape.code, 2);
  EXPECT_TRUE(contains(shape.error, "lumen: error:") || contains(shape.error, "error:"));
  EXPECT_TRUE(contains(shape.error, "llama-1b"));
  const Outcome format = lumen({"format", "show", "q4_00"});
  EXPECT_EQ(format.code, 2);
  EXPECT_TRUE(contains(format.error, "hint:"));
  EXPECT_TRUE(contains(format.error, "q4_0"));
}

TEST_F(Cli, RecipesResolve) {
  const Outcome o = lumen({"train", "--recipe", "char", "--steps", "7", "--learning_rate", "0.25", "--print-config"});
  EXPECT_EQ(o.code, 0);
  EXPECT_TRUE(contains(o.out, "steps = 7"));
  EXPECT_TRUE(contains(o.out, "learning_rate = 0.25"));
  EXPECT_TRUE(contains(o.out, "beta2 = 0.99"));
}

TEST_F(Cli, FormatsAreListedAndShown) {
  const Outcome list = lumen({"format", "list"});
  EXPECT_EQ(list.code, 0);
  EXPECT_TRUE(contains(list.out, "q4_0"));
  EXPECT_TRUE(contains(list.out, "4.500"));
  const Outcome show = lumen({"format", "show", "q4_0"});
  EXPECT_TRUE(contains(show.out, "decode(i)"));
}

TEST_F(Cli, CompileShowsEveryStage) {
  const std::vector<std::string> base = {"compile", "llama",    "--shape",   "tiny",  "--symbols",
                                         "B=1,T=4", "--target", "x86-64-v3", "--emit"};
  const std::vector<std::pair<std::string, std::string>> stages = {{"graph", "graph"}, {"loops", "kernel"},
                                                                   {"llvm", "define"}, {"asm", ".text"},
                                                                   {"obj", "ELF"},     {"bids", "refused"}};
  for (const auto& [stage, word] : stages) {
    std::vector<std::string> arguments = base;
    arguments.push_back(stage);
    const Outcome o = lumen(arguments);
    EXPECT_EQ(o.code, 0) << stage << o.error;
    EXPECT_TRUE(contains(o.out, word)) << stage;
  }
  const Outcome times = lumen({"compile", "llama", "--shape", "tiny", "--symbols", "B=1,T=8", "--explain"});
  EXPECT_EQ(times.code, 0);
  EXPECT_TRUE(contains(times.out, "of ceiling"));
  EXPECT_TRUE(contains(times.out, "bids for products, predicted:"));
  EXPECT_TRUE(contains(times.out, "ms for a run in which no kernel is timed apart"));
  EXPECT_EQ(lumen({"compile", "llama", "--emit", "poetry"}).code, 2);
}

TEST_F(Cli, CompileHoldsNamedInputsInFormats) {
  std::ofstream(path("product.lum")) << "fn product(x: f32[1, 64], w: f32[8, 64]) -> f32[1, 8]\n"
                                        "  y[m, n] = sum(k) x[m, k] * w[n, k]\n";
  const std::vector<std::string> base = {"compile", path("product.lum"), "--function", "product", "--emit", "loops"};
  const auto with = [&](const std::string& format) {
    std::vector<std::string> arguments = base;
    arguments.insert(arguments.end(), {"--format", format});
    return lumen(arguments);
  };
  const Outcome held = with("w=q4_0");
  EXPECT_EQ(held.code, 0) << held.error;
  EXPECT_TRUE(contains(held.out, "packed")) << held.out;
  for (const char* nothing : {"q4_0", "v=q4_0"}) {  // no parameters here, and no v
    const Outcome o = with(nothing);
    EXPECT_EQ(o.code, 2);
    EXPECT_TRUE(contains(o.error, "inputs: x, w")) << o.error;
  }
}

TEST_F(Cli, TrainQuantizeRunInspectPerplexity) {
  const std::string out = path("out");
  const Outcome train = lumen({"train", "--shape", "tiny", "--length", "16", "--batch", "4", "--steps", "12",
                               "--warmup", "2", "--lr", "1e-2", "--validation", "0.01", "-o", out, "-q"});
  ASSERT_EQ(train.code, 0) << train.error;
  EXPECT_TRUE(contains(train.out, "validation loss"));
  EXPECT_TRUE(std::filesystem::exists(out + "/model.gguf"));
  EXPECT_TRUE(std::filesystem::exists(out + "/metrics.jsonl"));

  // Resuming a finished run does nothing more; resuming an earlier stop gives the same file, bit for bit.
  const std::string half = path("half");
  const std::vector<std::string> common = {"--shape",      "tiny", "--length", "16",   "--batch",      "4",
                                           "--warmup",     "2",    "--lr",     "1e-2", "--validation", "0.01",
                                           "--eval-every", "0",    "-q"};
  auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> a = {"train"};
    a.insert(a.end(), common.begin(), common.end());
    a.insert(a.end(), more.begin(), more.end());
    return lumen(a);
  };
  ASSERT_EQ(with({"--steps", "12", "--save-every", "5", "--keep", "0", "-o", half}).code, 0);
  ASSERT_TRUE(std::filesystem::exists(half + "/checkpoint-5"));
  const std::string again = path("again");
  const Outcome resumed = with({"--steps", "12", "-o", again, "--resume", half + "/checkpoint-5"});
  ASSERT_EQ(resumed.code, 0) << resumed.error;
  const auto bytes = [](const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  };
  EXPECT_FALSE(bytes(half + "/model.gguf").empty());
  EXPECT_TRUE(bytes(half + "/model.gguf") == bytes(again + "/model.gguf"));

  const std::string small = path("small.gguf");
  const Outcome quantize = lumen({"quantize", out + "/model.gguf", small, "Q4_0", "1", "-q"});
  ASSERT_EQ(quantize.code, 0) << quantize.error;
  EXPECT_TRUE(contains(quantize.out, "blk.1.ffn_down.weight"));
  EXPECT_LT(std::filesystem::file_size(small), std::filesystem::file_size(out + "/model.gguf"));

  // The file carries the format that training made, and is read by it.
  const std::string trained = path("trained.gguf");
  const Outcome tables = lumen({"quantize", out + "/model.gguf", trained, "iq4_nl", "--train-tables", "-q"});
  ASSERT_EQ(tables.code, 0) << tables.error;
  EXPECT_TRUE(contains(tables.out, "tables: iq4_nl -> iq4_nl_")) << tables.out;
  EXPECT_TRUE(contains(lumen({"inspect", trained}).out, "iq4_nl_"));
  EXPECT_EQ(lumen({"run", "-m", trained, "-p", "ROMEO:", "-n", "4", "-q"}).code, 0);
  const Outcome layers = lumen({"quantize", out + "/model.gguf", trained, "iq4_nl", "--train-tables", "--strategy",
                                "imatrix", "-c", "16", "--chunks", "8", "-q"});
  ASSERT_EQ(layers.code, 0) << layers.error;
  EXPECT_TRUE(contains(layers.out, "tables: iq4_nl -> iq4_nl_")) << layers.out;
  EXPECT_EQ(lumen({"run", "-m", trained, "-p", "ROMEO:", "-n", "4", "-q"}).code, 0);
  const Outcome none = lumen({"quantize", out + "/model.gguf", trained, "q4_0", "--pure", "--train-tables", "-q"});
  EXPECT_TRUE(contains(none.out, "none of the formats has tables")) << none.out;

  const Outcome inspect = lumen({"inspect", small});
  EXPECT_EQ(inspect.code, 0) << inspect.error;
  EXPECT_TRUE(contains(inspect.out, "llama.embedding_length"));
  EXPECT_TRUE(contains(inspect.out, "attention_q"));
  EXPECT_EQ(lumen({"inspect", half + "/checkpoint-5"}).code, 0);

  const Outcome a = lumen({"run", "-m", small, "-p", "ROMEO:", "-n", "8", "--seed", "3", "-q"});
  const Outcome b = lumen({"completion", small, "-p", "ROMEO:", "-n", "8", "--seed", "3", "-q"});
  ASSERT_EQ(a.code, 0) << a.error;
  EXPECT_EQ(a.out, b.out);
  EXPECT_TRUE(a.out.starts_with("ROMEO:"));
  EXPECT_GE(a.out.size(), 14U);

  const Outcome p = lumen({"perplexity", "-m", small, "-c", "16", "--chunks", "20", "-q"});
  ASSERT_EQ(p.code, 0) << p.error;
  EXPECT_TRUE(contains(p.out, "perplexity"));
  EXPECT_TRUE(contains(p.out, "second half"));
}

TEST_F(Cli, AFormatOfOnesOwn) {
  const std::string file = path("three.lum");
  std::ofstream(file)
      << "format three_bits : block 16 {\n  d : f16\n  q : u3[16]\n  decode(i) = d * (q[i] - 4)\n"
         "  fit(x) { d = (max(j) abs(x[j])) / 4 }\n  code(v) = clamp(rint(v * recip(d)) + 4, 0, 7)\n}\n";
  const Outcome check = lumen({"format", "check", file});
  EXPECT_EQ(check.code, 0) << check.out << check.error;
  EXPECT_TRUE(contains(check.out, "all checks passed"));
  EXPECT_TRUE(contains(check.out, "backward dX"));
  std::ofstream(file) << "format broken : block 16 {\n  d : f17\n}\n";
  const Outcome broken = lumen({"format", "check", file});
  EXPECT_EQ(broken.code, 1);
  EXPECT_TRUE(contains(broken.error, "three.lum:2:"));
}

// A shipped file that somebody changes uses functions and tables of the others, and stands for its own names.
TEST_F(Cli, AChangedVersionOfAShippedFormat) {
  const std::string file = path("nvfp4.lum");
  std::string text;
  for (const embedded::File& e : embedded::formats())
    if (std::string(e.path).ends_with("nvfp4.lum")) text = e.text;
  ASSERT_FALSE(text.empty());
  std::ofstream(file) << text << "# changed\n";
  const Outcome check = lumen({"format", "check", file});
  EXPECT_EQ(check.code, 0) << check.error;
  EXPECT_TRUE(contains(check.out, "all checks passed")) << check.out;
}

TEST_F(Cli, BenchPrintsTheTableUsersKnow) {
  const std::vector<std::string> base = {"bench", "--shape", "tiny", "--type", "q8_0", "-p", "8,4", "-n",
                                         "2",     "-d",      "0,3",  "-r",     "2",    "-t", "2",   "-q"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = base;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return lumen(arguments);
  };
  const Outcome table = with({"--pg", "4,2"});
  ASSERT_EQ(table.code, 0) << table.error;
  for (const char* word : {"| model", "t/s |", "pp8", "tg2", "pp4 @ d3", "tg2 @ d3", "pp4+tg2", "±", "q8_0"})
    EXPECT_TRUE(contains(table.out, word)) << word << "\n" << table.out;

  const Outcome lines = with({"-o", "jsonl"});
  ASSERT_EQ(lines.code, 0) << lines.error;
  std::stringstream text(lines.out);
  int count = 0;
  for (std::string line; std::getline(text, line); ++count) {
    const nlohmann::json j = nlohmann::json::parse(line);
    for (const char* field :
         {"build_commit", "cpu_info",  "model_filename", "model_type", "model_size", "model_n_params", "n_batch",
          "n_threads",    "type_k",    "type_v",         "n_prompt",   "n_gen",      "n_depth",        "test_time",
          "avg_ns",       "stddev_ns", "avg_ts",         "stddev_ts",  "samples_ns", "samples_ts"})
      EXPECT_TRUE(j.contains(field)) << field;
    EXPECT_EQ(j["samples_ts"].size(), 2U);
    EXPECT_EQ(j["n_threads"], 2);
    EXPECT_GT(j["avg_ts"].get<double>(), 0);
  }
  EXPECT_EQ(count, 6);
  EXPECT_EQ(nlohmann::json::parse(with({"-o", "json"}).out).size(), 6U);
  const Outcome csv = with({"-o", "csv"});
  EXPECT_TRUE(csv.out.starts_with("build_commit,")) << csv.out;
  EXPECT_EQ(std::count(csv.out.begin(), csv.out.end(), '\n'), 7);

  EXPECT_EQ(lumen({"bench"}).code, 2);
  EXPECT_EQ(with({"-o", "poem"}).code, 2);
  EXPECT_EQ(lumen({"bench", "--shape", "enormous"}).code, 2);
  EXPECT_TRUE(contains(with({"-p", "4", "--explain"}).error, "of ceiling"));
}

TEST_F(Cli, BenchReadsAndWritesTextsTogether) {
  const std::string out = path("tiny"), file = out + "/model.gguf";
  ASSERT_EQ(lumen({"train", "--shape", "tiny", "--steps", "1", "-o", out, "-q"}).code, 0);
  const Outcome lines =
      lumen({"bench", "-m", file, "-p", "8", "-n", "4", "--sequences", "1,3", "-r", "2", "-o", "jsonl", "-q"});
  ASSERT_EQ(lines.code, 0) << lines.error;
  std::stringstream text(lines.out);
  std::set<std::pair<int, int>> seen;  // sequences, tokens generated
  for (std::string line; std::getline(text, line);) {
    const nlohmann::json j = nlohmann::json::parse(line);
    seen.emplace(j["n_sequences"], j["n_gen"]);
    EXPECT_EQ(j["samples_ts"].size(), 2U);
    // Tokens of all sequences over the time of all.
    EXPECT_NEAR(j["samples_ts"][0].get<double>() * j["samples_ns"][0].get<double>() / 1e9,
                j["n_sequences"].get<double>() * (j["n_prompt"].get<double>() + j["n_gen"].get<double>()), 2.5);
  }
  EXPECT_EQ(seen, (std::set<std::pair<int, int>>{{1, 0}, {1, 4}, {3, 0}, {3, 4}}));
  EXPECT_TRUE(
      contains(lumen({"bench", "-m", file, "-p", "0", "-n", "4", "-d", "5", "--sequences", "2", "-r", "1", "-q"}).out,
               "tg4 @ d5 x 2"));
  for (const char* number : {"0", "257", "-1"}) EXPECT_EQ(lumen({"bench", "-m", file, "--sequences", number}).code, 2);
  EXPECT_EQ(lumen({"bench", "-m", file, "-p", "8", "-d", "4", "--sequences", "2"}).code, 2);
  EXPECT_EQ(lumen({"bench", "--shape", "tiny", "--sequences", "2"}).code, 2)
      << "no vocabulary is learnt for so few tokens";
}

TEST_F(Cli, BenchWritesAModelThatRuns) {
  const std::string file = path("random.gguf");
  const Outcome write = lumen({"bench", "--shape", "char-16m", "--type", "q8_0", "--write", file, "-q"});
  // A vocabulary of characters is too small for a learnt one.
  EXPECT_EQ(write.code, 2) << write.error;
}

TEST_F(Cli, BenchKernelsMeasuresCeilingsFirst) {
  const Outcome o = lumen({"bench", "kernels", "--format", "q4_0", "--shape", "64x64", "-M", "1,3", "-q"});
  ASSERT_EQ(o.code, 0) << o.error;
  for (const char* word : {"GB/s", "f32", "q4_0", "64x64", "%"}) EXPECT_TRUE(contains(o.out, word)) << word;
  EXPECT_LT(o.out.find("read"), o.out.find("q4_0"));
  EXPECT_EQ(lumen({"bench", "kernels", "--shape", "64"}).code, 2);
}

TEST_F(Cli, DoctorSpeaksJson) {
  const Outcome o = lumen({"doctor", "--json", "--quick"});
  EXPECT_EQ(o.code, 0) << o.error;
  EXPECT_TRUE(contains(o.out, "\"runs_here\": true"));
  const auto json = nlohmann::json::parse(o.out);
  EXPECT_EQ(json["devices"][0]["device"], "cpu");
  EXPECT_EQ(json["devices"][0]["usable"], true);
  EXPECT_EQ(json["drivers"].size(), 2U);
}

TEST_F(Cli, DoctorTestsTheProcessor) {
  const Outcome o = lumen({"doctor", "--device", "cpu", "-v"});
  EXPECT_EQ(o.code, 0) << o.error;
  for (const char* word : {"usable", "attend gradient", "GB/s", "determinism: any-threads"})
    EXPECT_TRUE(contains(o.out, word)) << word;
  EXPECT_FALSE(contains(o.out, "libamdhip64")) << "one device was asked for";
}

// A GPU nobody has code for: refused with a reason; alone it leaves nothing usable.
TEST_F(Cli, DoctorRefusesWithAReason) {
  run::StandIn cuda(run::GpuVendor::cuda);
  cuda->major = 3;
  const Outcome all = lumen({"doctor", "--quick"});
  EXPECT_EQ(all.code, 0) << all.error;
  EXPECT_TRUE(contains(all.out, "cuda:0   REFUSED")) << all.out;
  EXPECT_TRUE(contains(all.out, "sm_30"));
  const Outcome one = lumen({"doctor", "--quick", "--device", "cuda", "--json"});
  EXPECT_EQ(one.code, 3);
  const auto json = nlohmann::json::parse(one.out);
  EXPECT_EQ(json["ok"], false);
  EXPECT_EQ(json["devices"].size(), 1U);
  EXPECT_FALSE(json["devices"][0]["refusal"].get<std::string>().empty());
}

TEST_F(Cli, DevicesThatAreNotHereEndWithCodeThree) {
  setenv("LUMEN_CUDA_LIBRARY", "/nowhere/libcuda.so.1", 1);
  const Outcome train = lumen({"train", "--shape", "tiny", "--steps", "1", "-o", path("out"), "--device", "cuda"});
  EXPECT_EQ(train.code, 3) << train.error;
  EXPECT_TRUE(contains(train.error, "LUMEN_CUDA_LIBRARY")) << train.error;
  const Outcome wrong = lumen({"train", "--shape", "tiny", "--steps", "1", "-o", path("out"), "--device", "gpu"});
  EXPECT_EQ(wrong.code, 2) << wrong.error;
  unsetenv("LUMEN_CUDA_LIBRARY");
}

}  // namespace
}  // namespace lumen::cli
