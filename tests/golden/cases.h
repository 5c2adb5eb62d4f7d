// Graphs of one kernel each (and the steps before it), for golden texts: products of every order, in every format, and
// what stands between them in models.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "made.h"
#include "number/format/format.h"

namespace lumen::golden {

// "" is f32, "bf16" and so on a format of the library or of tests/golden/formats.
FormatRef format_of(const std::string& name);

// Which side of a linear layer y = x w^T with w [n, k] is wanted.
enum class Order : uint8_t { forward, dx, dw };

// What the operands of a product are: weights in a format beside f32 (`products`: what they may be rounded to), or both
// of one scalar type.
struct Product {
  int64_t m = 1, n = 1, k = 1;
  Order order = Order::forward;
  std::string format = {};        // of the weight
  Scalar scalar = Scalar::f32;    // of x, dy, and of a weight without a format
  Scalar products = Scalar::f32;  // CompileOptions::products
  std::string both = {};          // both operands are codes of this format
  bool exact = false;
};
Case product(std::string name, const Product& p);

// x f32[rows, columns] into the format, and back.
Case encoding(std::string name, const std::string& format, int64_t rows, int64_t columns);
Case decoding(std::string name, const std::string& format, int64_t rows, int64_t columns);

Case elementwise(std::string name, int64_t rows, int64_t columns);
Case softmax(std::string name, int64_t rows, int64_t columns);
Case norm(std::string name, int64_t rows, int64_t columns);           // root mean square, times a weight
Case norm_gradient(std::string name, int64_t rows, int64_t columns);  // of all three
Case cross_entropy(std::string name, int64_t rows, int64_t columns);
Case column_sums(std::string name, int64_t rows, int64_t columns);
Case total(std::string name, int64_t count);
Case dropout(std::string name, int64_t rows, int64_t columns);
Case gather(std::string name, const std::string& format, int64_t rows, int64_t columns, int64_t picked);
Case scatter(std::string name, int64_t rows, int64_t columns, int64_t picked);
Case transposition(std::string name, int64_t rows, int64_t columns);
Case concatenation(std::string name, int64_t rows, int64_t columns);
Case cache_update(std::string name, const std::string& format, int64_t length, int64_t columns);

}  // namespace lumen::golden
