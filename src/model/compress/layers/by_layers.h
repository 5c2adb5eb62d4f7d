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

namespace lumen::model::compress {

struct ByLayersOptions {
  RoundingMethod method;
  StrategyOptions numbers;
  BranchOptions branch;  // added to each rounded weight of the layers
  calibrate::LayerRunOptions run;
  std::filesystem::path folder;                   // of saved progress; whoever writes the result removes it
  bool anew = false;                              // discards an existing folder
  std::string source;                             // the run's input beyond these options; part of the journal's key
  std::shared_ptr<arch::ModelIdentity> identity;  // of the model and all other sources of weights; null: not compared
};

struct RoundedTensor {
  std::string name, format;  // GGUF name; "f32" where it stays
  std::string strategy, remark;
  double error = 0;          // |x - y| / |x|
  double output_error = -1;  // the same for the weight's outputs on the text; < 0: not known
  int64_t rank = 0;          // of its branch, which the errors include; 0: none
};

struct ByLayersProgress {
  size_t part = 0, parts = 0;
  std::string doing;  // "reads", "wo"
  double share = 0;   // of the part, approximate
};

class ByLayers {
 public:
  // `formats`: by parameter name; parameters without one are unchanged. `model` must outlive this.
  ByLayers(run::Engine& engine, const arch::Model& model, std::map<std::string, FormatRef> formats,
           std::span<const text::TokenId> text, ByLayersOptions options);

  // Does the remaining parts. False when `stop` returned true after a part. Error (exit 5) when an earlier run's
  // progress was made from another model (Journal::require_same_model).
  bool run(const std::function<void(const ByLayersProgress&)>& progress = {}, const std::function<bool()>& stop = {});

  // Nats at each position of all windows, for the rounded model.
  const std::vector<float>& losses() const { return losses_; }
  int64_t window() const { return options_.run.length; }
  std::vector<RoundedTensor> report() const;
  // The result: types, and the bytes of unchanged weights; the others come from weight().
  arch::Model outline() const;
  arch::Weight weight(const arch::Parameter& p);
  void remove_folder() { journal_.remove(); }

 private:
  class Numbers;
  struct Part;
  void round_part(size_t k, const std::function<void(const ByLayersProgress&)>& progress);
  void run_through(size_t k, const std::function<void(const ByLayersProgress&)>& progress);
  void carry_truth(Part& at);
  calibrate::PartRun carry_rounded(Part& at);
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
  // Rounds to nearest, with a note, where a strategy's numbers broke; other weights continue.
  Rounding nearest_because(const RoundingTask& task, const Error& broken);
  void keep(Part& at, const std::string& name, const RoundingTask& task, Rounding rounding);
  void refuse_formats();
  // Whether the strategy rounds a weight. Others are rounded to nearest: plain floats, and weights without usable
  // statistics of their inputs.
  bool is_for_strategy(const Part& at, const RoundingTask& task) const;
  // What is wrong with a weight's input statistics; "": nothing.
  static std::string unsound(const Part& at, const RoundingTask& task);
  void refuse_branches() const;
  graph::TapKinds observes() const;
  bool carries_truth() const;  // also keeps the unrounded activations
  Branch branch_beside(const std::string& name, const RoundingTask& task, std::span<const float> values);
  // The format that a weight, or a part of a branch, was rounded to; null where unchanged.
  FormatRef format_of(const std::string& name) const;
  // The numbers of a weight that a part before `end` rounded, with its branch.
  std::optional<std::vector<float>> done(const std::string& name, size_t end);
  // Weights and sums after preparations; `before` receives the numbers that they change.
  PartState prepared(size_t k, std::vector<calibrate::TapSums> reads, const std::vector<std::string>& mine,
                     const std::function<std::span<const float>(const std::string&)>& weight);

  run::Engine& engine_;
  const arch::Model& model_;
  const std::map<std::string, FormatRef> formats_;
  const ByLayersOptions options_;
  const std::map<std::string, int64_t> branches_;  // ranks
  calibrate::LayerRun run_;
  Journal journal_;
  calibrate::CarriedValues rounded_, true_;
  std::unique_ptr<Rounder> rounder_, nearest_;  // nearest_: for weights that the strategy cannot round
  TaskErrors errors_;
  std::set<const Format*> left_alone_;     // formats that the strategy does not support
  std::vector<graph::ScaleSite> sites_;    // where preparations may scale channels
  std::map<std::string, size_t> part_of_;  // the part that rounds a parameter: the first that has it
  std::vector<float> losses_;
};

}  // namespace lumen::model::compress
