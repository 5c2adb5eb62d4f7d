// A scalar program in SSA form: the body of a graph `map`, of `decode`, and of every elementwise kernel. Shared by the
// oracle, the gradient rules and kernel synthesis, so an optimisation of scalar algebra is written once.
// Invariant: operands come before their uses; types are those formula.def allows (verify checks).
//
// May include: base.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/place.h"
#include "number/formula/scalar.h"

namespace lumen {

enum class ScalarOp : uint8_t {
#define X(name, arity, domain, result, commutative, text) name##_,
#include "number/formula/formula.def"
#undef X
  input,     // `index` = input number
  constant,  // `real` for floats, `integer` for the rest
};

struct ScalarOpInfo {
  std::string_view name;
  int arity;
  std::string_view domain, result;
  bool commutative;
};
const ScalarOpInfo& scalar_op_info(ScalarOp op);
std::optional<ScalarOp> scalar_op_from_name(std::string_view name);

struct ScalarNode {
  ScalarOp op;
  Scalar type;  // of the result
  int args[3] = {-1, -1, -1};
  int index = 0;  // input number
  double real = 0;
  int64_t integer = 0;
  friend bool operator==(const ScalarNode& a, const ScalarNode& b);  // bit for bit: NaN equals NaN, -0 differs from 0
};

struct Formula {
  std::vector<Scalar> inputs;
  std::vector<ScalarNode> nodes;
  std::vector<int> outputs;

  // Builders return the node's number; equal nodes are shared (value numbering), constants fold in double or int64.
  int input(int index);
  int constant(Scalar type, double value);
  int integer(Scalar type, int64_t value);
  int op(ScalarOp op, int a, int b = -1, int c = -1);  // result type from the rule
  int convert(ScalarOp op, Scalar to, int a);          // cast, bitcast, exponent
  Scalar type(int node) const { return nodes[node].type; }
  friend bool operator==(const Formula&, const Formula&) = default;
};

// A number at run time: floats are in `real` (f32 results are rounded to f32 after every op, f16 and bf16 likewise),
// integers and booleans in `integer`, wrapped to their width.
struct ScalarValue {
  double real = 0;
  int64_t integer = 0;
};

// A value as stored in a register of the type: floats rounded to nearest even (directly, not through another type),
// integers wrapped to their width, two's complement.
double round_to_scalar(Scalar type, double value);
int64_t wrap_to_scalar(Scalar type, int64_t value);

// The reference semantics. For select, `operand_type` is the type of the choices, otherwise that of the first operand.
// Integer division by zero gives 0, and so does the remainder. Inf and NaN have the exponent 128 (f64: 1024). With
// `wide` set, f32 arithmetic is done in double and not rounded (for gradient tests).
ScalarValue eval_scalar_op(const ScalarNode& node, Scalar operand_type, ScalarValue a, ScalarValue b, ScalarValue c,
                           bool wide = false);
void eval_formula(const Formula& f, std::span<const ScalarValue> inputs, std::span<ScalarValue> outputs,
                  bool wide = false);

// Text: (%0: f32, %1: f32) { %2 = mul f32 %0, %1; %3 = const f32 1.5; ... } -> %3        exact inverse of each other
std::string print_formula(const Formula& f);
// Parses from text at `position`, which is advanced past the formula.
Formula parse_formula(SourceRef source, size_t* position);
void verify_formula(const Formula& f);  // LUMEN_CHECKs
std::optional<std::string> scalar_op_mistake(const ScalarNode& node,
                                             const Formula& f);  // the violated rule of formula.def; nullopt: valid
Formula simplify_formula(const Formula& f);                      // exact rewrites only, dead code dropped

// Substitutes `inner`'s output `k` for input `slot` of `outer`; inputs of the result: outer's without slot, then
// inner's.
Formula compose(const Formula& outer, int slot, const Formula& inner, int k);

// Partial derivative of output `k` with respect to input `slot`, as a formula over the same inputs. Rounding operations
// have derivative zero, select and min/max the derivative of the chosen branch.
Formula derivative(const Formula& f, int k, int slot);

}  // namespace lumen
