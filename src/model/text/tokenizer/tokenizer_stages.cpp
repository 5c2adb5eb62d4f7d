// Creates a tokenizer's stages from tokenizer.json. Unsupported settings are an Error.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/structured/base64.h"
#include "model/text/tokenizer/tokenizer_parts.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::text {
namespace {

using nlohmann::json;

constexpr size_t kMaxSteps = 32;

Error unsupported(const std::string& where, const std::string& what) {
  return Error(Exit::user, fmt::format("{}: {} is not supported", where, what),
               "the tokenizers of common models are supported");
}

bool absent(const json& object, const char* key) {
  const auto at = object.find(key);
  return at == object.end() || at->is_null();
}

const json& short_list(const json& node, const char* key, const std::string& where) {
  const json& list = json_member(node, key, where);
  if (!list.is_array() || list.size() > kMaxSteps) throw user_error("{}: a Sequence without a short list", where);
  return list;
}

size_t small_number(const json& node, const char* key, const std::string& where) {
  const int64_t n = absent(node, key) ? 0 : json_integer(node, key, where);
  if (n < 0 || n > 1 << 20) throw user_error("{}: \"{}\" is out of range", where, key);
  return n;
}

// {"String": text} or {"Regex": text}.
std::shared_ptr<const Pattern> read_pattern(const json& node, const std::string& where) {
  const json& pattern = json_member(node, "pattern", where);
  if (pattern.is_object() && pattern.contains("String"))
    return std::make_shared<Pattern>(Pattern::literal(json_text(pattern, "String", where)));
  return std::make_shared<Pattern>(json_text(pattern, "Regex", where), where);
}

void read_normal(const json& node, const std::string& where, std::vector<NormalStep>& steps) {
  using Kind = NormalStep::Kind;
  if (node.is_null()) return;
  if (steps.size() > 4 * kMaxSteps) throw user_error("{}: too many normalizer steps", where);
  const std::string type = json_text(node, "type", where);
  constexpr std::pair<std::string_view, Kind> kPlain[] = {{"NFC", Kind::nfc},
                                                          {"NFD", Kind::nfd},
                                                          {"NFKC", Kind::nfkc},
                                                          {"NFKD", Kind::nfkd},
                                                          {"Lowercase", Kind::lowercase},
                                                          {"StripAccents", Kind::strip_accents},
                                                          {"Nmt", Kind::nmt},
                                                          {"ByteLevel", Kind::alphabet}};
  for (const auto& [name, kind] : kPlain) {
    if (type == name) {
      steps.push_back({.kind = kind});
      return;
    }
  }
  if (type == "Sequence") {
    for (const json& entry : short_list(node, "normalizers", where)) read_normal(entry, where, steps);
  } else if (type == "Strip") {
    steps.push_back({.kind = Kind::strip,
                     .left = json_boolean(node, "strip_left", true, where),
                     .right = json_boolean(node, "strip_right", true, where)});
  } else if (type == "Prepend") {
    steps.push_back({.kind = Kind::prepend, .text = json_text(node, "prepend", where)});
  } else if (type == "Replace") {
    steps.push_back(
        {.kind = Kind::replace, .text = json_text(node, "content", where), .pattern = read_pattern(node, where)});
  } else if (type == "Precompiled") {
    if (absent(node, "precompiled_charsmap")) return;
    const std::string blob = decode_base64(json_text(node, "precompiled_charsmap", where), where);
    if (blob.empty()) return;
    steps.push_back(
        {.kind = json_boolean(node, "longest_prefix", false, where) ? Kind::map_prefixes : Kind::map_graphemes,
         .map = std::make_shared<CharacterMap>(blob, where)});
  } else if (type == "BertNormalizer") {
    const bool lowercase = json_boolean(node, "lowercase", true, where);
    if (json_boolean(node, "clean_text", true, where)) steps.push_back({.kind = Kind::clean});
    if (json_boolean(node, "handle_chinese_chars", true, where)) steps.push_back({.kind = Kind::pad_ideographs});
    if (json_boolean(node, "strip_accents", lowercase, where)) {
      steps.push_back({.kind = Kind::nfd});
      steps.push_back({.kind = Kind::strip_nonspacing});
    }
    if (lowercase) steps.push_back({.kind = Kind::lowercase});
  } else {
    throw unsupported(where, "the normalizer '" + type + "'");
  }
}

SplitBehavior read_behavior(const std::string& name, const std::string& where) {
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  throw unsupported(where, "the split behaviour '" + name + "'");
}

constexpr const char* kPunctuation = "[!-/:-@\\[-`{-~\\p{P}]";

void read_split(const json& node, const std::string& where, std::vector<SplitStep>& steps) {
  using Kind = SplitStep::Kind;
  if (node.is_null()) return;
  if (steps.size() > kMaxSteps) throw user_error("{}: too many pre-tokenizer steps", where);
  const std::string type = json_text(node, "type", where);
  if (type == "Sequence") {
    for (const json& entry : short_list(node, "pretokenizers", where)) read_split(entry, where, steps);
  } else if (type == "Split") {
    SplitStep step;
    const json& pattern = json_member(node, "pattern", where);
    const bool literal = pattern.is_object() && pattern.contains("String");
    step.kind = literal ? Kind::literal : Kind::pattern;
    step.pattern = json_text(pattern, literal ? "String" : "Regex", where);
    step.behavior = read_behavior(json_text(node, "behavior", where), where);
    step.invert = json_boolean(node, "invert", false, where);
    steps.push_back(std::move(step));
  } else if (type == "CharDelimiterSplit") {
    steps.push_back(
        {.kind = Kind::literal, .pattern = json_text(node, "delimiter", where), .behavior = SplitBehavior::removed});
  } else if (type == "Digits") {
    const bool single = json_boolean(node, "individual_digits", false, where);
    steps.push_back({.pattern = single ? "\\p{N}" : "\\p{N}+"});
  } else if (type == "Punctuation") {
    SplitStep step{.pattern = kPunctuation};
    if (!absent(node, "behavior")) step.behavior = read_behavior(json_text(node, "behavior", where), where);
    steps.push_back(std::move(step));
  } else if (type == "Whitespace") {
    steps.push_back({.pattern = "\\w+|[^\\w\\s]+", .behavior = SplitBehavior::removed, .invert = true});
  } else if (type == "WhitespaceSplit") {
    steps.push_back({.pattern = "\\s+", .behavior = SplitBehavior::removed});
  } else if (type == "BertPreTokenizer") {
    steps.push_back({.pattern = "\\s+", .behavior = SplitBehavior::removed});
    steps.push_back({.pattern = kPunctuation});
  } else if (type == "FixedLength") {
    steps.push_back({.kind = Kind::fixed_length, .length = small_number(node, "length", where)});
  } else if (type == "Metaspace") {
    SplitStep step{.kind = Kind::metaspace, .pattern = json_text(node, "replacement", where)};
    step.cut = json_boolean(node, "split", true, where);
    if (!absent(node, "prepend_scheme")) {
      const std::string scheme = json_text(node, "prepend_scheme", where);
      if (scheme != "always" && scheme != "first" && scheme != "never")
        throw unsupported(where, "the prepend_scheme '" + scheme + "'");
      step.prepend = scheme == "always"  ? SplitStep::Prepend::always
                     : scheme == "first" ? SplitStep::Prepend::first
                                         : SplitStep::Prepend::never;
    } else if (!json_boolean(node, "add_prefix_space", true, where)) {
      step.prepend = SplitStep::Prepend::never;
    }
    steps.push_back(std::move(step));
  } else if (type == "ByteLevel") {
    if (json_boolean(node, "add_prefix_space", false, where))
      steps.push_back({.kind = Kind::prefix_space, .pattern = ""});
    if (json_boolean(node, "use_regex", true, where)) steps.push_back({.pattern = pretokenizers().byte_level});
    steps.push_back({.kind = Kind::alphabet, .pattern = ""});
  } else {
    throw unsupported(where, "the pre-tokenizer '" + type + "'");
  }
}

void read_decode(const json& node, const std::string& where, std::vector<DecodeStep>& steps) {
  using Kind = DecodeStep::Kind;
  if (steps.size() > kMaxSteps) throw user_error("{}: too many decoder steps", where);
  const std::string type = json_text(node, "type", where);
  if (type == "Sequence") {
    for (const json& entry : short_list(node, "decoders", where)) read_decode(entry, where, steps);
  } else if (type == "ByteLevel") {
    steps.push_back({.kind = Kind::alphabet});
  } else if (type == "ByteFallback") {
    steps.push_back({.kind = Kind::byte_fallback});
  } else if (type == "Fuse") {
    steps.push_back({.kind = Kind::fuse});
  } else if (type == "Strip") {
    steps.push_back({.kind = Kind::strip,
                     .text = json_text(node, "content", where),
                     .start = small_number(node, "start", where),
                     .stop = small_number(node, "stop", where)});
  } else if (type == "Replace") {
    steps.push_back(
        {.kind = Kind::replace, .text = json_text(node, "content", where), .pattern = read_pattern(node, where)});
  } else if (type == "Metaspace") {
    const bool never = absent(node, "prepend_scheme") ? !json_boolean(node, "add_prefix_space", true, where)
                                                      : json_text(node, "prepend_scheme", where) == "never";
    steps.push_back({.kind = Kind::metaspace, .text = json_text(node, "replacement", where), .drop_first = !never});
  } else if (type == "WordPiece") {
    steps.push_back({.kind = Kind::word_piece,
                     .text = json_text(node, "prefix", where),
                     .cleanup = json_boolean(node, "cleanup", true, where)});
  } else if (type == "BPEDecoder") {
    steps.push_back({.kind = Kind::word_end, .text = json_text(node, "suffix", where)});
  } else {
    throw unsupported(where, "the decoder '" + type + "'");
  }
}

// ["[CLS]", 101]
TokenId pair_id(const json& node, const char* key, const std::string& where, const TokenizerParts& p) {
  const json& pair = json_member(node, key, where);
  if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_number_integer())
    throw user_error("{}: \"{}\" is not a pair of a string and an id", where, key);
  return checked_id(p, pair[1].get<int64_t>(), where);
}

// The ids of {"SpecialToken": {"id": NAME}} in a template.
std::vector<TokenId> template_ids(const json& item, const json& node, const std::string& where,
                                  const TokenizerParts& p) {
  const std::string name = json_text(json_member(item, "SpecialToken", where), "id", where);
  // A name in the table of special tokens stands for the table's ids.
  const json* table = absent(node, "special_tokens") ? nullptr : &node["special_tokens"];
  if (!table || !table->is_object() || !table->contains(name)) return {named_token(p, name, where)};
  const json& ids = json_member((*table)[name], "ids", where);
  if (!ids.is_array() || ids.size() > 64) throw user_error("{}: \"ids\" is not a short list", where);
  std::vector<TokenId> out;
  for (const json& id : ids) {
    if (!id.is_number_integer()) throw user_error("{}: an id is not a number", where);
    out.push_back(checked_id(p, id.get<int64_t>(), where));
  }
  return out;
}

// What a template for two texts puts between them, if it differs from that of one text in nothing else.
void read_pair(const json& node, const std::vector<TokenId>& prefix, const std::vector<TokenId>& suffix,
               const std::string& where, TokenizerParts& p) {
  if (absent(node, "pair") || !node["pair"].is_array() || node["pair"].size() > 64) return;
  std::vector<TokenId> parts[3];  // before, between and behind the texts
  size_t at = 0;
  int64_t first = 0;
  for (const json& item : node["pair"]) {
    if (item.is_object() && item.contains("Sequence")) {
      if (++at > 2) return;
      continue;
    }
    const std::vector<TokenId> ids = template_ids(item, node, where, p);
    parts[at].insert(parts[at].end(), ids.begin(), ids.end());
    const json& type = json_member(json_member(item, "SpecialToken", where), "type_id", where);
    if (at == 1 && type == 0) first += std::ssize(ids);
  }
  if (at != 2 || parts[0] != prefix || parts[2] != suffix) return;
  p.between = parts[1];
  p.between_first = first;
}

void read_post(const json& node, const std::string& where, TokenizerParts& p) {
  if (node.is_null()) return;
  const std::string type = json_text(node, "type", where);
  if (type == "ByteLevel") return;
  std::vector<TokenId> prefix, suffix;
  if (type == "Sequence") {
    for (const json& entry : short_list(node, "processors", where)) read_post(entry, where, p);
    return;
  }
  const bool is_only = p.prefix.empty() && p.suffix.empty();
  p.between.reset();
  if (type == "TemplateProcessing") {
    const json& items = json_member(node, "single", where);
    if (!items.is_array() || items.size() > 64) throw user_error("{}: \"single\" is not a short list", where);
    bool behind = false;
    for (const json& item : items) {
      if (item.is_object() && item.contains("Sequence")) {
        if (behind) throw unsupported(where, "a template with the text twice");
        behind = true;
        continue;
      }
      const std::vector<TokenId> ids = template_ids(item, node, where, p);
      std::vector<TokenId>& to = behind ? suffix : prefix;
      to.insert(to.end(), ids.begin(), ids.end());
    }
    if (!behind) throw unsupported(where, "a template without the text");
    if (is_only) read_pair(node, prefix, suffix, where, p);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    prefix = {pair_id(node, "cls", where, p)};
    suffix = {pair_id(node, "sep", where, p)};
    if (is_only) {
      p.between = std::vector<TokenId>(type == "BertProcessing" ? 1 : 2, suffix[0]);
      p.between_first = std::ssize(*p.between);
    }
  } else {
    throw unsupported(where, "the post-processor '" + type + "'");
  }
  // A further template wraps the result of the previous one.
  p.prefix.insert(p.prefix.begin(), prefix.begin(), prefix.end());
  p.suffix.insert(p.suffix.end(), suffix.begin(), suffix.end());
  if (p.prefix.size() + p.suffix.size() > 256) throw user_error("{}: too many special tokens", where);
}

// tokenizer_config.json gives BOS and EOS as strings, or as objects with "content".
std::optional<TokenId> config_token(const json& config, const char* key, const std::string& where,
                                    const TokenizerParts& p) {
  if (absent(config, key)) return std::nullopt;
  const json& value = config[key];
  return named_token(p, value.is_object() ? json_text(value, "content", where) : json_text(config, key, where), where);
}

}  // namespace

void read_normalizer_stage(const json& node, const std::string& where, TokenizerParts& p) {
  std::vector<NormalStep> steps;
  read_normal(node, where, steps);
  p.normalizer = Normalizer(std::move(steps));
  p.normalizer_json = node;
}

void read_split_stage(const json& node, const std::string& where, bool bytes_allowed, TokenizerParts& p,
                      bool* byte_level) {
  using Kind = SplitStep::Kind;
  std::vector<SplitStep> steps;
  read_split(node, where, steps);
  const auto levels =
      std::count_if(steps.begin(), steps.end(), [](const SplitStep& s) { return s.kind == Kind::alphabet; });
  *byte_level = bytes_allowed && levels == 1 && steps.back().kind == Kind::alphabet;
  if (*byte_level) steps.pop_back();
  p.splitter = Splitter(std::move(steps), where);
  p.split_json = node;
}

void read_decoder_stage(const json& node, const std::string& where, TokenizerParts& p) {
  p.decoder_json = node;
  p.decoder = Decoder();
  if (node.is_null()) return;
  std::vector<DecodeStep> steps;
  read_decode(node, where, steps);
  p.decoder = Decoder(std::move(steps));
}

void read_post_stage(const json& node, const std::string& where, TokenizerParts& p) {
  read_post(node, where, p);
  p.post_json = node;
}

void read_tokenizer_config(std::string_view text, const std::string& where, TokenizerParts& p) {
  const json config = parse_json(text, where);
  if (!config.is_object()) throw user_error("{}: expected a JSON object", where);
  const auto bos = config_token(config, "bos_token", where, p), eos = config_token(config, "eos_token", where, p);
  if (bos) p.bos = bos;
  if (eos) p.eos = eos;
  const auto adds = [&](const char* key, std::optional<TokenId> id, std::vector<TokenId>& to) {
    if (absent(config, key)) return;
    const bool wanted = json_boolean(config, key, false, where);
    if (wanted && id && to.empty()) to = {*id};
  };
  adds("add_bos_token", p.bos, p.prefix);
  adds("add_eos_token", p.eos, p.suffix);
  const auto chat = config.find("chat_template");
  if (chat == config.end() || chat->is_null()) return;
  if (chat->is_string()) p.chat_template = chat->get<std::string>();
  if (!chat->is_array()) return;
  for (const json& entry : *chat) {
    if (json_text(entry, "name", where) == "default") p.chat_template = json_text(entry, "template", where);
  }
}

constexpr int64_t kManySpaces = 1 << 20;

void space_stages(const SpaceOptions& spaces, TokenizerParts& p, const std::string& where) {
  json steps = json::array();
  if (!spaces.character_map.empty())
    steps.push_back({{"type", "Precompiled"},
                     {"precompiled_charsmap", encode_base64(spaces.character_map)},
                     {"longest_prefix", true}});
  const auto replace = [&](const char* kind, const char* pattern, const char* by) {
    steps.push_back({{"type", "Replace"}, {"pattern", {{kind, pattern}}}, {"content", by}});
  };
  if (spaces.remove_extra) {
    replace("Regex", " {2,}", " ");
    replace("Regex", "\\A +", "");
  }
  const char* space = spaces.escape ? "\xe2\x96\x81" : " ";
  if (spaces.dummy_prefix) steps.push_back({{"type", "Prepend"}, {"prepend", space}});
  if (spaces.escape) replace("String", " ", space);
  if (spaces.remove_extra) replace("Regex", fmt::format("({})+\\z", space).c_str(), "");
  read_normalizer_stage(steps.empty() ? json() : json{{"type", "Sequence"}, {"normalizers", steps}}, where, p);
  p.splitter = Splitter();
  p.split_json = nullptr;
  json decoders = json::array();
  if (spaces.escape)
    decoders.push_back({{"type", "Replace"}, {"pattern", {{"String", "\xe2\x96\x81"}}}, {"content", " "}});
  decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  // A normalizer that strips leading spaces is matched by a decoder that strips any number of them.
  if (spaces.dummy_prefix || spaces.remove_extra) {
    decoders.push_back(
        {{"type", "Strip"}, {"content", " "}, {"start", spaces.remove_extra ? kManySpaces : 1}, {"stop", 0}});
  }
  read_decoder_stage({{"type", "Sequence"}, {"decoders", decoders}}, where, p);
}

void word_piece_stages(const WordPieceOptions& options, TokenizerParts& p, const std::string& where) {
  read_normalizer_stage({{"type", "BertNormalizer"},
                         {"clean_text", true},
                         {"handle_chinese_chars", true},
                         {"strip_accents", options.strip_accents},
                         {"lowercase", options.lowercase}},
                        where, p);
  bool byte_level = false;
  read_split_stage({{"type", "BertPreTokenizer"}}, where, false, p, &byte_level);
  read_decoder_stage({{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}, where, p);
}

}  // namespace lumen::model::text
