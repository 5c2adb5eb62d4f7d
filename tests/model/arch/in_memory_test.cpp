// needs: none. Weights copied out of their file are the same bytes, and no longer the file's.
#include "model/arch/in_memory.h"

#include <filesystem>

#include "base/file/leave.h"
#include "model/arch/checkpoint/read.h"
#include "tests/model/tiny.h"

namespace lumen::model::arch {
namespace {

class InMemoryTest : public testing::Test {
 protected:
  void SetUp() override { write_gguf(tiny_model(), file_); }
  static bool lies_in_file(const Weight& w) { return is_in_file({w.bytes.data(), w.bytes.size()}); }

  const TestFolder folder_;
  const std::filesystem::path file_ = folder_ / "model.gguf";
};

TEST_F(InMemoryTest, TheSameBytesElsewhere) {
  const Model mapped = read_gguf(test_library(), file_);
  Model copied = read_gguf(test_library(), file_);
  int64_t last = 0, whole = 0;
  copy_into_memory(&copied, [&](int64_t done, int64_t all) {
    EXPECT_LE(done, all);
    last = std::max(last, done);
    whole = all;
  });
  EXPECT_GT(last, 0);
  EXPECT_EQ(last, whole);
  int moved = 0;
  for (const auto& [name, weight] : mapped.weights) {
    const Weight& other = copied.weights.at(name);
    EXPECT_TRUE(other.bytes == weight.bytes) << name;
    EXPECT_FALSE(lies_in_file(other)) << name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(other.bytes.data()) % Bytes::kAlignment, 0U) << name;
    moved += lies_in_file(weight) ? 1 : 0;
  }
  EXPECT_GT(moved, 0);
}

// What is in memory already stays where it is.
TEST_F(InMemoryTest, OthersStay) {
  Model own = tiny_model();
  std::map<std::string, const uint8_t*> before;
  for (const auto& [name, weight] : own.weights) before[name] = weight.bytes.data();
  copy_into_memory(&own, [](int64_t, int64_t) { ADD_FAILURE(); });
  for (const auto& [name, weight] : own.weights) EXPECT_EQ(weight.bytes.data(), before[name]) << name;
}

}  // namespace
}  // namespace lumen::model::arch
