// The table of models/checkpoints.toml: layouts of quantized weights in checkpoints, for readers and writers.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/structured/toml.h"
#include "number/library/library.h"

namespace lumen::model::arch {

struct Scheme {
  struct Field {
    std::string field, tensor, also, packed, map, scale, offset, steps, type;
    std::vector<std::string> axes;
    std::vector<int64_t> order;
    int64_t add = 0, per = 0, last = 0;
    double times = 0;  // 0: none
    bool whole = false, scalar = false, constant = false;
  };
  // A tensor that readers require, but that holds no data of the weight.
  struct Extra {
    std::string tensor, type, holds, text;
    std::vector<double> values;
    bool scalar = false;
  };
  // A placeholder in the config that depends on the weights.
  struct Word {
    std::string word, block, row, tile, tensor, fixed;
  };

  std::string name, format, weight, bits;
  std::vector<std::string> when, ignore, trivial;
  bool unturned = false;
  bool float_experts = false;  // readers store experts as one stack of floats
  bool for_inputs = false;     // written only with quantized inputs
  std::vector<Field> fields;
  // For writing; `outputs` is empty for schemes that are only read.
  std::vector<std::string> outputs;
  std::string config, left, pattern;
  std::vector<std::string> modules;
  std::vector<int64_t> sizes;
  std::vector<Word> words;
  std::vector<Extra> extras;

  bool is_written_by(const std::string& output) const;
};

const std::vector<Scheme>& schemes();
// All tables of one kind in models/checkpoints.toml.
std::vector<Toml> checkpoint_tables(std::string_view kind);

// "a.*.b" through objects; * is the only member. Null when there is none, or it is null.
const nlohmann::json* find_in(const nlohmann::json& object, const std::string& path);
// A value in the syntax of conditions; "" for none.
std::string word_of(const nlohmann::json* value);
bool holds_conditions(const nlohmann::json& quantization_config, const std::vector<std::string>& conditions);
bool describes(const Scheme& scheme, const nlohmann::json& quantization_config);

// Replaces `name` by `value` everywhere in `text`.
std::string filled(std::string text, const std::string& name, const std::string& value);
// A table in the language's syntax: "[0.5, 1.0]".
std::string table_text(std::span<const float> values);
// The format that a scheme's text, with all placeholders replaced, names or defines.
FormatRef format_of_scheme(const FormatLibrary& formats, const std::string& file, const std::string& text);

}  // namespace lumen::model::arch
