// Codes of one group of blocks, a lane each, in private memory until their records are written: shared by all kernels
// that round, for any blocks. Proved by tests/kernel/synth/synth_codec_test.cpp and
// tests/kernel/synth/synth_feedback_test.cpp.
#pragma once

#include <map>
#include <vector>

#include "kernel/synth/unpack/routine.h"

namespace lumen::synth {

// Whether records are so large that loops put their bits in place, block by block.
bool is_large(const Format& f);
// Whether a routine assigns a field.
bool assigns(const std::vector<RoutineStmt>& body, int field);

class BlockCodes {
 public:
  BlockCodes(Builder& b, const Format& f, BufferId blob, int lanes, const machine::Machine& target)
      : b_(b), format_(f), blob_(blob), lanes_(lanes), target_(target) {}

  void begin();  // in the task's region: private memory and tables
  void clear();  // before a fit; the code field is written whole
  Expr load(int field, Expr index);
  void store(int field, Expr index, Expr code, Expr mask);  // mask: lanes to be set, no value for all
  Expr table(int table, Expr index);
  // Byte offset of an entry of an array with a value for each lane: all lanes of an entry are contiguous.
  Expr entry_offset(Expr index, int64_t size);
  // Lane l's record begins at `start` + l * `stride`; `start` is a multiple of `align`.
  void write_records(Expr start, int64_t stride, int64_t align = 1);

 private:
  // The bits of a record's word (u32), from the codes of its fields.
  struct Fragment {
    int field = 0;
    int64_t entry = 0;
    int value_bit = 0, bits = 0, shift = 0;
  };
  std::map<int64_t, std::vector<Fragment>> fragments() const;
  void write_record(Expr start);
  void write_word(Expr word, Expr start, int64_t stride, int64_t at, int64_t bytes, int64_t align);

  Builder& b_;
  const Format& format_;
  BufferId blob_;
  int lanes_;
  const machine::Machine& target_;
  std::vector<BufferId> codes_, tables_;
};

}  // namespace lumen::synth
