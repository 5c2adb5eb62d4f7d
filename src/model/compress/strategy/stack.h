// Matrices of a stack as blobs of their own: what rounds one matrix at a time rounds stacks. Proved by
// tests/model/compress/strategy/stack_test.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "number/format/format.h"

namespace lumen::model {

// Where the blobs of matrices [rows, columns] lie in that of all, one behind the other.
class BlobStack {
 public:
  // Error (exit 1) when tiles of the format would reach over two matrices.
  BlobStack(const Format& f, int64_t matrices, int64_t rows, int64_t columns);
  // Whether matrices have fields in common (those of the tensor), or in tiles: then each is rounded under those of all.
  bool shares_fields() const { return shares_; }
  std::vector<uint8_t> matrix(std::span<const uint8_t> all, int64_t m) const;
  // Fields of the tensor stay those of `all`.
  void put(std::span<uint8_t> all, int64_t m, std::span<const uint8_t> matrix) const;
  int64_t bytes() const { return all_.total; }

 private:
  struct Section {
    int64_t of_all, of_one, bytes;  // offsets in the blobs; bytes of one matrix
  };
  BlobLayout all_, one_;
  std::vector<Section> sections_;  // matrix by matrix
  int64_t tensor_bytes_ = 0;
  bool shares_ = false;
};

}  // namespace lumen::model
