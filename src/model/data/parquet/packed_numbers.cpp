#include "model/data/parquet/packed_numbers.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"

namespace lumen::model::data::parquet {
namespace {

constexpr uint64_t kLargestBlock = uint64_t{1} << 31;

Error too_short() {
  return user_error("a page ends too early");
}

uint64_t varint(std::string_view bytes, size_t* at) {
  uint64_t out = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (*at >= bytes.size()) throw too_short();
    const auto b = static_cast<uint8_t>(bytes[(*at)++]);
    out |= static_cast<uint64_t>(b & 0x7f) << shift;
    if (b < 0x80) return out;
  }
  throw user_error("a number of a page has no end");
}

uint64_t zigzag(std::string_view bytes, size_t* at) {
  const uint64_t v = varint(bytes, at);
  return (v >> 1) ^ (~(v & 1) + 1);
}

// `width` bits (up to 64) starting at bit `at`, lowest bit of each byte first.
uint64_t low_bits(std::string_view bytes, uint64_t at, int width) {
  if (width == 0) return 0;
  const size_t first = at / 8, shift = at % 8;
  const uint64_t end = at + width;
  if (end > bytes.size() * uint64_t{8}) throw too_short();
  uint64_t out = 0;
  std::memcpy(&out, bytes.data() + first, std::min<size_t>(8, bytes.size() - first));
  out >>= shift;
  if (shift + width > 64) out |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[first + 8])) << (64 - shift);
  return width == 64 ? out : out & ((uint64_t{1} << width) - 1);
}

}  // namespace

int bits_for(uint32_t largest) {
  return std::bit_width(largest);
}

HybridReader::HybridReader(std::string_view bytes, int width) : bytes_(bytes), width_(width) {
  if (width < 0 || width > 32) throw user_error("numbers of {} bits in a page", width);
}

void HybridReader::begin_run() {
  const uint64_t head = varint(bytes_, &at_);
  const uint64_t count = head >> 1;
  if (count > UINT32_MAX) throw user_error("a run of {} numbers in a page", count);
  if (head & 1) {
    const uint64_t bytes = count * width_, there = bytes_.size() - at_;
    // The last run may omit the padding numbers, which are never read.
    packed_ = bytes <= there ? count * 8 : there * 8 / width_;
    if (count > 0 && packed_ == 0) throw too_short();
    bit_ = uint64_t{at_} * 8;
    at_ += std::min(bytes, there);
  } else {
    const size_t bytes = (width_ + 7) / 8;
    if (bytes > bytes_.size() - at_) throw too_short();
    value_ = 0;
    std::memcpy(&value_, bytes_.data() + at_, bytes);
    at_ += bytes;
    repeats_ = count;
  }
}

uint32_t HybridReader::next() {
  while (repeats_ == 0 && packed_ == 0) begin_run();
  if (repeats_ > 0) {
    --repeats_;
    return value_;
  }
  --packed_;
  const uint64_t at = bit_;
  bit_ += width_;
  return low_bits(bytes_, at, width_);
}

uint32_t LevelBitsReader::next() {
  uint32_t out = 0;
  for (int i = 0; i < width_; ++i, ++bit_) {
    if (bit_ / 8 >= bytes_.size()) throw too_short();
    out = out << 1 | (static_cast<uint8_t>(bytes_[bit_ / 8]) >> (7 - bit_ % 8) & 1);
  }
  return out;
}

DeltaReader::DeltaReader(std::string_view bytes) : bytes_(bytes) {
  const uint64_t block = varint(bytes_, &at_);
  miniblocks_ = varint(bytes_, &at_);
  count_ = varint(bytes_, &at_);
  last_ = zigzag(bytes_, &at_);
  if (block == 0 || block > kLargestBlock || miniblocks_ == 0 || block % miniblocks_ != 0 ||
      block / miniblocks_ % 8 != 0)
    throw user_error("differences in blocks of {} by {} in a page", block, miniblocks_);
  miniblock_ = block / miniblocks_;
  in_block_ = miniblocks_;
}

void DeltaReader::begin_block() {
  least_ = zigzag(bytes_, &at_);
  if (miniblocks_ > bytes_.size() - at_) throw too_short();
  widths_ = at_;
  at_ += miniblocks_;
  in_block_ = 0;
}

void DeltaReader::begin_miniblock() {
  if (in_block_ == miniblocks_) begin_block();
  width_ = static_cast<uint8_t>(bytes_[widths_ + in_block_++]);
  if (width_ > 64) throw user_error("differences of {} bits in a page", width_);
  // At most 2^31 numbers of 64 bits.
  const uint64_t bytes = miniblock_ / 8 * width_;
  if (bytes > bytes_.size() - at_) throw too_short();
  bit_ = uint64_t{at_} * 8;
  at_ += bytes;
  in_mini_ = miniblock_;
}

int64_t DeltaReader::next() {
  if (given_ == count_) throw too_short();
  if (given_++ == 0) return last_;
  if (in_mini_ == 0) begin_miniblock();
  --in_mini_;
  last_ += least_ + low_bits(bytes_, bit_, width_);
  bit_ += width_;
  return last_;
}

size_t DeltaReader::size() const {
  DeltaReader walk = *this;
  uint64_t left = count_ > 0 ? count_ - 1 : 0;
  while (left > 0) {
    walk.begin_miniblock();
    left -= std::min(left, miniblock_);
  }
  return walk.at_;
}

}  // namespace lumen::model::data::parquet
