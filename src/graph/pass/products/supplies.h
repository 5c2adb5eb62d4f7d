// Additional inputs of rounding: random seeds, and magnitudes that are known before the numbers are computed. At the
// top of a graph these are its inputs. In the body of a scan they are additional operands of the scan: a magnitude is
// the same in all steps, each step has a seed of its own; and the newest value of a history is an additional output,
// whose maximum over all steps is appended to the history. Proved by tests/graph/steps/rounded_scan_test.cpp.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/ir/build.h"

namespace lumen::graph {

class Supplies {
 public:
  explicit Supplies(Builder& build) : b_(build) {}
  // For a scan's body: the supplies outside, and the number of steps.
  Supplies(Builder& build, Supplies* around, Dim steps) : b_(build), around_(around), steps_(std::move(steps)) {}

  // Random numbers in [0, 1) for one operand, by the name of a seed (kProductSeed).
  ValueId drawn(const std::string& seed, const Shape& shape);
  // The largest magnitude in the history of this name, [1]; 0: none yet.
  ValueId history(const std::string& name, int64_t length);
  // Appends one number, of any shape, to it.
  void follow(const std::string& name, ValueId newest);
  // Passes a value from outside the scan into the body, the same in all steps.
  ValueId constant(ValueId outside);
  // .. and the inverse: the outside value; -1: it is none.
  ValueId outside(ValueId constant) const;
  // A unique history name for an operand of a product with this weight.
  std::string name_of(const std::string& weight, const char* what);

  // The scan with the additional operands and outputs that its body requested, after the existing ones. `body`: the
  // rounded body; `operands`: the author's carries, sequences and constants, in the graph that contains the scan.
  ValueId scan(Graph body, const std::vector<ValueId>& operands, const Node& before) const;

 private:
  struct Draws {
    ValueId seed = -1;
    uint32_t salt = 0x0b5e;  // of the next one
  };
  struct Given {
    std::string input;  // of the body
    ValueId inside = -1, outside = -1;
    bool of_steps = false;
  };
  Draws& draws(const std::string& seed);
  ValueId seeds_of_steps(const std::string& seed, const Dim& steps);
  ValueId given(const std::string& what, ValueId outside, bool of_steps);

  Builder& b_;
  Supplies* around_ = nullptr;
  Dim steps_ = Dim(1);
  std::map<std::string, Draws> draws_;        // by the name of the seed
  std::map<std::string, ValueId> histories_;  // at the top, inputs; in a body, their largest magnitudes
  std::map<std::string, int> names_;          // at the top: number of uses
  std::vector<Given> given_;
  std::vector<std::pair<std::string, ValueId>> newest_;  // by history: of the body
};

}  // namespace lumen::graph
