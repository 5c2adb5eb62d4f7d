// cuBLASLt, and with LUMEN_FAKE_HIP hipBLASLt, as far as Lumen calls them: products in double, of matrices that lie
// column after column, done when somebody waits. Descriptors are real objects with the numbers of the public
// interfaces; what a real library would refuse is refused.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "stream.h"

#ifdef LUMEN_FAKE_HIP
#define NAME(name) hipblasLt##name
constexpr bool kHip = true;
#else
#define NAME(name) cublasLt##name
constexpr bool kHip = false;
#endif

namespace {

constexpr int kInvalid = 7, kUnsupported = 15;
constexpr int kAsItIs = kHip ? 111 : 0, kTransposed = kHip ? 112 : 1, kComputeF32 = kHip ? 2 : 68;

struct Library {};
struct Work {
  int operation[2] = {kAsItIs, kAsItIs};
  const void* scale[2] = {nullptr, nullptr};
};
struct Matrix {
  int type = 0;
  uint64_t rows = 0, columns = 0;
  int64_t stride = 0;
  bool is_code() const { return type == 28 || type == 29 || type == 1000 || type == 1001; }
  size_t bytes() const { return static_cast<size_t>(stride) * columns * (type == 0 ? 4 : is_code() ? 1 : 2); }
};
struct Wishes {
  uint64_t scratch = 0;
  uint32_t sums = 7;
};

// An 8-bit float with a sign, finite.
double decoded(uint8_t code, int mantissa_bits, int bias) {
  const int mantissa = code & ((1 << mantissa_bits) - 1), exponent = (code & 0x7f) >> mantissa_bits;
  const double one = 1 << mantissa_bits;
  const double x =
      exponent == 0 ? std::ldexp(mantissa / one, 1 - bias) : std::ldexp(1 + mantissa / one, exponent - bias);
  return code & 0x80 ? -x : x;
}

// bf16 is the upper half of an f32.
double number(const char* at, const Matrix& m, uint64_t row, uint64_t column) {
  const size_t i = row + column * static_cast<size_t>(m.stride);
  float x = 0;
  if (m.is_code()) {
    const bool wide = m.type == 29 || m.type == 1001;  // of more exponents
    return decoded(static_cast<uint8_t>(at[i]), wide ? 2 : 3, (wide ? 15 : 7) + (m.type >= 1000 ? 1 : 0));
  }
  if (m.type == 0) {
    std::memcpy(&x, at + 4 * i, 4);
  } else if (m.type == 14) {
    std::memcpy(reinterpret_cast<char*>(&x) + 2, at + 2 * i, 2);
  } else {
    _Float16 half;
    std::memcpy(&half, at + 2 * i, 2);
    x = static_cast<float>(half);
  }
  return x;
}

void put(char* at, const Matrix& m, uint64_t row, uint64_t column, double value) {
  const size_t i = row + column * static_cast<size_t>(m.stride);
  const auto x = static_cast<float>(value);
  if (m.type == 0) {
    std::memcpy(at + 4 * i, &x, 4);
  } else if (m.type == 14) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    const auto half = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);  // to nearest, ties to even
    std::memcpy(at + 2 * i, &half, 2);
  } else {
    const auto half = static_cast<_Float16>(x);
    std::memcpy(at + 2 * i, &half, 2);
  }
}

bool multiplies(const Work& w, const Matrix& a, const Matrix& b, const Matrix& c) {
  const uint64_t m = w.operation[0] == kTransposed ? a.columns : a.rows,
                 k = w.operation[0] == kTransposed ? a.rows : a.columns;
  const uint64_t n = w.operation[1] == kTransposed ? b.rows : b.columns,
                 k2 = w.operation[1] == kTransposed ? b.columns : b.rows;
  // Codes are multiplied along their rows alone.
  if (a.is_code() && (w.operation[0] != kTransposed || w.operation[1] == kTransposed || c.is_code())) return false;
  return a.type == b.type && k == k2 && m == c.rows && n == c.columns;
}

}  // namespace

#define ENTER() \
  if (const int wrong = lumen::fake::enter(__func__)) return wrong

extern "C" {

#ifndef LUMEN_FAKE_HIP
size_t cublasLtGetVersion() {
  return 130200;
}
#endif
int NAME(Create)(void** library) {
  ENTER();
  *library = new Library;
  ++lumen::fake::gpu().descriptors;
  return 0;
}
int NAME(Destroy)(void* library) {
  delete static_cast<Library*>(library);
  --lumen::fake::gpu().descriptors;
  return 0;
}
int NAME(MatmulDescCreate)(void** work, int compute, int scale) {
  ENTER();
  if (compute != kComputeF32 || scale != 0) return kInvalid;
  *work = new Work;
  ++lumen::fake::gpu().descriptors;
  return 0;
}
int NAME(MatmulDescSetAttribute)(void* work, int attribute, const void* value, size_t bytes) {
  ENTER();
  const int side = attribute - (kHip ? 0 : 3), scale = attribute - (kHip ? 5 : 17);
  if ((scale == 0 || scale == 1) && bytes == 8) {
    std::memcpy(&static_cast<Work*>(work)->scale[scale], value, 8);
    return 0;
  }
  if (side < 0 || side > 1 || bytes != 4) return kInvalid;
  int& operation = static_cast<Work*>(work)->operation[side];
  std::memcpy(&operation, value, 4);
  return operation == kAsItIs || operation == kTransposed ? 0 : kInvalid;
}
int NAME(MatmulDescDestroy)(void* work) {
  delete static_cast<Work*>(work);
  --lumen::fake::gpu().descriptors;
  return 0;
}
int NAME(MatrixLayoutCreate)(void** matrix, int type, uint64_t rows, uint64_t columns, int64_t stride) {
  ENTER();
  const Matrix made{type, rows, columns, stride};
  if ((type != 0 && type != 2 && type != 14 && !made.is_code()) || stride < static_cast<int64_t>(rows)) return kInvalid;
  *matrix = new Matrix(made);
  ++lumen::fake::gpu().descriptors;
  return 0;
}
int NAME(MatrixLayoutDestroy)(void* matrix) {
  delete static_cast<Matrix*>(matrix);
  --lumen::fake::gpu().descriptors;
  return 0;
}
int NAME(MatmulPreferenceCreate)(void** wishes) {
  ENTER();
  *wishes = new Wishes;
  ++lumen::fake::gpu().descriptors;
  return 0;
}
int NAME(MatmulPreferenceSetAttribute)(void* wishes, int attribute, const void* value, size_t bytes) {
  ENTER();
  auto* w = static_cast<Wishes*>(wishes);
  if (attribute == 1 && bytes == 8) {
    std::memcpy(&w->scratch, value, 8);
  } else if (!kHip && attribute == 3 && bytes == 4) {
    std::memcpy(&w->sums, value, 4);
  } else {
    return kInvalid;
  }
  return 0;
}
int NAME(MatmulPreferenceDestroy)(void* wishes) {
  delete static_cast<Wishes*>(wishes);
  --lumen::fake::gpu().descriptors;
  return 0;
}
int NAME(MatmulAlgoGetHeuristic)(void* library, void* work, void* a, void* b, void* c, void* d, void* wishes,
                                 int wanted, void* found, int* count) {
  ENTER();
  *count = 0;
  const auto* w = static_cast<Wishes*>(wishes);
  if (!library || wanted != 1 || c != d || w->scratch == 0 || (!kHip && (w->sums & 1) != 0)) return kInvalid;
  if (!multiplies(*static_cast<Work*>(work), *static_cast<Matrix*>(a), *static_cast<Matrix*>(b),
                  *static_cast<Matrix*>(d)))
    return kInvalid;
  if (!lumen::fake::gpu().multiplies) return kUnsupported;
  auto* bytes = static_cast<char*>(found);
  std::memset(bytes, 0, kHip ? 56 : 96);
  std::memcpy(bytes, "a way", 6);
  std::memcpy(bytes + (kHip ? 24 : 64), &w->scratch, 8);
  *count = 1;
  return 0;
}
int NAME(Matmul)(void* library, void* work, const void* alpha, const void* a, void* a_matrix, const void* b,
                 void* b_matrix, const void* beta, const void* c, void* c_matrix, void* d, void* d_matrix,
                 const void* way, void* scratch, size_t scratch_bytes, void* stream) {
  ENTER();
  if (!library || std::memcmp(way, "a way", 6) != 0 || scratch_bytes == 0 || c_matrix != d_matrix) return kInvalid;
  float factors[2];
  std::memcpy(&factors[0], alpha, 4);
  std::memcpy(&factors[1], beta, 4);
  const Work w = *static_cast<Work*>(work);
  const Matrix ma = *static_cast<Matrix*>(a_matrix), mb = *static_cast<Matrix*>(b_matrix),
               md = *static_cast<Matrix*>(d_matrix);
  if (!multiplies(w, ma, mb, md)) return kInvalid;
  return lumen::fake::push(stream, lumen::fake::gpu().product_milliseconds, [=] {
    const char *pa = lumen::fake::view(a, ma.bytes()), *pb = lumen::fake::view(b, mb.bytes()),
               *pc = lumen::fake::view(c, md.bytes());
    char* pd = lumen::fake::view(d, md.bytes());
    if (!pa || !pb || !pc || !pd || !lumen::fake::view(scratch, scratch_bytes)) return 700;
    double scale = factors[0];
    for (const void* address : w.scale) {
      if (!address) continue;
      const char* at = lumen::fake::view(address, 4);
      if (!at) return 700;
      float x;
      std::memcpy(&x, at, 4);
      scale *= static_cast<double>(x);
    }
    const uint64_t k = w.operation[0] == kTransposed ? ma.rows : ma.columns;
    for (uint64_t i = 0; i < md.rows; ++i)
      for (uint64_t j = 0; j < md.columns; ++j) {
        double sum = 0;
        for (uint64_t l = 0; l < k; ++l)
          sum += (w.operation[0] == kTransposed ? number(pa, ma, l, i) : number(pa, ma, i, l)) *
                 (w.operation[1] == kTransposed ? number(pb, mb, j, l) : number(pb, mb, l, j));
        put(pd, md, i, j,
            lumen::fake::gpu().product_error + scale * sum + (factors[1] != 0 ? factors[1] * number(pc, md, i, j) : 0));
      }
    return 0;
  });
}

}  // extern "C"
