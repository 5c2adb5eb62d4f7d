// Needs: cpu. Parameters that travel while the host does other things: on a stand-in GPU they arrive whole, failures
// are told each time somebody waits, and who leaves early leaves nothing behind.
#include "run/engine/program/parameter_uploads.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "run/device/choose/choose.h"
#include "run/engine/cache/cache.h"
#include "run/engine/cache/in_parallel.h"
#include "tests/run/graphs.h"
#include "tests/run/stand_in.h"

namespace lumen::run {
namespace {

constexpr int64_t kLarge = ParameterUploads::kWorthThreads / 4 + 1000;  // numbers: more bytes than are worth threads

std::vector<float> numbers(int64_t count) {
  std::vector<float> out(count);
  for (int64_t i = 0; i < count; ++i) out[i] = float(i % 8191);
  return out;
}

std::unique_ptr<Device> open(const StandIn& fake) {
  return open_device(parse_device(fake.device()), machine::native_machine(), 2, load_here);
}

class ParameterUpload : public testing::TestWithParam<GpuVendor> {
 protected:
  ParameterUpload() : fake(GetParam()) {}
  const char* symbol(const char* name) const { return symbol_of(GetParam(), name); }
  StandIn fake;
};

TEST_P(ParameterUpload, ArriveWholeInLanesOfTheirOwn) {
  const std::unique_ptr<Device> device = open(fake);
  const std::vector<float> large = numbers(kLarge), small = {1, 2, 3};
  const int64_t streams = fake->count(symbol("stream_create"));
  ParameterUploads uploads(*device, 3);
  const DeviceTensorRef a = uploads.add(f32({kLarge}), large.data(), nullptr);
  const DeviceTensorRef b = uploads.add(f32({3}), small.data(), nullptr);
  uploads.begin();
  uploads.wait();
  uploads.wait();
  std::vector<float> got(kLarge);
  a->download(got.data(), a->bytes());
  EXPECT_EQ(std::memcmp(got.data(), large.data(), a->bytes()), 0);
  b->download(got.data(), b->bytes());
  EXPECT_EQ(std::memcmp(got.data(), small.data(), b->bytes()), 0);
  EXPECT_EQ(fake->count(symbol("stream_create")) - streams, 2) << "two lanes for so few bytes";
}

TEST_P(ParameterUpload, FewBytesWakeNoThreads) {
  const std::unique_ptr<Device> device = open(fake);
  const std::vector<float> small = numbers(100000);
  const int64_t streams = fake->count(symbol("stream_create"));
  ParameterUploads uploads(*device, 3);
  const DeviceTensorRef a = uploads.add(f32({100000}), small.data(), nullptr);
  uploads.begin();
  uploads.wait();
  std::vector<float> got(small.size());
  a->download(got.data(), a->bytes());
  EXPECT_EQ(got, small);
  EXPECT_EQ(fake->count(symbol("stream_create")), streams);
}

TEST_P(ParameterUpload, AFailureIsToldToAllWhoWait) {
  const std::unique_ptr<Device> device = open(fake);
  const std::vector<float> large = numbers(kLarge);
  ParameterUploads uploads(*device, 2);
  uploads.add(f32({kLarge}), large.data(), nullptr);
  fake->fail_symbol = symbol("copy_in");
  uploads.begin();
  for (int i = 0; i < 2; ++i) EXPECT_THROW(uploads.wait(), Error);
  fake->fail_symbol.clear();
}

TEST_P(ParameterUpload, MayBeLeftEarly) {
  const std::unique_ptr<Device> device = open(fake);
  const std::vector<float> large = numbers(kLarge);
  ParameterUploads uploads(*device, 2);
  uploads.add(f32({kLarge}), large.data(), nullptr);
  uploads.begin();
}

INSTANTIATE_TEST_SUITE_P(BothVendors, ParameterUpload, testing::Values(GpuVendor::cuda, GpuVendor::hip),
                         [](const auto& given) { return vendor_name(given.param); });

// A processor reads parameters where they lie.
TEST(ParameterUploads, NothingIsCopiedWhereKernelsReadHostMemory) {
  const std::unique_ptr<Device> device = open_device(parse_device("cpu"), nullptr, 1, load_here);
  alignas(64) static const float values[16] = {1, 2, 3};
  ParameterUploads uploads(*device, 2);
  const DeviceTensorRef a = uploads.add(f32({16}), values, std::shared_ptr<const void>(values, [](const void*) {}));
  uploads.begin();
  uploads.wait();
  EXPECT_EQ(a->data(), values);
}

TEST(InParallel, AllPartsAreDoneOnceThoughSomeFail) {
  for (const int threads : {1, 3}) {
    std::vector<std::atomic<int>> times(50);
    const auto work = [&](size_t i) {
      ++times[i];
      if (i % 20 == 7) throw user_error("part {}", i);
    };
    EXPECT_THROW(in_parallel(times.size(), threads, work), Error);
    for (const auto& t : times) EXPECT_EQ(t, 1);
    in_parallel(0, threads, work);
  }
}

}  // namespace
}  // namespace lumen::run
