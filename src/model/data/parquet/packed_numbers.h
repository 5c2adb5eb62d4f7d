// Decoders of Parquet's packed numbers: runs and bit-packed groups, and differences. Bytes are hostile; numbers are
// decoded one by one, so that a run of a billion takes no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lumen::model::data::parquet {

int bits_for(uint32_t largest);

// RLE / bit-packing hybrid.
class HybridReader {
 public:
  HybridReader() = default;
  HybridReader(std::string_view bytes, int width);  // width: 0 to 32 bits
  uint32_t next();

 private:
  void begin_run();

  std::string_view bytes_;
  int width_ = 0;
  size_t at_ = 0;
  uint64_t repeats_ = 0, packed_ = 0;  // left in the run
  uint32_t value_ = 0;
  uint64_t bit_ = 0;
};

// The levels of old files (BIT_PACKED): highest bit first, without runs.
class LevelBitsReader {
 public:
  LevelBitsReader() = default;
  LevelBitsReader(std::string_view bytes, int width) : bytes_(bytes), width_(width) {}
  uint32_t next();

 private:
  std::string_view bytes_;
  int width_ = 0;
  uint64_t bit_ = 0;
};

// DELTA_BINARY_PACKED. Numbers wrap at 64 bits.
class DeltaReader {
 public:
  DeltaReader() = default;
  explicit DeltaReader(std::string_view bytes);
  uint64_t count() const { return count_; }
  int64_t next();
  size_t size() const;  // bytes of all numbers

 private:
  void begin_block();
  void begin_miniblock();

  std::string_view bytes_;
  uint64_t miniblocks_ = 0, miniblock_ = 0;  // per block; numbers per miniblock
  uint64_t count_ = 0, given_ = 0;
  uint64_t last_ = 0, least_ = 0;
  size_t at_ = 0, widths_ = 0;           // offset of the next bytes, and of a block's widths
  uint64_t in_block_ = 0, in_mini_ = 0;  // miniblocks begun; numbers left in the current one
  int width_ = 0;
  uint64_t bit_ = 0;
};

}  // namespace lumen::model::data::parquet
