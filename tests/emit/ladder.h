// One step of the ladder for tests: a kernel run by the loop evaluator and by this machine must leave the same bytes.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "emit/emit.h"
#include "kernel/loop/build.h"
#include "kernel/loop/eval/eval.h"
#include "kernel/loop/expand.h"
#include "kernel/loop/text.h"

namespace lumen::emit {

using Bytes = std::vector<uint8_t>;

// This processor without instruction rows.
inline machine::Machine plain_host() {
  const Host h = host();
  machine::Machine m;
  m.name = "host";
  m.triple = h.triple;
  m.cpu = h.cpu;
  m.features = h.features;
  return m;
}

// Aligned copies of buffers, as devices hand them out.
class Aligned {
 public:
  explicit Aligned(const std::vector<Bytes>& buffers) {
    for (const Bytes& b : buffers) {
      storage_.emplace_back(b.size() + 64);
      auto address = reinterpret_cast<uintptr_t>(storage_.back().data());
      auto* p = reinterpret_cast<uint8_t*>((address + 63) / 64 * 64);
      std::memcpy(p, b.data(), b.size());
      pointers_.push_back(p);
    }
  }
  void* const* pointers() const { return pointers_.data(); }

 private:
  std::vector<Bytes> storage_;
  std::vector<void*> pointers_;
};

inline std::vector<Bytes> run_machine(const LoadedModule& module, const loop::Kernel& k, const std::vector<Bytes>& in,
                                      loop::Status* status = nullptr) {
  Aligned memory(in);
  int64_t raw[2] = {0, 0};
  // Two uneven shares, as two threads would have.
  const int64_t middle = k.tasks / 3;
  module.find(symbol_name(k))(memory.pointers(), 0, middle, raw);
  module.find(symbol_name(k))(memory.pointers(), middle, k.tasks, raw);
  if (status) *status = {static_cast<int>(raw[0]), raw[1]};
  std::vector<Bytes> out = in;
  for (size_t i = 0; i < out.size(); ++i) std::memcpy(out[i].data(), memory.pointers()[i], out[i].size());
  return out;
}

inline std::vector<Bytes> run_eval(const loop::Kernel& k, std::vector<Bytes> buffers, const loop::RowLookup& rows,
                                   loop::Status* status = nullptr) {
  std::vector<std::span<uint8_t>> spans;
  for (Bytes& b : buffers) spans.emplace_back(b);
  const loop::Status s = loop::eval(loop::expand(k), spans, rows);
  if (status) *status = s;
  return buffers;
}

// All NaN of a float type made equal: payloads are not part of the meaning.
inline void quiet(Bytes& b, Scalar s) {
  const auto each = [&](auto zero, auto is_nan, auto nan) {
    for (size_t at = 0; at + sizeof(zero) <= b.size(); at += sizeof(zero)) {
      std::memcpy(&zero, b.data() + at, sizeof(zero));
      if (is_nan(zero)) std::memcpy(b.data() + at, &nan, sizeof(nan));
    }
  };
  const auto nan16 = [](uint16_t top) { return [top](uint16_t x) { return (x & 0x7fff) > top; }; };
  if (s == Scalar::f32)
    each(uint32_t{}, [](uint32_t x) { return (x & 0x7fffffff) > 0x7f800000; }, uint32_t{0x7fc00000});
  if (s == Scalar::f64)
    each(
        uint64_t{}, [](uint64_t x) { return (x & ~(uint64_t{1} << 63)) > uint64_t{0x7ff} << 52; },
        uint64_t{0x7ff8} << 48);
  if (s == Scalar::f16) each(uint16_t{}, nan16(0x7c00), uint16_t{0x7e00});
  if (s == Scalar::bf16) each(uint16_t{}, nan16(0x7f80), uint16_t{0x7fc0});
}

inline LoadedModule compile(const std::vector<loop::Kernel>& kernels, const machine::Machine& m) {
  const std::string object = emit(kernels, m, Output::object);
  return LoadedModule({reinterpret_cast<const uint8_t*>(object.data()), object.size()});
}

// Both floors, one kernel; `result` is the buffer to compare and `type` what it holds.
inline void expect_same(const loop::Kernel& k, const std::vector<Bytes>& in, size_t result, Scalar type,
                        const machine::Machine& m) {
  const LoadedModule module = compile({k}, m);
  loop::Status want_status, got_status;
  std::vector<Bytes> want = run_eval(k, in, [&](std::string_view row) { return m.meaning(row); }, &want_status);
  std::vector<Bytes> got = run_machine(module, k, in, &got_status);
  quiet(want[result], type);
  quiet(got[result], type);
  EXPECT_EQ(want[result], got[result]) << loop::print(k);
  EXPECT_EQ(want_status.code, got_status.code);
  EXPECT_EQ(want_status.detail, got_status.detail);
}

// Numbers of a type: ordinary ones, extremes, and raw bit patterns.
inline Bytes random_numbers(Scalar s, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto bytes = static_cast<size_t>(scalar_bytes(s));
  Bytes out(count * bytes);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t pick = random() % 4;
    uint64_t bits = random();
    if (s == Scalar::boolean) bits &= 1;
    if (is_float(s) && pick != 0) {
      double x = std::ldexp(static_cast<double>(static_cast<int64_t>(random())), -62);  // -2 .. 2
      if (pick == 1) x *= 100;
      if (pick == 2 && random() % 4 == 0) {
        constexpr double kSpecial[] = {0,        -0.0,      1,   -1,    0.5,   1.5,   2.5,  -0.5,     -2.5,
                                       INFINITY, -INFINITY, NAN, 65504, 1e-40, 126.5, 1e38, 0x1p-126, 2147483648.0};
        x = kSpecial[random() % std::size(kSpecial)];
      }
      const auto f = static_cast<float>(x);
      if (s == Scalar::f64) std::memcpy(&bits, &x, 8);
      if (s == Scalar::f32) std::memcpy(&bits, &f, 4);
      if (s == Scalar::f16) bits = f32_to_f16(f);
      if (s == Scalar::bf16) bits = f32_to_bf16(f);
    } else if (!is_float(s) && pick != 0) {
      bits = static_cast<uint64_t>(static_cast<int64_t>(random() % 41) - 20);
      if (pick == 2 && random() % 4 == 0) bits = random() % 2 == 0 ? uint64_t{1} << (8 * bytes - 1) : ~uint64_t{0};
      if (s == Scalar::boolean) bits &= 1;
    }
    std::memcpy(out.data() + i * bytes, &bits, bytes);
  }
  return out;
}

}  // namespace lumen::emit
