// Preparations: equivalent changes of a part's weights that make them easier to round. They run before any strategy and
// for any format. Proved by tests/model/compress/prepare.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "model/calibrate/layer_run.h"
#include "model/compress/equivalent_transform/equivalent_transform.h"
#include "model/compress/strategy/strategy.h"

namespace lumen::model::compress {

// The weights of one part and their input statistics, as changed by preparations so far.
struct PartState {
  arch::Model model;                           // weights that sites change are f32
  std::vector<calibrate::TapSums> reads;       // scaled like the activations
  std::vector<graph::ScaleSite> sites;         // those within this part; sites of queries and keys have no readers
  std::map<std::string, FormatRef> formats;    // of weights that will be rounded in this part
  std::set<std::string> changed;               // parameters
  std::map<std::string, std::string> remarks;  // by parameter
};

class Preparation {
 public:
  virtual ~Preparation() = default;
  virtual std::string_view name() const = 0;
  virtual std::string_view about() const = 0;  // one line
  virtual graph::TapKinds observes() const = 0;
  // The default strategy after this preparation.
  virtual std::string_view followed_by() const = 0;
  virtual void prepare(run::Engine& engine, PartState& part, const StrategyOptions& options) const = 0;
};

const std::vector<const Preparation*>& preparations();

// Divides x of a site by s: changes the weights and their input statistics.
void apply_scales(PartState& part, const graph::ScaleSite& site, std::span<const double> s);

}  // namespace lumen::model::compress
