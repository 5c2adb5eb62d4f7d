// How a product is computed, as a value: loops by level, where each operand is multiplied from, who converts or unpacks
// it, the instruction, and where sums are kept. Families start from a row of defaults (bid/families.def), a plan fills
// in its numbers, and every bid states the result. Kernels of processors are written from it (cpu/product_writer.h).
// Proved by tests/kernel/synth/gemm/cpu/product_schedule_test.cpp.
#pragma once

#include <string>

#include "kernel/synth/gemm/choose.h"

namespace lumen::synth {

struct ProductSchedule : TileCut {
  // Tasks of a processor; waves of a GPU, with a group of columns each; its thread blocks.
  enum class Workers : uint8_t { tasks, waves, blocks };
  enum class Place : uint8_t {
    memory,   // as the program stores it
    scratch,  // as an earlier step has laid it out
    panel,    // of a task, in its private memory
    shared,   // memory of a block
    registers,
  };
  // Who converts or unpacks an operand: an earlier step, the task as it fills a panel, the lanes of a block as they do,
  // or whoever multiplies, in registers.
  enum class By : uint8_t { none, step, task, lanes, product };
  struct Operand {
    Place place = Place::memory;
    By by = By::none;
    int64_t stages = 1;  // of K that are there, or on their way, at once
    friend bool operator==(const Operand&, const Operand&) = default;
  };

  Workers workers = Workers::tasks;
  Operand a, b;
  Place sums = Place::registers;
  int lanes = 1;              // columns of each of the tile's `vectors`
  bool is_by_column = false;  // tasks count columns, not tiles of them: kernels of few rows
  int64_t outer = 1;          // indices
  int64_t slices = 1;         // of an outer index, counted fastest: m_task slices of rows (DotProblem::in_slices) each
  int64_t splits = 1;         // of K, whose sums a later step adds
  std::string instruction = {};

  // The same with the loops of a plan.
  ProductSchedule with(const TileCut& cut, int lanes_of_vector, const DotProblem& p) const;
  ProductSchedule with(const RowsPlan& t, const DotProblem& p) const;
  // .. of blocks, each with a tile of so many rows and columns.
  struct Blocks {
    int64_t rows = 1, columns = 1, m_tiles = 1, n_tiles = 1;
    int64_t stage_k = 1, stages = 1;
    int64_t a_stages = 1, b_stages = 1;  // Operand::stages
  };
  ProductSchedule with(const Blocks& t, const DotProblem& p) const;
  // .. with an instruction.
  ProductSchedule with(std::string row) const;

  int64_t columns() const { return int64_t{vectors} * lanes; }  // of a tile
  // "tasks 1x4x8 of 48x64, stages 3x512, tile 6x16 f32 fma, a memory, b panel by task, sums registers"; tasks by outer
  // index, rows and columns.
  std::string text() const;
};

}  // namespace lumen::synth
