// Compiles routines to register code and runs it. Proved by tests/number/codec_test.cpp.
#include "number/interpret/program.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "base/check.h"

namespace lumen::interpret {
namespace {

constexpr int32_t kMaxCells = 1 << 28;

Cell cell_of_constant(const RoutineExpr& e) {
  Cell c{};
  if (is_float(e.type)) {
    c.real = static_cast<float>(e.real);
  } else {
    c.whole = e.integer;
  }
  return c;
}

Code float_code(ScalarOp op) {
  switch (op) {
    case ScalarOp::add_:
      return Code::fadd;
    case ScalarOp::sub_:
      return Code::fsub;
    case ScalarOp::mul_:
      return Code::fmul;
    case ScalarOp::div_:
      return Code::fdiv;
    case ScalarOp::neg_:
      return Code::fneg;
    case ScalarOp::abs_:
      return Code::fabs;
    case ScalarOp::min_:
      return Code::fmin;
    case ScalarOp::max_:
      return Code::fmax;
    case ScalarOp::floor_:
      return Code::ffloor;
    case ScalarOp::ceil_:
      return Code::fceil;
    case ScalarOp::trunc_:
      return Code::ftrunc;
    case ScalarOp::rint_:
      return Code::frint;
    case ScalarOp::round_:
      return Code::fround;
    case ScalarOp::sqrt_:
      return Code::fsqrt;
    case ScalarOp::eq_:
      return Code::feq;
    case ScalarOp::ne_:
      return Code::fne;
    case ScalarOp::lt_:
      return Code::flt;
    case ScalarOp::le_:
      return Code::fle;
    default:
      return Code::other;
  }
}

Code whole_code(ScalarOp op) {
  switch (op) {
    case ScalarOp::add_:
      return Code::iadd;
    case ScalarOp::sub_:
      return Code::isub;
    case ScalarOp::mul_:
      return Code::imul;
    case ScalarOp::div_:
      return Code::idiv;
    case ScalarOp::rem_:
      return Code::irem;
    case ScalarOp::neg_:
      return Code::ineg;
    case ScalarOp::abs_:
      return Code::iabs;
    case ScalarOp::min_:
      return Code::imin;
    case ScalarOp::max_:
      return Code::imax;
    case ScalarOp::and_:
      return Code::iand;
    case ScalarOp::or_:
      return Code::ior;
    case ScalarOp::xor_:
      return Code::ixor;
    case ScalarOp::not_:
      return Code::inot;
    case ScalarOp::shl_:
      return Code::ishl;
    case ScalarOp::shr_:
      return Code::ishr;
    case ScalarOp::eq_:
      return Code::ieq;
    case ScalarOp::ne_:
      return Code::ine;
    case ScalarOp::lt_:
      return Code::ilt;
    case ScalarOp::le_:
      return Code::ile;
    default:
      return Code::other;
  }
}

Code code_for(const RoutineExpr& e, Scalar operand) {
  if (e.op == ScalarOp::select_) return Code::select;
  if (e.op == ScalarOp::cast_) {
    if (operand == Scalar::i32 && e.type == Scalar::f32) return Code::to_float;
    if (operand == Scalar::f32 && e.type == Scalar::i32) return Code::to_whole;
    if (operand == Scalar::boolean && e.type == Scalar::i32) return Code::move;
    if (operand == Scalar::boolean && e.type == Scalar::f32) return Code::to_float;
    return Code::other;
  }
  if (e.op == ScalarOp::bitcast_ || e.op == ScalarOp::exponent_) return Code::other;
  if (operand == Scalar::f32) return float_code(e.op);
  if (operand == Scalar::i32) return whole_code(e.op);
  if (operand == Scalar::boolean) {
    if (e.op == ScalarOp::not_) return Code::bnot;
    if (e.op == ScalarOp::and_ || e.op == ScalarOp::or_ || e.op == ScalarOp::xor_) return whole_code(e.op);
    if (e.op == ScalarOp::eq_ || e.op == ScalarOp::ne_) return whole_code(e.op);
  }
  return Code::other;
}

int32_t whole_from_float(float value) {
  if (!(value > -2147483648.0F)) return std::isnan(value) ? 0 : INT32_MIN;
  if (value >= 2147483648.0F) return INT32_MAX;
  return static_cast<int32_t>(value);
}

int64_t wrap32(int64_t value) {
  return static_cast<int32_t>(value);
}

int64_t divide(Code code, int64_t a, int64_t b) {
  if (b == 0) return 0;
  const int64_t q = a / b, r = a % b;
  const bool below = r != 0 && ((r < 0) != (b < 0));
  return code == Code::idiv ? wrap32(below ? q - 1 : q) : below ? r + b : r;
}

ScalarValue value_in(const Cell& cell, Scalar type) {
  return is_float(type) ? ScalarValue{cell.real, 0} : ScalarValue{0, cell.whole};
}

}  // namespace

int64_t nearest_whole(const FieldType& type, int64_t value) {
  if (type.bits == 64) return value;
  if (type.is_signed) {
    const int64_t high = (int64_t{1} << (type.bits - 1)) - 1;
    return std::clamp(value, -high - 1, high);
  }
  const int64_t high = (uint64_t{1} << type.bits) - 1;
  // Registers of more than 32 bits are u64: a negative value is a large one.
  if (type.bits > 32) return static_cast<uint64_t>(value) > static_cast<uint64_t>(high) ? high : value;
  return std::clamp<int64_t>(value, 0, high);
}

CellPlan::CellPlan(const Format& f) {
  for (const Field& x : f.fields) {
    field.push_back(size);
    size += x.count;
  }
  for (const FormatTable& t : f.tables) {
    table.push_back(size);
    size += t.values.size();
  }
}

class Compiler {
 public:
  Compiler(const Routine& r, CellPlan& plan, Program& program) : routine_(r), plan_(plan), program_(program) {}

  void compile() {
    program_.first_local_ = plan_.size;
    for (const RoutineVariable& v : routine_.variables) {
      program_.variables_.push_back(plan_.size);
      reserve(v.extent > 0 ? v.extent : 1);
    }
    program_.end_local_ = plan_.size;
    statements(routine_.body);
    depth_ = 0;
    if (routine_.has_result) program_.result_ = value(routine_.result);
    // run() also forms references to cells from jump targets, without using them.
    if (const int32_t last = here() + 1; last > plan_.size) plan_.size = last;
  }

 private:
  int32_t reserve(int64_t count) {
    LUMEN_CHECK(count < kMaxCells - plan_.size, "too many cells");
    const int32_t at = plan_.size;
    plan_.size += count;
    return at;
  }
  size_t emit(Code code, int32_t to, int32_t a = 0, int32_t b = 0, int32_t c = 0) {
    program_.code_.push_back({code, to, a, b, c});
    return program_.code_.size() - 1;
  }
  int32_t here() const { return program_.code_.size(); }

  int32_t constant(const RoutineExpr& e) {
    const Cell cell = cell_of_constant(e);
    const auto key =
        std::make_pair(is_float(e.type), is_float(e.type) ? std::bit_cast<int32_t>(cell.real) : cell.whole);
    const auto [found, added] = constants_.emplace(key, 0);
    if (added) {
      found->second = reserve(1);
      program_.constants_.emplace_back(found->second, cell);
    }
    return found->second;
  }

  // Returns the cell of the value; `wanted` >= 0 requests a certain cell for a computed value.
  int32_t value(const RoutineExpr& e, int32_t wanted = -1) {
    switch (e.kind) {
      case RoutineExpr::Kind::constant:
        return constant(e);
      case RoutineExpr::Kind::variable:
        return program_.variables_[e.slot];
      case RoutineExpr::Kind::extent:
        if (program_.extent_cell_ < 0) program_.extent_cell_ = reserve(1);
        return program_.extent_cell_;
      case RoutineExpr::Kind::element:
        return entry(program_.variables_[e.slot], e.args[0], wanted);
      case RoutineExpr::Kind::field:
        return entry(plan_.field[e.slot], e.args[0], wanted);
      case RoutineExpr::Kind::table:
        return entry(plan_.table[e.slot], e.args[0], wanted);
      case RoutineExpr::Kind::source: {
        const int32_t mark = depth_;
        const int32_t index = value(e.args[0]);
        depth_ = mark;
        const int32_t to = target(wanted);
        emit(Code::load_source, to, e.slot, index);
        return to;
      }
      case RoutineExpr::Kind::op:
        break;
    }
    int32_t args[3] = {0, 0, 0};
    const int32_t mark = depth_;
    for (size_t k = 0; k < e.args.size(); ++k) args[k] = value(e.args[k]);
    depth_ = mark;
    const Scalar operand = e.args[e.op == ScalarOp::select_ ? 1 : 0].type;
    const int32_t to = target(wanted);
    const Code code = code_for(e, operand);
    if (code != Code::other) {
      emit(code, to, args[0], args[1], args[2]);
      return to;
    }
    Program::Other other{ScalarNode{e.op, e.type}, operand, {}};
    for (size_t k = 0; k < e.args.size(); ++k) other.types[k] = e.args[k].type;
    // The operands of a general operation are in consecutive cells.
    const int32_t block = reserve(3);
    for (size_t k = 0; k < e.args.size(); ++k) emit(Code::move, block + k, args[k]);
    emit(Code::other, to, program_.others_.size(), block);
    program_.others_.push_back(other);
    return to;
  }

  int32_t entry(int32_t base, const RoutineExpr& index, int32_t wanted) {
    if (index.kind == RoutineExpr::Kind::constant) return base + index.integer;
    const int32_t mark = depth_;
    const int32_t at = value(index);
    depth_ = mark;
    const int32_t to = target(wanted);
    emit(Code::load, to, base, at);
    return to;
  }

  // Temporaries are a stack: one is freed when the operation that used it has been emitted.
  int32_t target(int32_t wanted) {
    if (wanted >= 0) return wanted;
    if (depth_ == std::ssize(temporaries_)) temporaries_.push_back(reserve(1));
    return temporaries_[depth_++];
  }

  void statements(const std::vector<RoutineStmt>& body) {
    for (const RoutineStmt& s : body) {
      depth_ = 0;
      statement(s);
    }
  }

  void statement(const RoutineStmt& s) {
    switch (s.kind) {
      case RoutineStmt::Kind::set: {
        const int32_t to = program_.variables_[s.slot];
        const int32_t from = value(s.value, to);
        if (from != to) emit(Code::move, to, from);
        return;
      }
      case RoutineStmt::Kind::set_element: {
        const int32_t base = program_.variables_[s.slot];
        const int32_t from = value(s.value);
        const int32_t index = value(s.index);
        emit(Code::store, base, index, from);
        return;
      }
      case RoutineStmt::Kind::set_field: {
        const int32_t from = value(s.value);
        const int32_t index = value(s.index);
        emit(Code::store_field, s.slot, index, from, plan_.field[s.slot]);
        return;
      }
      case RoutineStmt::Kind::loop:
        loop(s);
        return;
      case RoutineStmt::Kind::branch:
        branch(s);
        return;
    }
  }

  void loop(const RoutineStmt& s) {
    const int32_t counter = program_.variables_[s.slot];
    const int32_t from = value(s.from);
    emit(Code::move, counter, from);
    const int32_t to = value(s.to);  // a constant or the extent: a cell of its own
    const size_t start = emit(Code::loop_start, 0, counter, to);
    const int32_t first = here();
    statements(s.body);
    emit(Code::loop_next, first, counter, to, s.step);
    program_.code_[start].to = here();
  }

  void branch(const RoutineStmt& s) {
    const int32_t condition = value(s.value);
    const size_t skip = emit(Code::jump_unless, 0, condition);
    statements(s.body);
    if (s.otherwise.empty()) {
      program_.code_[skip].to = here();
      return;
    }
    const size_t end = emit(Code::jump, 0);
    program_.code_[skip].to = here();
    statements(s.otherwise);
    program_.code_[end].to = here();
  }

  const Routine& routine_;
  CellPlan& plan_;
  Program& program_;
  std::map<std::pair<bool, int64_t>, int32_t> constants_;
  std::vector<int32_t> temporaries_;
  int32_t depth_ = 0;
};

Program::Program(const Format& f, const Routine& routine, CellPlan& plan) : format_(f) {
  Compiler(routine, plan, *this).compile();
}

void Program::prepare(Cell* cells) const {
  for (int32_t k = first_local_; k < end_local_; ++k) cells[k].whole = 0;
  for (const auto& [at, cell] : constants_) cells[at] = cell;
}

// Stores a number as its field does: rounded, as the routine reads it back.
static void store_field(const FieldType& type, Cell& entry, const Cell& value) {
  if (type.is_float) {
    entry.real = static_cast<float>(field_decode(type, field_encode(type, value.real)));
  } else {
    entry.whole = nearest_whole(type, value.whole);
  }
}

void Program::evaluate(const Other& o, const Cell* args, Cell& to) {
  ScalarValue values[3];
  for (int k = 0; k < scalar_op_info(o.node.op).arity; ++k) values[k] = value_in(args[k], o.types[k]);
  const ScalarValue result = eval_scalar_op(o.node, o.operand, values[0], values[1], values[2]);
  if (is_float(o.node.type)) {
    to.real = static_cast<float>(result.real);
  } else {
    to.whole = result.integer;
  }
}

// Instructions that write one number, one line each.
#define LUMEN_REAL(code, value) \
  case Code::code:              \
    to.real = value;            \
    break
#define LUMEN_WHOLE(code, value) \
  case Code::code:               \
    to.whole = value;            \
    break

void Program::run(Cell* cells, const float* const sources[2], int64_t extent, const std::vector<bool>& supplied) const {
  if (extent_cell_ >= 0) cells[extent_cell_].whole = extent;
  const Instruction* const code = code_.data();
  const size_t end = code_.size();
  for (size_t at = 0; at < end; ++at) {
    const Instruction& i = code[at];
    Cell& to = cells[i.to];  // not a cell for jumps and stores; then unused
    const Cell& a = cells[i.a];
    const Cell& b = cells[i.b];
    switch (i.code) {
      case Code::move:
        to = a;
        break;
      case Code::load:
        to = cells[i.a + b.whole];
        break;
        LUMEN_REAL(load_source, sources[i.a][b.whole]);
      case Code::store:
        cells[i.to + a.whole] = b;
        break;
      case Code::store_field:
        if (!supplied[i.to]) store_field(format_.fields[i.to].type, cells[i.c + a.whole], b);
        break;
      case Code::jump:
        at = static_cast<size_t>(i.to) - 1;
        break;
      case Code::jump_unless:
        if (a.whole == 0) at = static_cast<size_t>(i.to) - 1;
        break;
      case Code::loop_start:
        if (a.whole >= b.whole) at = static_cast<size_t>(i.to) - 1;
        break;
      case Code::loop_next:
        cells[i.a].whole += i.c;
        if (a.whole < b.whole) at = static_cast<size_t>(i.to) - 1;
        break;
        LUMEN_REAL(fadd, a.real + b.real);
        LUMEN_REAL(fsub, a.real - b.real);
        LUMEN_REAL(fmul, a.real * b.real);
        LUMEN_REAL(fdiv, a.real / b.real);
        LUMEN_REAL(fneg, -a.real);
        LUMEN_REAL(fabs, std::fabs(a.real));
        LUMEN_REAL(fmin, a.real < b.real ? a.real : b.real);
        LUMEN_REAL(fmax, a.real > b.real ? a.real : b.real);
        LUMEN_REAL(ffloor, std::floor(a.real));
        LUMEN_REAL(fceil, std::ceil(a.real));
        LUMEN_REAL(ftrunc, std::trunc(a.real));
        LUMEN_REAL(frint, std::nearbyint(a.real));
        LUMEN_REAL(fround, std::round(a.real));
        LUMEN_REAL(fsqrt, std::sqrt(a.real));
        LUMEN_WHOLE(feq, a.real == b.real);
        LUMEN_WHOLE(fne, a.real != b.real);
        LUMEN_WHOLE(flt, a.real < b.real);
        LUMEN_WHOLE(fle, a.real <= b.real);
        LUMEN_WHOLE(iadd, wrap32(a.whole + b.whole));
        LUMEN_WHOLE(isub, wrap32(a.whole - b.whole));
        LUMEN_WHOLE(imul, wrap32(a.whole * b.whole));
        LUMEN_WHOLE(idiv, divide(i.code, a.whole, b.whole));
        LUMEN_WHOLE(irem, divide(i.code, a.whole, b.whole));
        LUMEN_WHOLE(ineg, wrap32(-a.whole));
        LUMEN_WHOLE(iabs, wrap32(a.whole < 0 ? -a.whole : a.whole));
        LUMEN_WHOLE(imin, a.whole < b.whole ? a.whole : b.whole);
        LUMEN_WHOLE(imax, a.whole > b.whole ? a.whole : b.whole);
        LUMEN_WHOLE(iand, a.whole & b.whole);
        LUMEN_WHOLE(ior, a.whole | b.whole);
        LUMEN_WHOLE(ixor, a.whole ^ b.whole);
        LUMEN_WHOLE(inot, ~a.whole);
        LUMEN_WHOLE(ishl, b.whole < 0 || b.whole > 31 ? 0 : wrap32(a.whole << b.whole));
        LUMEN_WHOLE(ishr, a.whole >> (b.whole < 0 || b.whole > 31 ? 31 : b.whole));
        LUMEN_WHOLE(ieq, a.whole == b.whole);
        LUMEN_WHOLE(ine, a.whole != b.whole);
        LUMEN_WHOLE(ilt, a.whole < b.whole);
        LUMEN_WHOLE(ile, a.whole <= b.whole);
        LUMEN_WHOLE(bnot, a.whole == 0);
      case Code::select:
        to = a.whole != 0 ? b : cells[i.c];
        break;
        LUMEN_REAL(to_float, a.whole);
        LUMEN_WHOLE(to_whole, whole_from_float(a.real));
      case Code::other:
        evaluate(others_[i.a], cells + i.b, to);
        break;
    }
  }
}

#undef LUMEN_REAL
#undef LUMEN_WHOLE

}  // namespace lumen::interpret
