// What rounding needs beside the numbers it rounds: seeds of what is drawn, and magnitudes that are known before the
// numbers are. At the top of a graph these are its inputs. In the body of a scan they are further operands of the scan:
// a magnitude is the same in all steps, of a seed each step has its own; and what a history is to follow is a further
// output, of which the largest of all steps goes on. Proved by tests/graph/steps/rounded_scan_test.cpp.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/ir/build.h"

namespace lumen::graph {

class Supplies {
 public:
  explicit Supplies(Builder& build) : b_(build) {}
  // For a scan's body: what is around it, and the number of steps.
  Supplies(Builder& build, Supplies* around, Dim steps) : b_(build), around_(around), steps_(std::move(steps)) {}

  // Numbers in [0, 1) that are this operand's own, by the name of a seed (kProductSeed).
  ValueId drawn(const std::string& seed, const Shape& shape);
  // The largest magnitude that a history of this name tells, [1]; 0: nothing yet.
  ValueId history(const std::string& name, int64_t length);
  // One number more for it, of any shape.
  void follow(const std::string& name, ValueId newest);
  // A value where the scan stands, the same in all steps.
  ValueId constant(ValueId outside);
  // .. and which that was; -1: it is none.
  ValueId outside(ValueId constant) const;
  // A name of a history that no other has, for what a product with this weight reads.
  std::string name_of(const std::string& weight, const char* what);

  // The scan with what its body asked for: operands behind those there were, outputs as well. `body`: as it was
  // rounded; `operands`: carries, sequences and constants that the author gave, where the scan is to stand.
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
  std::map<std::string, ValueId> histories_;  // at the top, inputs; in a body, what they tell
  std::map<std::string, int> names_;          // at the top: how many there are
  std::vector<Given> given_;
  std::vector<std::pair<std::string, ValueId>> newest_;  // by history: of the body
};

}  // namespace lumen::graph
