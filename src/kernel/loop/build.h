// Builds kernels. Constants and pure scalar arithmetic fold and are shared inside a region; types are checked
// (LUMEN_CHECK).
#pragma once

#include <functional>
#include <optional>
#include <unordered_map>

#include "kernel/loop/expr.h"
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

  Expr constant(ScalarValue x, VType type) {
    return is_float(type.scalar) ? real(x.real, type) : integer(x.integer, type);
  }
  Expr constants(const std::vector<ScalarValue>& x, Scalar s);  // one number per lane
  Expr real(double x, VType type);                              // splat constant
  Expr integer(int64_t x, VType type);
  Expr i64(int64_t x) { return integer(x, {Scalar::i64, 1}); }
  Expr lanes_real(std::vector<double> x, Scalar s);  // one number per lane
  Expr lanes_integer(std::vector<int64_t> x, Scalar s);
  Expr lane_steps(int lanes, int64_t step);  // i64: 0, step, 2 step, ...

  Expr op(ScalarOp op, Expr a, Expr b = {}, Expr c = {});
  Expr convert(ScalarOp op, Scalar to, Expr a) { return compute(op, {a}, to); }  // cast, bitcast, exponent
  Expr splat(Expr a, int lanes);                                                 // no-op for lanes == 1
  // A vector of scalars, one(lane) each; a scalar for one lane.
  template <typename One>
  Expr join(int lanes, const One& one) {
    Expr all = splat(one(0), lanes);
    for (int l = 1; l < lanes; ++l) {
      const Expr x = one(l);
      all = insert(all, x, l);
    }
    return all;
  }
  Expr concat(Expr a, Expr b);  // two vectors of one type, concatenated
  Expr extract(Expr a, int lane);
  Expr insert(Expr a, Expr x, int lane);
  Expr shuffle(std::vector<Expr> a, std::vector<int> mask);
  Expr fold(ScalarOp op, Expr a);
  Expr load(BufferId b, VType type, Expr offset, int align = 1, Expr count = {});
  void store(BufferId b, Expr value, Expr offset, int align = 1, Expr count = {});
  Expr gather(BufferId b, Scalar s, Expr offsets);
  void scatter(BufferId b, Expr value, Expr offsets);
  // A hint that this place will be read soon; `offset` may be outside the buffer.
  void prefetch(BufferId b, Expr offset, Cache into);
  // A load or store at one offset, a gather or scatter at one offset per lane.
  Expr read(BufferId b, VType type, Expr offset, int align) {
    return this->type(offset).lanes == 1 ? load(b, type, offset, align) : gather(b, type.scalar, offset);
  }
  void write(BufferId b, Expr value, Expr offset, int align) {
    type(offset).lanes == 1 ? store(b, value, offset, align) : scatter(b, value, offset);
  }
  Expr inst(const std::string& row, VType result, std::vector<Expr> operands);
  void guard(Expr ok, Expr detail, GuardCode code);
  void barrier() { add({.op = Op::barrier_}); }
  void wave_barrier() { add({.op = Op::wave_barrier_}); }
  Expr lane_id() { return append({.op = Op::lane_id_}, {Scalar::i64, 1}); }
  Expr wave_shuffle(Expr value, Expr lane);
  // Reduces a value over all lanes of a wave by op (associative, commutative): every lane gets the same bits.
  Expr fold_wave(ScalarOp op, Expr value, int wave);
  Expr load_matrix(const std::string& row, VType type, BufferId b, Expr offset);
  // `count`: all bytes, or 0, which writes zeros and does not read `from`.
  void copy(BufferId to, Expr to_offset, BufferId from, Expr from_offset, int64_t bytes, Expr count = {});
  // Lane l of the block copies to `to_offset` + l * bytes; `to_offset` is uniform.
  void copy_together(BufferId to, Expr to_offset, BufferId from, Expr from_offset, int64_t bytes);
  Expr product(const std::string& row, Expr acc, BufferId a, Expr a_offset, BufferId b, Expr b_offset);
  Expr product(const std::string& row, Expr acc, Expr a, BufferId b, Expr b_offset);  // a is in registers
  Expr ready(Expr sums);
  void commit(Flow flow) { add({.op = Op::commit_, .flow = flow}); }
  void wait(Flow flow, int groups) { add({.op = Op::wait_, .flow = flow, .groups = groups}); }

  // body(counter) is called once to fill the region.
  void loop(LoopKind kind, Expr from, Expr to, int64_t step, const std::function<void(Expr)>& body);
  // A serial loop from `from` to `to` by `step`.
  void count(int64_t from, int64_t to, int64_t step, const std::function<void(Expr)>& body) {
    loop(LoopKind::serial, i64(from), i64(to), step, body);
  }
  void branch(Expr condition, const std::function<void()>& then, const std::function<void()>& otherwise = nullptr);

  // Approximate f32 instructions, for results that are rounded to 16-bit floats: while they are set, exp, tanh and
  // division (by the reciprocal) use them. Names of rows; empty: none.
  struct FastMath {
    std::string power2, reciprocal, greatest;  // greatest: max, without NaN
  };
  void use_fast_math(FastMath s) {
    fast_math_ = std::move(s);
    reciprocals_.clear();
  }
  // Declares that 1 / x = y, while approximations are used.
  void know_reciprocal(Expr x, Expr y) { reciprocals_[x.id()] = y; }
  Expr power2(Expr x);  // by the approximation, else exp

  // Applies a scalar program lane by lane; operands have one lane count.
  std::vector<Expr> apply(const Formula& f, const std::vector<Expr>& inputs);

  VType type(Expr v) const { return kernel.value_types[v.id()]; }
  std::optional<int64_t> known_integer(Expr v) const;  // the number of a constant splat
  Kernel finish();                                     // verifies; sets tasks

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
  void add(Instr instr);       // unchanged
  ValueId number(VType type);  // of a new value
  void fill(Region& region, const std::function<void()>& body);
  Expr append(Instr instr, VType type);
  Expr compute(ScalarOp op, const std::vector<Expr>& operands, std::optional<Scalar> to = std::nullopt);
  Expr constant(VType type, std::vector<double> data, std::vector<int64_t> integers);
  Expr simplify(ScalarOp op, const std::vector<Expr>& operands, VType type);
  void check_access(BufferId b, Expr offset, Expr count, int lanes) const;

  Expr shortcut(const std::string& row, Expr x, Expr y = {});  // lane by lane
  Expr fast_tanh(Expr x);

  FastMath fast_math_;
  std::unordered_map<ValueId, Expr> reciprocals_;
  std::vector<Scope> scopes_;
  std::vector<Constant> constants_;  // by ValueId
};

}  // namespace lumen::loop
