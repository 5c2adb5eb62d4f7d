// The bytes of a weight: read-only, shared by copies, and either owned or a view: a weight of a mapped file refers to
// the mapping. To change bytes, create a new object. Proved by tests/model/arch/arch_test.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lumen::model::arch {

class Bytes {
 public:
  Bytes() = default;
  Bytes(std::vector<uint8_t> own) {  // NOLINT(google-explicit-constructor): encoders return vectors
    auto kept = std::make_shared<const std::vector<uint8_t>>(std::move(own));
    part_ = *kept;
    keeper_ = std::move(kept);
  }
  // A view of memory that `keeper` keeps alive.
  Bytes(std::span<const uint8_t> part, std::shared_ptr<const void> keeper) : part_(part), keeper_(std::move(keeper)) {}

  const uint8_t* data() const { return part_.data(); }
  size_t size() const { return part_.size(); }
  const uint8_t* begin() const { return part_.data(); }
  const uint8_t* end() const { return part_.data() + part_.size(); }
  const std::shared_ptr<const void>& keeper() const { return keeper_; }
  static constexpr size_t kAlignment = 64;
  friend bool operator==(const Bytes& a, const Bytes& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

 private:
  std::span<const uint8_t> part_;
  std::shared_ptr<const void> keeper_;
};

// A buffer that is filled once and then becomes Bytes: aligned, zero-initialized, in huge pages if it is large enough.
// Error (exit 3) before allocation where memory does not suffice; `what` names the use.
class Room {
 public:
  explicit Room(size_t size, const std::string& what = "a weight");
  uint8_t* data() { return data_; }
  size_t size() const { return size_; }
  Bytes bytes() && { return {{data_, size_}, std::move(keeper_)}; }
  Bytes bytes(size_t first, size_t count) const { return {{data_ + first, count}, keeper_}; }  // keeps all of it alive

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
  std::shared_ptr<const void> keeper_;
};

}  // namespace lumen::model::arch
