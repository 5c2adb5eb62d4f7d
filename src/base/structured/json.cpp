#include "base/structured/json.h"

#include <type_traits>
#include <vector>

#include "base/check.h"
#include "base/error.h"

namespace lumen::model {

using nlohmann::json;

namespace {

// An object that keeps the order of its members finds one by looking at all of them.
constexpr size_t kMostOrderedMembers = 1024;

// Builds the value as it is read, in time linear in the text: the library's own parser with a callback looks through
// all members of an object or list again whenever one of them ends.
template <class Json>
class Reader : public nlohmann::json_sax<Json> {
 public:
  using typename nlohmann::json_sax<Json>::number_integer_t;
  using typename nlohmann::json_sax<Json>::number_unsigned_t;
  using typename nlohmann::json_sax<Json>::number_float_t;
  using typename nlohmann::json_sax<Json>::string_t;
  using typename nlohmann::json_sax<Json>::binary_t;

  Reader(const std::string& name, int max_depth) : name_(name), max_depth_(max_depth) {}

  Json take() { return std::move(root_); }

  bool null() override { return put(Json()); }
  bool boolean(bool value) override { return put(Json(value)); }
  bool number_integer(number_integer_t value) override { return put(Json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return put(Json(value)); }
  bool number_float(number_float_t value, const string_t&) override { return put(Json(value)); }
  bool string(string_t& value) override { return put(Json(std::move(value))); }
  bool binary(binary_t&) override { LUMEN_UNREACHABLE("a text has no binary values"); }
  bool start_object(size_t) override { return open(Json::object()); }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    auto& members = stack_.back()->template get_ref<typename Json::object_t&>();
    const size_t before = members.size();
    if constexpr (std::is_same_v<Json, json>) {
      // Files are written in their own order, which mostly is the order of keys: then the place is known.
      member_ = &members.emplace_hint(members.end(), std::move(value), nullptr)->second;
    } else {
      if (before == kMostOrderedMembers)
        throw user_error("{}: a JSON object with more than {} members", name_, kMostOrderedMembers);
      member_ = &members.emplace(std::move(value), nullptr).first->second;
    }
    if (members.size() == before) throw user_error("{}: a JSON object has the same key twice", name_);
    return true;
  }
  bool parse_error(size_t byte, const std::string&, const typename Json::exception& error) override {
    throw user_error("{}: byte {}: not valid JSON: {}", name_, byte, error.what());
  }

 private:
  Json* place(Json&& value) {
    if (stack_.empty()) return &(root_ = std::move(value));
    if (stack_.back()->is_object()) return &(*member_ = std::move(value));
    auto& list = stack_.back()->template get_ref<typename Json::array_t&>();
    list.push_back(std::move(value));
    return &list.back();
  }
  bool put(Json&& value) {
    place(std::move(value));
    return true;
  }
  bool open(Json&& value) {
    if (static_cast<int>(stack_.size()) >= max_depth_)
      throw user_error("{}: JSON nested deeper than {} levels", name_, max_depth_);
    stack_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  const std::string& name_;
  int max_depth_;
  Json root_;
  std::vector<Json*> stack_;  // open objects and lists; a list grows only while it is the last
  Json* member_ = nullptr;    // of the last object, for the value behind its key
};

template <class Json>
Json parse(std::string_view text, const std::string& name, int max_depth) {
  Reader<Json> reader(name, max_depth);
  try {
    Json::sax_parse(text.begin(), text.end(), &reader);
  } catch (const typename Json::exception& error) {
    throw user_error("{}: not valid JSON: {}", name, error.what());
  }
  return reader.take();
}

}  // namespace

json parse_json(std::string_view text, const std::string& name, int max_depth) {
  return parse<json>(text, name, max_depth);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& name, int max_depth) {
  return parse<nlohmann::ordered_json>(text, name, max_depth);
}

const json& json_member(const json& object, const char* key, const std::string& where) {
  if (!object.is_object()) throw user_error("{}: expected a JSON object", where);
  const auto at = object.find(key);
  if (at == object.end()) throw user_error("{}: \"{}\" is missing", where, key);
  return *at;
}

std::string json_text(const json& object, const char* key, const std::string& where) {
  const json& value = json_member(object, key, where);
  if (!value.is_string()) throw user_error("{}: \"{}\" is no string", where, key);
  return value.get<std::string>();
}

int64_t json_integer(const json& object, const char* key, const std::string& where) {
  const json& value = json_member(object, key, where);
  if (value.is_number_unsigned() ? value.get<uint64_t>() > INT64_MAX : !value.is_number_integer())
    throw user_error("{}: \"{}\" is no whole number", where, key);
  return value.get<int64_t>();
}

bool json_boolean(const json& object, const char* key, bool fallback, const std::string& where) {
  const auto at = object.find(key);
  if (at == object.end() || at->is_null()) return fallback;
  if (!at->is_boolean()) throw user_error("{}: \"{}\" is neither true nor false", where, key);
  return at->get<bool>();
}

std::string json_print(const json& value, const std::string& where, int indent) {
  try {
    return value.dump(indent);
  } catch (const json::exception&) {
    throw user_error("{}: a text in it is not valid UTF-8", where);
  }
}

}  // namespace lumen::model
