// Scores of weights in a sealed file of a work folder: a resumed run does not score again. Proved by
// tests/model/compress/score/score_file_test.cpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/sealed/sealed.h"
#include "model/arch/model.h"
#include "model/compress/score/weight_scores.h"

namespace lumen::model::compress {

// A key of the scores' inputs: it changes with files, texts, formats or options.
std::string score_key(const std::string& source, const arch::Model& model, const std::vector<std::string>& names,
                      const std::vector<FormatRef>& candidates, std::span<const text::TokenId> text,
                      const ScoreOptions& options);
// `name`: file name in the folder.
void write_scores(SealedFolder& folder, const std::string& name, const std::string& key,
                  const std::vector<WeightScore>& scores);
// nullopt where there is no file, or its key differs; a broken file is a warning.
std::optional<std::vector<WeightScore>> read_scores(SealedFolder& folder, const std::string& name,
                                                    const std::string& key, const FormatLibrary& formats);

}  // namespace lumen::model::compress
