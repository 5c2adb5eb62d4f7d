// The table of models/checkpoints.toml: how checkpoints hold rounded weights, for those who read and those who write.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/structured/toml.h"
#include "number/library/library.h"

namespace lumen::model {

struct Scheme {
  struct Field {
    std::string field, tensor, also, packed, map, scale, offset, steps, type;
    std::vector<std::string> axes;
    std::vector<int64_t> order;
    int64_t add = 0, per = 0, last = 0;
    double times = 0;  // 0: none
    bool whole = false, scalar = false, constant = false;
  };
  // A tensor that carries nothing a weight needs, but that readers ask for.
  struct Extra {
    std::string tensor, type, holds, text;
    std::vector<double> values;
    bool scalar = false;
  };
  // A word of the config that depends on the weights.
  struct Word {
    std::string word, block, row, tile, tensor, fixed;
  };

  std::string name, format, weight, bits;
  std::vector<std::string> when, ignore, trivial;
  bool unturned = false;
  bool float_experts = false;  // readers hold experts as one stack of floats
  bool for_inputs = false;     // written only where something is said of what products read
  std::vector<Field> fields;
  // For writing; `outputs` is empty where that is not described.
  std::vector<std::string> outputs;
  std::string config, left, pattern;
  std::vector<std::string> modules;
  std::vector<int64_t> sizes;
  std::vector<Word> words;
  std::vector<Extra> extras;

  bool is_written_by(const std::string& output) const;
};

const std::vector<Scheme>& schemes();
// All tables of models/checkpoints.toml of one kind.
std::vector<Toml> checkpoint_tables(std::string_view kind);

// "a.*.b" through objects; * is the one member. Null when there is none, or it is null.
const nlohmann::json* find_in(const nlohmann::json& object, const std::string& path);
// A value as conditions write it; the empty word for none.
std::string word_of(const nlohmann::json* value);
bool holds_conditions(const nlohmann::json& quantization_config, const std::vector<std::string>& conditions);
bool describes(const Scheme& scheme, const nlohmann::json& quantization_config);

// `text` with `value` wherever it has `name`.
std::string filled(std::string text, const std::string& name, const std::string& value);
// A table of the language: "[0.5, 1.0]".
std::string table_text(std::span<const float> values);
// The format that the text of a scheme, with all its words filled in, names or defines.
FormatRef format_of_scheme(const FormatLibrary& formats, const std::string& file, const std::string& text);

}  // namespace lumen::model
