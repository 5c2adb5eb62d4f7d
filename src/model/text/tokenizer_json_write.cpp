// A tokenizer as tokenizer.json, such as other programs read.
#include "model/file/json.h"
#include "model/text/tokenizer_parts.h"

namespace lumen::model {
namespace {

using nlohmann::ordered_json;

const char* behavior_name(SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::isolated:
      return "Isolated";
    case SplitBehavior::removed:
      return "Removed";
    case SplitBehavior::merged_with_previous:
      return "MergedWithPrevious";
    case SplitBehavior::merged_with_next:
      return "MergedWithNext";
    case SplitBehavior::contiguous:
      return "Contiguous";
  }
  return "";
}

ordered_json write_split(std::vector<SplitStep> steps) {
  // ByteLevel closes the list and can take the last pattern and the prefixed space upon itself.
  ordered_json level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  if (!steps.empty() && steps.back() == SplitStep{.pattern = pretokenizers().byte_level}) {
    level["use_regex"] = true;
    steps.pop_back();
  }
  if (!steps.empty() && steps.back().kind == SplitStep::Kind::prefix_space) {
    level["add_prefix_space"] = true;
    steps.pop_back();
  }
  if (steps.empty()) return level;
  ordered_json list = ordered_json::array();
  for (const SplitStep& step : steps) {
    const char* kind = step.kind == SplitStep::Kind::literal ? "String" : "Regex";
    list.push_back({{"type", "Split"},
                    {"pattern", {{kind, step.pattern}}},
                    {"behavior", behavior_name(step.behavior)},
                    {"invert", step.invert}});
  }
  list.push_back(level);
  return {{"type", "Sequence"}, {"pretokenizers", list}};
}

ordered_json write_post(const TokenizerParts& p) {
  if (p.prefix.empty() && p.suffix.empty()) return nullptr;
  ordered_json single = ordered_json::array(), special = ordered_json::object();
  const auto put = [&](TokenId id) {
    const std::string& text = p.tokens[id];
    single.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
    special[text] = {{"id", text}, {"ids", {id}}, {"tokens", {text}}};
  };
  for (const TokenId id : p.prefix) put(id);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  for (const TokenId id : p.suffix) put(id);
  ordered_json pair = single;
  for (const ordered_json& item : single) {
    ordered_json second = item;
    for (auto& [key, value] : second.items()) {
      value["type_id"] = 1;
      if (key == "Sequence") value["id"] = "B";
    }
    pair.push_back(second);
  }
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
}

}  // namespace

std::string Tokenizer::to_json() const {
  const TokenizerParts& p = *parts_;
  ordered_json added = ordered_json::array();
  for (const AddedTokens* tokens : {&p.added_raw, &p.added_normalized}) {
    for (const AddedToken& t : tokens->all()) {
      added.push_back({{"id", t.id},
                       {"content", t.content},
                       {"single_word", t.single_word},
                       {"lstrip", t.strip_left},
                       {"rstrip", t.strip_right},
                       {"normalized", t.normalized},
                       {"special", t.control}});
    }
  }
  std::sort(added.begin(), added.end(), [](const auto& a, const auto& b) { return a["id"] < b["id"]; });

  // Readers number added tokens behind the model's unless the model has them; so it has those that lie between its own.
  size_t last = 0;
  for (size_t i = 0; i < p.tokens.size(); ++i) {
    if (!p.verbatim[i] && !p.tokens[i].empty()) last = i;
  }
  ordered_json vocabulary = ordered_json::object();
  nlohmann::ordered_json::object_t entries;
  for (size_t i = 0; i < p.tokens.size(); ++i) {
    if (p.tokens[i].empty() || (p.verbatim[i] && i > last)) continue;
    entries.std::vector<std::pair<const std::string, ordered_json>>::emplace_back(p.tokens[i], i);
  }
  vocabulary = std::move(entries);
  ordered_json merges = ordered_json::array();
  for (const auto& [left, right] : p.merges) merges.push_back({left, right});
  const ordered_json unknown = p.unknown ? ordered_json(p.tokens[*p.unknown]) : ordered_json(nullptr);

  ordered_json root = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", p.nfc ? ordered_json{{"type", "NFC"}} : ordered_json(nullptr)},
      {"pre_tokenizer", write_split(p.splitter.steps())},
      {"post_processor", write_post(p)},
      {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", unknown},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", p.ignore_merges},
        {"vocab", std::move(vocabulary)},
        {"merges", std::move(merges)}}}};
  return root.dump(2);
}

std::string Tokenizer::to_config_json() const {
  const TokenizerParts& p = *parts_;
  ordered_json root = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  if (p.bos) root["bos_token"] = p.tokens[*p.bos];
  if (p.eos) root["eos_token"] = p.tokens[*p.eos];
  root["add_bos_token"] = !p.prefix.empty();
  if (!p.chat_template.empty()) root["chat_template"] = p.chat_template;
  return root.dump(2);
}

}  // namespace lumen::model
