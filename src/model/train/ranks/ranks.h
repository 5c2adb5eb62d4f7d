// A training step of several ranks. Each computes gradients of its share of a batch. They are summed in rank order,
// each rank summing its rows. Then either all ranks get all sums and compute all updates, or each rank updates its part
// of the parameters and sends it to the others: then optimizer states and gradient sums are sharded (ZeRO). Exchanges
// may be in a format: then each rank keeps its rounding error and adds it to its next message. Proved by
// tests/model/train/ranks/ranks_test.cpp.
//
// May include: base, graph/ir, graph/partition, graph/transform, model/arch, model/data/examples, model/recipe,
// model/recipe/optimizer, model/train/method, model/train/offload, number/formula, run/device, run/device/outside,
// run/engine, run/engine/compile, run/engine/program, run/ranks.
// Offers: rank_batches.h, rank_forecast.h, rank_layers.h.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/recipe/recipe.h"
#include "model/train/method/method.h"
#include "model/train/offload/layer_plan.h"
#include "model/train/offload/offload.h"
#include "model/train/offload/offloaded_parameters.h"
#include "model/train/ranks/cuts.h"
#include "model/train/ranks/sharded_parameters.h"
#include "model/train/ranks/tensor_parts.h"
#include "run/engine/engine.h"
#include "run/ranks/ranks.h"

namespace lumen::model::train {

// Which tensors are sharded over ranks instead of replicated.
enum class Sharding : uint8_t { none, states, gradients, parameters };
Sharding sharding_of(const recipe::Recipe& recipe);

// The recipe of one rank: its share of a batch, which counts as one of more batches in a step. Error (usage) when the
// number of ranks does not divide the batch, or the recipe asks for exchanges that its sharding does not make.
recipe::Recipe recipe_of_rank(const recipe::Recipe& recipe, int ranks);

// The formats that the recipe names for exchanges; null: f32. Error (usage) when one is unsuitable.
struct Exchanges {
  FormatRef reduced_in, gathered_in;
};
Exchanges exchanges_of(const recipe::Recipe& recipe, const FormatLibrary& formats);
// Bytes of the receive buffer for gradients.
int64_t exchange_scratch(const std::vector<Cut>& cuts, int rank, int ranks);

// Collective: returns when no rank has a `failure`; otherwise throws the Error of the first rank with one, in all
// ranks.
void agree(run::Communicator& ranks, const std::optional<Error>& failure);
// The maximum of each number over all ranks.
std::vector<float> largest_of(run::Communicator& ranks, const std::vector<float>& numbers);

class RankedStep {
 public:
  // A trainer's tensor by name, created if missing.
  using Tensors = std::function<run::DeviceTensorRef(const std::string&, const graph::Type&)>;
  // `tensor`: the parts of a tensor-parallel group; each of its ranks has such a step with the same ranks of other
  // groups. `gradients`: the program of one batch, with whose launches exchanges overlap on GPUs.
  RankedStep(run::Engine& engine, std::shared_ptr<run::Communicator> ranks, const Method& method,
             const recipe::Recipe& recipe, Tensors tensors, run::Program* gradients, TensorParts* tensor = nullptr);
  // For steps by layers. `plan`: of this rank; `outside`: its offloaded parameters, which `tensors` finds while they
  // are resident; null: none.
  RankedStep(run::Engine& engine, std::shared_ptr<run::Communicator> ranks, const Method& method,
             const recipe::Recipe& recipe, Tensors tensors, const LayerPlan& plan,
             std::shared_ptr<OffloadedParameters> outside);
  ~RankedStep();  // later launches wait for pending exchanges
  RankedStep(const RankedStep&) = delete;
  RankedStep& operator=(const RankedStep&) = delete;

  run::Communicator& ranks() { return *ranks_; }
  bool holds_parts() const { return sharding_ != Sharding::none; }  // of states
  // Parameters are sharded, too; open_store() makes their store.
  bool holds_parameters() const { return sharding_ == Sharding::parameters; }
  // Gradients are results of each batch's program, reduced at once; else states that accumulate over batches.
  bool reduces_each_batch() const { return sharding_ == Sharding::gradients || holds_parameters(); }
  // In steps by layers, the store of parameters and gradients.
  std::shared_ptr<RankedParameters> store() const { return store_; }

  void agree(const std::optional<Error>& failure) { model::train::agree(*ranks_, failure); }
  // Runs `work` and returns its Error, for agree().
  static std::optional<Error> attempt(const std::function<void()>& work);
  std::vector<double> sum(std::vector<double> numbers);
  std::vector<float> largest(const std::vector<float>& numbers) { return largest_of(*ranks_, numbers); }
  // Whether this rank computes new values of the parameter, or of a part of it.
  bool updates(const std::string& parameter) const;
  // Whether `mine` is true in any rank.
  bool any(bool mine);

  // Whether gradients are exchanged while the program of the last batch still runs (ranked_overlap.cpp). Then either
  // all ranks run it or none; where one fails, others wait unless is_launched().
  bool overlaps_gradients() const { return stream_ != nullptr; }
  void before_batch(run::Program& program, bool is_last);
  bool is_launched() const { return is_launched_; }
  // Sums gradients over ranks: the results of `program`, or the states.
  void reduce(run::Program& program);
  // Without parts: all ranks get all sums.
  void share_sums();
  // With parts, or by layers: the norm of all gradients. With parts: a step of the optimizer with it, and the updated
  // parameters for all ranks.
  double norm();
  void apply(double norm, uint32_t seed);  // `seed`: of stochastic rounding
  void share_parameters();
  void clear();  // gradients
  // After norm(): parameters with gradients that are not finite, of all ranks.
  std::vector<std::string> broken();

  // After parameters changed: resets parts and rounding errors of exchanges. `averages`: averaged weights, too.
  void begin(bool averages);
  // Gives all ranks exact parameters, without the rounding of exchange formats, and clears rounding errors: as in a
  // checkpoint, and as a resumed run begins.
  void settle();

  // Types of sharded optimizer states, by name, as in a checkpoint of one process. And of parameters.
  const std::map<std::string, graph::Type>& states() const { return state_types_; }
  const std::map<std::string, graph::Type>& parameters() const { return parameter_types_; }
  // Parts of parameters have changed.
  void forget_parameters();
  // The whole state, for rank 0 or for every rank; empty elsewhere. Collective.
  std::vector<uint8_t> whole_state(const std::string& name, bool everywhere = false);
  void put_state(const std::string& name, std::span<const uint8_t> whole);
  // The type of this rank's part, which must exist; and its bytes, on or off the device: empty without a part.
  graph::Type part_type(const std::string& name) const;
  std::vector<uint8_t> part_of_state(const std::string& name);
  int64_t exchange_bytes() const;
  int64_t slot_bytes() const;  // of offloaded states

 private:
  // Parameters whose gradients are exchanged together.
  struct Bucket {
    std::vector<const Cut*> cuts;
    std::shared_ptr<run::Program> encode, sum;
  };

  RankedStep(run::Engine& engine, std::shared_ptr<run::Communicator> ranks, const Method& method,
             const recipe::Recipe& recipe, Tensors tensors, TensorParts* tensor,
             std::shared_ptr<OffloadedParameters> outside);
  void make_buckets(run::Program* gradients);
  // ranked_layers.cpp
  void open_store(const LayerPlan& plan);
  double norm_of_layers();
  void apply_by_layers(float norm, uint32_t seed);
  void apply_groups(float norm, uint32_t seed, const std::function<void(int, int)>& turn);
  void turn(int from, int to);
  void share_layer(int layer);
  GroupedUpdates::TensorOf updated_tensors(const std::vector<arch::Parameter>& parts);
  std::vector<const Cut*> in_order(const std::function<int64_t(const Cut&)>& place) const;
  void begin_overlap(run::Program& gradients);
  void send(Bucket& bucket);
  void gather_parameters();
  run::DeviceTensorRef gradient(run::Program& program, const Cut& cut) const;
  struct Pieces {
    run::SentPieces to;
    run::TakenPieces from;
  };
  Pieces gradient_pieces(const Bucket& bucket, run::Program& program) const;
  Pieces shared_pieces(const std::vector<const Cut*>& cuts, const char* prefix) const;
  void compile_bucket(Bucket& bucket);
  void compile_apply(const Method& method, const recipe::Recipe& recipe);
  bool compile_groups(const Method& method, const recipe::Recipe& recipe, const std::vector<arch::Parameter>& parts);
  run::DeviceTensorRef bound_part(const Cut& cut);
  TensorPager* outside(const std::string& name) const;       // pager of the state; null: on the device
  run::DeviceTensorRef state_part(const std::string& name);  // null where this rank has none
  void compile_changes();
  std::shared_ptr<run::Program> compile(const graph::Graph& g) const;
  run::DeviceTensorRef whole(const Cut& cut, const char* prefix) const;
  run::DeviceTensorRef part(const run::DeviceTensorRef& whole, const Cut& cut, int rank) const;
  run::DeviceTensorRef gradient_part(const Cut& cut) const;
  graph::Type type_in_parts(const std::string& name) const;
  void share(const char* prefix);

  run::Engine& engine_;
  TensorParts* tensor_;
  std::shared_ptr<run::Communicator> ranks_;
  Tensors tensors_;
  Sharding sharding_;
  FormatRef reduced_in_, gathered_in_;
  recipe::Holding held_;
  bool averages_ = false;
  std::vector<Cut> cuts_;
  std::vector<Bucket> buckets_;
  std::shared_ptr<std::byte> scratch_;
  int64_t scratch_bytes_ = 0;
  std::shared_ptr<run::Program> squares_, apply_, clear_, change_, follow_;
  // For offloaded states: apply_ computes the gradients' factor, then these update.
  std::unique_ptr<GroupedUpdates> updates_;
  std::map<std::string, run::DeviceTensorRef> masters_, lost_;
  std::map<std::string, std::vector<run::DeviceTensorRef>> changes_;  // by parameter, of each rank
  std::map<std::string, graph::Type> state_types_, parameter_types_;
  std::shared_ptr<RankedParameters> store_;       // null: steps run as a whole
  std::shared_ptr<OffloadedParameters> outside_;  // null: parameters and gradients stay on the device
  std::vector<int> layers_;                       // in the order of updates
  size_t next_layer_ = 0;                         // index in layers_
  bool overlaps_ = false;
  std::map<std::string, const Cut*> state_cuts_;
  // Exchanges overlapped with launches.
  run::Device::Stream* stream_ = nullptr;
  run::Program* gradients_ = nullptr;
  std::shared_ptr<const run::LaunchHooks> reading_, reducing_;  // hooks of batches before the last, and of the last
  std::vector<std::vector<const Cut*>> gathered_;               // parameters that are gathered together
  std::vector<bool> is_held_;                                   // by bucket: launches wait for it already
  std::vector<int64_t> missing_;                                // by bucket: gradients not yet produced
  size_t sent_ = 0;                                             // buckets
  bool is_launched_ = false;
};

// Groups of cuts that are exchanged together, in this order.
std::vector<std::vector<const Cut*>> buckets_of(const std::vector<const Cut*>& cuts);

}  // namespace lumen::model::train
