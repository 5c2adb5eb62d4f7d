// A software pipeline of a block of lanes: stages are copied to buffers in shared memory in turn, and while one stage
// is used, ahead() later ones are in flight. The caller defines what a stage is: the code that begins its copies and
// the code that uses it. Commit, wait and barrier are placed here alone:
//
//   prologue   stages 0 .. ahead() - 1 begin, each in a commit group of its own
//   stage s    barrier: s has arrived for all lanes, and all are done with s - 1
//              s + ahead() begins, in the place of s - 1;  s is used
//
// Every stage commits a group, even one that does not exist: so waits count from the youngest group, and persistent
// blocks go on with the stages of their next tile as if they were this one's. Where instructions read buffers
// asynchronously (`overlaps`), products are begun before a barrier and end after the next ones begin: at the barrier of
// s, stage s + 1 has arrived and s - 1 is done. With one buffer: copies, barrier, use, barrier.
// Proved by tests/kernel/synth/software_pipeline_test.cpp.
#pragma once

#include <functional>

#include "kernel/loop/names.h"

namespace lumen::synth {

class SoftwarePipeline {
 public:
  using OfLane = std::function<void(Expr lane)>;
  struct Shape {
    int64_t lanes = 1;      // of the block
    int64_t buffers = 2;    // of one stage each
    bool overlaps = false;  // a stage's products are in flight at a barrier
    bool by_wave = false;   // waves have their own stages and barriers; all code is inside a lane loop
    bool copies = true;     // asynchronous; else lanes load and store stages themselves
  };
  SoftwarePipeline(Builder& b, Shape shape) : b_(b), shape_(shape) {}

  int64_t ahead() const { return shape_.buffers - 1; }
  void lanes(const OfLane& body);

  // The prologue, in a lane loop. `constant` copies what no kernel of the program writes: for the first `early` stages
  // by begin_early(), if `waits` even before the previous kernels have ended (loop/verify.h). `rest` copies the rest of
  // every stage after that; null if there is none.
  struct Prologue {
    std::function<void(int64_t stage)> constant, rest = nullptr;
    int64_t early = 0;
    bool waits = false;
  };
  void begin_early(const Prologue& p);
  void wait_for_kernels(const Prologue& p);
  void begin_first(const Prologue& p);

  // In a lane loop: copies of one stage, a group.
  void begin(const std::function<void()>& copies);
  // Waits until all stages but the youngest `later` have arrived for all lanes, which run `before` first.
  void wait_and_barrier(int64_t later, const OfLane& before = nullptr);

  struct Stage {
    OfLane begin = nullptr;   // begins the stage ahead() later; null if `use` does
    OfLane use = nullptr;     // uses this one; of pipelines that overlap: begins its products
    OfLane finish = nullptr;  // of those: runs after `begin`
    bool follows = true;      // of those: products of the previous stage may be in flight
  };
  void step(const Stage& s);

 private:
  Builder& b_;
  Shape shape_;
};

}  // namespace lumen::synth
