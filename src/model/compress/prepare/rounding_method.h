// How a model is rounded, as users write it: preparations and one strategy, "awq,gptq".
#pragma once

#include <string>
#include <vector>

#include "model/compress/prepare/preparation.h"

namespace lumen::model {

struct RoundingMethod {
  std::vector<const Preparation*> preparations;  // in this order
  const Strategy* strategy = nullptr;
  std::string text() const;  // names, as they are parsed
  graph::TapKinds observes() const;
};

// Names between commas; without a strategy the last preparation's own follows. Error (usage) that lists what there is.
RoundingMethod parse_method(const std::string& text);
// All names, each with a line.
std::string list_methods();

}  // namespace lumen::model
