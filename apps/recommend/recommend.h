// Sequential recommenders: a family's text trained on interactions, evaluated by the ranks of held-out items, and,
// where the family predicts which channels matter to a user, planned: a cloud sends classes of channels, a device
// applies them to the frozen matrices that both have. Depends on families' functions and parameter roles, not on names:
//
// loss_pairs, loss_candidates    of inputs that examples.cpp makes, by name
// scores(items [, classes])      of every item as the next one
// profile(recent), plan(profile) a user's profile, and the classes of channels; a family with these is planned
// role "planned"                 matrices [C, K] or [L, C, K]; with plans, each has NAME_bank [4, C, K] or
// [L, 4, C, K]: its values in the bits of each class
//
// Proved by tests/apps/recommend/recommend_test.cpp.
//
// May include: apps/draws, apps/network, base, base/file, base/net, base/structured, graph/pass, model/arch,
// model/arch/family, model/data/reader, model/file, model/recipe/optimizer, run/engine.
// Offers: wire.h.
#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/network/network.h"
#include "apps/recommend/channels.h"
#include "apps/recommend/interactions.h"
#include "graph/pass/pass.h"
#include "model/arch/family/family.h"
#include "run/engine/engine.h"

namespace lumen::model::recipe {
class Optimizer;
}  // namespace lumen::model::recipe

namespace lumen::recommend {

// ---- Examples

// The form of training examples, from the config and the user's settings.
struct ExampleForm {
  int64_t length = 0, targets = 0;  // of the config
  int64_t recent = 0;               // length of the items that a plan depends on; 0: no plans
  bool by_candidates = false;       // softmax over candidates rather than pairs
  int64_t candidates = 0;           // sampled per batch; 0: all items
};
// A user, and the end of the window: for windowed families the first target, otherwise the number of items.
struct UserWindow {
  int64_t user = 0, end = 0;
};
// Inputs by name, and their extents.
struct ExampleBatch {
  std::map<std::string, std::vector<int32_t>> integers;
  std::map<std::string, std::vector<float>> numbers;
  graph::Bindings symbols;
};
// last_window: the last window of a user with all its targets; without windows, the whole sequence. epoch_examples: all
// windows in an epoch's order, by the seed.
UserWindow last_window(const Split& split, const ExampleForm& form, int64_t user);
std::vector<UserWindow> epoch_examples(const Split& split, const ExampleForm& form, uint64_t seed, int64_t epoch);
// In a planned family the plan depends on the items before a random position, and only later targets count: otherwise
// plans would contain the answers.
ExampleBatch training_batch(const Split& split, const ExampleForm& form, std::span<const UserWindow> examples,
                            Draws draws);
// The last `length` of the items, padded with zeros in front.
void put_last(std::span<const ItemId> items, std::span<int32_t> to);

// ---- A recommender

struct RecommenderSettings {
  std::string family;
  graph::Config config;  // of training; evaluations run without dropout
  uint32_t seed = 1;
  bool is_frozen = false;  // matrices of role "planned" keep their random values
  int frozen_bits = 0;     // .. quantized to this many bits; 0: unquantized
  bool by_candidates = false;
  int64_t candidates = 0, batch = 128;
  double rate = 1e-3, beta2 = 0.98, tau = 1, last_tau = 0.1;
  int64_t tau_steps = 2000;                                        // from first to last tau, geometrically
  std::vector<std::string> tables = {"tight", "normal", "roomy"};  // one is drawn for each batch
};

class Recommender {
 public:
  // Fresh weights.
  Recommender(run::Engine& engine, const model::arch::Library& library, RecommenderSettings settings);
  // The newest checkpoint in `folder`. Error when there is none or it is of another kind.
  static std::unique_ptr<Recommender> load(run::Engine& engine, const model::arch::Library& library,
                                           const std::filesystem::path& folder);
  ~Recommender();

  const RecommenderSettings& settings() const { return settings_; }
  run::Engine& engine() const { return engine_; }
  const model::arch::Library& library() const { return library_; }
  int64_t items() const;
  int64_t length() const;
  bool has_plans() const { return form_.recent > 0; }
  const ExampleForm& form() const { return form_; }
  int64_t steps() const { return steps_; }
  int64_t epochs() const { return epochs_; }
  int64_t trained_numbers() const;
  // Matrices with planned channels, and their numbers, in the order of plans.
  const std::vector<PlannedMatrix>& matrices() const { return matrices_; }
  std::vector<float> matrix(size_t index) const;
  // Identifies the backbone: the hash of its matrices and of its config.
  uint64_t backbone() const;

  // The mean loss over an epoch; nullopt when `stop` became true. Error (exit 4) when it is not finite.
  std::optional<double> train_epoch(const Split& split, const std::atomic<bool>* stop = nullptr);
  // A gradient step on one user's own history, for a family without plans: on-device adaptation, for comparison. Error
  // where training may see fewer than two of the user's interactions.
  double fine_tune(const Split& split, int64_t user);

  // Sets the matrices of each class for scores(); without plans, all have the bits of the highest class.
  void use(const BitTable& table);
  void use_masters();  // families without plans: restores the matrices
  // For a device: replaces the matrices by those of one plan, and scores() uses only these (config key "applied"), for
  // one user and without plans. Cannot be undone on this object.
  void apply(const Plan& plan, const BitTable& table);
  // Plans for histories, each by its last items.
  std::vector<Plan> plans(std::span<const std::vector<ItemId>> histories);
  // The plan of the users' mean profile.
  Plan mean_plan(std::span<const std::vector<ItemId>> histories);
  // Scores of all items (and of padding, at 0) after histories, as rows of items() + 1. `plans`: one for all, or one
  // for each; empty for families without plans.
  std::vector<float> scores(std::span<const std::vector<ItemId>> histories, std::span<const Plan* const> plans = {});

  // A copy of the trained parameters, to restore later.
  using State = std::map<std::string, std::vector<float>>;
  State state() const;
  void set_state(const State& state);

  // A checkpoint, from which training resumes exactly; the newest `keep` are kept.
  std::filesystem::path save(const std::filesystem::path& folder, int keep = 2) const;

 private:
  model::device_tensors::BoundProgram compile(const graph::Graph& g, const graph::Bindings& symbols);
  model::device_tensors::BoundProgram& loss(const graph::Bindings& symbols);
  model::device_tensors::BoundProgram& function(const std::string& name, int64_t rows);
  std::vector<float> profiles(std::span<const std::vector<ItemId>> histories);
  std::vector<Plan> plans_of(const std::vector<float>& profiles, int64_t users);
  double step(const ExampleBatch& batch);
  void fill_banks(const BitTable& table);
  const std::vector<float>& in_bits(size_t matrix, int bits);
  void put_matrices(int bits);
  void put_weight(const std::string& name, std::span<const float> numbers);
  std::vector<float> weight(const std::string& name) const;
  void restore(const std::filesystem::path& folder);

  run::Engine& engine_;
  const model::arch::Library& library_;
  RecommenderSettings settings_;
  model::arch::FamilyRef family_;
  graph::Config measured_;  // the config without dropout
  ExampleForm form_;
  std::vector<model::arch::Parameter> parameters_, trained_;
  std::shared_ptr<const model::recipe::Optimizer> optimizer_;
  std::vector<PlannedMatrix> matrices_;
  model::device_tensors::DeviceTensors tensors_;  // parameters and states
  std::vector<std::vector<float>> masters_;       // original matrices, where use() replaced them
  std::map<std::string, model::device_tensors::BoundProgram> programs_;
  std::map<std::pair<size_t, int>, std::vector<float>> in_bits_;  // quantized matrices, cached
  std::string table_;                                             // of the current banks or matrices; empty: as trained
  int64_t steps_ = 0, epochs_ = 0;
  bool is_applied_ = false;
};

// ---- Ranks

struct Quality {
  double hit5 = 0, hit10 = 0, ndcg5 = 0, ndcg10 = 0;
  int64_t users = 0;
};
// The rank of an answer is the number of candidates with a higher score plus half of those with the same; it is a hit
// if it is below K, with a gain of 1 / log2(rank + 2). Candidates are all items except the user's earlier ones
// (`full`), or 100 random items outside of the user's training data (`sampled`).
struct Evaluation {
  Quality full, sampled;
};
struct EvaluationOptions {
  bool test = true;   // false: validation
  int64_t users = 0;  // at most, sampled; 0: all
  uint64_t seed = 1;  // of candidates and users
  // By tested user (in the order of tested_users), or one for all; empty for families without plans.
  std::span<const Plan> plans = {};
  const std::atomic<bool>* stop = nullptr;
};
std::vector<int64_t> tested_users(const Split& split, const EvaluationOptions& options);
Evaluation evaluate(Recommender& model, const Split& split, const EvaluationOptions& options);
// The same with each item's frequency in the training data as score.
Evaluation evaluate_popularity(const Split& split, const EvaluationOptions& options);
// Adds an answer's rank to sums, which are divided later.
void add_rank(Quality& quality, double rank);

}  // namespace lumen::recommend
