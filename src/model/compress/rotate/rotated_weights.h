// A model's parameters under rotations that change, and how the gradient of parameters is one of rotations: of every
// line w that is multiplied by R, R's gradient has the part w^T g, w as the other rotations leave it. Products are f32
// on the engine's device. Proved by tests/model/compress/rotate/rotated_weights_test.cpp.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "model/arch/model.h"
#include "model/compress/rewrite/rewrite.h"
#include "run/engine/engine.h"

namespace lumen::model {

// One rotation: that of a block of a site.
struct RotatedSpace {
  size_t site = 0;
  int64_t block = 0, width = 0;
};

class RotatedWeights {
 public:
  // `model`: f32, with gains of 1 where sites need that; it outlives this. Sites have no reason against them. All
  // rotations are those of `set`.
  RotatedWeights(run::Engine& engine, const Model& model, std::vector<graph::RotationSite> sites);

  const Model& model() const { return model_; }
  const std::vector<graph::RotationSite>& sites() const { return sites_; }
  const std::vector<RotatedSpace>& spaces() const { return spaces_; }
  // Row-major, of a space.
  void set(size_t space, std::vector<double> rotation);
  const std::vector<double>& rotation(size_t space) const { return rotations_[space]; }

  bool turns(const std::string& name) const { return turns_.contains(name); }
  // A parameter as the rotations leave it.
  std::vector<float> values(const std::string& name);
  // Adds what the gradient of a parameter, as the rotations leave it, says of them.
  void pull(const std::string& name, std::span<const float> gradient);
  // By space, row-major.
  const std::vector<std::vector<double>>& gradients() const { return gradients_; }
  void clear_gradients();

  // Second moments of what the columns of a parameter read, as rotations leave them: the diagonals of R^T H R, H
  // [columns, columns] for each matrix. Nothing where no rotation, or more than one, changes the columns.
  struct Moments {
    std::vector<float> diagonal;             // [matrices * columns]
    std::vector<std::vector<float>> turned;  // by panel: H R, for pull_moments
  };
  bool reads_turned(const std::string& name) const;
  Moments moments(const std::string& name, std::span<const float> gram, int64_t columns);
  // `weight`: what the loss gains by each number of the diagonal.
  void pull_moments(const std::string& name, const Moments& moments, std::span<const double> weight, int64_t columns);

 private:
  struct Turned {
    size_t site = 0;
    graph::Along along = graph::Along::elements;
    Turn turn;
  };
  size_t space_of(size_t site, int64_t block) const { return first_[site] + block; }
  const Turned& columns_of(const std::string& name) const;
  void turn(std::vector<float>& values, const Turned& t);
  std::vector<float> product(std::span<const float> x, int64_t rows, int64_t width, const run::DeviceTensorRef& r);
  std::vector<float> outer(std::span<const float> x, std::span<const float> y, int64_t rows, int64_t width);
  run::Program& program(int64_t rows, int64_t width, bool outer);
  run::DeviceTensorRef upload(std::span<const float> x, int64_t rows, int64_t width);

  run::Engine& engine_;
  const Model& model_;
  const std::vector<graph::RotationSite> sites_;
  std::vector<RotatedSpace> spaces_;
  std::vector<size_t> first_;  // space of each site
  std::map<std::string, std::vector<Turned>> turns_;
  std::vector<std::vector<double>> rotations_, gradients_;
  std::vector<run::DeviceTensorRef> on_device_;
  std::map<std::tuple<int64_t, int64_t, bool>, std::shared_ptr<run::Program>> programs_;
};

}  // namespace lumen::model
