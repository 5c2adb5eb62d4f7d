// Whether a device computes what the evaluator says, and with which rows of its machine's table: rows that compute
// wrongly are taken out of the table until the rest is right. Proved by tests/run/engine/trial/soundness_test.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernel/machine/without_row.h"
#include "run/engine/trial/trial.h"

namespace lumen::run {

struct RefusedRow {
  std::string row, why;  // why: the trial that failed, and how
};

struct Soundness {
  std::vector<CheckLine> lines;      // of the table as it is in the end
  std::vector<RefusedRow> refused;   // in the order in which they were
  std::string wrong;                 // what is wrong without any row that could be refused; empty: all is well
  bool whole = true;                 // everything could be compiled and launched
  machine::MachineRef machine = {};  // without the refused rows; null: none was refused
};

std::vector<Trial> trials_for(const machine::Machine& machine, TrialDepth depth, int threads = 1);
// A line for each row of the table that no kernel of these had.
std::vector<CheckLine> rows_not_chosen(const machine::Machine& machine, const std::vector<CheckLine>& lines);

// `open`: the device with another table.
using OpenMachine = std::function<CompileContext(machine::MachineRef)>;
Soundness find_soundness(const CompileContext& context, std::vector<Trial> trials, const OpenMachine& open);

}  // namespace lumen::run
