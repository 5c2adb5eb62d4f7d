// Needs: cpu. Products by a vendor's library, against the stand-in: every order, type and sum; what fails is said.
#include "run/device/gpu/gpu_product.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/error.h"
#include "number/formula/scalar.h"
#include "run/device/gpu/gpu.h"
#include "tests/run/stand_in.h"

namespace lumen::run {
namespace {

using machine::DenseProduct;

class GpuProductTest : public testing::TestWithParam<GpuVendor> {
 protected:
  GpuProductTest() : fake(GetParam()) {}
  StandIn fake;
};

std::vector<uint8_t> bytes_of(const std::vector<float>& x, Scalar type) {
  std::vector<uint8_t> out(x.size() * static_cast<size_t>(scalar_bytes(type)));
  for (size_t i = 0; i < x.size(); ++i) {
    const uint16_t half = type == Scalar::bf16 ? f32_to_bf16(x[i]) : f32_to_f16(x[i]);
    if (type == Scalar::f32)
      std::memcpy(&out[4 * i], &x[i], 4);
    else
      std::memcpy(&out[2 * i], &half, 2);
  }
  return out;
}

// Whole numbers small enough for every type, so that all sums are exact.
std::vector<float> numbers(int64_t count, unsigned seed) {
  std::mt19937 chance(seed);
  std::vector<float> out(static_cast<size_t>(count));
  for (float& x : out) x = static_cast<float>(static_cast<int>(chance() % 5) - 2);
  return out;
}

struct Memory {
  Device& device;
  void* at;
  Memory(Device& d, const std::vector<uint8_t>& bytes) : device(d), at(d.allocate(static_cast<int64_t>(bytes.size()))) {
    device.copy_in(at, bytes.data(), static_cast<int64_t>(bytes.size()));
  }
  ~Memory() { device.release(at); }
};

TEST_P(GpuProductTest, EveryOrderAndType) {
  const auto device = open_gpu(GetParam(), 0, machine::native_machine());
  EXPECT_NE(device->open_products().find(GetParam() == GpuVendor::cuda ? "cuBLASLt 13.2.0" : "hipBLASLt"),
            std::string::npos)
      << device->open_products();
  for (const Scalar operands : {Scalar::f32, Scalar::f16, Scalar::bf16})
    for (int order = 0; order < 4; ++order)
      for (const bool adds : {false, true}) {
        const DenseProduct what{.m = 5,
                                .n = 7,
                                .k = 6,
                                .operands = operands,
                                .result = adds ? Scalar::f32 : operands,
                                .left_transposed = (order & 1) != 0,
                                .right_transposed = (order & 2) != 0,
                                .adds = adds};
        const auto l = numbers(what.m * what.k, 1), r = numbers(what.k * what.n, 2), c = numbers(what.m * what.n, 3);
        const auto product = device->find_product(what);
        ASSERT_TRUE(product);
        const Memory left(*device, bytes_of(l, operands)), right(*device, bytes_of(r, operands));
        const Memory added(*device, bytes_of(c, Scalar::f32));
        const Memory to(*device, bytes_of(std::vector<float>(c.size(), 77), what.result));
        std::vector<void*> buffers{left.at, right.at};
        if (adds) buffers.push_back(added.at);
        buffers.push_back(to.at);
        product->multiply(buffers);
        std::vector<float> expected(c.size());
        for (int64_t i = 0; i < what.m; ++i)
          for (int64_t j = 0; j < what.n; ++j) {
            float sum = adds ? c[static_cast<size_t>(i * what.n + j)] : 0;
            for (int64_t k = 0; k < what.k; ++k)
              sum += l[static_cast<size_t>(what.left_transposed ? k * what.m + i : i * what.k + k)] *
                     r[static_cast<size_t>(what.right_transposed ? j * what.k + k : k * what.n + j)];
            expected[static_cast<size_t>(i * what.n + j)] = sum;
          }
        const std::vector<uint8_t> want = bytes_of(expected, what.result);
        std::vector<uint8_t> got(want.size());
        device->copy_out(got.data(), to.at, static_cast<int64_t>(got.size()));
        EXPECT_EQ(got, want) << scalar_name(operands) << " order " << order << " adds " << adds;
      }
}

// Codes of 8 bits, under two scales in memory; what no library spells is not asked for.
TEST_P(GpuProductTest, CodesUnderScales) {
  using Special = machine::FloatCode::Special;
  const auto device = open_gpu(GetParam(), 0, machine::native_machine());
  device->open_products();
  DenseProduct what{.m = 3, .n = 2, .k = 4, .operands = Scalar::u8, .right_transposed = true, .scales = true};
  what.code = machine::FloatCode{4, 3, 7, Special::all_ones};
  const auto product = device->find_product(what);
  ASSERT_TRUE(product);
  const uint8_t one = 7 << 3, two = 8 << 3, minus_half = 0x80 | 6 << 3;
  const Memory left(*device, {one, two, one, one, two, two, two, two, one, 0, 0, 0});
  const Memory right(*device, {one, one, one, minus_half, two, 0, 0, one});
  const Memory a(*device, bytes_of({0.5F}, Scalar::f32)), b(*device, bytes_of({3}, Scalar::f32));
  const Memory to(*device, std::vector<uint8_t>(24));
  void* const buffers[] = {left.at, right.at, a.at, b.at, to.at};
  product->multiply(buffers);
  std::vector<float> got(6);
  device->copy_out(got.data(), to.at, 24);
  EXPECT_EQ(got, (std::vector<float>{5.25, 4.5, 7.5, 9, 1.5, 3}));
  what.right_transposed = false;
  EXPECT_FALSE(device->find_product(what));
  what.right_transposed = true;
  what.code = machine::FloatCode{4, 3, 7, Special::none};
  EXPECT_FALSE(device->find_product(what));
}

TEST_P(GpuProductTest, WhatTheLibraryCannotDoIsNoError) {
  const auto device = open_gpu(GetParam(), 0, machine::native_machine());
  device->open_products();
  fake->multiplies = false;
  EXPECT_FALSE(device->find_product({.m = 8, .n = 8, .k = 8, .operands = Scalar::bf16, .result = Scalar::f32}));
}

TEST_P(GpuProductTest, WhatIsMissingIsSaid) {
  const auto device = open_gpu(GetParam(), 0, machine::native_machine());
  const bool cuda = GetParam() == GpuVendor::cuda;
  const auto refused = [&](const char* file) {
    ::setenv(cuda ? "LUMEN_CUBLASLT_LIBRARY" : "LUMEN_HIPBLASLT_LIBRARY", file, 1);
    try {
      device->open_products();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::hardware);
      return std::string(e.what()) + "\n" + e.hint();
    }
    return std::string("opened");
  };
  const std::string none = refused("/nowhere/lib.so");
  EXPECT_NE(none.find(cuda ? "no cuBLASLt: /nowhere/lib.so" : "no hipBLASLt: /nowhere/lib.so"), std::string::npos)
      << none;
  EXPECT_NE(none.find(cuda ? "LUMEN_CUBLASLT_LIBRARY" : "LUMEN_HIPBLASLT_LIBRARY"), std::string::npos) << none;
  const std::string other = refused("libm.so.6");
  EXPECT_NE(other.find(cuda ? "it lacks cublasLtCreate" : "it lacks hipblasLtCreate"), std::string::npos) << other;
}

TEST_P(GpuProductTest, EveryCallMayFail) {
  for (const char* name :
       {"create", "work_create", "work_set", "matrix_create", "wishes_create", "wishes_set", "multiply"}) {
    const auto device = open_gpu(GetParam(), 0, machine::native_machine());
    fake->fail_symbol = product_symbol(GetParam(), name);
    fake->fail_code = 13;
    fake->fail_after = 0;
    const Memory memory(*device, std::vector<uint8_t>(1024));
    try {
      device->open_products();
      const auto product = device->find_product({.m = 8, .n = 8, .k = 8});
      ASSERT_TRUE(product);
      std::vector<void*> buffers(3, memory.at);
      product->multiply(buffers);
      ADD_FAILURE() << name;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::hardware);
      EXPECT_NE(std::string(e.what()).find(fake->fail_symbol + " of "), std::string::npos) << e.what();
      EXPECT_NE(e.hint().find("--libraries"), std::string::npos);
    }
    fake->fail_symbol.clear();
  }
}

INSTANTIATE_TEST_SUITE_P(Vendors, GpuProductTest, testing::Values(GpuVendor::cuda, GpuVendor::hip),
                         [](const auto& p) { return std::string(vendor_name(p.param)); });

}  // namespace
}  // namespace lumen::run
