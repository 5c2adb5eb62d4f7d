// Needs: cpu. What lumen.h promises, seen from outside: this program knows the header and liblumen.so alone.
#include <gtest/gtest.h>
#include <lumen.h>
#include <signal.h>
#include <stdlib.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace fs = std::filesystem;

int command(const std::vector<const char*>& words, std::string* output = nullptr) {
  char* text = nullptr;
  size_t size = 0;
  const int status = lumen_command(int(words.size()), words.data(), &text, &size);
  if (output && status == LUMEN_OK) output->assign(text, size);
  lumen_free(text);
  return status;
}

std::string api_error() {
  const char* hint = nullptr;
  const std::string message = lumen_last_error(&hint);
  return message + " | " + hint;
}

std::string file_bytes(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A tiny model, trained by the library itself, once for all tests.
class Api : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string name = (fs::temp_directory_path() / "lumen-api-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder() = name;
    setenv("LUMEN_CACHE", (folder() / "cache").c_str(), 0);
    ASSERT_EQ(command({"train", "-q", "--shape", "tiny", "--steps", "6", "--seed", "3", "--out", out("run").c_str()}),
              LUMEN_OK)
        << api_error();
    ASSERT_EQ(lumen_model_open((folder() / "run/model.gguf").c_str(), nullptr, &model()), LUMEN_OK) << api_error();
  }
  static void TearDownTestSuite() {
    lumen_model_close(model());
    fs::remove_all(folder());
  }
  static fs::path& folder() {
    static fs::path path;
    return path;
  }
  static std::string out(const char* name) { return (folder() / name).string(); }
  static lumen_model*& model() {
    static lumen_model* opened = nullptr;
    return opened;
  }

  static int written(const char* options, std::string* json, lumen_on_text on_text = nullptr, void* context = nullptr) {
    char* text = nullptr;
    const std::string prompt = "ROMEO:";
    const int status = lumen_generate(model(), prompt.data(), prompt.size(), options, on_text, context, &text);
    if (text) *json = text;
    lumen_free(text);
    return status;
  }
};

TEST_F(Api, VersionsAndInformation) {
  EXPECT_EQ(lumen_api_version(), LUMEN_API_VERSION);
  EXPECT_EQ(std::string(lumen_version()).rfind("0.", 0), 0U) << lumen_version();
  char* json = nullptr;
  ASSERT_EQ(lumen_model_info(model(), &json), LUMEN_OK);
  EXPECT_TRUE(holds(json, "\"vocabulary\":65")) << json;
  lumen_free(json);
}

TEST_F(Api, TokensAndBack) {
  const std::string text = "To be, or not to be";
  int32_t* tokens = nullptr;
  size_t count = 0, size = 0;
  ASSERT_EQ(lumen_tokenize(model(), text.data(), text.size(), nullptr, &tokens, &count), LUMEN_OK) << api_error();
  EXPECT_EQ(count, text.size());
  char* back = nullptr;
  ASSERT_EQ(lumen_detokenize(model(), tokens, count, &back, &size), LUMEN_OK);
  EXPECT_EQ(std::string(back, size), text);
  lumen_free(back);
  tokens[0] = 70000;
  EXPECT_EQ(lumen_detokenize(model(), tokens, count, &back, &size), LUMEN_DATA);
  lumen_free(tokens);
}

TEST_F(Api, ATextIsThatOfTheCommandAndDoesNotDependOnTheOneBefore) {
  const char* options = R"({"max_tokens": 12, "seed": 5})";
  std::string json, again, other;
  ASSERT_EQ(written(options, &json), LUMEN_OK) << api_error();
  ASSERT_EQ(written(R"({"max_tokens": 3, "seed": 9, "temperature": 0})", &other), LUMEN_OK);
  ASSERT_EQ(written(options, &again), LUMEN_OK);
  const auto text_of = [](const std::string& s) { return s.substr(0, s.find("\"reason\"")); };
  EXPECT_EQ(text_of(json), text_of(again));
  std::string printed;
  ASSERT_EQ(command({"run", "-q", "-m", out("run/model.gguf").c_str(), "-p", "ROMEO:", "-n", "12", "--seed", "5",
                     "--no-display-prompt"},
                    &printed),
            LUMEN_OK)
      << api_error();
  std::string told;
  const auto add = [](void* to, const char* piece, size_t size) {
    static_cast<std::string*>(to)->append(piece, size);
    return 1;
  };
  ASSERT_EQ(written(options, &json, add, &told), LUMEN_OK);
  EXPECT_EQ(told + "\n", printed);
  EXPECT_EQ(written(options, &json, [](void*, const char*, size_t) { return 0; }), LUMEN_INTERRUPTED);
  ASSERT_EQ(written(options, &again), LUMEN_OK) << "a text that was stopped leaves nothing behind";
  EXPECT_EQ(text_of(json), text_of(again));
}

TEST_F(Api, WeightsInMemoryOfTheirOwnComputeTheSame) {
  const std::vector<int32_t> tokens = {1, 5, 9};
  lumen_model* copied = nullptr;
  ASSERT_EQ(lumen_model_open(out("run/model.gguf").c_str(), R"({"mmap": false})", &copied), LUMEN_OK) << api_error();
  const auto logits_of = [&](lumen_model* m) {
    float* numbers = nullptr;
    size_t vocabulary = 0;
    EXPECT_EQ(lumen_logits(m, tokens.data(), tokens.size(), 1, nullptr, &numbers, &vocabulary), LUMEN_OK)
        << api_error();
    const std::vector<float> last(numbers, numbers + vocabulary);
    lumen_free(numbers);
    return last;
  };
  EXPECT_EQ(logits_of(copied), logits_of(model()));
  lumen_model_close(copied);
}

TEST_F(Api, LogitsOfAllTokensEndWithThoseOfTheLast) {
  const std::vector<int32_t> tokens = {1, 5, 9, 13, 17, 21, 25, 29, 33, 37, 41, 45, 49, 53, 57, 61, 2, 6};
  float *all = nullptr, *last = nullptr;
  size_t vocabulary = 0;
  ASSERT_EQ(lumen_logits(model(), tokens.data(), tokens.size(), 0, R"({"exact": true})", &all, &vocabulary), LUMEN_OK)
      << api_error();
  ASSERT_EQ(lumen_logits(model(), tokens.data(), tokens.size(), 1, R"({"exact": true})", &last, &vocabulary), LUMEN_OK);
  for (size_t i = 0; i < vocabulary; ++i) EXPECT_NEAR(all[(tokens.size() - 1) * vocabulary + i], last[i], 1e-4);
  lumen_free(all);
  lumen_free(last);
  const std::vector<int32_t> wrong = {-1};
  EXPECT_EQ(lumen_logits(model(), wrong.data(), 1, 1, nullptr, &last, &vocabulary), LUMEN_DATA);
  EXPECT_EQ(lumen_logits(model(), wrong.data(), 0, 1, nullptr, &last, &vocabulary), LUMEN_USAGE);
}

TEST_F(Api, MistakesHaveACodeAndAHint) {
  lumen_model* none = nullptr;
  EXPECT_EQ(lumen_model_open("nowhere.gguf", nullptr, &none), LUMEN_DATA);
  EXPECT_TRUE(holds(api_error(), "nowhere.gguf"));
  std::string json;
  EXPECT_EQ(written(R"({"temprature": 1})", &json), LUMEN_USAGE);
  EXPECT_TRUE(holds(api_error(), "temperature")) << api_error();
  for (const char* options : {"[]", "{", "{\"seed\": 1.5}", "{\"seed\": -7}", "{\"top_p\": 7}", "{\"stop\": 3}",
                              "{\"logit_bias\": {\"x\": 1}}", "{\"logit_bias\": {\"70\": 1}}", "{\"grammar\": \"(\"}",
                              "{\"json_schema\": 5}", "{\"max_tokens\": 1e400}", "{\"seed\": 18446744073709551615}"})
    EXPECT_NE(written(options, &json), LUMEN_OK) << options;
  EXPECT_EQ(lumen_generate(nullptr, "a", 1, nullptr, nullptr, nullptr, nullptr), LUMEN_USAGE);
  EXPECT_EQ(lumen_generate(model(), "a", 1, nullptr, nullptr, nullptr, nullptr), LUMEN_USAGE);
  EXPECT_EQ(lumen_model_open(nullptr, nullptr, nullptr), LUMEN_USAGE);
  const std::string bytes = "\xff\xfe";
  int32_t* tokens = nullptr;
  size_t count = 0;
  EXPECT_EQ(lumen_tokenize(model(), bytes.data(), bytes.size(), nullptr, &tokens, &count), LUMEN_DATA);
  EXPECT_EQ(command({"nonsense"}), LUMEN_USAGE);
  EXPECT_EQ(command({"quantize", "nowhere.gguf", "out.gguf", "q4_0"}), LUMEN_DATA);
  EXPECT_EQ(lumen_command(0, nullptr, nullptr, nullptr), LUMEN_USAGE);
}

TEST_F(Api, TextsFromSeveralThreadsAreTheSame) {
  const char* options = R"({"max_tokens": 6, "seed": 4})";
  std::string alone;
  ASSERT_EQ(written(options, &alone), LUMEN_OK);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      std::string json;
      const size_t end = alone.find("\"reason\"");
      if (written(options, &json) != LUMEN_OK || json.substr(0, end) != alone.substr(0, end)) ++wrong;
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ApiFunction, ValuesAndGradients) {
  lumen_function* f = nullptr;
  ASSERT_EQ(lumen_function_open("fn product(x: f32[M, K], w: f32[N, K]) -> f32[M, N]\n"
                                "  y[m, n] = sum(k) x[m, k] * w[n, k]\n",
                                nullptr, nullptr, &f),
            LUMEN_OK)
      << api_error();
  const std::array<float, 6> x = {1, 2, 3, 4, 5, 6};
  const std::array<float, 3> w = {1, 0, -1};
  const std::array<float, 2> weigh = {1, 10};
  const std::array<int64_t, 2> of_x = {2, 3}, of_w = {1, 3}, of_y = {2, 1};
  std::array<lumen_tensor, 2> in = {{{LUMEN_F32, 2, of_x.data(), x.data()}, {LUMEN_F32, 2, of_w.data(), w.data()}}};
  lumen_result y{};
  ASSERT_EQ(lumen_function_call(f, in.data(), 2, &y, 1), LUMEN_OK) << api_error();
  EXPECT_EQ(y.rank, 2);
  EXPECT_EQ(y.shape[0], 2);
  EXPECT_FLOAT_EQ(y.data[0], -2);
  EXPECT_FLOAT_EQ(y.data[1], -2);
  lumen_free(y.shape);
  lumen_free(y.data);
  const lumen_tensor cotangent = {LUMEN_F32, 2, of_y.data(), weigh.data()};
  const std::array<size_t, 2> wanted = {1, 0};
  std::array<lumen_result, 2> gradients{};
  ASSERT_EQ(lumen_function_gradient(f, in.data(), 2, &cotangent, 1, wanted.data(), 2, gradients.data()), LUMEN_OK)
      << api_error();
  const std::array<float, 3> dw = {41, 52, 63};
  const std::array<float, 6> dx = {1, 0, -1, 10, 0, -10};
  for (size_t i = 0; i < dw.size(); ++i) EXPECT_FLOAT_EQ(gradients[0].data[i], dw[i]);
  for (size_t i = 0; i < dx.size(); ++i) EXPECT_FLOAT_EQ(gradients[1].data[i], dx[i]);
  for (const lumen_result& g : gradients) {
    lumen_free(g.shape);
    lumen_free(g.data);
  }
  // Shapes that do not go together, and what is no tensor at all.
  const std::array<int64_t, 2> other = {1, 2}, empty = {0, 3}, huge = {INT64_MAX, 3};
  for (const auto* shape : {&other, &empty, &huge}) {
    in[1].shape = shape->data();
    EXPECT_EQ(lumen_function_call(f, in.data(), 2, &y, 1), LUMEN_USAGE);
  }
  in[1] = {LUMEN_I32, 2, of_w.data(), w.data()};
  EXPECT_EQ(lumen_function_call(f, in.data(), 2, &y, 1), LUMEN_USAGE);
  in[1] = {LUMEN_F32, -3, nullptr, nullptr};
  EXPECT_EQ(lumen_function_call(f, in.data(), 2, &y, 1), LUMEN_USAGE);
  EXPECT_EQ(lumen_function_call(f, in.data(), 1, &y, 1), LUMEN_USAGE);
  EXPECT_EQ(lumen_function_call(f, in.data(), 2, &y, 2), LUMEN_USAGE);
  lumen_function_close(f);
  EXPECT_EQ(lumen_function_open("fn f(x: f32[N]) -> f32[N] = x +", nullptr, nullptr, &f), LUMEN_DATA);
  EXPECT_TRUE(holds(api_error(), "1:")) << api_error();
  EXPECT_EQ(lumen_function_open("", nullptr, nullptr, &f), LUMEN_DATA);
  EXPECT_EQ(lumen_function_open("fn f(x: f32[N]) -> f32[N] = x", "g", nullptr, &f), LUMEN_USAGE);
}

TEST(ApiFormat, RoundsAsItsTextSays) {
  lumen_format* f = nullptr;
  ASSERT_EQ(lumen_format_open("format eighths : block 4 {\n  q : i8[4]\n  decode(i) = q[i] * 0.125\n"
                              "  fit(x) { }\n  code(v) = clamp(rint(v * 8), -127, 127)\n}\n",
                              nullptr, nullptr, &f),
            LUMEN_OK)
      << api_error();
  const std::array<float, 4> x = {0.3F, -1, 2.06F, 100};
  uint8_t* bytes = nullptr;
  size_t size = 0;
  float* back = nullptr;
  ASSERT_EQ(lumen_format_encode(f, x.data(), 1, 4, &bytes, &size), LUMEN_OK) << api_error();
  ASSERT_EQ(lumen_format_decode(f, bytes, size, 1, 4, &back), LUMEN_OK) << api_error();
  const std::array<float, 4> expected = {0.25F, -1, 2, 15.875F};
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(back[i], expected[i]);
  lumen_free(back);
  EXPECT_EQ(lumen_format_decode(f, bytes, size - 1, 1, 4, &back), LUMEN_USAGE);
  EXPECT_EQ(lumen_format_decode(f, bytes, size, INT64_MAX, INT64_MAX, &back), LUMEN_USAGE);
  EXPECT_EQ(lumen_format_encode(f, x.data(), 1, 3, &bytes, &size), LUMEN_USAGE);
  lumen_free(bytes);
  lumen_format_close(f);
  EXPECT_EQ(lumen_format_open(nullptr, "q4_00", nullptr, &f), LUMEN_DATA);
}

TEST_F(Api, StepsByHandEndWithTheWeightsOfTheCommand) {
  const std::string run = out("steps");
  const std::vector<const char*> words = {"-q", "--shape", "tiny", "--steps", "6", "--seed", "3", "--out", run.c_str()};
  lumen_trainer* trainer = nullptr;
  ASSERT_EQ(lumen_trainer_open(int(words.size()), words.data(), nullptr, nullptr, &trainer), LUMEN_OK) << api_error();
  char* json = nullptr;
  double loss = 0;
  for (int i = 0; i < 6; ++i) {
    ASSERT_EQ(lumen_trainer_step(trainer, nullptr, nullptr, &json), LUMEN_OK) << api_error();
    EXPECT_TRUE(holds(json, "\"step\":" + std::to_string(i + 1))) << json;
    lumen_free(json);
  }
  EXPECT_EQ(lumen_trainer_evaluate(trainer, 2, nullptr, nullptr, &loss), LUMEN_OK) << api_error();
  EXPECT_GT(loss, 1);
  EXPECT_EQ(lumen_trainer_evaluate(trainer, -2, nullptr, nullptr, &loss), LUMEN_USAGE);
  ASSERT_EQ(lumen_trainer_finish(trainer, nullptr, nullptr, &json), LUMEN_OK) << api_error();
  lumen_free(json);
  EXPECT_EQ(lumen_trainer_step(trainer, nullptr, nullptr, &json), LUMEN_USAGE);
  lumen_trainer_close(trainer);
  EXPECT_EQ(file_bytes(folder() / "steps/model.gguf"), file_bytes(folder() / "run/model.gguf"));
  EXPECT_FALSE(file_bytes(folder() / "run/model.gguf").empty());
  const std::vector<const char*> wrong = {"--shape", "enormous"}, plan = {"--shape", "tiny", "--print-config"};
  EXPECT_EQ(lumen_trainer_open(2, wrong.data(), nullptr, nullptr, &trainer), LUMEN_USAGE);
  EXPECT_EQ(lumen_trainer_open(3, plan.data(), nullptr, nullptr, &trainer), LUMEN_USAGE);
}

TEST_F(Api, ACommandIsStoppedByCtrlC) {
  static volatile std::sig_atomic_t seen = 0;
  struct sigaction mine{}, before{};
  mine.sa_handler = [](int) { seen = 1; };
  sigaction(SIGINT, &mine, &before);
  std::atomic<bool> is_over{false};
  const std::string run = out("stopped");
  std::thread stopper([&] {
    for (int i = 0; i < 600 && !is_over; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (fs::exists(fs::path(run) / "metrics.jsonl") && file_bytes(fs::path(run) / "metrics.jsonl").size() > 600) {
        raise(SIGINT);
        return;
      }
    }
  });
  const int status =
      command({"train", "-q", "--shape", "tiny", "--steps", "100000", "--seed", "3", "--out", run.c_str()});
  is_over = true;
  stopper.join();
  EXPECT_EQ(status, LUMEN_INTERRUPTED) << api_error();
  EXPECT_EQ(seen, 1) << "the program's own handler hears of it, too";
  struct sigaction after{};
  sigaction(SIGINT, &before, &after);
  EXPECT_EQ(after.sa_handler, mine.sa_handler) << "and is there again";
  bool has_checkpoint = false;
  for (const auto& entry : fs::directory_iterator(run))
    has_checkpoint |= entry.path().filename().string().starts_with("checkpoint-");
  EXPECT_TRUE(has_checkpoint);
}

}  // namespace
