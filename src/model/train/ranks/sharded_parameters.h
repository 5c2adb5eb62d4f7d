// Sharded data parallelism (ZeRO-2 and ZeRO-3) of a step by layers. Parameters of a part are gathered from all ranks
// before it runs and released after it, or another store keeps them whole; gradients of each batch are
// reduce-scattered: each rank sums its shard and adds it to those of earlier batches. Where exchanges run concurrently
// with computation, in a thread of their own or on a GPU's stream, two parts are whole at a time, otherwise one. All
// ranks exchange in the same order, and the bits are the same either way. Shards may be offloaded. Proved by
// tests/model/train/ranks/sharded_parameters_test.cpp and offloaded_ranks_test.cpp.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/train/offload/layer_plan.h"
#include "model/train/offload/offloaded_parameters.h"
#include "model/train/offload/parameter_store.h"
#include "model/train/ranks/cuts.h"
#include "run/device/outside/serial_thread.h"
#include "run/ranks/ranks.h"

namespace lumen::model::train {

// The trained parameters of each part of a step, and how ranks exchange them.
struct ExchangedParameters {
  struct Member {
    const Cut* cut;
    graph::Type type;  // of the whole, as held
  };
  std::vector<std::vector<Member>> parts;
  FormatRef reduced_in, gathered_in;  // null: f32, and as parameters are held
  bool overlaps = false;
  bool gathers = true;  // parameters; otherwise another store keeps them whole
};

// The parts of a plan; everything else as in `how`.
ExchangedParameters exchanged_parameters(const LayerPlan& plan, const std::vector<Cut>& cuts,
                                         const recipe::Holding& held, ExchangedParameters how);

// Whether the member's gradient is complete after this part's backward pass: no earlier part adds to it.
bool ends_with(const ExchangedParameters& exchanged, size_t part, const ExchangedParameters::Member& member);

// Bytes of one rank's memory, without its shards.
struct ParameterMemory {
  int64_t parameters = 0, gradients = 0;  // whole ones
  int64_t exchanges = 0;                  // receive buffers, and rounding errors of formats
};
ParameterMemory parameter_memory(const ExchangedParameters& exchanged, int rank, int ranks);

// A store with gradients that are summed over ranks.
class RankedParameters : public ParameterStore {
 public:
  // `is_last`: of the batches of a step.
  void begin_batch(bool is_last) { is_last_ = is_last; }
  // After the last batch: squares of gradient sums, for this rank's sums; null: other code computes them.
  virtual const std::map<std::string, float>* squares() const { return nullptr; }
  virtual int64_t exchange_bytes() const = 0;
  virtual void forget_parameters() {}  // parameters have changed
  virtual void forget_lost() {}        // clears rounding errors of exchange formats

 protected:
  bool is_last_ = true;
};

class ShardedParameters : public RankedParameters {
 public:
  // This rank's part of a parameter by name, or of a gradient sum with the prefix "gradient.".
  using Tensors = std::function<run::DeviceTensorRef(const std::string&, const graph::Type&)>;
  // `whole`: the store of parameters that are not gathered. `outside`: offloaded shards, which `tensors` finds while
  // their layer is resident, and offloaded whole parameters; null: none.
  ShardedParameters(run::Engine& engine, run::Communicator& ranks, ExchangedParameters exchanged, Tensors tensors,
                    std::shared_ptr<ParameterStore> whole = nullptr,
                    std::shared_ptr<OffloadedParameters> outside = nullptr);

  void prefetch(size_t part) override;
  void acquire(size_t part) override;
  void release(size_t part) override;
  void open_gradients(size_t part, bool first) override;
  void close_gradients(size_t part) override;
  run::DeviceTensorRef tensor(size_t part, const std::string& name) override;
  std::optional<Error> end_pass() override;
  bool must_finish() const override { return true; }
  int64_t parameter_bytes() const override;
  int64_t gradient_bytes() const override;
  const std::map<std::string, float>* squares() const override { return sums_outside() ? &squares_ : nullptr; }
  int64_t exchange_bytes() const override { return needs_.exchanges; }
  void forget_parameters() override;
  void forget_lost() override;

 private:
  using Member = ExchangedParameters::Member;
  using Ticket = run::SerialThread::Ticket;  // or a point of the stream
  struct Slot {
    std::shared_ptr<std::byte> parameters, codes, gradients;
    int64_t part = -1;  // whose parameters it holds, or will hold
    bool is_whole = false, is_used = false, sends = false;
    std::optional<Ticket> ticket;  // of a pending exchange
  };
  struct Programs {
    std::shared_ptr<run::Program> code, decode, encode, sum, squares;
  };

  Slot& slot(size_t part) { return slots_[part % slots_.size()]; }
  std::shared_ptr<run::Program> compile(const graph::Graph& g);
  void compile_part(size_t part);
  run::DeviceTensorRef at(const graph::Type& type, const std::shared_ptr<std::byte>& memory, int64_t offset) const;
  run::DeviceTensorRef own(const Member& m) const;
  bool sums_outside() const { return outside_ && outside_->gradients(); }
  void land(Slot& slot);
  void gather(size_t part);
  void arrive(size_t part);
  void bind_reduction(size_t part);
  void finish_sums();
  void take_squares(size_t part);
  bool overlaps() const { return exchange_thread_ || stream_; }
  std::optional<Ticket> begin(run::SentPieces to, run::TakenPieces from, size_t point);
  void wait(std::optional<Ticket>& ticket);
  void attempt(const std::function<void()>& work);

  run::Engine& engine_;
  run::Communicator& ranks_;
  ExchangedParameters exchanged_;
  Tensors tensors_;
  std::shared_ptr<ParameterStore> whole_;
  std::shared_ptr<OffloadedParameters> outside_;
  ParameterMemory needs_;
  std::map<std::string, float> squares_;
  size_t gathered_ = 0;  // the last gathered part
  std::vector<Slot> slots_;
  std::shared_ptr<std::byte> arrived_;  // receive buffer of gradients
  std::vector<Programs> programs_;
  std::map<std::string, std::shared_ptr<run::Program>> by_text_;
  std::map<std::string, run::DeviceTensorRef> lost_;
  std::optional<size_t> summing_;  // the part whose gradients are in transit
  std::optional<Ticket> sum_ticket_;
  std::optional<Error> failure_;
  run::Device::Stream* stream_ = nullptr;  // of exchanges between GPUs
  std::unique_ptr<run::SerialThread>
      exchange_thread_;  // without a stream; destroyed first. Neither: exchanges are synchronous
};

}  // namespace lumen::model::train
