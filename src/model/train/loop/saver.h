// The checkpoints of one run while it goes on. The last one is good by itself when it is written; what follows it
// decides whether older ones are needed still. Where numbers break, a run goes back to one of them, or is told which is
// good. Proved by tests/model/train/guard_test.cpp and rollback_test.cpp.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "base/error.h"
#include "model/train/trainer/trainer.h"

namespace lumen::model {

inline constexpr const char* kBestName = "best";  // a link to the checkpoint of the best evaluation

class Saver {
 public:
  Saver(Trainer& trainer, std::filesystem::path out);

  void save();  // proved first; Error (exit 4) when it cannot be
  int64_t saved_at() const { return saved_at_; }
  const std::filesystem::path& last() const { return last_; }
  bool has_any() const { return !good_.empty(); }

  void confirm();                      // what came after the last one was good
  void link_best() const;              // the last one is the best
  void restore_best() const;           // the weights of the best one; Error when it is gone
  Error diverged(const Error& error);  // for people: which checkpoint is good, and how to go on

  // Restores the last checkpoint made after `failed` steps at most, leaving out the batch that the step behind them
  // reads; a run that fails again without getting further leaves out twice as many, and begins earlier where the last
  // checkpoint shows nothing but the failure. What was decided is saved with it. False when there is no way back.
  bool go_back(int64_t failed);

 private:
  std::filesystem::path best() const;

  Trainer& trainer_;
  std::filesystem::path out_, last_;
  std::vector<std::filesystem::path> good_;  // by rising step
  int64_t saved_at_ = -1;
  bool is_new_ = false;
};

}  // namespace lumen::model
