// Loads tokenizers from files and folders in any supported form.
#include "base/error.h"
#include "base/file/file.h"
#include "base/file/folder.h"
#include "model/file/gguf.h"
#include "model/text/tokenizer/file/ranks.h"
#include "model/text/tokenizer/tokenizer_parts.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::text {
namespace {

constexpr uint64_t kLimit = uint64_t{1} << 30;

std::string read_if_there(const std::filesystem::path& path) {
  return std::filesystem::exists(path) ? read_file(path, kLimit) : std::string();
}

// vocab.json and merges.txt, the older file pair of byte-level BPE, as one tokenizer.json.
std::string join_pair(const std::filesystem::path& folder) {
  using nlohmann::ordered_json;
  const std::string where = (folder / "merges.txt").string(), text = read_file(folder / "merges.txt", kLimit);
  ordered_json merges = ordered_json::array();
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty() && !(at == 0 && line.starts_with("#version"))) merges.push_back(line);
    at = end + 1;
  }
  const ordered_json level = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  ordered_json root = {
      {"pre_tokenizer", level},
      {"decoder", level},
      {"model",
       {{"type", "BPE"},
        {"merges", merges},
        {"vocab", parse_json(read_file(folder / "vocab.json", kLimit), (folder / "vocab.json").string())}}}};
  // Tokens after the vocabulary, and special tokens in it, are listed in tokenizer_config.json.
  const std::string config_text = read_if_there(folder / "tokenizer_config.json");
  ordered_json added = ordered_json::array();
  if (!config_text.empty()) {
    const auto config = parse_json(config_text, (folder / "tokenizer_config.json").string());
    const auto list = config.find("added_tokens_decoder");
    if (list != config.end() && list->is_object()) {
      for (const auto& [id, entry] : list->items()) {
        if (!entry.is_object()) throw user_error("{}: added token {} is not an object", where, id);
        ordered_json token = entry;
        token["id"] = std::strtoll(id.c_str(), nullptr, 10);
        added.push_back(token);
      }
    }
  }
  root["added_tokens"] = added;
  return root.dump();
}

// vocab.txt, the older file of WordPiece vocabularies, as a tokenizer.json: one token per line, the line number is the
// id. Normalizer settings and special tokens come from tokenizer_config.json, or are the defaults.
std::string join_words(const std::filesystem::path& folder, const std::string& config_text) {
  using nlohmann::ordered_json;
  const std::string where = (folder / "tokenizer_config.json").string(), text = read_file(folder / "vocab.txt", kLimit);
  const nlohmann::json config = config_text.empty() ? nlohmann::json::object() : parse_json(config_text, where);
  if (!config.is_object()) throw user_error("{}: expected a JSON object", where);
  if (utf8_valid_run(text, 0) != text.size()) throw user_error("{}: not valid UTF-8", (folder / "vocab.txt").string());
  ordered_json vocabulary = ordered_json::object();
  int64_t id = 0;
  for (size_t at = 0; at < text.size(); ++id) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) vocabulary[line] = id;
    at = end + 1;
  }
  if (!json_boolean(config, "do_basic_tokenize", true, where))
    throw user_error("{}: \"do_basic_tokenize\" is false, which is not supported", where);
  if (const auto never = config.find("never_split"); never != config.end() && !never->is_null() && !never->empty())
    throw user_error("{}: \"never_split\" is not supported", where);
  ordered_json added = ordered_json::array();
  const auto special = [&](const char* key, const char* usual) {
    std::string name = usual;
    if (const auto own = config.find(key); own != config.end() && !own->is_null())
      name = own->is_object() ? json_text(*own, "content", where) : json_text(config, key, where);
    const auto found = vocabulary.find(name);
    if (found != vocabulary.end()) added.push_back({{"id", *found}, {"content", name}, {"special", true}});
    return std::pair(name, found == vocabulary.end() ? ordered_json() : *found);
  };
  const auto unknown = special("unk_token", "[UNK]"), front = special("cls_token", "[CLS]"),
             end = special("sep_token", "[SEP]");
  special("pad_token", "[PAD]");
  special("mask_token", "[MASK]");
  const auto accents = config.find("strip_accents");
  ordered_json root = {{"added_tokens", added},
                       {"normalizer",
                        {{"type", "BertNormalizer"},
                         {"clean_text", true},
                         {"handle_chinese_chars", json_boolean(config, "tokenize_chinese_chars", true, where)},
                         {"strip_accents", accents == config.end() ? ordered_json() : ordered_json(*accents)},
                         {"lowercase", json_boolean(config, "do_lower_case", true, where)}}},
                       {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
                       {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
                       {"model",
                        {{"type", "WordPiece"},
                         {"unk_token", unknown.first},
                         {"continuing_subword_prefix", "##"},
                         {"max_input_chars_per_word", 100},
                         {"vocab", vocabulary}}}};
  if (!front.second.is_null() && !end.second.is_null())
    root["post_processor"] = {
        {"type", "BertProcessing"}, {"sep", {end.first, end.second}}, {"cls", {front.first, front.second}}};
  return root.dump();
}

// A SentencePiece or tiktoken file: both are called tokenizer.model.
Tokenizer load_model_file(const std::filesystem::path& path, std::string_view text, std::string_view config) {
  if (is_ranks(text)) return Tokenizer::from_json(ranks_as_json(text, path, config), path.string(), config);
  return Tokenizer::from_sentencepiece(text, path.string(), config);
}

// The tiktoken file of a folder, apart from tokenizer.model.
std::filesystem::path ranks_file(const std::filesystem::path& folder) {
  std::filesystem::path found;
  std::error_code failure;
  for (const std::filesystem::path& path : list_folder(folder, failure)) {
    if (path.extension() != ".tiktoken" && path.filename() != "tiktoken.model") continue;
    if (!found.empty()) throw user_error("'{}' has several tiktoken files", folder.string());
    found = path;
  }
  return found;
}

Tokenizer load_folder(const std::filesystem::path& path) {
  const std::string config = read_if_there(path / "tokenizer_config.json");
  const auto json = path / "tokenizer.json", pieces = path / "tokenizer.model";
  if (std::filesystem::exists(json)) return Tokenizer::from_json(read_file(json, kLimit), json.string(), config);
  if (std::filesystem::exists(pieces)) return load_model_file(pieces, read_file(pieces, kLimit), config);
  if (const auto ranks = ranks_file(path); !ranks.empty())
    return load_model_file(ranks, read_file(ranks, kLimit), config);
  if (std::filesystem::exists(path / "vocab.json") && std::filesystem::exists(path / "merges.txt"))
    return Tokenizer::from_json(join_pair(path), (path / "vocab.json").string(), config);
  if (std::filesystem::exists(path / "vocab.txt"))
    return Tokenizer::from_json(join_words(path, config), (path / "vocab.txt").string(), config);
  throw Error(Exit::user, fmt::format("'{}' has no tokenizer", path.string()),
              "tokenizer.json, tokenizer.model, *.tiktoken, vocab.json with merges.txt, or vocab.txt is needed");
}

}  // namespace

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) {
    const Tokenizer out = load_folder(path);
    const std::string chat = read_if_there(path / "chat_template.jinja");
    return chat.empty() ? out : out.with_chat_template(chat);
  }
  const MappedFile file(path);
  const auto bytes = file.bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("GGUF")) return from_gguf(file::read_gguf_metadata(bytes, path.string()));
  if (text.size() > kLimit) throw user_error("'{}' is too large for a tokenizer", path.string());
  // A SentencePiece file begins with the tag of its first piece, a byte that is a newline in JSON.
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (text.starts_with('\n') && (first == std::string_view::npos || text[first] != '{'))
    return from_sentencepiece(text, path.string());
  if (is_ranks(text)) return load_model_file(path, text, read_if_there(path.parent_path() / "tokenizer_config.json"));
  return from_json(text, path.string());
}

}  // namespace lumen::model::text
