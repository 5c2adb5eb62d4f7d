// Invariants, in the order they are checked:
//   1. params have sizes, power-of-two alignments and buffer numbers 0..n-1; every value and every alloc is defined
//   exactly once
//   2. operands and buffers are visible: defined before, in the same or an enclosing region
//   3. types follow the operation; offsets and counts are i64, gather offsets i32 or i64; only written params are
//   stored to
//   4. a parallel or grid loop is the last instruction of the body, after pure ones only; nothing of the kind is
//   nested
//   5. in a grid kernel: the rules of docs/decisions/0007 for blocks and lanes (check_level)
//   6. accesses before the earlier kernels have ended (verify.h)
#include "kernel/loop/verify.h"

#include <bit>
#include <map>
#include <utility>

#include "base/check.h"
#include "kernel/loop/rules.h"
#include "kernel/loop/text.h"

namespace lumen::loop {
namespace {

constexpr int kMaxDepth = 64;
constexpr int64_t kMostBlockLanes = 1024;
constexpr VType kI64{Scalar::i64, 1};

class Verifier {
 public:
  explicit Verifier(const Kernel& k)
      : k_(k),
        defined_(k.value_count),
        visible_(k.value_count),
        live_(k.buffer_count),
        spaces_(k.buffer_count, Space::global) {}

  // `inputs`: values that come from outside (a function's parameters).
  std::string run(const std::vector<ValueId>& inputs) {
    if (std::ssize(k_.value_types) != k_.value_count) return "value_types and value_count disagree";
    if (k_.instances < 1 || k_.instances > kMostInstances) return fmt::format("{} instances", k_.instances);
    for (size_t i = 0; i < k_.params.size(); ++i) {
      const BufferParam& p = k_.params[i];
      if (p.bytes < 0) return fmt::format("param {} has {} bytes", p.name, p.bytes);
      if (!std::has_single_bit(static_cast<unsigned>(p.align)))
        return fmt::format("param {} is aligned to {}", p.name, p.align);
      if (p.written && p.constant) return fmt::format("param {} is constant and written", p.name);
      if (static_cast<int>(i) >= k_.buffer_count) return "buffer_count is below the number of params";
      live_[i] = true;
    }
    allocated_ = k_.params.size();
    for (const ValueId v : inputs) define(v, k_.value_types[v]);
    region(k_.body, 0);
    if (error_.empty() && values_ != k_.value_count) error_ = "value numbers have gaps";
    if (error_.empty() && allocated_ != k_.buffer_count) error_ = "buffer numbers have gaps";
    if (error_.empty()) error_ = check_early(k_);
    return error_;
  }

  bool is_visible(ValueId v) const { return v >= 0 && v < k_.value_count && visible_[v]; }

 private:
  template <typename... Args>
  void fail(fmt::format_string<Args...> text, Args&&... args) {
    if (error_.empty()) error_ = fmt::format(text, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void fail_at(const Instr& instr, fmt::format_string<Args...> text, Args&&... args) {
    if (!error_.empty()) return;
    std::string line = print(instr);
    line = line.substr(0, line.find('\n'));
    error_ = fmt::format("{} in: {}", fmt::format(text, std::forward<Args>(args)...), line);
  }

  void define(ValueId v, VType type) {
    if (v < 0 || v >= k_.value_count) return fail("value %{} is outside 0..{}", v, k_.value_count);
    if (defined_[v]) return fail("value %{} is defined twice", v);
    if (k_.value_types[v] != type) return fail("value %{} is {}, not {}", v, print(k_.value_types[v]), print(type));
    if (type.lanes < 1 || type.lanes > kMaxLanes) return fail("value %{} has {} lanes", v, type.lanes);
    defined_[v] = visible_[v] = true;
    scope_.push_back(v);
    ++values_;
  }

  VType type(ValueId v) const { return k_.value_types[v]; }

  // The level of the code: outside of blocks (and grid loops), of a block, of a lane.
  enum class Level : uint8_t { task, block, lane };

  bool is_shared(BufferId b) const { return spaces_[b] == Space::shared; }
  bool is_private(BufferId b) const { return spaces_[b] == Space::priv; }
  bool is_buffer(BufferId b) const { return b >= 0 && b < k_.buffer_count && live_[b]; }

  void check_level(const Instr& instr) {
    const bool of_lanes = instr.op > Op::barrier_;  // op.def has them last
    if (of_lanes && level_ != Level::lane) return fail_at(instr, "only lanes do this");
    if (instr.op == Op::barrier_ && level_ != Level::block)
      return fail_at(instr, "a barrier stands between lane loops");
    if (instr.op == Op::alloc_ && instr.space == Space::shared && level_ != Level::block)
      return fail_at(instr, "shared memory belongs to a block");
    if (level_ != Level::block) return;
    if (instr.op == Op::store_ || instr.op == Op::scatter_ || instr.op == Op::guard_ || instr.op == Op::prefetch_)
      return fail_at(instr, "an effect outside the lane loops of a block");
    if ((instr.op == Op::load_ || instr.op == Op::gather_) && is_buffer(instr.buffer) && is_private(instr.buffer))
      return fail_at(instr, "private memory is read outside the lane loops of a block");
  }

  void lane_loop(const Instr& instr, int depth) {
    if (level_ != Level::block) return fail_at(instr, "a lane loop stands in the code of a block");
    const auto from = numbers_.find(instr.operands[0]), to = numbers_.find(instr.operands[1]);
    if (from == numbers_.end() || to == numbers_.end() || from->second != 0 || to->second < 1 ||
        to->second > kMostBlockLanes || instr.step != 1)
      return fail_at(instr, "lanes are counted from 0 to a constant of at most {}, by 1", kMostBlockLanes);
    if (block_lanes_ == 0) block_lanes_ = to->second;
    if (block_lanes_ != to->second)
      return fail_at(instr, "a block of {} lanes has a loop over {}", block_lanes_, to->second);
    enter(Level::lane, instr, depth);
  }

  void enter(Level level, const Instr& instr, int depth) {
    const Level before = std::exchange(level_, level);
    region(instr.regions[0], depth + 1);
    level_ = before;
  }

  void region(const Region& r, int depth) {
    if (depth > kMaxDepth) return fail("regions nest deeper than {}", kMaxDepth);
    const size_t mark = scope_.size(), buffer_mark = scope_buffers_.size();
    if (r.counter >= 0) define(r.counter, kI64);
    for (size_t i = 0; i < r.code.size() && error_.empty(); ++i) {
      const Instr& instr = r.code[i];
      if (instr.op == Op::loop_ && (instr.kind == LoopKind::parallel || instr.kind == LoopKind::grid)) {
        if (depth != 0 || i + 1 != r.code.size()) fail_at(instr, "a {} loop must end the body", name_of(instr.kind));
        for (size_t j = 0; j < i; ++j)
          if (op_info(r.code[j].op).effect) fail_at(r.code[j], "an effect before the {} loop", name_of(instr.kind));
        for (const ValueId bound : instr.operands)
          if (!is_constant(r, bound))
            fail_at(instr, "the bounds of the {} loop must be constants", name_of(instr.kind));
      }
      check(instr, depth);
    }
    while (depth > 0 && scope_.size() > mark) {
      visible_[scope_.back()] = false;
      scope_.pop_back();
    }
    while (scope_buffers_.size() > buffer_mark) {
      live_[scope_buffers_.back()] = false;
      scope_buffers_.pop_back();
    }
  }

  static bool is_constant(const Region& r, ValueId v) {
    for (const Instr& instr : r.code)
      if (instr.result == v) return instr.op == Op::constant_;
    return false;
  }

  void expect(const Instr& instr, size_t operand, VType wanted) {
    const VType t = type(instr.operands[operand]);
    if (t != wanted) fail_at(instr, "operand {} is {}, not {}", operand, print(t), print(wanted));
  }
  void expect_result(const Instr& instr, VType wanted) {
    if (instr.type != wanted) fail_at(instr, "the result is {}, not {}", print(wanted), print(instr.type));
  }

  // Checks the number and the types of the operands against op.def.
  void check_operands(const Instr& instr) {
    const std::string_view all = op_info(instr.op).operands;
    if (all == "*") return;
    const size_t least = std::min(all.find('|'), all.size()), most = least == all.size() ? least : all.size() - 1;
    if (instr.operands.size() < least || instr.operands.size() > most)
      return fail_at(instr, "{} operands", instr.operands.size());
    for (size_t i = 0; i < instr.operands.size(); ++i) {
      const char letter = all[i < least ? i : i + 1];
      if (letter == 't') expect(instr, i, instr.type);
      if (letter == 'e') expect(instr, i, {instr.type.scalar, 1});
      if (letter == 'i') expect(instr, i, kI64);
      if (letter == 'b') expect(instr, i, {Scalar::boolean, 1});
    }
  }

  void access(const Instr& instr, bool writes) {
    if (!is_buffer(instr.buffer)) return fail_at(instr, "buffer @{} is not visible", instr.buffer);
    if (!std::has_single_bit(static_cast<unsigned>(instr.align))) return fail_at(instr, "alignment {}", instr.align);
    if (writes && instr.buffer < std::ssize(k_.params) && !k_.params[instr.buffer].written)
      fail_at(instr, "param @{} is not declared written", instr.buffer);
  }

  void check(const Instr& instr, int depth) {
    for (const ValueId v : instr.operands)
      if (!is_visible(v)) return fail_at(instr, "operand %{} is not visible", v);
    check_operands(instr);
    check_level(instr);
    if (error_.empty()) check_op(instr, depth);
    if (instr.op == Op::constant_ && instr.integers.size() == 1 && instr.type == kI64)
      numbers_[instr.result] = instr.integers[0];
    if (error_.empty() && instr.result >= 0) define(instr.result, instr.type);
    const bool yields = op_info(instr.op).yields;
    if (yields != (instr.result >= 0)) fail_at(instr, "{}", yields ? "no result" : "an unexpected result");
  }

  void check_constant(const Instr& instr) {
    const size_t n = is_float(instr.type.scalar) ? instr.data.size() : instr.integers.size();
    const size_t other = is_float(instr.type.scalar) ? instr.integers.size() : instr.data.size();
    if (other != 0 || (n != 1 && n != static_cast<size_t>(instr.type.lanes)))
      return fail_at(instr, "{} numbers for {}", n + other, print(instr.type));
    for (const int64_t x : instr.integers)
      if (wrap_to_scalar(instr.type.scalar, x) != x) return fail_at(instr, "{} does not fit", x);
    for (const double x : instr.data)
      if (x == x && round_to_scalar(instr.type.scalar, x) != x) return fail_at(instr, "{} is not exact", x);
  }

  void check_loop(const Instr& instr, int depth) {
    if (instr.step <= 0) fail_at(instr, "step {}", instr.step);
    if (instr.regions.size() != 1 || instr.regions[0].counter < 0)
      return fail_at(instr, "needs a region with a counter");
    if (instr.kind == LoopKind::lane) return lane_loop(instr, depth);
    if (instr.kind == LoopKind::grid) return enter(Level::block, instr, depth);
    region(instr.regions[0], depth + 1);
  }

  // A load or a store, at one offset or at one for each lane.
  void check_access(const Instr& instr) {
    const bool writes = op_info(instr.op).effect;
    access(instr, writes);
    if (instr.op == Op::load_ || instr.op == Op::store_) return;
    const VType offsets = type(instr.operands.back());
    if (offsets.scalar != Scalar::i32 && offsets.scalar != Scalar::i64) fail_at(instr, "offsets must be i32 or i64");
    const int lanes = writes ? type(instr.operands[0]).lanes : instr.type.lanes;
    if (offsets.lanes != lanes) fail_at(instr, "{} offsets for {} lanes", offsets.lanes, lanes);
  }

  void check_copy(const Instr& instr) {
    if (!is_buffer(instr.buffer) || !is_buffer(instr.from)) return fail_at(instr, "a buffer is not visible");
    if (!is_shared(instr.buffer) || is_shared(instr.from) || is_private(instr.from))
      return fail_at(instr, "copies go from global to shared memory");
    const bool is_eight = instr.bytes == 8 && instr.op == Op::copy_;
    if (instr.bytes != 4 && !is_eight && instr.bytes != 16) fail_at(instr, "{} bytes", instr.bytes);
  }

  void check_load_matrix(const Instr& instr) {
    if (instr.row.empty()) fail_at(instr, "no row");
    if (!is_buffer(instr.buffer) || !is_shared(instr.buffer)) fail_at(instr, "matrices are loaded from shared memory");
  }

  void check_product(const Instr& instr) {
    if (instr.buffer >= 0) expect(instr, 1, kI64);
    if (instr.row.empty()) fail_at(instr, "no row");
    if ((instr.buffer >= 0 && (!is_buffer(instr.buffer) || !is_shared(instr.buffer))) || !is_buffer(instr.from) ||
        !is_shared(instr.from))
      return fail_at(instr, "factors that are not held lie in shared memory");
  }

  void check_op(const Instr& instr, int depth) {
    switch (instr.op) {
      case Op::constant_:
        return check_constant(instr);
      case Op::op_: {
        std::vector<VType> types;
        for (const ValueId v : instr.operands) types.push_back(type(v));
        const Typing typing = type_of(instr.scalar_op, types, instr.type.scalar);
        if (!typing.error.empty()) return fail_at(instr, "{}", typing.error);
        return expect_result(instr, typing.type);
      }
      case Op::extract_:
      case Op::insert_: {
        const VType from = type(instr.operands[0]);
        if (instr.lane < 0 || instr.lane >= from.lanes) fail_at(instr, "no lane {}", instr.lane);
        if (instr.op == Op::extract_) expect_result(instr, {from.scalar, 1});
        return;
      }
      case Op::shuffle_: {
        const VType t = type(instr.operands[0]);
        if (instr.operands.size() == 2) expect(instr, 1, t);
        const int limit = t.lanes * instr.operands.size();
        for (const int lane : instr.mask)
          if (lane < -1 || lane >= limit) fail_at(instr, "no lane {}", lane);
        return expect_result(instr, {t.scalar, static_cast<int>(instr.mask.size())});
      }
      case Op::fold_: {
        const VType t = type(instr.operands[0]);
        if (instr.scalar_op != ScalarOp::add_ && instr.scalar_op != ScalarOp::min_ && instr.scalar_op != ScalarOp::max_)
          fail_at(instr, "only add, min and max fold");
        if (t.scalar == Scalar::boolean) fail_at(instr, "truth values do not fold");
        if (!std::has_single_bit(static_cast<unsigned>(t.lanes))) fail_at(instr, "lanes must be a power of two");
        return expect_result(instr, {t.scalar, 1});
      }
      case Op::load_:
      case Op::store_:
      case Op::gather_:
      case Op::scatter_:
        return check_access(instr);
      case Op::prefetch_:
        if (!is_buffer(instr.buffer) || instr.buffer >= std::ssize(k_.params))
          fail_at(instr, "prefetches are of params, not of @{}", instr.buffer);
        return;
      case Op::alloc_:
        return check_alloc(instr);
      case Op::inst_:
        if (instr.row.empty()) fail_at(instr, "no row");
        return;
      case Op::loop_:
        return check_loop(instr, depth);
      case Op::branch_:
        if (instr.regions.size() != 2) return fail_at(instr, "needs two regions");
        for (const Region& r : instr.regions) region(r, depth + 1);
        return;
      case Op::guard_:
        if (instr.code < kGuardIndex || instr.code > kGuardFinite) fail_at(instr, "a guard without a code");
        return;
      case Op::copy_:
      case Op::copy_together_:
        return check_copy(instr);
      case Op::load_matrix_:
        return check_load_matrix(instr);
      case Op::product_:
        return check_product(instr);
      case Op::commit_:
        if (instr.flow == Flow::kernels) fail_at(instr, "kernels are waited for, and not committed");
        return;
      case Op::wait_:
        if (instr.groups < 0 || instr.groups > (instr.flow == Flow::kernels ? 0 : kMostGroups))
          fail_at(instr, "{} groups", instr.groups);
        return;
      case Op::lane_id_:
        return expect_result(instr, kI64);
      default:  // operands and their types are all there is to check
        return;
    }
  }

  void check_alloc(const Instr& instr) {
    if (instr.buffer < std::ssize(k_.params) || instr.buffer >= k_.buffer_count)
      return fail_at(instr, "buffer @{} is outside the allocs", instr.buffer);
    if (live_[instr.buffer]) return fail_at(instr, "buffer @{} is defined twice", instr.buffer);
    if (instr.bytes <= 0 || instr.bytes > (int64_t{1} << 24)) fail_at(instr, "{} bytes", instr.bytes);
    if (!std::has_single_bit(static_cast<unsigned>(instr.align))) fail_at(instr, "alignment {}", instr.align);
    if (instr.space == Space::global) fail_at(instr, "allocs are private or shared");
    live_[instr.buffer] = true;
    spaces_[instr.buffer] = instr.space;
    scope_buffers_.push_back(instr.buffer);
    ++allocated_;
  }

  const Kernel& k_;
  std::vector<bool> defined_, visible_, live_;
  std::vector<ValueId> scope_;
  std::vector<BufferId> scope_buffers_;
  std::vector<Space> spaces_;  // by buffer
  std::map<ValueId, int64_t> numbers_;
  Level level_ = Level::task;
  int64_t block_lanes_ = 0;
  int values_ = 0, allocated_ = 0;
  std::string error_;
};

}  // namespace

std::string verify(const Kernel& k) {
  return Verifier(k).run({});
}

std::string verify(const Function& f) {
  if (!f.body.params.empty() || f.body.buffer_count != 0) return "functions have no buffers";
  for (const ValueId v : f.params)
    if (v < 0 || v >= f.body.value_count) return fmt::format("parameter %{} is not a value", v);
  for (const Instr& instr : f.body.body.code)
    if (!is_pure(instr.op)) return fmt::format("functions are pure, not so: {}", print(instr));
  Verifier verifier(f.body);
  std::string wrong = verifier.run(f.params);
  if (wrong.empty() && !verifier.is_visible(f.result)) wrong = fmt::format("result %{} is not visible", f.result);
  return wrong;
}

}  // namespace lumen::loop
