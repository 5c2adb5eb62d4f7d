// Data parallelism with whole parameters (ZeRO-1 and without sharding). The inner store keeps parameters and gradients
// as in a single process; in the last batch of a step a part's gradients are summed over ranks after its backward pass,
// each rank its rows, and sent to all ranks where each computes all updates. Exchanges are synchronous. Proved by
// tests/model/train/ranks/offloaded_ranks_test.cpp.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/train/ranks/sharded_parameters.h"

namespace lumen::model::train {

// Bytes of the receive buffer for a part's gradients.
int64_t summed_scratch(const ExchangedParameters& exchanged, int rank, int ranks);

class ReplicatedParameters : public RankedParameters {
 public:
  using Tensors = ShardedParameters::Tensors;  // a gradient, in any store
  // `shares`: sums are sent to all ranks.
  ReplicatedParameters(run::Engine& engine, run::Communicator& ranks, ExchangedParameters exchanged, Tensors tensors,
                       std::shared_ptr<ParameterStore> inner, bool shares);

  void prefetch(size_t part) override { inner_->prefetch(part); }
  void acquire(size_t part) override { inner_->acquire(part); }
  void release(size_t part) override { inner_->release(part); }
  void open_gradients(size_t part, bool first) override { inner_->open_gradients(part, first); }
  void close_gradients(size_t part) override;
  run::DeviceTensorRef tensor(size_t part, const std::string& name) override { return inner_->tensor(part, name); }
  int64_t parameter_bytes() const override { return inner_->parameter_bytes(); }
  int64_t gradient_bytes() const override { return inner_->gradient_bytes(); }
  const std::map<std::string, float>* squares() const override { return &squares_; }
  int64_t exchange_bytes() const override { return scratch_bytes_; }
  bool must_finish() const override { return true; }

 private:
  using Member = ExchangedParameters::Member;
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
  ExchangedParameters exchanged_;  // each member in the part that completes its gradient
  Tensors tensors_;
  std::shared_ptr<ParameterStore> inner_;
  bool shares_;
  int64_t scratch_bytes_ = 0;
  std::shared_ptr<std::byte> scratch_;
  std::vector<Programs> programs_;
  std::map<std::string, std::shared_ptr<run::Program>> by_text_;
  std::map<std::string, float> squares_;
};

}  // namespace lumen::model::train
