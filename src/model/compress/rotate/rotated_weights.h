// A model's parameters under variable rotations, and the backward pass from parameter gradients to rotation gradients:
// for every line w that is multiplied by R, R's gradient gains w^T g, with w as transformed by the other rotations.
// Products are f32 on the engine's device. Proved by tests/model/compress/rotate/rotated_weights_test.cpp.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "model/arch/model.h"
#include "model/compress/equivalent_transform/equivalent_transform.h"
#include "run/engine/engine.h"

namespace lumen::model::compress {

// The space of one rotation: a block of a site.
struct RotatedSpace {
  size_t site = 0;
  int64_t block = 0, width = 0;
};

class RotatedWeights {
 public:
  // `model`: f32, with gains of 1 where sites need that; it outlives this. Sites must be valid, without reasons against
  // them. set() gives the rotations.
  RotatedWeights(run::Engine& engine, const arch::Model& model, std::vector<graph::RotationSite> sites);

  const arch::Model& model() const { return model_; }
  const std::vector<graph::RotationSite>& sites() const { return sites_; }
  const std::vector<RotatedSpace>& spaces() const { return spaces_; }
  // `rotation`: row-major, of a space.
  void set(size_t space, std::vector<double> rotation);
  const std::vector<double>& rotation(size_t space) const { return rotations_[space]; }

  bool turns(const std::string& name) const { return turns_.contains(name); }
  // The rotated parameter.
  std::vector<float> values(const std::string& name);
  // Adds to the rotations' gradients those that follow from a rotated parameter's gradient.
  void pull(const std::string& name, std::span<const float> gradient);
  // By space, row-major.
  const std::vector<std::vector<double>>& gradients() const { return gradients_; }
  void clear_gradients();

  // Second moments of the inputs of a rotated parameter's columns: the diagonals of R^T H R, H [columns, columns] for
  // each matrix. Empty where no rotation, or more than one, changes the columns.
  struct Moments {
    std::vector<float> diagonal;             // [matrices * columns]
    std::vector<std::vector<float>> turned;  // by panel: H R, for pull_moments
  };
  bool reads_turned(const std::string& name) const;
  Moments moments(const std::string& name, std::span<const float> gram, int64_t columns);
  // `weight`: derivative of the loss for each number of the diagonal.
  void pull_moments(const std::string& name, const Moments& moments, std::span<const double> weight, int64_t columns);

 private:
  struct Turned {
    size_t site = 0;
    graph::Along along = graph::Along::elements;
    RotatedLines turn;
  };
  size_t space_of(size_t site, int64_t block) const { return first_[site] + block; }
  const Turned& columns_of(const std::string& name) const;
  void turn(std::vector<float>& values, const Turned& t);
  std::vector<float> product(std::span<const float> x, int64_t rows, int64_t width, const run::DeviceTensorRef& r);
  std::vector<float> outer(std::span<const float> x, std::span<const float> y, int64_t rows, int64_t width);
  run::Program& program(int64_t rows, int64_t width, bool outer);
  run::DeviceTensorRef upload(std::span<const float> x, int64_t rows, int64_t width);

  run::Engine& engine_;
  const arch::Model& model_;
  const std::vector<graph::RotationSite> sites_;
  std::vector<RotatedSpace> spaces_;
  std::vector<size_t> first_;  // first space of each site
  std::map<std::string, std::vector<Turned>> turns_;
  std::vector<std::vector<double>> rotations_, gradients_;
  std::vector<run::DeviceTensorRef> on_device_;
  std::map<std::tuple<int64_t, int64_t, bool>, std::shared_ptr<run::Program>> programs_;
};

}  // namespace lumen::model::compress
