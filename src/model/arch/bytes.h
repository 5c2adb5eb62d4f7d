// The bytes of a weight: read-only, shared by copies, and not always memory of their own: a weight of a mapped file is
// the file. Whoever wants other bytes makes a new object. Proved by tests/model/arch_test.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace lumen::model {

class Bytes {
 public:
  Bytes() = default;
  Bytes(std::vector<uint8_t> own) {  // implicit: results of encoders are bytes
    auto kept = std::make_shared<const std::vector<uint8_t>>(std::move(own));
    part_ = *kept;
    keeper_ = std::move(kept);
  }
  // Part of something that `keeper` keeps alive.
  Bytes(std::span<const uint8_t> part, std::shared_ptr<const void> keeper) : part_(part), keeper_(std::move(keeper)) {}

  const uint8_t* data() const { return part_.data(); }
  size_t size() const { return part_.size(); }
  const uint8_t* begin() const { return part_.data(); }
  const uint8_t* end() const { return part_.data() + part_.size(); }
  const std::shared_ptr<const void>& keeper() const { return keeper_; }
  friend bool operator==(const Bytes& a, const Bytes& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

 private:
  std::span<const uint8_t> part_;
  std::shared_ptr<const void> keeper_;
};

}  // namespace lumen::model
