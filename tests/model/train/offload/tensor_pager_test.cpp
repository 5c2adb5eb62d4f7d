// needs: none. Groups that come and go in random orders keep what was written to them, in files and, on a stand-in
// GPU, in the host's memory.
#include "model/train/offload/tensor_pager.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "tests/model/train/training_case.h"
#include "tests/run/stand_in.h"

namespace lumen::model::train {
namespace {

std::vector<std::vector<PagedTensor>> some_groups() {
  std::vector<std::vector<PagedTensor>> out;
  for (int64_t g = 0; g < 7; ++g) {
    out.emplace_back();
    for (int64_t v = 0; v < 1 + g % 3; ++v)
      out.back().push_back({fmt::format("{}.{}", g, v), {{100 * (g + 1), 3 + v}, {Scalar::f32, nullptr}}, 0});
  }
  return out;
}

// Adds to what every index holds, as updates do, and knows what it must hold.
void visit(run::Engine& engine, const recipe::OffloadPlace& place) {
  const auto groups = placed(some_groups());
  const auto pager = TensorPager::open(engine, place, std::filesystem::temp_directory_path(), groups, 3);
  ASSERT_TRUE(pager);
  std::map<std::string, float> expected;
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    const size_t group = random() % groups.size(), next = random() % groups.size();
    pager->prefetch(group);
    if (next != group && round % 3 != 0) pager->prefetch(next);
    pager->acquire(group);
    const bool changes = round % 4 != 0;
    for (size_t v = 0; v < groups[group].tensors.size(); ++v) {
      const run::DeviceTensorRef t = pager->tensor(group, v);
      std::vector<float> numbers(t->bytes() / sizeof(float));
      t->download(numbers.data(), t->bytes());
      float& value = expected[groups[group].tensors[v].name];
      for (const float x : numbers) ASSERT_EQ(x, value) << round;
      if (!changes) continue;
      value += 1;
      std::fill(numbers.begin(), numbers.end(), value);
      t->upload(numbers.data(), t->bytes());
    }
    engine.device().synchronize();
    pager->release(group, changes);
    if (next != group && round % 3 != 0) {
      pager->acquire(next);
      pager->release(next, false);
    }
    if (round % 20 != 19) continue;
    for (const auto& g : groups)
      for (const PagedTensor& v : g.tensors) {
        std::vector<float> numbers(graph::byte_size(v.type) / sizeof(float));
        const std::span<uint8_t> bytes(reinterpret_cast<uint8_t*>(numbers.data()), numbers.size() * sizeof(float));
        pager->read(v.name, bytes);
        for (const float x : numbers) ASSERT_EQ(x, expected[v.name]);
        std::fill(numbers.begin(), numbers.end(), expected[v.name] += 10);
        pager->write(v.name, bytes);
      }
  }
}

TEST(TensorPager, KeepWhatIsWrittenInAFile) {
  run::Engine engine = make_engine(2);
  visit(engine, {});
  EXPECT_EQ(TensorPager::open(engine, {true, ""}, "", placed(some_groups()), 3), nullptr) << "the same memory";
}

TEST(TensorPager, KeepItBesideAGpu) {
  for (const run::GpuVendor vendor : {run::GpuVendor::cuda, run::GpuVendor::hip}) {
    run::StandIn fake(vendor);
    fake.run_machine_code();
    run::Engine engine(run::Engine::Options{.cache_folder = "off",
                                            .threads = 1,
                                            .machine = machine::native_machine(),
                                            .device = fake.device(),
                                            .tries = false});
    visit(engine, {true, ""});
    visit(engine, {});
  }
}

TEST(TensorPager, SayWhichFolderHasNoRoom) {
  run::Engine engine = make_engine(1);
  try {
    (void)TensorPager::open(engine, {false, "/nowhere/at/all"}, "", placed(some_groups()), 3);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::user);
    EXPECT_NE(std::string(e.what()).find("/nowhere/at/all"), std::string::npos) << e.what();
  }
}

TEST(TensorPager, ArePlacedByBlocks) {
  const auto groups = placed(some_groups());
  int64_t at = 0;
  for (const PageGroup& g : groups) {
    EXPECT_EQ(g.at, at);
    for (const PagedTensor& v : g.tensors) EXPECT_EQ(v.at % run::kOutsideAlignment, 0);
    at += g.bytes;
  }
  EXPECT_EQ(all_bytes(groups), at);
}

}  // namespace
}  // namespace lumen::model::train
