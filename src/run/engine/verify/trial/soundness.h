// Finds whether a device agrees with the evaluator, and with which rows of its machine's table: rows that compute
// wrongly are removed until the rest is correct. Proved by tests/run/engine/verify/trial/soundness_test.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernel/machine/without_row.h"
#include "run/engine/verify/trial/trial.h"

namespace lumen::run {

struct RefusedRow {
  std::string row, why;  // why: the trial that failed, and how
};

struct Soundness {
  std::vector<CheckLine> lines;      // for the final table
  std::vector<RefusedRow> refused;   // in the order of refusal
  std::string wrong;                 // an error that no row explains; empty: none
  bool whole = true;                 // everything could be compiled and launched
  machine::MachineRef machine = {};  // without the refused rows; null: none was refused
};

std::vector<Trial> trials_for(const machine::Machine& machine, TrialDepth depth, int threads = 1);
// A line for each row of the table that no kernel in `lines` uses.
std::vector<CheckLine> rows_not_chosen(const machine::Machine& machine, const std::vector<CheckLine>& lines);

// `open`: the device with another table.
using OpenMachine = std::function<CompileContext(machine::MachineRef)>;
Soundness find_soundness(const CompileContext& context, std::vector<Trial> trials, const OpenMachine& open);

}  // namespace lumen::run
