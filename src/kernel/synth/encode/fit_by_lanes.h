// Fits of rows, tiles and tensors on machines with waves: adjacent lanes share the values of a record and find its
// largest magnitude (unpack/magnitude.h); a tensor is shared by many blocks, whose results a second kernel reduces.
// Equal to the codec bit for bit. Proved by tests/kernel/synth/encode_lanes_test.cpp.
#pragma once

#include "kernel/synth/encode/encode.h"

namespace lumen::synth {

class FitByLanes {
 public:
  // nullopt if lanes cannot share: the machine has no waves, the fit needs more than a magnitude, or its fields are
  // supplied.
  static std::optional<FitByLanes> of(const Format& f, Level level, const EncodeOperands& given,
                                      const machine::Machine& target);

  // Bytes that blocks pass to the second kernel; 0: there is one kernel.
  int64_t partial_bytes() const { return parts_ > 1 ? parts_ * 4 : 0; }
  // The first kernel, where there are two.
  void write_partial(Builder& b, const EncodeOperands& given, BufferId partial) const;
  // The kernel that sets fields.
  void write(Builder& b, const EncodeOperands& given, BufferId partial = -1) const;
  std::string text() const;

 private:
  FitByLanes() = default;
  void write_in_waves(Builder& b, const EncodeOperands& given) const;
  void write_in_blocks(Builder& b, const EncodeOperands& given) const;
  void write_joined(Builder& b, const EncodeOperands& given, BufferId partial) const;
  // Bits of the largest magnitude in a lane's share: vectors first, first + stride, .. of the record.
  Expr scan(Builder& b, const EncodeOperands& given, Expr record, Expr first, int64_t stride, int64_t count) const;
  // Sets the fields of the record where `writes` is true.
  void fit(Builder& b, const EncodeOperands& given, Expr record, Expr bits, Expr writes) const;
  int64_t elements(const EncodeOperands& given) const;  // of a whole record

  const Format* format_ = nullptr;
  Level level_ = Level::row;
  int wave_ = 1;
  int64_t records_ = 1, vectors_ = 1;  // of a whole record
  int vector_ = 1;                     // elements of a load
  int64_t share_ = 1;                  // lanes for a record
  int64_t parts_ = 1;                  // blocks for it
};

}  // namespace lumen::synth
