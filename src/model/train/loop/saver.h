// The checkpoints of a running training. The newest one has passed its own checks when it is written; later steps
// decide whether older ones are still needed. Where numbers break, a run rolls back to one of them, or reports which is
// good. Proved by tests/model/train/guard_test.cpp and rollback_test.cpp.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "base/error.h"
#include "model/train/trainer/trainer.h"

namespace lumen::model::train {

inline constexpr const char* kBestName = "best";  // a link to the checkpoint of the best evaluation

class Saver {
 public:
  Saver(Trainer& trainer, std::filesystem::path out);

  void save();  // checked first; Error (exit 4) when it is not finite
  int64_t saved_at() const { return saved_at_; }
  const std::filesystem::path& last() const { return last_; }
  bool has_any() const { return !good_.empty(); }

  void confirm();                      // the steps after the last one were good
  void link_best() const;              // marks the last one as the best
  void restore_best() const;           // the weights of the best one; Error when it is gone
  Error diverged(const Error& error);  // with the good checkpoint and how to continue

  // Restores the last checkpoint made after at most `failed` steps, skipping the batch that step failed + 1 reads. A
  // run that fails again without progress skips twice as many, and goes back further when every step since the last
  // checkpoint has failed. The decision is saved with the checkpoint. False when no rollback is possible.
  bool go_back(int64_t failed);

 private:
  std::filesystem::path best() const;

  Trainer& trainer_;
  std::filesystem::path out_, last_;
  std::vector<std::filesystem::path> good_;  // by ascending step
  int64_t saved_at_ = -1;
  bool is_new_ = false;
};

}  // namespace lumen::model::train
