// Scores of weights as a file of a work folder: a run that was ended does not score again.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/arch/model.h"
#include "model/compress/score/weight_scores.h"

namespace lumen::model {

// What the scores are of: other files, texts, formats or options give another key.
std::string score_key(const std::string& source, const Model& model, const std::vector<std::string>& names,
                      const std::vector<FormatRef>& candidates, std::span<const TokenId> text,
                      const ScoreOptions& options);
void write_scores(const std::filesystem::path& file, const std::string& key, const std::vector<WeightScore>& scores);
// Nothing where there is no file, or one of another key, or a broken one.
std::optional<std::vector<WeightScore>> read_scores(const std::filesystem::path& file, const std::string& key,
                                                    const FormatLibrary& formats);

}  // namespace lumen::model
