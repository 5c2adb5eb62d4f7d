// The graph IR: SSA, one result per node (calls aside), pure except for `update`. Read op.def first.
// Invariants (verify.h): operands precede uses; types follow the operator's rule; `update` targets a state or parameter
// input (through a chain of updates) and a state's old value is not read after its update.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "graph/ir/type.h"
#include "number/formula/formula.h"

namespace lumen::graph {

enum class Op : uint8_t {
#define X(name, operands, attributes, pure, text) name##_,
#include "graph/ir/op.def"
#undef X
};

struct OpInfo {
  std::string_view name;
  int operands;  // -1: any number
  std::string_view attributes;
  bool pure;
  std::string_view text;
};
const OpInfo& op_info(Op op);
int op_count();

enum class Role : uint8_t { data, parameter, state };
enum class Reduction : uint8_t { sum, max, min };
enum class Moves : uint8_t { gather, spread };

class Graph;
using ValueId = int;

struct Attributes {
  std::string name;  // input; call, scan (callee's name)
  Role role = Role::data;
  std::vector<double> data;  // constant; one entry = splat
  int axis = 0;              // iota, concat
  std::vector<int> axes;     // reduce, permute
  Reduction reduction = Reduction::sum;
  Formula formula;                   // map
  std::vector<std::string> indices;  // contract: {"bmk", "bnk", "bmn"}: one letter per axis of a, b, result
  // slice, pad: one of each per axis. windows: a start per axis of the operand, and for each of those a row of strides,
  // one per index of the result.
  std::vector<int64_t> starts, strides;
  std::vector<std::pair<int, FieldSource>> sources;  // cast: (field, source) of the extra operands
  uint32_t salt = 0;                                 // random
  Moves moves = Moves::gather;                       // exchange
  int ranks = 0;                                     // exchange
  std::shared_ptr<const Graph> callee;               // call, scan
  int carries = 0, sequences = 0;                    // scan: number of carries, then of sequences, among its operands
  bool reverse = false;                              // scan
  int index = 0;                                     // result
};

struct Node {
  Op op;
  Type type;
  std::vector<ValueId> operands;
  Attributes attributes;
  std::string label;  // for messages: "layers.0.wq", kept by passes where it makes sense
};

class Graph {
 public:
  std::string name = "main";
  std::vector<Node> nodes;       // ValueId indexes this
  std::vector<ValueId> results;  // returned values, in order
  std::vector<std::string> result_names;
  const Node& operator[](ValueId v) const { return nodes[v]; }
  Node& operator[](ValueId v) { return nodes[v]; }

  std::vector<ValueId> inputs() const;
  ValueId find_input(std::string_view name) const;  // -1 when absent
};

ValueId scan_of(const Graph& g, ValueId v);  // v if it is a scan, the scan of which it is a chunk, or -1

}  // namespace lumen::graph
