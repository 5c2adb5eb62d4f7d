// Parameters of which each rank holds a part, or whole ones that lodge elsewhere, and gradients of which each rank sums
// a part with every batch: parameters in parts of a part of a step by layers are gathered from all ranks before it
// runs and let go behind it; gradients of one batch are summed over ranks, each rank's part by that rank, and added to
// what it has of batches before. Two parts' parameters and gradients are whole at a time where exchanges run beside the
// computation, in a thread of their own or as work of a GPU's stream, and one part's elsewhere; exchanges are made in
// the same order on all ranks, and the bits are the same either way. Parts may lie outside of the device. Proved by
// tests/model/train/ranks/rank_lodging_test.cpp and offloaded_ranks_test.cpp.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/train/offload/layer_plan.h"
#include "model/train/offload/lodging.h"
#include "model/train/offload/outside_lodging.h"
#include "model/train/ranks/cuts.h"
#include "run/device/outside/ferry.h"
#include "run/ranks/ranks.h"

namespace lumen::model {

// What parts of a step have of the parameters that are trained, and how it goes from rank to rank.
struct Lodgers {
  struct Member {
    const Cut* cut;
    graph::Type type;  // of the whole, as it is held
  };
  std::vector<std::vector<Member>> parts;
  FormatRef reduced_in, gathered_in;  // null: f32, and as parameters are held
  bool overlaps = false;
  bool gathers = true;  // parameters; else these lodge elsewhere
};

// Those of a plan, besides its parts as `how` says.
Lodgers lodgers_of(const LayerPlan& plan, const std::vector<Cut>& cuts, const Holding& held, Lodgers how);

// Whether the member's gradient is whole when the part has run backward: no earlier part adds to it.
bool ends_with(const Lodgers& lodgers, size_t part, const Lodgers::Member& member);

// Bytes that these take of one rank's memory beside its parts.
struct LodgingNeeds {
  int64_t parameters = 0, gradients = 0;  // whole ones
  int64_t exchanges = 0;                  // what others have sent, and what formats have lost
};
LodgingNeeds lodging_needs(const Lodgers& lodgers, int rank, int ranks);

// A lodging whose gradients are summed over ranks.
class RankedLodging : public Lodging {
 public:
  // `is_last`: of the batches of a step.
  void begin_batch(bool is_last) { is_last_ = is_last; }
  // Squares of gradients' sums behind the last batch, of what this rank has of them; null: whoever has the sums knows.
  virtual const std::map<std::string, float>* squares() const { return nullptr; }
  virtual int64_t exchange_bytes() const = 0;
  virtual void forget_parameters() {}  // they have changed
  virtual void forget_lost() {}        // what formats have lost

 protected:
  bool is_last_ = true;
};

class RankLodging : public RankedLodging {
 public:
  // This rank's part of a parameter by its name, and of a sum of gradients, "gradient." before it.
  using Tensors = std::function<run::DeviceTensorRef(const std::string&, const graph::Type&)>;
  // `whole`: where parameters lodge that are not gathered. `outside`: of parts that `tensors` finds there while their
  // layer visits the device, and of whole parameters; null: none do.
  RankLodging(run::Engine& engine, run::Communicator& ranks, Lodgers lodgers, Tensors tensors,
              std::shared_ptr<Lodging> whole = nullptr, std::shared_ptr<OutsideLodging> outside = nullptr);

  void call(size_t part) override;
  void come(size_t part) override;
  void leave(size_t part) override;
  void open_gradients(size_t part, bool first) override;
  void close_gradients(size_t part) override;
  run::DeviceTensorRef tensor(size_t part, const std::string& name) override;
  std::optional<Error> end_pass() override;
  bool goes_to_the_end() const override { return true; }
  int64_t parameter_bytes() const override;
  int64_t gradient_bytes() const override;
  const std::map<std::string, float>* squares() const override { return sums_outside() ? &squares_ : nullptr; }
  int64_t exchange_bytes() const override { return needs_.exchanges; }
  void forget_parameters() override;
  void forget_lost() override;

 private:
  using Member = Lodgers::Member;
  using Ticket = run::Ferry::Ticket;  // or a point of the stream
  struct Seat {
    std::shared_ptr<std::byte> parameters, codes, gradients;
    int64_t part = -1;  // whose parameters it holds, or will
    bool is_whole = false, is_used = false, sends = false;
    std::optional<Ticket> ticket;  // of what is on its way
  };
  struct Programs {
    std::shared_ptr<run::Program> code, decode, encode, sum, squares;
  };

  Seat& seat(size_t part) { return seats_[part % seats_.size()]; }
  std::shared_ptr<run::Program> compile(const graph::Graph& g);
  void compile_part(size_t part);
  run::DeviceTensorRef at(const graph::Type& type, const std::shared_ptr<std::byte>& memory, int64_t offset) const;
  run::DeviceTensorRef own(const Member& m) const;
  bool sums_outside() const { return outside_ && outside_->gradients(); }
  void land(Seat& seat);
  void gather(size_t part);
  void arrive(size_t part);
  void bind_reduction(size_t part);
  void finish_sums();
  void take_squares(size_t part);
  bool overlaps() const { return ferry_ || stream_; }
  std::optional<Ticket> begin(run::SentPieces to, run::TakenPieces from, size_t point);
  void wait(std::optional<Ticket>& ticket);
  void attempt(const std::function<void()>& work);

  run::Engine& engine_;
  run::Communicator& ranks_;
  Lodgers lodgers_;
  Tensors tensors_;
  std::shared_ptr<Lodging> whole_;
  std::shared_ptr<OutsideLodging> outside_;
  LodgingNeeds needs_;
  std::map<std::string, float> squares_;
  size_t gathered_ = 0;  // the last part that was
  std::vector<Seat> seats_;
  std::shared_ptr<std::byte> arrived_;  // gradients that others have sent
  std::vector<Programs> programs_;
  std::map<std::string, std::shared_ptr<run::Program>> by_text_;
  std::map<std::string, run::DeviceTensorRef> lost_;
  std::optional<size_t> summing_;  // the part whose gradients are on their way
  std::optional<Ticket> sum_ticket_;
  std::optional<Error> failure_;
  run::Device::Stream* stream_ = nullptr;  // of exchanges between GPUs
  std::unique_ptr<run::Ferry> ferry_;      // elsewhere; last made, first gone. Neither: exchanges are waited for
};

}  // namespace lumen::model
