// Parameters and gradients lodge as one process has them; with the last batch of a step a part's gradients are summed
// over ranks when the backward pass has left them, each rank's rows by that rank, and go to all ranks where everybody
// computes all updates. Exchanges are waited for. Proved by tests/model/train/ranks/offloaded_ranks_test.cpp.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/train/ranks/rank_lodging.h"

namespace lumen::model {

// Bytes of what others send of a part's gradients at once.
int64_t summed_scratch(const Lodgers& lodgers, int rank, int ranks);

class SummedLodging : public RankedLodging {
 public:
  using Tensors = RankLodging::Tensors;  // a gradient, wherever it lodges
  // `shares`: sums go to all ranks.
  SummedLodging(run::Engine& engine, run::Communicator& ranks, Lodgers lodgers, Tensors tensors,
                std::shared_ptr<Lodging> inner, bool shares);

  void call(size_t part) override { inner_->call(part); }
  void come(size_t part) override { inner_->come(part); }
  void leave(size_t part) override { inner_->leave(part); }
  void open_gradients(size_t part, bool first) override { inner_->open_gradients(part, first); }
  void close_gradients(size_t part) override;
  run::DeviceTensorRef tensor(size_t part, const std::string& name) override { return inner_->tensor(part, name); }
  int64_t parameter_bytes() const override { return inner_->parameter_bytes(); }
  int64_t gradient_bytes() const override { return inner_->gradient_bytes(); }
  const std::map<std::string, float>* squares() const override { return &squares_; }
  int64_t exchange_bytes() const override { return scratch_bytes_; }
  bool goes_to_the_end() const override { return true; }

 private:
  using Member = Lodgers::Member;
  struct Programs {
    std::shared_ptr<run::Program> sum, squares;
  };
  void compile_part(size_t part);
  std::shared_ptr<run::Program> compile(const graph::Graph& g);
  run::DeviceTensorRef rows_of(const run::DeviceTensorRef& whole, const Cut& cut) const;
  void sum(size_t part);
  void take_squares(size_t part);

  run::Engine& engine_;
  run::Communicator& ranks_;
  Lodgers lodgers_;  // each member in the part that ends its gradient
  Tensors tensors_;
  std::shared_ptr<Lodging> inner_;
  bool shares_;
  int64_t scratch_bytes_ = 0;
  std::shared_ptr<std::byte> scratch_;
  std::vector<Programs> programs_;
  std::map<std::string, std::shared_ptr<run::Program>> by_text_;
  std::map<std::string, float> squares_;
};

}  // namespace lumen::model
