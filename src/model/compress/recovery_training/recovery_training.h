// Recovery training of a quantized model (EfficientQAT's E2E-QP, Chen et al. 2024, arXiv 2407.11062): codes stay fixed;
// scales of groups and vectors of floats are trained over the whole model. Every step rounds them to their stored
// precision, so that the measured loss is that of the written file; gradients are straight-through. Layer by layer
// (text_loss.h): in addition to the stored model, memory holds only scales and vectors, their moments and the best
// values. Progress is saved in a folder at intervals, sealed (base/sealed); a stopped run resumes there and ends in the
// same bytes. Proved by tests/model/compress/recovery_training/recovery_training_test.cpp.
//
// May include: base, base/file, base/sealed, base/structured, base/threads, graph/ir, model/arch, model/calibrate,
// model/compress, model/compress/reconstruction, number/codec, number/format.
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
#include "model/compress/reconstruction/learning.h"
#include "model/compress/recovery_training/scale_fields.h"

namespace lumen::model::compress {

struct RecoveryTrainingOptions {
  calibrate::LayerRunOptions run;
  bool scales = true, vectors = true;  // what is trained
  int steps = 200;
  double rate = 3e-3;  // for logarithms of scale factors, and vectors relative to their RMS
  int64_t step_windows = 8;
  uint64_t seed = 0;
  std::filesystem::path folder;  // of saved progress; whoever writes the result removes it
  bool anew = false;             // discards an existing folder
  std::string source;            // identifies the run's input, in addition to these options
  std::vector<std::shared_ptr<arch::ModelIdentity>> identities;  // of the models; empty: they are not compared
};

struct RecoveryTrainingProgress {
  int step = 0, steps = 0;
  double cost = 0;  // of the step's windows
};

class RecoveryTraining {
 public:
  // `teacher`: null: the text's own tokens are the targets; else this model's predictions. All arguments except text
  // and options outlive this. Error when nothing of the model can be trained, or the folder belongs to another run.
  RecoveryTraining(run::Engine& engine, const arch::Model& rounded, const arch::Model* teacher,
                   std::span<const text::TokenId> text, RecoveryTrainingOptions options);
  ~RecoveryTraining();

  // Does the remaining steps. False when `stop` returned true: progress is in the folder. Error (exit 5) when an
  // earlier run's progress was made from other models, which the partial hash did not show; it is removed.
  bool run(const std::function<void(const RecoveryTrainingProgress&)>& progress = {},
           const std::function<bool()>& stop = {});

  double before() const { return before_; }  // over the whole text
  double after() const { return after_; }
  int best_step() const { return best_step_; }  // 0: nothing improved on the start
  int64_t trained() const;                      // numbers
  // Formats without a trainable scale, and why, a line each.
  const std::vector<std::string>& left() const { return left_; }
  // The model with the best values found.
  arch::Model result() const;
  void remove_folder();

 private:
  struct Moving;
  void add(const arch::Parameter& p);
  std::string key(std::span<const text::TokenId> text, const arch::Model* teacher) const;
  std::vector<float> numbers(const std::string& name) const;
  void move(double rate);
  void look(int step);
  void save(int step);
  int load();  // returns the number of steps done
  int take_state(std::span<const uint8_t> state);
  void require_same_models();

  run::Engine& engine_;
  const arch::Model& rounded_;
  const RecoveryTrainingOptions options_;
  std::map<std::string, std::unique_ptr<Moving>> moving_;
  std::vector<std::string> left_;
  std::unique_ptr<FolderLock> lock_;
  std::unique_ptr<SealedFolder> files_;  // in the folder
  std::string models_;                   // full identities of the models that the saved state was made from
  calibrate::TextLoss loss_;
  const std::string key_;
  double before_ = 0, after_ = 0;
  int best_step_ = 0, moves_ = 0;
};

}  // namespace lumen::model::compress
