#include "model/file/hub/choose.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "base/error.h"

namespace lumen::model::file {
namespace {

constexpr std::string_view kGguf = ".gguf";
constexpr std::string_view kSafetensors = ".safetensors";
constexpr size_t kSplitSuffix = std::string_view("-00001-of-00002").size();
constexpr size_t kMostLabels = 40;  // in a message

// Bits of a weight in the order of preference where a name selects no quantization: good quality per byte first, then
// larger files, then smaller ones. Of the same bits, the endings of names of k-quants in this order, then any other.
constexpr int kUsualBits[] = {4, 5, 6, 8, 3, 16, 2, 32, 1};
constexpr std::string_view kUsualEndings[] = {"_K_M", "_K_S", "_K_XL", "_K_L", "_K"};

// Files of a model in safetensors other than its weights.
constexpr std::string_view kOfModel[] = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tekken.json",
    "spiece.model",
    "chat_template.jinja",
    "chat_template.json",
    "adapter_config.json",
    "quantize_config.json",
    "modules.json",
    "1_Pooling/config.json",
    "quant_config.json",
    "hf_quant_config.json",
    "recipe.toml",
    "sentencepiece.bpe.model",
    "model.safetensors.index.json",
};

std::string_view last_component(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

// The numbers N and COUNT of "-N-of-COUNT", each of five digits, at the end of a stem.
bool split_numbers(std::string_view stem, int* number, int* count) {
  if (stem.size() <= kSplitSuffix) return false;
  const std::string_view end = stem.substr(stem.size() - kSplitSuffix);
  if (end[0] != '-' || end.substr(6, 4) != "-of-") return false;
  const auto read = [](std::string_view digits, int* value) {
    const auto [stop, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), *value);
    return failure == std::errc() && stop == digits.data() + digits.size();
  };
  return read(end.substr(1, 5), number) && read(end.substr(10, 5), count) && *number >= 1 && *count >= *number;
}

std::string in_capitals(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'a' && c <= 'z') c = char(c - 'a' + 'A');
  return out;
}

// The bits of a weight that a quantization's name in capitals has: 4 of Q4_K_M, 16 of BF16; 0 for other words.
int bits_of(std::string_view word) {
  size_t letters = 0;
  while (letters < word.size() && word[letters] >= 'A' && word[letters] <= 'Z') ++letters;
  const std::string_view kind = word.substr(0, letters);
  const bool is_integer = kind == "Q" || kind == "IQ" || kind == "TQ";
  const bool is_float = kind.size() <= 4 && (kind.ends_with("F") || kind.ends_with("FP"));
  if (!is_integer && !is_float) return 0;
  int bits = 0;
  const auto [stop, failure] = std::from_chars(word.data() + letters, word.data() + word.size(), bits);
  const bool ends = stop == word.data() + word.size() || *stop == '_';
  return failure == std::errc() && ends && bits <= 64 ? bits : 0;
}

bool is_quantization(std::string_view word) {
  return bits_of(word) > 0;
}

std::string label_of(std::string_view stem) {
  const size_t cut = stem.find_last_of("-.");
  if (cut == std::string_view::npos) return is_quantization(in_capitals(stem)) ? in_capitals(stem) : std::string(stem);
  const std::string word = in_capitals(stem.substr(cut + 1));
  if (!is_quantization(word)) return std::string(stem);
  return in_capitals(stem.substr(0, cut)).ends_with("-UD") ? "UD-" + word : word;
}

bool is_model_gguf(std::string_view path) {
  const std::string name = in_lower_case(last_component(path));
  return name.ends_with(kGguf) && name.find("mmproj") == std::string::npos && !name.ends_with("imatrix.gguf");
}

std::string listed(const std::vector<GgufSet>& sets) {
  std::string out;
  for (size_t i = 0; i < sets.size() && i < kMostLabels; ++i) out += (i == 0 ? "" : ", ") + sets[i].label;
  return sets.size() > kMostLabels ? out + ", .." : out;
}

// The only set that `fits`; null where none or several do.
template <class Fits>
const GgufSet* only_one(const std::vector<GgufSet>& sets, const Fits& fits) {
  const GgufSet* found = nullptr;
  for (const GgufSet& set : sets) {
    if (!fits(set)) continue;
    if (found) return nullptr;
    found = &set;
  }
  return found;
}

std::string_view without_prefix(std::string_view label) {
  return label.substr(label.starts_with("UD-") ? 3 : 0);
}

// The first by the order of preference; null where no name has a quantization.
const GgufSet* usual_one(const std::vector<GgufSet>& sets) {
  const GgufSet* best = nullptr;
  std::pair<ptrdiff_t, ptrdiff_t> least;
  for (const GgufSet& set : sets) {
    const std::string_view label = without_prefix(set.label);
    const auto* const bits = std::ranges::find(kUsualBits, bits_of(label));
    if (bits == std::end(kUsualBits)) continue;
    const auto* const ending =
        std::ranges::find_if(kUsualEndings, [&](std::string_view one) { return label.ends_with(one); });
    const std::pair rank(bits - kUsualBits, ending - kUsualEndings);
    if (best && rank >= least) continue;
    best = &set;
    least = rank;
  }
  return best;
}

const GgufSet* chosen(const std::vector<GgufSet>& sets, const HubName& name) {
  if (!name.file.empty()) {
    return only_one(sets,
                    [&](const GgufSet& set) { return std::ranges::find(set.files, name.file) != set.files.end(); });
  }
  if (!name.part.empty()) {
    const std::string part = in_lower_case(name.part);
    const auto has_label = [&](const GgufSet& set) { return in_lower_case(set.label) == part; };
    if (const GgufSet* one = only_one(sets, has_label)) return one;
    return only_one(sets,
                    [&](const GgufSet& set) { return in_lower_case(set.files[0]).find(part) != std::string::npos; });
  }
  if (sets.size() == 1) return sets.data();
  return usual_one(sets);
}

}  // namespace

std::string GgufSet::type() const {
  return is_quantization(without_prefix(label)) ? label : "GGUF";
}

std::vector<GgufSet> gguf_sets(const FileNames& files) {
  std::map<std::pair<std::string, int>, std::map<int, std::string>> parts;  // by stem and count; each by its number
  for (const std::string& file : files) {
    if (!is_model_gguf(file)) continue;
    std::string stem = file.substr(0, file.size() - kGguf.size());
    int number = 1, count = 1;
    if (split_numbers(stem, &number, &count)) stem.resize(stem.size() - kSplitSuffix);
    parts[{stem, count}].emplace(number, file);
  }
  std::vector<GgufSet> out;
  for (const auto& [key, by_number] : parts) {
    GgufSet& set = out.emplace_back(GgufSet{label_of(last_component(key.first)), {}, key.second});
    for (const auto& [number, file] : by_number) set.files.push_back(file);
  }
  return out;
}

GgufSet choose_gguf(const std::vector<GgufSet>& sets, const HubName& name) {
  const GgufSet* const set = chosen(sets, name);
  const std::string hint =
      fmt::format("name one of them, as in {}:{}", name.repository(), sets.empty() ? "Q4_K_M" : sets.front().label);
  if (!set && !name.file.empty())
    throw Error(Exit::user, fmt::format("'{}' has no file {}; it has {}", name.repository(), name.file, listed(sets)),
                hint);
  if (!set && !name.part.empty())
    throw Error(
        Exit::user,
        fmt::format("'{}' does not select one file of '{}', which has {}", name.part, name.repository(), listed(sets)),
        hint);
  if (!set) throw Error(Exit::user, fmt::format("'{}' has several models: {}", name.repository(), listed(sets)), hint);
  if (!set->is_whole())
    throw Error(Exit::user,
                fmt::format("'{}' has only {} of the {} parts of {}", name.repository(), set->files.size(), set->parts,
                            set->files[0]),
                fmt::format("`lumen pull {}` completes a model of the cache", name.text()));
  return *set;
}

FileNames safetensors_files(const FileNames& files) {
  FileNames weights, out;
  for (const std::string& file : files)
    if (file.ends_with(kSafetensors) && file.find('/') == std::string::npos && !file.starts_with("consolidated"))
      weights.push_back(file);
  // A file named model.safetensors or its parts are the weights; other files next to them are other things.
  const auto is_main = [](const std::string& file) { return file.starts_with("model"); };
  if (std::ranges::any_of(weights, is_main)) std::erase_if(weights, [&](const auto& file) { return !is_main(file); });
  const bool has_index = std::ranges::find(files, "model.safetensors.index.json") != files.end();
  if (has_index && std::ranges::any_of(weights, [](const auto& file) { return file.starts_with("model-"); }))
    std::erase(weights, "model.safetensors");
  if (weights.empty()) return {};
  for (const std::string& file : files)
    if (std::ranges::find(kOfModel, file) != std::end(kOfModel) || file.ends_with(".tiktoken")) out.push_back(file);
  out.insert(out.end(), weights.begin(), weights.end());
  return out;
}

}  // namespace lumen::model::file
