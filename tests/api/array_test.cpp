// Needs: cpu. Arrays on a device, against the stand-in of a GPU driver: its memory is none that this program could
// read, it says what was copied, and it runs the code of a chip.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <lumen.h>
#include <stdlib.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/run/fake_gpu/fake_gpu.h"

namespace {

namespace fs = std::filesystem;

constexpr const char* kLayer =
    "fn layer(x: f32[B, D], w: f32[H, D]) -> f32[B, H] {\n"
    "  h[n, m] = sum(d) x[n, d] * w[m, d]\n"
    "  return tanh(h)\n"
    "}\n";

std::string api_error() {
  const char* hint = nullptr;
  const std::string message = lumen_last_error(&hint);
  return message + " | " + hint;
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Seen {
  lumen_device device{};
  std::vector<int64_t> shape;
  float* data = nullptr;
};
Seen seen(lumen_array* array) {
  Seen out;
  int rank = 0;
  const int64_t* shape = nullptr;
  EXPECT_EQ(lumen_array_info(array, &out.device, &rank, &shape, &out.data), LUMEN_OK) << api_error();
  out.shape.assign(shape, shape + rank);
  return out;
}

std::vector<float> read(lumen_array* array, size_t count) {
  std::vector<float> out(count);
  EXPECT_EQ(lumen_array_read(array, out.data(), count), LUMEN_OK) << api_error();
  return out;
}

class Arrays : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string name = (fs::temp_directory_path() / "lumen-arrays-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder() = name;
    setenv("LUMEN_TRY", "never", 1);  // the chip takes its time
    setenv("LUMEN_CACHE", (folder() / "cache").c_str(), 1);
    const std::string out = (folder() / "run").string();
    const char* const words[] = {"train", "-q",      "--shape", "tiny",  "--steps",
                                 "1",     "--cache", "off",     "--out", out.c_str()};
    ASSERT_EQ(lumen_command(10, words, nullptr, nullptr), LUMEN_OK) << api_error();
  }
  static void TearDownTestSuite() { fs::remove_all(folder()); }
  static fs::path& folder() {
    static fs::path path;
    return path;
  }

  // The stand-in `library` of the build, which from here on is the driver that `variable` names.
  void use(const char* variable, const char* library) {
    const std::string path = std::string(LUMEN_BINARY_DIR) + "/tests/" + library;
    setenv("LUMEN_STAND_IN_AMD", "gfx1100", 1);
    setenv(variable, path.c_str(), 1);
    library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
    gpu_ = reinterpret_cast<lumen::fake::Gpu* (*)()>(dlsym(library_, "fake_gpu"))();
    gpu_->devices = 2;
  }
  // Memory of the device, as it is taken and given back from here on.
  void watch_memory() {
    taken_ = gpu_->taken;
    given_back_ = gpu_->given_back;
    gpu_->taken = [this](void* address, size_t bytes, void* host) {
      blocks_[address] = bytes;
      if (taken_) taken_(address, bytes, host);
    };
    gpu_->given_back = [this](void* address) {
      blocks_.erase(address);
      if (given_back_) given_back_(address);
    };
  }
  // What streams were asked for is done when somebody waits.
  void finish() { reinterpret_cast<int (*)()>(dlsym(library_, "hipDeviceSynchronize"))(); }

  void SetUp() override {
    use("LUMEN_HIP_LIBRARY", "amd/libamdhip64.so");
    watch_memory();
  }
  void TearDown() override {
    expect_nothing_held();
    gpu_->taken = taken_;
    gpu_->given_back = given_back_;
  }

  lumen_model* open_model(const char* options) {
    lumen_model* out = nullptr;
    EXPECT_EQ(lumen_model_open((folder() / "run/model.gguf").c_str(), options, &out), LUMEN_OK) << api_error();
    return out;
  }
  static lumen_function* open_function(const char* text, const char* options) {
    lumen_function* out = nullptr;
    EXPECT_EQ(lumen_function_open(text, nullptr, options, &out), LUMEN_OK) << api_error();
    return out;
  }
  // Nothing of the driver's is left behind.
  void expect_nothing_held() {
    EXPECT_EQ(gpu_->held(), 0) << "contexts " << gpu_->contexts << " streams " << gpu_->streams << " events "
                               << gpu_->events << " modules " << gpu_->modules << " executables " << gpu_->executables
                               << " device blocks " << gpu_->device_blocks << " host blocks " << gpu_->host_blocks;
  }

  void* library_ = nullptr;
  lumen::fake::Gpu* gpu_ = nullptr;
  std::map<void*, size_t> blocks_;  // of device memory
  std::function<void(void* address, size_t bytes, void* host)> taken_;
  std::function<void(void* address)> given_back_;
};

TEST_F(Arrays, LogitsLieOnTheDeviceAndOutliveTheModel) {
  lumen_model* model = open_model(R"({"device": "hip:1", "tune": false})");
  // The thread's own GPU is what it was.
  int current = -1;
  ASSERT_EQ(reinterpret_cast<int (*)(int*)>(dlsym(library_, "hipGetDevice"))(&current), 0);
  EXPECT_EQ(current, 0);
  lumen_device device{};
  ASSERT_EQ(lumen_model_device(model, &device), LUMEN_OK);
  EXPECT_EQ(device.kind, LUMEN_ROCM);
  EXPECT_EQ(device.id, 1);
  EXPECT_NE(device.stream, nullptr);
  const std::vector<int32_t> tokens(16, 3);
  lumen_array *all = nullptr, *last = nullptr;
  const int64_t out_before = gpu_->bytes_out;
  ASSERT_EQ(lumen_logits_array(model, tokens.data(), tokens.size(), 0, nullptr, &all), LUMEN_OK) << api_error();
  ASSERT_EQ(lumen_logits_array(model, tokens.data(), tokens.size(), 1, nullptr, &last), LUMEN_OK) << api_error();
  const Seen a = seen(all), b = seen(last);
  EXPECT_EQ(a.device.kind, LUMEN_ROCM);
  EXPECT_EQ(a.device.id, 1);
  EXPECT_EQ(a.shape, (std::vector<int64_t>{16, 65}));
  EXPECT_EQ(b.shape, (std::vector<int64_t>{65}));
  constexpr size_t kBytes = 16 * 65 * sizeof(float);
  ASSERT_TRUE(blocks_.contains(a.data));  // memory of the device, of its own
  EXPECT_GE(blocks_.at(a.data), kBytes);
  EXPECT_TRUE(blocks_.contains(b.data));
  EXPECT_LT(gpu_->bytes_out - out_before, int64_t{kBytes} / 2);  // what kernels say of themselves
  lumen_model_close(model);
  ASSERT_EQ(reinterpret_cast<int (*)(int*)>(dlsym(library_, "hipGetDevice"))(&current), 0);
  EXPECT_EQ(current, 0);
  const std::vector<float> numbers = read(all, 16 * 65), behind = read(last, 65);
  EXPECT_EQ(gpu_->device_blocks, 2);
  for (size_t i = 0; i < 65; ++i) EXPECT_NEAR(numbers[15 * 65 + i], behind[i], 1e-4);
  lumen_array* copy = nullptr;
  ASSERT_EQ(lumen_array_copy(all, &copy), LUMEN_OK) << api_error();
  EXPECT_NE(seen(copy).data, a.data);
  std::vector<float> few(3);
  EXPECT_EQ(lumen_array_read(all, few.data(), few.size()), LUMEN_USAGE);
  const auto finished = [&] { return gpu_->count("hipDeviceSynchronize"); };
  const int64_t before = finished();
  lumen_array_free(all);
  EXPECT_EQ(finished(), before + 1);  // others may be reading it
  finish();
  EXPECT_FALSE(blocks_.contains(a.data));
  lumen_array_free(last);
  lumen_array_free(copy);
  lumen_array_free(nullptr);
}

// Whom a text is told may give an array back: it goes when the text is done.
TEST_F(Arrays, AreGivenBackWhileTheModelWorks) {
  lumen_model* model = open_model(R"({"device": "hip", "tune": false})");
  const int32_t token = 3;
  struct {
    lumen_array* array = nullptr;
    float* data = nullptr;
    std::map<void*, size_t>* blocks = nullptr;
    bool is_there = false;
  } told;
  ASSERT_EQ(lumen_logits_array(model, &token, 1, 0, nullptr, &told.array), LUMEN_OK) << api_error();
  told.data = seen(told.array).data;
  told.blocks = &blocks_;
  const auto hear = [](void* context, const char*, size_t) -> int {
    auto& t = *static_cast<decltype(told)*>(context);
    lumen_array_free(std::exchange(t.array, nullptr));
    t.is_there = t.blocks->contains(t.data);
    return 1;
  };
  char* json = nullptr;
  ASSERT_EQ(lumen_generate(model, "a", 1, R"({"max_tokens": 2, "temperature": 0})", hear, &told, &json), LUMEN_OK)
      << api_error();
  lumen_free(json);
  EXPECT_TRUE(told.is_there);
  finish();
  EXPECT_FALSE(blocks_.contains(told.data));
  lumen_model_close(model);
}

TEST_F(Arrays, ArgumentsOfTheDeviceAreUsedThere) {
  lumen_function* f = open_function("fn twice(x: f32[N]) -> f32[N] = 2 * x", R"({"device": "hip", "tune": false})");
  lumen_device device{};
  ASSERT_EQ(lumen_function_device(f, &device), LUMEN_OK);
  const std::vector<float> numbers(4096, 1.0F);
  const int64_t shape[] = {4096};
  const int64_t bytes = 4096 * sizeof(float);
  const lumen_argument here{{LUMEN_F32, 1, shape, numbers.data()}, LUMEN_CPU, 0};
  lumen_array *x = nullptr, *y = nullptr, *g = nullptr;
  ASSERT_EQ(lumen_function_call_arrays(f, &here, 1, &x, 1), LUMEN_OK) << api_error();
  lumen_argument there{{LUMEN_F32, 1, shape, seen(x).data}, device.kind, device.id};
  ASSERT_EQ(lumen_function_call_arrays(f, &there, 1, &y, 1), LUMEN_OK) << api_error();
  const size_t first = 0;
  ASSERT_EQ(lumen_function_gradient_arrays(f, &there, 1, &there, 1, &first, 1, &g), LUMEN_OK) << api_error();
  lumen_array *y_again = nullptr, *g_again = nullptr;
  const int64_t in = gpu_->bytes_in, out = gpu_->bytes_out, within = gpu_->bytes_within;
  ASSERT_EQ(lumen_function_call_arrays(f, &there, 1, &y_again, 1), LUMEN_OK) << api_error();
  ASSERT_EQ(lumen_function_gradient_arrays(f, &there, 1, &there, 1, &first, 1, &g_again), LUMEN_OK) << api_error();
  EXPECT_TRUE(blocks_.contains(seen(y).data));
  EXPECT_TRUE(blocks_.contains(seen(g).data));
  EXPECT_LT(gpu_->bytes_in - in, 1000);
  EXPECT_LT(gpu_->bytes_out - out, 1000);
  EXPECT_EQ(gpu_->bytes_within - within, 5 * bytes);  // one argument and two, and a result of each

  there.id = 1;
  EXPECT_EQ(lumen_function_call_arrays(f, &there, 1, &y, 1), LUMEN_USAGE);
  EXPECT_TRUE(holds(api_error(), "is on hip:1, but the function runs on hip:0 | bring it to hip:0")) << api_error();
  there.kind = LUMEN_CUDA;
  EXPECT_EQ(lumen_function_gradient_arrays(f, &here, 1, &there, 1, &first, 1, &g), LUMEN_USAGE);
  EXPECT_TRUE(holds(api_error(), "cotangent 1 is on cuda:1")) << api_error();
  EXPECT_EQ(lumen_function_call_arrays(f, nullptr, 1, &y, 1), LUMEN_USAGE);
  EXPECT_EQ(lumen_function_call_arrays(f, &here, 1, nullptr, 1), LUMEN_USAGE);
  for (lumen_array* array : {x, y, g, y_again, g_again}) lumen_array_free(array);
  lumen_function_close(f);
}

// And what others order into Lumen's stream is waited for.
TEST_F(Arrays, ValuesAreThoseOfTheProcessor) {
  const char* options = R"({"device": "hip", "tune": false})";
  lumen_function *f = open_function(kLayer, options), *cpu = open_function(kLayer, R"({"cache": "off"})");
  const int64_t x_shape[] = {2, 3}, w_shape[] = {2, 3}, y_shape[] = {2, 2};
  const std::vector<float> x = {0.1F, -0.2F, 0.3F, 0.5F, 0.4F, -0.6F}, w = {1, 2, -1, 0.5F, -0.5F, 1};
  lumen_argument in[] = {{{LUMEN_F32, 2, x_shape, x.data()}, LUMEN_CPU, 0},
                         {{LUMEN_F32, 2, w_shape, w.data()}, LUMEN_CPU, 0}};
  lumen_array *y = nullptr, *want = nullptr;
  ASSERT_EQ(lumen_function_call_arrays(f, in, 2, &y, 1), LUMEN_OK) << api_error();
  ASSERT_EQ(lumen_function_call_arrays(cpu, in, 2, &want, 1), LUMEN_OK) << api_error();
  EXPECT_EQ(seen(want).device.kind, LUMEN_CPU);
  const Seen there = seen(y);
  EXPECT_EQ(there.device.kind, LUMEN_ROCM);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(read(y, 4)[i], seen(want).data[i], 1e-5);

  const auto gradients_of = [&](lumen_function* function, const lumen_argument& cotangent) {
    const size_t wanted[] = {1, 0};
    lumen_array* g[2] = {};
    EXPECT_EQ(lumen_function_gradient_arrays(function, in, 2, &cotangent, 1, wanted, 2, g), LUMEN_OK) << api_error();
    std::vector<float> out;
    for (lumen_array* one : g) {
      const std::vector<float> numbers = read(one, 6);
      out.insert(out.end(), numbers.begin(), numbers.end());
      lumen_array_free(one);
    }
    return out;
  };
  const std::vector<float> got = gradients_of(f, {{LUMEN_F32, 2, y_shape, there.data}, LUMEN_ROCM, 0});
  const std::vector<float> expected = gradients_of(cpu, {{LUMEN_F32, 2, y_shape, seen(want).data}, LUMEN_CPU, 0});
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-5) << i;

  // Somebody still writes an argument, in the order of Lumen's stream.
  lumen_array *zeros = nullptr, *later = nullptr;
  ASSERT_EQ(lumen_array_copy(y, &zeros), LUMEN_OK);
  const auto fill = reinterpret_cast<int (*)(void*, unsigned char, size_t, void*)>(dlsym(library_, "hipMemsetD8Async"));
  ASSERT_EQ(fill(seen(zeros).data, 0, 16, there.device.stream), 0);
  lumen_function* twice = nullptr;
  ASSERT_EQ(lumen_function_open("fn same(x: f32[N, M]) -> f32[N, M] = x + 1", nullptr, options, &twice), LUMEN_OK);
  lumen_device own{};
  ASSERT_EQ(lumen_function_device(twice, &own), LUMEN_OK);
  ASSERT_EQ(fill(seen(zeros).data, 0, 16, own.stream), 0);
  const lumen_argument late{{LUMEN_F32, 2, y_shape, seen(zeros).data}, LUMEN_ROCM, 0};
  ASSERT_EQ(lumen_function_call_arrays(twice, &late, 1, &later, 1), LUMEN_OK) << api_error();
  EXPECT_EQ(read(later, 4), std::vector<float>(4, 1.0F));
  for (lumen_array* array : {y, want, zeros, later}) lumen_array_free(array);
  for (lumen_function* function : {f, cpu, twice}) lumen_function_close(function);
}

TEST_F(Arrays, LogitsAreTheSameWhereverTheyLie) {
  const std::vector<int32_t> tokens = {1, 2, 3};
  for (const char* options : {R"({"device": "hip", "tune": false})", R"({"cache": "off"})"}) {
    lumen_model* model = open_model(options);
    for (const int last : {0, 1}) {
      float* here = nullptr;
      size_t vocabulary = 0;
      lumen_array* there = nullptr;
      ASSERT_EQ(lumen_logits(model, tokens.data(), tokens.size(), last, nullptr, &here, &vocabulary), LUMEN_OK)
          << api_error();
      ASSERT_EQ(lumen_logits_array(model, tokens.data(), tokens.size(), last, nullptr, &there), LUMEN_OK)
          << api_error();
      const size_t count = (last != 0 ? 1 : tokens.size()) * vocabulary;
      EXPECT_EQ(read(there, count), std::vector<float>(here, here + count)) << options;
      lumen_free(here);
      lumen_array_free(there);
    }
    lumen_model_close(model);
  }
}

}  // namespace
