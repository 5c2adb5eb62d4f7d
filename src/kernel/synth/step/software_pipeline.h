// A software pipeline of a block of lanes: stages of something come to buffers in shared memory that they take in turn,
// and while one stage is used, ahead() later ones are on their way. Who uses it says what a stage is: what begins its
// copies and what computes with it. Where commit, wait and barrier stand is said here alone:
//
//   prologue   stages 0 .. ahead() - 1 begin, each a group of copies of its own
//   stage s    lanes meet: s has come for all of them, and all are done with s - 1
//              s + ahead() begins, in the place of s - 1;  s is used
//
// Every stage commits a group, even one that does not exist: so what lanes wait for is counted from the youngest group,
// and persistent blocks go on with the stages of their next tile as if they were this one's. Where instructions read
// buffers by themselves (`overlaps`), products are begun before lanes meet and end behind the next ones: stage s + 1
// has come and s - 1 is done where they meet within s. One buffer: a stage is brought, met for, used, met for again.
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
    bool overlaps = false;  // a stage's products are under way while lanes meet
    bool by_wave = false;   // waves have stages of their own and meet alone; all is said inside a lane loop
    bool copies = true;     // asynchronously; else lanes bring stages themselves
  };
  SoftwarePipeline(Builder& b, Shape shape) : b_(b), shape_(shape) {}

  int64_t ahead() const { return shape_.buffers - 1; }
  void lanes(const OfLane& body);

  // The prologue, in a lane loop. `constant` copies what no kernel of the program writes: of the first `early` stages
  // by begin_early(), even before the kernels before have ended (loop/verify.h), where `waits`. `rest`: of every stage
  // behind that; nothing where there is no such thing.
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
  // Until all stages but the youngest `later` have come for all lanes, which first do `before`.
  void wait_and_barrier(int64_t later, const OfLane& before = nullptr);

  struct Stage {
    OfLane begin = nullptr;   // the stage ahead() behind; nothing where `use` begins it
    OfLane use = nullptr;     // this one; of pipelines that overlap: begins its products
    OfLane finish = nullptr;  // of those: behind what begins
    bool follows = true;      // of those: products of the stage before may be under way
  };
  void step(const Stage& s);

 private:
  Builder& b_;
  Shape shape_;
};

}  // namespace lumen::synth
