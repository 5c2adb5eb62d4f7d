// needs: none. What reading a Hugging Face folder takes of memory that is no file's: weights that are joined or
// rearranged, once, and nothing for those that are not; refused where there is no room for it.
#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "model/compress/quantize.h"
#include "model/infer/session/session.h"
#include "run/device/available.h"
#include "tests/model/families/family_case.h"

namespace lumen::model::file {
namespace {

constexpr int64_t kMiB = 1 << 20;

// A folder whose experts stand in tensors of their own: 48 MiB of them, in bf16.
class MixtureMemory : public testing::Test {
 protected:
  MixtureMemory() {
    const arch::FamilyRef family = test_library()->family("mixtral");
    arch::Model m = initialise(family,
                               family->config("", {{"vocab", 64},
                                                   {"hidden", 512},
                                                   {"layers", 1},
                                                   {"heads", 4},
                                                   {"kv_heads", 4},
                                                   {"head_dim", 16},
                                                   {"ffn", 2048},
                                                   {"experts", 8},
                                                   {"context", 32}}),
                               3);
    m = compress::with_floats(engine(), m, test_library()->formats().get("bf16"));
    bytes_ = m.weight_bytes();
    gates_ = m.weights.at("layers.0.gates").bytes;
    write_hf(m, folder_.path());
  }
  ~MixtureMemory() override { ::unsetenv("LUMEN_MEMORY"); }
  TestFolder folder_;
  int64_t bytes_ = 0;
  arch::Bytes gates_;
};

TEST_F(MixtureMemory, ExpertsAreHeldOnce) {
  ASSERT_GT(bytes_, 48 * kMiB);
  const int64_t before = run::own_memory();
  const arch::Model m = read_hf(test_library(), folder_.path());
  EXPECT_TRUE(m.weights.at("layers.0.gates").bytes == gates_);
  const infer::LoadedModel loaded(engine(), m);
  const int64_t taken = run::own_memory() - before;
  EXPECT_LT(taken, bytes_ * 11 / 10 + 4 * kMiB);
  // A kernel reads them where they were joined.
  EXPECT_EQ(loaded.weights().at("layers.0.gates")->data(), m.weights.at("layers.0.gates").bytes.data());
}

TEST_F(MixtureMemory, RefusedBeforeItIsTaken) {
  const int64_t now = run::own_memory();
  ::setenv("LUMEN_MEMORY", std::to_string(now + 20 * kMiB).c_str(), 1);
  try {
    (void)read_hf(test_library(), folder_.path());
    FAIL() << "nothing was refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::hardware) << e.what();
    EXPECT_NE(std::string(e.what()).find("joined or rearranged"), std::string::npos) << e.what();
  }
  EXPECT_LT(run::own_memory() - now, 8 * kMiB);
}

// One expert in another type than the first is an error that says so.
TEST_F(MixtureMemory, ExpertsOfDifferentTypes) {
  const SafetensorsFile file(folder_ / "model.safetensors", test_library()->formats());
  std::vector<TensorSpec> specs;
  std::vector<std::vector<uint8_t>> blobs;
  for (const StoredTensor& t : file.tensors()) {
    TensorSpec s;
    s.name = t.name;
    s.shape = t.shape;
    s.element = t.element;
    blobs.push_back(t.blob());
    if (t.name.find("experts.3.w2") != std::string::npos) {
      s.element = {Scalar::f32, nullptr};
      blobs.back().resize(blobs.back().size() * 2);
    }
    specs.push_back(s);
  }
  const TestFolder other;
  std::filesystem::copy(folder_ / "config.json", other / "config.json");
  SafetensorsWriter writer(other / "model.safetensors", {}, specs);
  for (const auto& b : blobs) writer.write(b);
  writer.commit();
  try {
    (void)read_hf(test_library(), other.path());
    FAIL() << "a mixture of types was read";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::user);
    EXPECT_NE(std::string(e.what()).find("different formats"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace lumen::model::file
