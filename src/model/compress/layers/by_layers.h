// See layers.h. Proved by tests/model/compress/by_layers_test.cpp.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/arch/identity.h"
#include "model/compress/layers/branch.h"
#include "model/compress/layers/journal.h"
#include "model/compress/prepare/prepare.h"

namespace lumen::model {

struct ByLayersOptions {
  RoundingMethod method;
  StrategyOptions numbers;
  BranchOptions branch;  // beside each rounded weight of the layers
  LayerRunOptions run;
  std::filesystem::path folder;             // of what is done; it is removed by whoever has written the result
  bool anew = false;                        // what lies in the folder is thrown away
  std::string source;                       // what the run is of beside what these say, part of the journal's key
  std::shared_ptr<ModelIdentity> identity;  // of the model and whatever else its weights come from; null: not compared
};

struct RoundedTensor {
  std::string name, format;  // GGUF name; "f32" where it stays
  std::string strategy, remark;
  double error = 0;          // |x - y| / |x|
  double output_error = -1;  // of what the weight computes on the text, likewise; below 0: not known
  int64_t rank = 0;          // of the branch beside it, with which these are; 0: there is none
};

struct ByLayersProgress {
  size_t part = 0, parts = 0;
  std::string doing;  // "reads", "wo"
  double share = 0;   // of the part, about
};

class ByLayers {
 public:
  // `formats`: by parameter name; parameters without one stay as they are. `model` must live as long.
  ByLayers(run::Engine& engine, const Model& model, std::map<std::string, FormatRef> formats,
           std::span<const TokenId> text, ByLayersOptions options);

  // Does what is left to do. Stops behind a part when `stop` says so: false then. Error (exit 5) where what an earlier
  // run left was made of another model (Journal::require_same_model).
  bool run(const std::function<void(const ByLayersProgress&)>& progress = {}, const std::function<bool()>& stop = {});

  // Nats of each position of all windows, of the model as it is rounded.
  const std::vector<float>& losses() const { return losses_; }
  int64_t window() const { return options_.run.length; }
  std::vector<RoundedTensor> report() const;
  // The result: types, and the bytes of what was not touched; the others come from weight().
  Model outline() const;
  Weight weight(const Parameter& p);
  void remove_folder() { journal_.remove(); }

 private:
  class Numbers;
  struct Part;
  void round_part(size_t k, const std::function<void(const ByLayersProgress&)>& progress);
  void run_through(size_t k, const std::function<void(const ByLayersProgress&)>& progress);
  void carry_truth(Part& at);
  PartRun carry_rounded(Part& at);
  void discard_unfit_parts();
  std::string unfit(size_t k) const;
  size_t first_to_do();
  std::vector<std::string> rounded_in(size_t k) const;
  Journal::Values seals_behind(size_t k) const;
  void observe(Part& at);
  void round_weights(Part& at);
  RoundingTask task_of(Part& at, const std::string& name) const;
  bool goes_with_block(const Part& at, const std::string& name, const RoundingTask& task) const;
  Rounding rounded(Part& at, const std::string& name, const RoundingTask& task);
  // Rounded to nearest where a strategy's numbers broke, which is said; the other weights go on.
  Rounding nearest_because(const RoundingTask& task, const Error& broken);
  void keep(Part& at, const std::string& name, const RoundingTask& task, Rounding rounding);
  void refuse_formats();
  // Whether the strategy rounds a weight; others are rounded to nearest: plain floats beside those that it rounds, and
  // weights of which the text says nothing that can be used.
  bool is_for_strategy(const Part& at, const RoundingTask& task) const;
  // What was wrong with what a weight reads; "" where nothing was.
  static std::string unsound(const Part& at, const RoundingTask& task);
  void refuse_branches() const;
  graph::TapKinds observes() const;
  bool carries_truth() const;  // what goes through the layers unrounded is kept, too
  Branch branch_beside(const std::string& name, const RoundingTask& task, std::span<const float> values);
  // What a weight, or a part of a branch, was rounded to; null where it stays.
  FormatRef format_of(const std::string& name) const;
  // The numbers of a weight that one of the parts before `end` rounded, with its branch.
  std::optional<std::vector<float>> done(const std::string& name, size_t end);
  // Weights and sums as preparations leave them; the numbers that they change are in `before`.
  PartState prepared(size_t k, std::vector<TapSums> reads, const std::vector<std::string>& mine,
                     const std::function<std::span<const float>(const std::string&)>& weight);

  run::Engine& engine_;
  const Model& model_;
  const std::map<std::string, FormatRef> formats_;
  const ByLayersOptions options_;
  const std::map<std::string, int64_t> branches_;  // ranks
  LayerRun run_;
  Journal journal_;
  CarriedValues rounded_, true_;
  std::unique_ptr<Rounder> rounder_, nearest_;  // nearest_: of weights that the strategy can do nothing for
  TaskErrors errors_;
  std::set<const Format*> left_alone_;     // formats that the strategy does not take
  std::vector<graph::ScaleSite> sites_;    // where preparations may change channels
  std::map<std::string, size_t> part_of_;  // where a parameter is rounded: the first part that has it
  std::vector<float> losses_;
};

}  // namespace lumen::model
