// What another program computed in each part of a model, and where our result first differs from it: for the authors
// of families. Recordings are made by tools/record_model.py, which describes their form. This code is independent of
// the model family: modules are matched with parameters by the names of parameters in files, layers by their labels.
// Proved by tests/model/infer/recorded.
//
// May include: base, base/file, base/structured, model/arch, model/arch/checkpoint, model/file, model/infer/session,
// run/engine.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "model/arch/model.h"
#include "model/file/safetensors.h"
#include "run/engine/engine.h"

namespace lumen::model::infer {

struct RecordedModule {
  std::string name;
  int64_t layer = -1;  // its number, if the module is a whole layer
};

struct Recording {
  std::filesystem::path model;  // the folder of the recorded model
  std::string program, kind;    // such as "transformers 5.24.0", and the model's class
  int64_t sequences = 0, tokens = 0, layers = 0;
  bool has_logits = false;
  std::vector<RecordedModule> modules;  // in the order in which they finish
  std::shared_ptr<const file::SafetensorsFile> outputs;
};

// Error if the folder has no recording, or one that contradicts itself.
Recording read_recording(const std::filesystem::path& folder, const FormatLibrary& formats);

// One output, there and here. A whole layer, the embedding and the result are stages; other rows are parts of them.
struct ComparedOutput {
  std::string theirs, ours;  // name of the module; label or parameter in the family's text
  bool is_stage = false;
  double range = 0;  // of the recorded output: largest minus smallest value
  double error = 0;  // largest difference, in units of the range; infinite where ours is not finite
};

struct FamilyCheck {
  std::vector<ComparedOutput> outputs;  // in the order of the recording
  // Index of the first stage whose error is above the bound, and of the first part that explains it: in the first such
  // stage, or the stage itself. -1 where everything agrees.
  int stage = -1, cause = -1;
};

inline constexpr double kRecordedBound = 2e-5;  // allowed error of every output

// Computes the recorded sequences with the model. Error if the family has no function for them, or if its shapes differ
// from the recorded ones.
FamilyCheck check_family(run::Engine& engine, const arch::Model& model, const Recording& recording,
                         double bound = kRecordedBound);

// The table of a check, and a last line that says what differs first.
std::string print(const FamilyCheck& check, double bound = kRecordedBound);

}  // namespace lumen::model::infer
