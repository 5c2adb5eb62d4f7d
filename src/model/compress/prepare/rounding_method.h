// A rounding method in user syntax: preparations and one strategy, "awq,gptq".
#pragma once

#include <string>
#include <vector>

#include "model/compress/prepare/preparation.h"

namespace lumen::model::compress {

struct RoundingMethod {
  std::vector<const Preparation*> preparations;  // in this order
  const Strategy* strategy = nullptr;
  std::string text() const;  // in the syntax of parse_method
  graph::TapKinds observes() const;
  bool learns_from_text() const;  // whether it gives other weights with another calibration text
};

// Comma-separated names; without a strategy, the last preparation's default. Error (usage) that lists all names.
RoundingMethod parse_method(const std::string& text);
// All names, each with its description.
std::string list_methods();

}  // namespace lumen::model::compress
