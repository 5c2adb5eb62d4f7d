// needs: none. models/adapters.toml against what peft knows (fixtures/adapter_keys.json, made by adapter_table.py):
// every kind of adapter and every key has its place there, once, and a reason where it is not read.
#include "model/arch/adapter/adapter_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file/file.h"
#include "base/structured/json.h"
#include "tests/model/families/family_case.h"

namespace lumen::model::arch {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

const json& known_kinds() {
  static const json all = parse_json(read_file(kFixtures / "adapter_keys.json"), "adapter_keys.json").at("kinds");
  return all;
}

std::string message_of(const ordered_json& config) {
  try {
    (void)check_adapter_keys(config, "adapter_config.json");
  } catch (const Error& e) {
    return std::string(e.what()) + " | " + e.hint();
  }
  return "no error";
}

TEST(AdapterKeys, EveryKindIsReadOrRefused) {
  for (const auto& [kind, keys] : known_kinds().items()) {
    const auto is_kind = [&, name = kind](const AdapterKeys::Kind& k) { return k.name == name; };
    const auto has = [&, name = kind](const AdapterKeys::Rule& rule) { return std::ranges::count(rule.keys, name); };
    int64_t places = std::ranges::count_if(adapter_keys().kinds, is_kind);
    for (const AdapterKeys::Rule& rule : adapter_keys().other) places += has(rule);
    EXPECT_EQ(places, 1) << kind;
    if (std::ranges::any_of(adapter_keys().kinds, is_kind)) {
      EXPECT_EQ(message_of({{"peft_type", kind}}), "no error");
      continue;
    }
    const std::string message = message_of({{"peft_type", kind}});
    EXPECT_NE(message.find("\"" + kind + "\" is not supported: "), std::string::npos) << message;
    EXPECT_GT(message.size() - message.find(" | "), 20U) << "no word on what to do: " << message;
  }
}

TEST(AdapterKeys, EveryKeyOfAKindIsReadUnreadOrRefused) {
  for (const AdapterKeys::Kind& kind : adapter_keys().kinds) {
    std::multiset<std::string> listed(kind.read.begin(), kind.read.end());
    for (const AdapterKeys::Values& v : kind.values) listed.insert(v.key);
    for (const auto* rules : {&kind.unread, &kind.refused}) {
      for (const AdapterKeys::Rule& rule : *rules) {
        EXPECT_FALSE(rule.because.empty()) << kind.name;
        EXPECT_EQ(rule.instead.empty(), rules == &kind.unread) << kind.name << ": " << rule.because;
        listed.insert(rule.keys.begin(), rule.keys.end());
      }
    }
    for (const std::string& key : listed) EXPECT_EQ(listed.count(key), 1U) << kind.name << "." << key;
    for (const json& key : known_kinds().at(kind.name))
      EXPECT_EQ(listed.count(key.get<std::string>()), 1U) << kind.name << "." << key;
  }
}

TEST(AdapterKeys, WhatIsRefusedIsNamed) {
  const auto refused = [&](const std::string& key, const ordered_json& value, const std::string& words) {
    const std::string message = message_of({{"peft_type", "LORA"}, {key, value}});
    EXPECT_NE(message.find("\"" + key + "\" is " + value.dump()), std::string::npos) << message;
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  for (const AdapterKeys::Rule& rule : adapter_keys().kinds.front().refused)
    for (const std::string& key : rule.keys) refused(key, ordered_json::array({1, 2}), rule.instead);
  refused("key_of_tomorrow", 3, "the effect of the key is unknown");
  refused("init_lora_weights", "pissa_niter_4", "may have changed the base model");
  refused("bias", "some", "which biases");
  // What says nothing is no refusal.
  for (const ordered_json& nothing : {ordered_json(), ordered_json(false), ordered_json(""), ordered_json::array()})
    EXPECT_EQ(message_of({{"peft_type", "LORA"}, {"use_bdlora", nothing}, {"key_of_tomorrow", nothing}}), "no error");
  EXPECT_NE(message_of({{"r", 2}}).find("\"peft_type\" is missing"), std::string::npos);
  EXPECT_NE(message_of({{"peft_type", 7}}).find("\"peft_type\" is missing"), std::string::npos);
  EXPECT_NE(message_of({{"peft_type", "NEWEST"}}).find("peft_type \"NEWEST\" is not supported"), std::string::npos);
  EXPECT_NE(message_of(ordered_json::array()).find("not a JSON object"), std::string::npos);
}

TEST(AdapterKeys, OfGgufFiles) {
  const auto verdict = [](const std::string& key) { return adapter_keys().gguf.use_of(key).verdict; };
  EXPECT_EQ(verdict("adapter.lora.alpha"), AdapterKeys::Verdict::read);
  EXPECT_EQ(verdict("adapter.lora.prompt_prefix"), AdapterKeys::Verdict::unread);
  EXPECT_EQ(verdict("general.name"), AdapterKeys::Verdict::unread);
  EXPECT_EQ(verdict("llama.context_length"), AdapterKeys::Verdict::unread);
  EXPECT_EQ(verdict("adapter.alora.invocation_tokens"), AdapterKeys::Verdict::refused);
  file::GgufMetadata metadata;
  metadata.set("adapter.type", std::string("lora"));
  EXPECT_NO_THROW(check_adapter_keys(metadata, "a.gguf"));
  metadata.set("adapter.lora.scale_by_layer", 1.0F);
  EXPECT_THROW(check_adapter_keys(metadata, "a.gguf"), Error);
}

}  // namespace
}  // namespace lumen::model::arch
