// Quantization as kernels: fits and codes run on as many blocks in parallel as the machine has lanes, records are
// assembled from words whose layout is known at synthesis time. Equal to the codec bit for bit. Proved by
// tests/kernel/synth/synth_codec_test.cpp and tests/ladder.
//
// May include: base, kernel/synth/body, kernel/synth/map, kernel/synth/order, kernel/synth/reduce, kernel/synth/step,
// kernel/synth/unpack, number/codec, number/facts.
// Offers: code_fields.h, codes_group.h, convert.h, feedback.h.
#pragma once

#include <functional>
#include <optional>

#include "kernel/synth/step/step.h"
#include "kernel/synth/step/step_builder.h"
#include "kernel/synth/unpack/routine.h"

namespace lumen::synth {

// A move group whose root is a cast into a format.
Synthesis synthesize_cast(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target);
// A move group that updates a state stored in a format: whole records are copied.
Synthesis update_records(const graph::Plan& plan, const graph::Group& group, const machine::Machine& machine);
// One-byte codes of a map's values: a move group whose root is a cast, and which contains the map below it (`codes` in
// graph/fuse/plan.h). Straight, transposed, or both, and an extreme of the values, in one pass over the map's inputs.
Synthesis encode_map(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target);
// The same where fields of tiles are not supplied: squares of the matrix contain whole tiles, and blocks of lanes
// compute their fields. nullopt if the machine has no waves, or squares do not suit them.
std::optional<Synthesis> encode_squares(const graph::Plan& plan, const graph::Group& group,
                                        const machine::Machine& target);
bool has_map(const graph::Plan& plan, const graph::Group& group);

// A load of the group, written densely into a scratch buffer.
Step copy_to_scratch(const graph::Plan& plan, const graph::Group& group, graph::ValueId v, int scratch,
                     const machine::Machine& target, Scalar type = Scalar::f32);

// A field whose values are given rather than fitted: f32, one per entry and record of its level, row-major.
struct SuppliedValues {
  int field = 0;
  BufferId buffer = -1;
};

// How much errors of single values count, for formats with fit(x, w): f32, one for each column or for each element.
enum class Importance : uint8_t { none, columns, elements };

// Input and output of an encoding.
struct EncodeOperands {
  int64_t rows = 0, columns = 0;
  BufferId x = -1, blob = -1;
  Scalar x_type = Scalar::f32;  // or a 16-bit float
  std::vector<SuppliedValues> supplied;
  Importance importance = Importance::none;
  BufferId weights = -1;

  // The fit of a level: the weighted one where importance is given and the format has one.
  const std::optional<Routine>& fit(const Format& f, Level level) const;
  bool weighs(const Format& f, Level level) const;
  // Numbers of x from one on, as f32; `align`: of that number, in elements.
  Expr values(Builder& b, Expr first, int lanes = 1, int align = 1) const;
  Expr weight(Builder& b, Expr row, Expr column) const;  // of one element
};

// The place of a record's values in x: `high` rows of `wide` columns, which are numbered row by row.
struct RecordPlace {
  Expr row, column, high, wide;
  Expr element(Expr index, int64_t columns) const;
};
RecordPlace record_place(Builder& b, const Format& f, Level level, const EncodeOperands& given, Expr record);

// Fields of one record level above the block (row, tile, tensor): fitted or supplied. One kernel.
void encode_level(Builder& b, const Format& f, Level level, const EncodeOperands& given);
// The hooks of a fit for the record that begins at `base`; `once` runs code that sets fields on one lane.
RoutineHooks level_hooks(Builder& b, const Format& f, Level level, const EncodeOperands& given,
                         const RecordPlace& place, Expr base,
                         const std::function<void(const std::function<void()>&)>& once);
// The data section, and zeros between sections. One kernel.
void encode_blocks(Builder& b, const Format& f, const EncodeOperands& given, const machine::Machine& target);
// Bytes between sections become zero.
void clear_between(Builder& b, const Format& f, const EncodeOperands& given);
bool is_supplied(const std::vector<SuppliedValues>& supplied, int field);
int64_t record_count(const Format& f, Level level, int64_t rows, int64_t columns);
// Zeroes bytes `from` to `to` after `base`; no value: of the buffer.
void clear_bytes(Builder& b, BufferId buffer, int64_t from, int64_t to, Expr base = {});

}  // namespace lumen::synth
