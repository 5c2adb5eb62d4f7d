#include "api/argument.h"

#include "api/array.h"
#include "api/boundary.h"
#include "base/error.h"

namespace lumen::api {

bool settle(const graph::Dim& dim, int64_t extent, graph::Bindings& symbols) {
  std::string unknown;
  int64_t known = dim.coefficient;
  for (const std::string& symbol : dim.symbols) {
    if (const auto at = symbols.find(symbol); at != symbols.end()) {
      if (at->second > extent) return true;  // an error that the comparison of types reports
      known *= at->second;
    } else if (unknown.empty()) {
      unknown = symbol;
    } else {
      return false;
    }
  }
  if (!unknown.empty() && known > 0 && extent % known == 0) symbols[unknown] = extent / known;
  return true;
}

std::string told(const lumen_tensor& t) {
  std::string shape;
  for (int i = 0; i < t.rank; ++i) shape += fmt::format("{}{}", i > 0 ? ", " : "", t.shape[i]);
  return fmt::format("{}[{}]", t.dtype == LUMEN_I32 ? "i32" : "f32", shape);
}

void require_sound(const lumen_argument& argument, const lumen_device& device, const std::string& what) {
  const lumen_tensor& t = argument.tensor;
  if (argument.kind != LUMEN_CPU && (argument.kind != device.kind || argument.id != device.id)) {
    const std::string there = place_name({argument.kind, argument.id, nullptr}), name = place_name(device);
    throw Error(Exit::usage, fmt::format("{} is on {}, but the function runs on {}", what, there, name),
                fmt::format("bring it to {}, or compile the function for {}", name, there));
  }
  constexpr int kMostAxes = 16;
  if (t.dtype != LUMEN_F32 && t.dtype != LUMEN_I32)
    throw usage_error("{} has the unknown dtype {}", what, int(t.dtype));
  if (t.rank < 0 || t.rank > kMostAxes) throw usage_error("{} has {} axes", what, t.rank);
  if (t.rank > 0) require(t.shape, "a shape");
  int64_t count = 1;
  for (int i = 0; i < t.rank; ++i) {
    if (t.shape[i] < 1) throw usage_error("{} is empty: {}", what, told(t));
    if (t.shape[i] > INT32_MAX || count > (int64_t{1} << 40) / t.shape[i]) throw usage_error("{} is too large", what);
    count *= t.shape[i];
  }
  if (!t.data) throw usage_error("{} has no data", what);
}

void require_type(const lumen_tensor& t, const graph::Type& type, const std::string& what) {
  bool fits = std::ssize(type.shape) == t.rank && (type.element.scalar == Scalar::i32) == (t.dtype == LUMEN_I32);
  for (int i = 0; fits && i < t.rank; ++i) fits = type.shape[size_t(i)].number() == t.shape[i];
  if (!fits) throw usage_error("{} is {}, the function takes {}", what, told(t), graph::print(type));
}

int64_t bytes_of(const lumen_tensor& t) {
  int64_t bytes = 4;
  for (int i = 0; i < t.rank; ++i) bytes *= t.shape[i];
  return bytes;
}

}  // namespace lumen::api
