// Recommenders of what a user does next: a family's text trained on interactions, measured by the ranks of what was
// held out, and, where the family says which channels matter to whom, planned: a cloud sends classes of channels, a
// device applies them to the frozen matrices both have. Knows families by their functions and parameters' roles, not by
// names:
//
// loss_pairs, loss_candidates    of inputs that examples.cpp makes, by name
// scores(items [, classes])      of every item, for what comes next
// profile(recent), plan(profile) who a user is, and the classes of channels; a family that has them is planned
// role "planned"                 matrices [C, K] or [L, C, K]; with plans NAME_bank [4, C, K] or [L, 4, C, K] beside
// each is
// what they are in the bits of each class
//
// Proved by tests/model/recommend/recommend_test.cpp.
//
// May include: base, base/file, base/net, base/structured, graph/pass, model/arch, model/arch/family,
// model/data/reader, model/file, model/network, model/recipe/optimizer, run/engine.
// Offers: wire.h.
#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/pass/pass.h"
#include "model/arch/family/family.h"
#include "model/network/network.h"
#include "model/recommend/channels.h"
#include "model/recommend/interactions.h"
#include "run/engine/engine.h"

namespace lumen::model {

class Optimizer;

// ---- Examples

// How a family is trained, by its config and what a user asks for.
struct ExampleForm {
  int64_t length = 0, targets = 0;  // of the config
  int64_t recent = 0;               // items that a plan follows from; 0: there are no plans
  bool by_candidates = false;       // softmax over candidates rather than pairs
  int64_t candidates = 0;           // drawn for a batch; 0: all items
};
// A user, and where the window ends: of families that see windows the first target, otherwise the number of items.
struct UserWindow {
  int64_t user = 0, end = 0;
};
// Inputs by name, and the extents they have.
struct ExampleBatch {
  std::map<std::string, std::vector<int32_t>> integers;
  std::map<std::string, std::vector<float>> numbers;
  graph::Bindings symbols;
};
// All of them in the order of an epoch, which the seed decides.
// The last window of a user that has all its targets: the whole sequence, where there are no windows.
UserWindow last_window(const Split& split, const ExampleForm& form, int64_t user);
std::vector<UserWindow> epoch_examples(const Split& split, const ExampleForm& form, uint64_t seed, int64_t epoch);
// In a planned family the plan follows from the items before a place that is drawn, and only what comes behind it
// counts: else plans would know the answers.
ExampleBatch training_batch(const Split& split, const ExampleForm& form, std::span<const UserWindow> examples,
                            Draws draws);
// The last `length` of them, zeros in front.
void put_last(std::span<const ItemId> items, std::span<int32_t> to);

// ---- A recommender

struct RecommenderSettings {
  std::string family;
  graph::Config config;  // of training; what is measured is without dropout
  uint32_t seed = 1;
  bool is_frozen = false;  // matrices of role "planned" stay what they were drawn as
  int frozen_bits = 0;     // .. in so many bits; 0: as they are
  bool by_candidates = false;
  int64_t candidates = 0, batch = 128;
  double rate = 1e-3, beta2 = 0.98, tau = 1, last_tau = 0.1;
  int64_t tau_steps = 2000;                                        // from the first to the last, geometrically
  std::vector<std::string> tables = {"tight", "normal", "roomy"};  // one is drawn for each batch
};

class Recommender {
 public:
  // Fresh weights.
  Recommender(run::Engine& engine, const Library& library, RecommenderSettings settings);
  // The newest checkpoint in `folder`. Error when there is none or it is of another kind.
  static std::unique_ptr<Recommender> load(run::Engine& engine, const Library& library,
                                           const std::filesystem::path& folder);
  ~Recommender();

  const RecommenderSettings& settings() const { return settings_; }
  run::Engine& engine() const { return engine_; }
  const Library& library() const { return library_; }
  int64_t items() const;
  int64_t length() const;
  bool has_plans() const { return form_.recent > 0; }
  const ExampleForm& form() const { return form_; }
  int64_t steps() const { return steps_; }
  int64_t epochs() const { return epochs_; }
  int64_t trained_numbers() const;
  // Matrices whose channels may be planned, and all their numbers, in the order of plans.
  const std::vector<PlannedMatrix>& matrices() const { return matrices_; }
  std::vector<float> matrix(size_t index) const;
  // What names the backbone: the hash of its matrices and of its config.
  uint64_t backbone() const;

  // The mean loss of a whole pass over the data; nothing when `stop` became true. Error (exit 4) when it is not finite.
  std::optional<double> train_epoch(const Split& split, const std::atomic<bool>* stop = nullptr);
  // A gradient step on one user's own history, of a family without plans: what a device would do that adapts by itself.
  // Error where training may see fewer than two of its interactions.
  double fine_tune(const Split& split, int64_t user);

  // What matrices are from now on in each class, for scores(); of families without plans in the bits of the highest.
  void use(const BitTable& table);
  void use_masters();  // families without plans: matrices are what they were before
  // A device's: matrices become those of one plan, and scores() computes with them alone (config key "applied"), of one
  // user without a plan beside. The other way round is another object.
  void apply(const Plan& plan, const BitTable& table);
  // Plans for histories, each by its last items.
  std::vector<Plan> plans(std::span<const std::vector<ItemId>> histories);
  // The plan of the mean user of these.
  Plan mean_plan(std::span<const std::vector<ItemId>> histories);
  // Scores of all items (and of none, at 0) after histories, as many rows of items() + 1. `plans`: one for all, or one
  // for each; none of families without plans.
  std::vector<float> scores(std::span<const std::vector<ItemId>> histories, std::span<const Plan* const> plans = {});

  // What training changes, to come back to.
  using State = std::map<std::string, std::vector<float>>;
  State state() const;
  void set_state(const State& state);

  // A checkpoint, from which training goes on as if it had not ended; the newest `keep` stay.
  std::filesystem::path save(const std::filesystem::path& folder, int keep = 2) const;

 private:
  BoundProgram compile(const graph::Graph& g, const graph::Bindings& symbols);
  BoundProgram& loss(const graph::Bindings& symbols);
  BoundProgram& function(const std::string& name, int64_t rows);
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
  const Library& library_;
  RecommenderSettings settings_;
  FamilyRef family_;
  graph::Config measured_;  // the config without dropout
  ExampleForm form_;
  std::vector<Parameter> parameters_, trained_;
  std::shared_ptr<const Optimizer> optimizer_;
  std::vector<PlannedMatrix> matrices_;
  DeviceTensors tensors_;                    // parameters and states
  std::vector<std::vector<float>> masters_;  // matrices as they are, where use() put others
  std::map<std::string, BoundProgram> programs_;
  std::map<std::pair<size_t, int>, std::vector<float>> in_bits_;  // matrices in so many bits, made once
  std::string table_;  // what banks or matrices hold; empty: they are as they were trained
  int64_t steps_ = 0, epochs_ = 0;
  bool is_applied_ = false;
};

// ---- Ranks

struct Quality {
  double hit5 = 0, hit10 = 0, ndcg5 = 0, ndcg10 = 0;
  int64_t users = 0;
};
// The rank of an answer is the number of candidates of a higher score and half of those of the same; it is a hit where
// that is below K, and then 1 / log2(rank + 2) of gain. Candidates are all items but those the user had before
// (`full`), or 100 items drawn from those that are not in the user's training (`sampled`).
struct Evaluation {
  Quality full, sampled;
};
struct EvaluationOptions {
  bool test = true;   // or validation
  int64_t users = 0;  // at most, drawn; 0: all
  uint64_t seed = 1;  // of candidates and users
  // By tested user (as tested_users gives them), or one for all; none of families without plans.
  std::span<const Plan> plans = {};
  const std::atomic<bool>* stop = nullptr;
};
std::vector<int64_t> tested_users(const Split& split, const EvaluationOptions& options);
Evaluation evaluate(Recommender& model, const Split& split, const EvaluationOptions& options);
// The same where every item's score is how often it is in the training data.
Evaluation evaluate_popularity(const Split& split, const EvaluationOptions& options);
// Adds an answer's rank to sums; `over` divides.
void add_rank(Quality& quality, double rank);

}  // namespace lumen::model
