// needs: none. What families say about keys of config.json, held against what transformers' configuration classes know
// (fixtures/config_keys.json, made by config_table.py): every key is described, unread for a reason, or refused; what
// is absent or null means what the class says; what we write has the names and types it asks for.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file/file.h"
#include "base/structured/json.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/family/config_file.h"
#include "model/arch/family/config_rules.h"
#include "tests/model/families/family_case.h"

namespace lumen::model::arch {
namespace {

using nlohmann::json;

const json& table() {
  static const json all = parse_json(read_file(kFixtures / "config_keys.json"), "config_keys.json").at("families");
  return all;
}

std::vector<std::string> families() {
  // Families of which there is no config.json have nothing to hold.
  std::vector<std::string> names = test_library()->family_names();
  std::erase_if(names,
                [](const std::string& name) { return test_library()->family(name)->hf_architectures().empty(); });
  return names;
}

json overlaid(json usual, const json& differs) {
  for (const auto& [key, value] : differs.items()) usual[key] = value;
  return usual;
}

std::vector<std::string> names_read(const Family& family) {
  std::vector<std::string> names;
  for (const ConfigKey& key : family.keys()) {
    names.insert(names.end(), key.hf.begin(), key.hf.end());
    for (const std::string& other : {key.hf_members, key.hf_each})
      if (!other.empty()) names.push_back(other);
  }
  return names;
}

// One is the other, or an object that holds it.
bool related(const std::string& a, const std::string& b) {
  return a == b || a.starts_with(b + ".") || b.starts_with(a + ".");
}

std::string refusal(const Family& family, const json& config) {
  try {
    read_hf_config(family, config, "config.json");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// What every file of a family says that reads only some of its class's files (hf_if).
json base_of(const Family& family) {
  // Without a pattern the class has layers with experts, which this family refuses.
  json base = family.name() == "nemotron_h" ? json{{"hybrid_override_pattern", "M*-M"}} : json::object();
  for (const lang::Attribute& a : family.declaration().attributes)
    if (a.name == "hf_if") base[a.values.at(0)->text] = family.name() == "granite_h_moe" ? json(8) : json(true);
  return base;
}

class ConfigKeys : public testing::TestWithParam<std::string> {
 protected:
  FamilyRef family() const { return test_library()->family(GetParam()); }
  const json& entry() const { return table().at(GetParam()); }
};

TEST_P(ConfigKeys, AreInTheTable) {
  ASSERT_TRUE(table().contains(GetParam()))
      << "run tests/model/arch/keys/config_table.py tests/model/fixtures/config_keys.json";
}

TEST_P(ConfigKeys, AreDescribedUnreadOrRefused) {
  const FamilyRef f = family();
  const ConfigRules rules(*f);
  const std::vector<std::string> read = names_read(*f);
  for (const auto& [key, types] : entry().at("keys").items()) {
    const auto is_key = [&, k = key](const std::string& name) { return related(name, k); };
    const auto has = [&, k = key](const std::vector<ConfigRules::Rule>& list) {
      return std::any_of(list.begin(), list.end(),
                         [&](const auto& rule) { return rule.key == k || k.starts_with(rule.key + "."); });
    };
    const bool is_read = std::any_of(read.begin(), read.end(), is_key);
    EXPECT_TRUE(is_read || has(rules.unread()) || has(rules.refused()))
        << "config.json may hold \"" << key << "\"; the family neither reads it, nor calls it unread, nor refuses it";
    EXPECT_FALSE(is_read && has(rules.unread())) << key << " is both read and unread";
  }
}

TEST_P(ConfigKeys, AbsenceAndNullMeanWhatTheClassSays) {
  const FamilyRef f = family();
  for (const json& one : entry().at("cases")) {
    const json always = f->name() == "nemotron_h" ? json::object() : base_of(*f);
    const json says = overlaid(one.at(0), always), means = overlaid(overlaid(entry().at("usual"), one.at(1)), always);
    graph::Config wanted, got;
    try {
      wanted = read_hf_config(*f, means, "config.json");
    } catch (const Error& e) {
      // What the family does not describe it must refuse in either spelling.
      EXPECT_NE(refusal(*f, says), "") << says.dump() << " though: " << e.what();
      continue;
    }
    try {
      got = read_hf_config(*f, says, "config.json");
    } catch (const Error& e) {
      ADD_FAILURE() << says.dump() << ": " << e.what();
      continue;
    }
    for (const ConfigKey& key : f->keys()) {
      // Some keys only say what others are by default, and the class does not keep them.
      const bool kept = key.hf.empty() || std::any_of(key.hf.begin(), key.hf.end(), [&](const auto& name) {
                          return find_path(means, name) != nullptr;
                        });
      if (!f->is_used(key, wanted, false) || !kept) continue;
      for (const std::string& name : key.entries(wanted))
        if (!got.contains(name) || got.at(name) != wanted.at(name))
          ADD_FAILURE() << says.dump() << ": " << name << " is " << (got.contains(name) ? got.at(name) : NAN)
                        << ", but the class says " << wanted.at(name);
    }
  }
}

TEST_P(ConfigKeys, RefusedOnesAreNamed) {
  const FamilyRef f = family();
  const ConfigRules rules(*f);
  const json base = base_of(*f);
  const auto with = [&](const std::string& path, const json& value) {
    const size_t dot = path.find('.');
    json out = base;
    (dot == std::string::npos ? out[path] : out[path.substr(0, dot)][path.substr(dot + 1)]) = value;
    return out;
  };
  for (const ConfigRules::Rule& rule : rules.refused()) {
    EXPECT_FALSE(rule.because.empty()) << rule.key;
    const std::string message = refusal(*f, with(rule.key, {{"a", 1}}));
    EXPECT_NE(message.find("\"" + rule.key + "\""), std::string::npos) << rule.key << ": " << message;
    EXPECT_NE(message.find("config.json"), std::string::npos) << message;
    for (const json& nothing : {json(nullptr), json(false), json::object(), json("")})
      EXPECT_EQ(refusal(*f, with(rule.key, nothing)), "") << rule.key;
  }
  const graph::Config usual = read_hf_config(*f, base, "config.json");
  for (const ConfigKey& key : f->keys()) {
    if (!rules.is_fixed(key.name)) continue;
    for (const std::string& name : key.hf) {
      const double own = usual.at(key.name), other = own == 0 ? 1 : own / 2;
      const std::string message = refusal(*f, with(name, key.is_bool ? json(own == 0) : json(other)));
      EXPECT_NE(message.find("\"" + name + "\""), std::string::npos) << name << ": " << message;
    }
  }
}

// The type of a value as the table calls it.
std::string type_of(const json& value) {
  if (value.is_boolean()) return "bool";
  if (value.is_number_integer()) return "int";
  if (value.is_number()) return "float";
  if (value.is_string()) return "str";
  if (value.is_array()) return "list";
  return value.is_null() ? "null" : "dict";
}

void check_written(const json& keys, const json& written, const std::string& inside) {
  for (const auto& [name, value] : written.items()) {
    const std::string key = inside + name;
    if (key == "lumen_config") continue;
    if (value.is_object() && !inside.empty()) {
      check_written(keys, value, key + ".");
      continue;
    }
    if (!keys.contains(key)) {
      ADD_FAILURE() << "we write \"" << key << "\", which the class does not know";
      continue;
    }
    const json& types = keys.at(key);
    const std::string type = type_of(value);
    EXPECT_TRUE(types.empty() || std::find(types.begin(), types.end(), type) != types.end())
        << "we write \"" << key << "\" as " << value.dump() << ", but it must be " << types.dump();
    if (value.is_object() && key.starts_with("rope_parameters")) check_written(keys, value, key + ".");
  }
}

// As a GGUF file's config is written, which says nothing in config.json's words.
class ConfigKeysWritten : public testing::TestWithParam<std::string> {};

TEST_P(ConfigKeysWritten, HaveTheNamesAndTypesOfTheClass) {
  const Model m = read_hf(test_library(), kFamilies / GetParam());
  json written = json::object();
  write_hf_config(*m.family, m.config, written);
  check_written(table().at(m.family->name()).at("keys"), written, "");
  EXPECT_EQ(read_hf_config(*m.family, written, "config.json"), m.config);
}

// A family of a user's: what its text says of config.json.
FamilyRef of_text(const std::string& header, const std::string& keys) {
  const auto library = Library::builtin();
  library->add_model_text(std::make_shared<Source>(Source{
      "drifting.lum", "model drifting(cfg) : hf \"DriftingForCausalLM\"" + header +
                          " {\n  config {\n    layers : i32 = 2, hf \"num_hidden_layers\"\n" + keys +
                          "  }\n  size \"config.json\" { layers = 3 }\n  size drifting-tiny { layers = 1 }\n}\n"}));
  return library->family("drifting");
}

TEST(ConfigRules, OfAText) {
  const FamilyRef f = of_text(
      ", refused \"odd\" because \"it is odd\", hides \"new\" \"old\"",
      "    window : i32 = 7, hf \"window\" \"old\", hf_null 0\n    both : bool = 0, hf \"both\", fixed\n"
      "    kinds : bool[cfg.layers] = 0, hf \"kinds\"\n"
      "    wrong : bool[cfg.layers] = cfg.kinds[i] and cfg.window == 0, never \"kinds\" because \"no window\"\n");
  EXPECT_EQ(f->sizes(), std::vector<std::string>{"drifting-tiny"});
  const auto read = [&](const json& config) { return read_hf_config(*f, config, "config.json"); };
  EXPECT_EQ(read(json::object()).at("layers"), 3);
  EXPECT_EQ(read(json::object()).at("window"), 7);
  EXPECT_EQ(read({{"window", nullptr}}).at("window"), 0);
  EXPECT_EQ(read({{"old", 5}}).at("window"), 5);
  EXPECT_EQ(read({{"old", 5}, {"new", 1}}).at("window"), 7);
  EXPECT_EQ(read({{"both", false}}).at("both"), 0);
  EXPECT_NE(refusal(*f, {{"both", true}}).find("config.json: \"both\" is true"), std::string::npos);
  EXPECT_NE(refusal(*f, {{"odd", {1}}}).find("config.json: \"odd\" is [1]"), std::string::npos);
  EXPECT_NE(refusal(*f, {{"kinds", {true, false}}}).find("\"kinds\" has 2 elements, but this model needs 3"),
            std::string::npos);
  EXPECT_EQ(refusal(*f, {{"kinds", {true, false, true}}}), "");
  EXPECT_NE(refusal(*f, {{"kinds", {true, false, true}}, {"window", 0}}).find("\"kinds\""), std::string::npos);
  // Null is written where nothing would be read as something else.
  json written = json::object();
  EXPECT_TRUE(write_hf_config(*f, read({{"window", nullptr}}), written).empty());
  EXPECT_TRUE(written.at("window").is_null()) << written.dump();
}

TEST(ConfigRules, NeedReasons) {
  for (const char* header : {", unread \"a\"", ", refused \"a\" because", ", unread because \"b\"", ", hides \"a\"",
                             ", unread \"a\" 3 because \"b\""})
    EXPECT_THROW(ConfigRules(*of_text(header, "")), Error) << header;
  EXPECT_THROW(ConfigRules(*of_text("", "    a : i32 = 0, hf_null\n")), Error);
  EXPECT_THROW(ConfigRules(*of_text("", "    a : bool = 0, never \"a\"\n")), Error);
}

INSTANTIATE_TEST_SUITE_P(All, ConfigKeys, testing::ValuesIn(families()), [](const auto& i) { return i.param; });
INSTANTIATE_TEST_SUITE_P(All, ConfigKeysWritten, testing::ValuesIn(names_in(kFamilies)),
                         [](const auto& i) { return i.param; });

}  // namespace
}  // namespace lumen::model::arch
