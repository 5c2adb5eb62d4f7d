// Builds kernels. Constants and pure scalar arithmetic fold and are shared inside a region; types are checked
// (LUMEN_CHECK).
#pragma once

#include <functional>
#include <optional>
#include <unordered_map>

#include "kernel/loop/loop.h"

namespace lumen::loop {

class Builder {
 public:
  Kernel kernel;
  explicit Builder(std::string name);
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  BufferId param(std::string name, int64_t bytes, bool written, int align = 64);
  BufferId alloc(int64_t bytes, int align = 64, Space space = Space::priv);

  ValueId real(double x, VType type);  // splat constant
  ValueId integer(int64_t x, VType type);
  ValueId i64(int64_t x) { return integer(x, {Scalar::i64, 1}); }
  ValueId lanes_real(std::vector<double> x, Scalar s);  // one number per lane
  ValueId lanes_integer(std::vector<int64_t> x, Scalar s);

  ValueId op(ScalarOp op, ValueId a, ValueId b = -1, ValueId c = -1);
  ValueId convert(ScalarOp op, Scalar to, ValueId a);  // cast, bitcast, exponent
  ValueId add(ValueId a, ValueId b) { return op(ScalarOp::add_, a, b); }
  ValueId mul(ValueId a, ValueId b) { return op(ScalarOp::mul_, a, b); }
  ValueId splat(ValueId a, int lanes);  // no-op for lanes == 1
  ValueId extract(ValueId a, int lane);
  ValueId insert(ValueId a, ValueId x, int lane);
  ValueId shuffle(std::vector<ValueId> a, std::vector<int> mask);
  ValueId fold(ScalarOp op, ValueId a);
  ValueId load(BufferId b, VType type, ValueId offset, int align = 1, ValueId count = -1);
  void store(BufferId b, ValueId value, ValueId offset, int align = 1, ValueId count = -1);
  ValueId gather(BufferId b, Scalar s, ValueId offsets);
  void scatter(BufferId b, ValueId value, ValueId offsets);
  ValueId inst(const std::string& row, VType result, std::vector<ValueId> operands);
  void guard(ValueId ok, ValueId detail, GuardCode code);
  void barrier();
  void meet();  // of a wave
  ValueId lane_id();
  ValueId exchange(ValueId value, ValueId lane);
  // What all lanes of a wave have, by op (associative, commutative): every lane gets the same bits.
  ValueId fold_wave(ScalarOp op, ValueId value, int wave);
  void copy(BufferId to, ValueId to_offset, BufferId from, ValueId from_offset, int64_t bytes);
  ValueId product(const std::string& row, ValueId acc, BufferId a, ValueId a_offset, BufferId b, ValueId b_offset);
  ValueId product(const std::string& row, ValueId acc, ValueId a, BufferId b, ValueId b_offset);  // a is held
  ValueId ready(ValueId sums);
  void commit(Flow flow);
  void wait(Flow flow, int groups);

  // body(counter) is called once to fill the region.
  void loop(LoopKind kind, ValueId from, ValueId to, int64_t step, const std::function<void(ValueId)>& body);
  void branch(ValueId condition, const std::function<void()>& then, const std::function<void()>& otherwise = nullptr);

  // Instructions of f32 that are near enough where results are rounded to 16-bit floats: while they are set, exp and
  // division (by multiplying) are made of them. Names of rows; empty: none.
  struct FastMath {
    std::string power2, reciprocal, greatest;  // greatest: max, of numbers
  };
  void use_fast_math(FastMath s) {
    fast_math_ = std::move(s);
    reciprocals_.clear();
  }
  // 1 / x = y, while approximations are taken.
  void know_reciprocal(ValueId x, ValueId y) { reciprocals_[x] = y; }
  ValueId power2(ValueId x);  // by the approximation, else exp

  // Applies a scalar program lane by lane; operands have one lane count.
  std::vector<ValueId> apply(const Formula& f, const std::vector<ValueId>& inputs);

  VType type(ValueId v) const { return kernel.value_types[v]; }
  std::optional<int64_t> known_integer(ValueId v) const;  // the number behind a constant splat
  Kernel finish();                                        // verifies; sets tasks

 private:
  struct Scope {
    Region* region;
    std::unordered_map<std::string, ValueId> known;  // pure instructions of this region, by content
  };
  struct Constant {
    std::vector<double> data;
    std::vector<int64_t> integers;
    bool empty() const { return data.empty() && integers.empty(); }
  };
  ValueId append(Instr instr, VType type);
  ValueId constant(VType type, std::vector<double> data, std::vector<int64_t> integers);
  ValueId simplify(ScalarOp op, const std::vector<ValueId>& operands, VType type);
  void check_access(BufferId b, ValueId offset, ValueId count, int lanes) const;

  ValueId shortcut(const std::string& row, ValueId x, ValueId y = -1);  // lane by lane

  FastMath fast_math_;
  std::unordered_map<ValueId, ValueId> reciprocals_;
  std::vector<Scope> scopes_;
  std::vector<Constant> constants_;  // by ValueId
};

}  // namespace lumen::loop
