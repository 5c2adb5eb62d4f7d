// Preparations: changes of a part's weights that keep what the part computes and make them easier to round. They come
// before a strategy rounds, whatever the strategy and the format. Proved by tests/model/compress/prepare.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "model/calibrate/layer_run.h"
#include "model/compress/rewrite/rewrite.h"
#include "model/compress/strategy/strategy.h"

namespace lumen::model {

// The weights of one part and what they read, as preparations have made them so far.
struct PartState {
  Model model;                                 // weights that sites change are f32
  std::vector<TapSums> reads;                  // divided as the activations are
  std::vector<graph::ScaleSite> sites;         // those that this part alone has; of queries and keys without readers
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
  // The strategy that follows where users name none.
  virtual std::string_view followed_by() const = 0;
  virtual void prepare(run::Engine& engine, PartState& part, const StrategyOptions& options) const = 0;
};

const std::vector<const Preparation*>& preparations();

// Divides x of a site by s: changes weights and what is known of their inputs.
void apply_scales(PartState& part, const graph::ScaleSite& site, std::span<const double> s);

}  // namespace lumen::model
