// Matrices of a stack as separate blobs: a method that rounds one matrix at a time can then round stacks. Proved by
// tests/model/compress/strategy/stack_test.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "number/format/format.h"

namespace lumen::model::compress {

// Offsets of the blobs of matrices [rows, columns] in the stack's blob, in order.
class BlobStack {
 public:
  // Error (exit 1) when tiles of the format would span two matrices.
  BlobStack(const Format& f, int64_t matrices, int64_t rows, int64_t columns);
  // Whether matrices share fields (of the tensor or of tiles): then each is rounded under the stack's fields.
  bool shares_fields() const { return shares_; }
  std::vector<uint8_t> matrix(std::span<const uint8_t> all, int64_t m) const;
  // The tensor's fields stay those of `all`.
  void put(std::span<uint8_t> all, int64_t m, std::span<const uint8_t> matrix) const;
  int64_t bytes() const { return all_.total; }

 private:
  struct Section {
    int64_t of_all, of_one, bytes;  // offsets in the stack's and the matrix's blob; size per matrix
  };
  BlobLayout all_, one_;
  std::vector<Section> sections_;  // matrix by matrix
  int64_t tensor_bytes_ = 0;
  bool shares_ = false;
};

}  // namespace lumen::model::compress
