// The training of what stands around codes. Every step rounds fields to their own precision, so that what is measured
// is what is written; gradients go straight through that. Layer by layer (text_loss.h): beside the model as it is
// stored only scales and vectors, their moments and the best ones are held. What is done is kept in a folder now and
// then, sealed (base/sealed), and a run that was stopped goes on there and ends in the same bytes. Proved by
// tests/model/compress/fields/field_recovery_test.cpp.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file/lock.h"
#include "base/sealed/sealed.h"
#include "model/arch/identity.h"
#include "model/arch/model.h"
#include "model/calibrate/text_loss.h"
#include "model/compress/fields/scale_fields.h"
#include "model/compress/recover/learning.h"

namespace lumen::model {

struct FieldRecoveryOptions {
  LayerRunOptions run;
  bool scales = true, vectors = true;  // what is trained
  int steps = 200;
  double rate = 3e-3;  // of logarithms of scales' factors, and of vectors over the root of their mean square
  int64_t step_windows = 8;
  uint64_t seed = 0;
  std::filesystem::path folder;  // of what is done; it is removed by whoever has written the result
  bool anew = false;             // what lies there is thrown away
  std::string source;            // what the run is of beside what these say
  std::vector<std::shared_ptr<ModelIdentity>> identities;  // of the models; empty: they are not compared
};

struct FieldRecoveryProgress {
  int step = 0, steps = 0;
  double cost = 0;  // of what the step looked at
};

class FieldRecovery {
 public:
  // `teacher`: null: the text's own tokens are learned; else what this model says of them. All outlive this, but text
  // and options. Error when nothing of the model could be trained, or the folder is another run's.
  FieldRecovery(run::Engine& engine, const Model& rounded, const Model* teacher, std::span<const TokenId> text,
                FieldRecoveryOptions options);
  ~FieldRecovery();

  // Does what is left to do. False when `stop` said so: the folder has what was done. Error (exit 5) where what an
  // earlier run left was made of other models, which a part of their bytes did not show; it is removed.
  bool run(const std::function<void(const FieldRecoveryProgress&)>& progress = {},
           const std::function<bool()>& stop = {});

  double before() const { return before_; }  // over the whole text
  double after() const { return after_; }
  int best_step() const { return best_step_; }  // 0: nothing was better than what was there
  int64_t trained() const;                      // numbers
  // Formats with no scale that could be trained, and why, a line each.
  const std::vector<std::string>& left() const { return left_; }
  // The model with the best that was seen.
  Model result() const;
  void remove_folder();

 private:
  struct Moving;
  void add(const Parameter& p);
  std::string key(std::span<const TokenId> text, const Model* teacher) const;
  std::vector<float> numbers(const std::string& name) const;
  void move(double rate);
  void look(int step);
  void save(int step);
  int load();  // the step that is done
  int take_state(std::span<const uint8_t> state);
  void require_same_models();

  run::Engine& engine_;
  const Model& rounded_;
  const FieldRecoveryOptions options_;
  std::map<std::string, std::unique_ptr<Moving>> moving_;
  std::vector<std::string> left_;
  std::unique_ptr<FolderLock> lock_;
  std::unique_ptr<SealedFolder> files_;  // in the folder
  std::string models_;                   // the whole identities of those that the kept state was made of
  TextLoss loss_;
  const std::string key_;
  double before_ = 0, after_ = 0;
  int best_step_ = 0, moves_ = 0;
};

}  // namespace lumen::model
